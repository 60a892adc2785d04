"""MMDetection's RetinaNet with a narrow backbone, on small pictures."""

_base_ = "det_configs/retinanet/retinanet_r18_fpn_1x_coco.py"
model = dict(
    backbone=dict(base_channels=8, init_cfg=None, frozen_stages=-1, norm_eval=False),
    neck=dict(in_channels=[8, 16, 32, 64], out_channels=16, num_outs=3),
    test_cfg=dict(score_thr=0.0),
    bbox_head=dict(
        num_classes=2, in_channels=16, feat_channels=16, stacked_convs=1, anchor_generator=dict(strides=[8, 16, 32])
    ),
)
norm = dict(mean=[100.0, 100, 100], std=[60.0, 60, 60], to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="Resize", img_scale=[(64, 64), (96, 96)], multiscale_mode="range", keep_ratio=True),
    dict(type="RandomFlip", flip_ratio=0.5),
    dict(type="PhotoMetricDistortion"),
    dict(type="Normalize", **norm),
    dict(type="Pad", size_divisor=32),
    dict(type="DefaultFormatBundle"),
    dict(type="Collect", keys=["img", "gt_bboxes", "gt_labels"]),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="MultiScaleFlipAug",
        img_scale=(64, 64),
        flip=False,
        transforms=[
            dict(type="Resize", keep_ratio=True),
            dict(type="RandomFlip"),
            dict(type="Normalize", **norm),
            dict(type="Pad", size_divisor=32),
            dict(type="ImageToTensor", keys=["img"]),
            dict(type="Collect", keys=["img"]),
        ],
    ),
]
part = dict(ann_file="data/coco/coco.json", img_prefix="data/coco/images", classes=("red", "green"))
data = dict(
    samples_per_gpu=2, workers_per_gpu=2, train=dict(pipeline=train_pipeline, **part),
    val=dict(pipeline=test_pipeline, **part), test=dict(pipeline=test_pipeline, **part),
)  # fmt: skip
lr_config = dict(warmup_iters=4)
log_config = dict(interval=1)
runner = dict(max_epochs=2)
