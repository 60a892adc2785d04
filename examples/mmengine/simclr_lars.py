"""SimCLR with LARS, biases and batch norms left out of the adaptation."""

_base_ = "./_base_/digits.py"

model = dict(
    type="SimCLR",
    backbone=dict(type="SmallConvNet", width=32),
    neck=dict(type="Projection", in_channels=64),
    head=dict(type="Contrast", temperature=0.2),
)

optimizer = dict(type="LARS", lr=4.8, momentum=0.9, weight_decay=1e-6)
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=optimizer,
    paramwise_cfg=dict(
        custom_keys={
            "bn": dict(decay_mult=0, lars_exclude=True),
            "bias": dict(decay_mult=0, lars_exclude=True),
            # bn layer in ResNet block downsample module
            "downsample.1": dict(decay_mult=0, lars_exclude=True),
        }
    ),
)

train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=20, val_interval=10)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-4, by_epoch=True, begin=0, end=2, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", T_max=18, by_epoch=True, begin=2, end=20, convert_to_iter_based=True),
]
