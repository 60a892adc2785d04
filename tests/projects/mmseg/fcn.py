"""A narrow FCN of MMSegmentation 0.30 on pictures of noise."""

_base_ = ["mmseg/.mim/configs/_base_/models/fcn_r50-d8.py", "mmseg/.mim/configs/_base_/default_runtime.py"]
model = dict(
    pretrained=None,
    backbone=dict(depth=18, base_channels=8),
    decode_head=dict(in_channels=64, channels=16, num_classes=4),
    auxiliary_head=dict(in_channels=32, channels=16, num_classes=4),
)
norm = dict(mean=[123.0, 116.0, 103.0], std=[58.0, 57.0, 57.0], to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="Resize", img_scale=(64, 48), ratio_range=(0.5, 2.0)),
    dict(type="RandomCrop", crop_size=(32, 32), cat_max_ratio=0.75),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
    dict(type="Normalize", **norm),
    dict(type="Pad", size=(32, 32), pad_val=0, seg_pad_val=255),
    dict(type="DefaultFormatBundle"),
    dict(type="Collect", keys=["img", "gt_semantic_seg"]),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="MultiScaleFlipAug",
        img_scale=(64, 48),
        flip=False,
        transforms=[
            dict(type="Resize", keep_ratio=True),
            dict(type="RandomFlip"),
            dict(type="Normalize", **norm),
            dict(type="ImageToTensor", keys=["img"]),
            dict(type="Collect", keys=["img"]),
        ],
    ),
]
common = dict(
    type="CustomDataset",
    data_root="data",
    img_dir="img",
    ann_dir="ann",
    img_suffix=".png",
    classes=["a", "b", "c", "d"],
    palette=[[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]],
)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=1,
    train=dict(pipeline=train_pipeline, **common),
    val=dict(pipeline=test_pipeline, **common),
)
optimizer = dict(type="SGD", lr=0.01, momentum=0.9)
optimizer_config = dict()
lr_config = dict(policy="poly", power=0.9, min_lr=1e-4, by_epoch=False)
runner = dict(type="IterBasedRunner", max_iters=3)
checkpoint_config = dict(by_epoch=False, interval=3)
evaluation = dict(interval=3, metric="mIoU", pre_eval=True)
log_config = dict(interval=1)
