"""Model of LiBai's common configs: ``resmlp_24``."""

from etude.dialects.libai.lazy.call import LazyCall

cfg = {
    "img_size": 224,
    "patch_size": 16,
    "in_chans": 3,
    "embed_dim": 384,
    "depth": 24,
    "drop_rate": 0.0,
    "drop_path_rate": 0.05,
    "init_scale": 1e-05,
    "num_classes": 1000,
    "loss_func": None,
}
model = LazyCall("libai.models.ResMLP")(cfg=cfg)
