"""MMTracking's DFF (features that follow the optical flow) with the narrow detector of ``selsa.py``."""

_base_ = "configs/vid/dff/dff_faster_rcnn_r50_dc5_1x_imagenetvid.py"
model = dict(
    detector=dict(
        backbone=dict(depth=18, base_channels=8, init_cfg=None, frozen_stages=-1, norm_eval=False),
        neck=dict(in_channels=[64], out_channels=16),
        rpn_head=dict(in_channels=16, feat_channels=16),
        roi_head=dict(
            bbox_roi_extractor=dict(out_channels=16), bbox_head=dict(in_channels=16, fc_out_channels=32, num_classes=2)
        ),
        train_cfg=dict(
            rpn=dict(allowed_border=-1), rpn_proposal=dict(nms_pre=100, max_per_img=50), rcnn=dict(sampler=dict(num=32))
        ),
    ),
    motion=dict(init_cfg=None),
)
norm = dict(mean=[100.0, 100, 100], std=[60.0, 60, 60], to_rgb=True)
train_pipeline = [
    dict(type="LoadMultiImagesFromFile"),
    dict(type="SeqLoadAnnotations", with_bbox=True, with_track=True),
    dict(type="SeqResize", img_scale=(128, 128), keep_ratio=True),
    dict(type="SeqRandomFlip", share_params=True, flip_ratio=0.5),
    dict(type="SeqNormalize", **norm),
    dict(type="SeqPad", size_divisor=64),
    dict(type="VideoCollect", keys=["img", "gt_bboxes", "gt_labels", "gt_instance_ids"]),
    dict(type="ConcatVideoReferences"),
    dict(type="SeqDefaultFormatBundle", ref_prefix="ref"),
]
data = dict(
    workers_per_gpu=0,
    train=[
        dict(
            type="ImagenetVIDDataset",
            ann_file="data/ILSVRC/annotations/imagenet_vid_train.json",
            img_prefix="data/ILSVRC/Data/VID",
            ref_img_sampler=dict(num_ref_imgs=1, frame_range=9, filter_key_img=False, method="uniform"),
            pipeline=train_pipeline,
            classes=("airplane", "antelope"),
        )
    ],
)
checkpoint_config = dict(interval=99)
log_config = dict(interval=1)
total_epochs = 1
