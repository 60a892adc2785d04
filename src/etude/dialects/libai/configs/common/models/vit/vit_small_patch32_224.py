"""Model of LiBai's common configs: ``vit_small_patch32_224``."""

from etude.dialects.libai.lazy.call import LazyCall

cfg = {
    "img_size": 224,
    "patch_size": 32,
    "in_chans": 3,
    "embed_dim": 384,
    "depth": 12,
    "num_heads": 6,
    "mlp_ratio": 4.0,
    "drop_rate": 0.0,
    "attn_drop_rate": 0.0,
    "drop_path_rate": 0.0,
    "num_classes": 1000,
    "loss_func": None,
}
model = LazyCall("libai.models.VisionTransformer")(cfg=cfg)
