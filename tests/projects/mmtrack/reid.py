"""MMTracking's re-identification network with a narrow backbone, on small pictures."""

_base_ = "configs/reid/resnet50_b32x8_MOT17.py"
model = dict(
    reid=dict(
        backbone=dict(depth=18, base_channels=8),
        neck=dict(kernel_size=(2, 1)),
        head=dict(in_channels=64, fc_channels=16, out_channels=8, num_classes=8),
        init_cfg=None,
    )
)
norm = dict(mean=[100.0, 100, 100], std=[60.0, 60, 60], to_rgb=True)
train_pipeline = [
    dict(type="LoadMultiImagesFromFile", to_float32=True),
    dict(
        type="SeqResize",
        img_scale=(32, 64),
        share_params=False,
        keep_ratio=False,
        bbox_clip_border=False,
        override=False,
    ),
    dict(type="SeqRandomFlip", share_params=False, flip_ratio=0.5, direction="horizontal"),
    dict(type="SeqNormalize", **norm),
    dict(type="VideoCollect", keys=["img", "gt_label"]),
    dict(type="ReIDFormatBundle"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", img_scale=(32, 64), keep_ratio=False),
    dict(type="Normalize", **norm),
    dict(type="ImageToTensor", keys=["img"]),
    dict(type="Collect", keys=["img"], meta_keys=[]),
]
data = dict(
    samples_per_gpu=1, workers_per_gpu=0,
    train=dict(pipeline=train_pipeline), val=dict(pipeline=test_pipeline), test=dict(pipeline=test_pipeline),
)  # fmt: skip
lr_config = dict(warmup_iters=4)
log_config = dict(interval=1)
total_epochs = 2
runner = dict(type="EpochBasedRunner", max_epochs=2)
