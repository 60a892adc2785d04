"""The detector of MMTracking's trackers, which MMDetection trains, with a narrow backbone."""

_base_ = "configs/det/faster-rcnn_r50_fpn_4e_mot17-half.py"
USE_MMDET = True
model = dict(
    detector=dict(
        backbone=dict(depth=18, base_channels=8, init_cfg=None, frozen_stages=-1, norm_eval=False),
        neck=dict(in_channels=[8, 16, 32, 64], out_channels=16),
        rpn_head=dict(in_channels=16, feat_channels=16),
        roi_head=dict(
            bbox_roi_extractor=dict(out_channels=16), bbox_head=dict(in_channels=16, fc_out_channels=32, num_classes=2)
        ),
        train_cfg=dict(rpn_proposal=dict(nms_pre=100, max_per_img=50), rcnn=dict(sampler=dict(num=32))),
        test_cfg=dict(rpn=dict(nms_pre=100, max_per_img=20)),
        init_cfg=None,
    )
)
norm = dict(mean=[100.0, 100, 100], std=[60.0, 60, 60], to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile", to_float32=True),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="Resize", img_scale=(64, 64), ratio_range=(0.8, 1.2), keep_ratio=True, bbox_clip_border=False),
    dict(type="PhotoMetricDistortion"),
    dict(type="RandomCrop", crop_size=(64, 64), bbox_clip_border=False),
    dict(type="RandomFlip", flip_ratio=0.5),
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
    samples_per_gpu=2, workers_per_gpu=0, train=dict(pipeline=train_pipeline, **part),
    val=dict(pipeline=test_pipeline, **part), test=dict(pipeline=test_pipeline, **part),
)  # fmt: skip
evaluation = dict(interval=1)
log_config = dict(interval=1)
total_epochs = 1
