"""MMTracking's QDTrack with a narrow detector."""

_base_ = "configs/mot/qdtrack/qdtrack_faster-rcnn_r50_fpn_4e_mot17-private-half.py"
model = dict(
    detector=dict(
        backbone=dict(depth=18, base_channels=8, init_cfg=None, frozen_stages=-1, norm_eval=False),
        neck=dict(in_channels=[8, 16, 32, 64], out_channels=16),
        rpn_head=dict(in_channels=16, feat_channels=16),
        roi_head=dict(
            bbox_roi_extractor=dict(out_channels=16), bbox_head=dict(in_channels=16, fc_out_channels=32, num_classes=2)
        ),
        train_cfg=dict(rpn_proposal=dict(nms_pre=100, max_per_img=50), rcnn=dict(sampler=dict(num=32))),
        init_cfg=None,
    ),
    track_head=dict(
        roi_extractor=dict(out_channels=16),
        embed_head=dict(
            num_convs=1,
            in_channels=16,
            conv_out_channels=16,
            fc_out_channels=32,
            embed_channels=16,
            norm_cfg=dict(num_groups=4),
        ),
    ),
)
norm = dict(mean=[100.0, 100, 100], std=[60.0, 60, 60], to_rgb=False)
train_pipeline = [
    dict(type="LoadMultiImagesFromFile", to_float32=True),
    dict(type="SeqLoadAnnotations", with_bbox=True, with_track=True),
    dict(type="SeqResize", img_scale=(64, 64), share_params=True, ratio_range=(0.8, 1.2), keep_ratio=True),
    dict(type="SeqPhotoMetricDistortion", share_params=True),
    dict(type="SeqRandomCrop", share_params=False, crop_size=(64, 64), bbox_clip_border=False),
    dict(type="SeqRandomFlip", share_params=True, flip_ratio=0.5),
    dict(type="SeqNormalize", **norm),
    dict(type="SeqPad", size_divisor=32),
    dict(type="MatchInstances", skip_nomatch=True),
    dict(type="VideoCollect", keys=["img", "gt_bboxes", "gt_labels", "gt_match_indices", "gt_instance_ids"]),
    dict(type="SeqDefaultFormatBundle", ref_prefix="ref"),
]
data = dict(
    samples_per_gpu=2, workers_per_gpu=0,
    train=dict(
        _delete_=True, type="CocoVideoDataset", ann_file="data/ILSVRC/annotations/imagenet_vid_train.json",
        img_prefix="data/ILSVRC/Data/VID", pipeline=train_pipeline, classes=("airplane", "antelope"),
        ref_img_sampler=dict(num_ref_imgs=1, frame_range=3, filter_key_img=True, method="uniform"),
    ),
    val=dict(
        type="CocoVideoDataset", ann_file="data/ILSVRC/annotations/imagenet_vid_val.json",
        img_prefix="data/ILSVRC/Data/VID", classes=("airplane", "antelope"),
    ),
)  # fmt: skip
log_config = dict(interval=1)
total_epochs = 1
evaluation = dict(interval=9)
