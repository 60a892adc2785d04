"""A masked autoencoder with AdamW; norms, biases, positions and tokens do not decay."""

_base_ = "./_base_/digits.py"

model = dict(type="MAE", backbone=dict(type="TinyViT", width=48, depth=2), width=48, mask_ratio=0.6)

train_dataloader = dict(dataset=dict(views=1, noisy=False))
default_hooks = dict(checkpoint=dict(_delete_=True, type="CheckpointHook", interval=5, max_keep_ckpts=1))

optimizer = dict(type="AdamW", lr=1.5e-4 * 4096 / 256, betas=(0.9, 0.95), weight_decay=0.05)
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=optimizer,
    paramwise_cfg=dict(
        custom_keys={
            "ln": dict(decay_mult=0.0),
            "bias": dict(decay_mult=0.0),
            "pos_embed": dict(decay_mult=0.0),
            "mask_token": dict(decay_mult=0.0),
            "cls_token": dict(decay_mult=0.0),
        }
    ),
)

train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=40, val_interval=40)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-4, by_epoch=True, begin=0, end=4, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", T_max=36, by_epoch=True, begin=4, end=40, convert_to_iter_based=True),
]
