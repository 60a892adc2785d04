_base_ = "configs/mobilenet_v2/mobilenet-v2_8xb32_in1k.py"
custom_hooks = [dict(type="EMAHook", momentum=0.01)]
norm = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", size=32, backend="pillow"),
    dict(type="RandomFlip", flip_prob=0.5, direction="horizontal"),
    dict(type="ColorJitter", brightness=0.4, contrast=0.4, saturation=0.4),
    dict(type="Normalize", **norm),
    dict(type="ImageToTensor", keys=["img"]),
    dict(type="ToTensor", keys=["gt_label"]),
    dict(type="Collect", keys=["img", "gt_label"]),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", size=(32, 32)),
    dict(type="Normalize", **norm),
    dict(type="ImageToTensor", keys=["img"]),
    dict(type="Collect", keys=["img"]),
]
model = dict(
    backbone=dict(widen_factor=0.25),
    head=dict(num_classes=3, in_channels=1280, topk=(1,)),
    train_cfg=dict(
        augments=[
            dict(type="BatchMixup", alpha=0.2, num_classes=3, prob=0.5),
            dict(type="BatchCutMix", alpha=1.0, num_classes=3, prob=0.5),
        ]
    ),
)
model["head"].update(type="LinearClsHead", loss=dict(type="CrossEntropyLoss", use_soft=True))
data = dict(
    samples_per_gpu=8,
    workers_per_gpu=2,
    train=dict(_delete_=True, type="CustomDataset", data_prefix="data/folder/train", pipeline=train_pipeline),
    val=dict(_delete_=True, type="CustomDataset", data_prefix="data/folder/val", pipeline=test_pipeline),
    test=dict(_delete_=True, type="CustomDataset", data_prefix="data/folder/val", pipeline=test_pipeline),
)
evaluation = dict(interval=1, metric="accuracy", metric_options=dict(topk=(1,)))
runner = dict(max_epochs=2)
log_config = dict(interval=1)
