"""Model of LiBai's common configs: ``swin_tiny_c24_patch4_window8_256``."""

from etude.dialects.libai.lazy.call import LazyCall

cfg = {
    "img_size": 256,
    "patch_size": 4,
    "in_chans": 3,
    "num_classes": 1000,
    "embed_dim": 96,
    "depths": [2, 2, 6, 2],
    "num_heads": [4, 8, 16, 32],
    "window_size": 8,
    "mlp_ratio": 4.0,
    "qkv_bias": True,
    "qk_scale": None,
    "drop_rate": 0.0,
    "drop_path_rate": 0.2,
    "ape": False,
    "patch_norm": True,
    "loss_func": None,
}
model = LazyCall("libai.models.SwinTransformer")(cfg=cfg)
