"""Model of LiBai's common configs: ``vit_gigantic_patch14_224``."""

from etude.dialects.libai.lazy.call import LazyCall

cfg = {
    "img_size": 224,
    "patch_size": 14,
    "in_chans": 3,
    "embed_dim": 1664,
    "depth": 48,
    "num_heads": 16,
    "mlp_ratio": 4.923076923076923,
    "drop_rate": 0.0,
    "attn_drop_rate": 0.0,
    "drop_path_rate": 0.0,
    "num_classes": 1000,
    "loss_func": None,
}
model = LazyCall("libai.models.VisionTransformer")(cfg=cfg)
