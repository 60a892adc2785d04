"""Model of LiBai's common configs: ``swinv2_small_patch4_window8_256``."""

from etude.dialects.libai.lazy.call import LazyCall

cfg = {
    "img_size": 256,
    "patch_size": 4,
    "in_chans": 3,
    "num_classes": 1000,
    "embed_dim": 96,
    "depths": [2, 2, 18, 2],
    "num_heads": [3, 6, 12, 24],
    "window_size": 8,
    "mlp_ratio": 4.0,
    "qkv_bias": True,
    "drop_rate": 0.0,
    "drop_path_rate": 0.3,
    "ape": False,
    "patch_norm": True,
    "pretrained_window_sizes": [0, 0, 0, 0],
    "loss_func": None,
}
model = LazyCall("libai.models.SwinTransformerV2")(cfg=cfg)
