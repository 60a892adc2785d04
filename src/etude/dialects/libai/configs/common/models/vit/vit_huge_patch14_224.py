"""Model of LiBai's common configs: ``vit_huge_patch14_224``."""

from etude.dialects.libai.lazy.call import LazyCall

cfg = {
    "img_size": 224,
    "patch_size": 16,
    "in_chans": 3,
    "embed_dim": 1280,
    "depth": 32,
    "num_heads": 16,
    "mlp_ratio": 4.0,
    "drop_rate": 0.0,
    "attn_drop_rate": 0.0,
    "drop_path_rate": 0.0,
    "num_classes": 1000,
    "loss_func": None,
}
model = LazyCall("libai.models.VisionTransformer")(cfg=cfg)
