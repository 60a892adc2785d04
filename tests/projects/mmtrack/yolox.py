"""MMDetection's YOLOX: pictures made of several, other augmentation and losses in the last epoch, averaged weights."""

_base_ = "det_configs/yolox/yolox_s_8x8_300e_coco.py"
model = dict(
    input_size=(64, 64), random_size_range=(2, 3), random_size_interval=2,
    backbone=dict(widen_factor=0.125), neck=dict(in_channels=[32, 64, 128], out_channels=16),
    bbox_head=dict(num_classes=2, in_channels=16, feat_channels=16),
)  # fmt: skip
train_pipeline = [
    dict(type="Mosaic", img_scale=(64, 64), pad_val=114.0),
    dict(type="RandomAffine", scaling_ratio_range=(0.5, 1.5), border=(-32, -32)),
    dict(type="MixUp", img_scale=(64, 64), ratio_range=(0.8, 1.6), pad_val=114.0),
    dict(type="YOLOXHSVRandomAug"),
    dict(type="RandomFlip", flip_ratio=0.5),
    dict(type="Resize", img_scale=(64, 64), keep_ratio=True),
    dict(type="Pad", pad_to_square=True, pad_val=dict(img=(114.0, 114.0, 114.0))),
    dict(type="FilterAnnotations", min_gt_bbox_wh=(1, 1), keep_empty=False),
    dict(type="DefaultFormatBundle"),
    dict(type="Collect", keys=["img", "gt_bboxes", "gt_labels"]),
]
part = dict(ann_file="data/coco/coco.json", img_prefix="data/coco/images", classes=("red", "green"))
data = dict(
    samples_per_gpu=2, workers_per_gpu=2, train=dict(pipeline=train_pipeline, dataset=part),
    val=part, test=part,
)  # fmt: skip
lr_config = dict(warmup_by_epoch=False, warmup_iters=2, num_last_epochs=1)
custom_hooks = [
    dict(type="YOLOXModeSwitchHook", num_last_epochs=1, priority=48),
    dict(type="SyncNormHook", num_last_epochs=1, interval=1, priority=48),
    dict(type="ExpMomentumEMAHook", resume_from=None, momentum=0.01, priority=49),
]
evaluation = dict(interval=9, dynamic_intervals=[(3, 1)])
checkpoint_config = dict(interval=1)
log_config = dict(interval=1)
runner = dict(max_epochs=2)
