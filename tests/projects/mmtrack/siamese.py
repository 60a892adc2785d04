"""MMTracking's SiamRPN++ with a narrow backbone; the backbone is frozen in the first epoch."""

_base_ = "configs/sot/siamese_rpn/siamese_rpn_r50_20e_lasot.py"
model = dict(
    backbone=dict(base_channels=8, init_cfg=None),
    neck=dict(in_channels=[64, 128, 256], out_channels=16),
    head=dict(in_channels=[16, 16, 16]),
)
train_pipeline = [
    dict(type="PairSampling", frame_range=100, pos_prob=0.8, filter_template_img=False),
    dict(type="LoadMultiImagesFromFile", to_float32=True),
    dict(type="SeqLoadAnnotations", with_bbox=True, with_label=False),
    dict(type="SeqCropLikeSiamFC", context_amount=0.5, exemplar_size=127, crop_size=511),
    dict(type="SeqShiftScaleAug", target_size=[127, 255], shift=[4, 64], scale=[0.05, 0.18]),
    dict(type="SeqColorAug", prob=[1.0, 1.0]),
    dict(type="SeqBlurAug", prob=[0.0, 0.2]),
    dict(type="VideoCollect", keys=["img", "gt_bboxes", "is_positive_pairs"]),
    dict(type="ConcatSameTypeFrames"),
    dict(type="SeqDefaultFormatBundle", ref_prefix="search"),
]
part = dict(
    type="SOTImageNetVIDDataset", ann_file="data/ILSVRC/annotations/imagenet_vid_train.json",
    img_prefix="data/ILSVRC/Data/VID", pipeline=train_pipeline, split="train", test_mode=False,
)  # fmt: skip
data = dict(
    samples_per_gpu=2, workers_per_gpu=0, persistent_workers=False, samples_per_epoch=4,
    train=dict(dataset_sampling_weights=[0.5, 0.5], dataset_cfgs=[part, {**part, "type": "SOTCocoDataset"}]),
)  # fmt: skip
optimizer_config = dict(backbone_start_train_epoch=1)
lr_config = dict(
    lr_configs=[
        dict(type="step", start_lr_factor=0.2, end_lr_factor=1.0, end_epoch=1),
        dict(type="log", start_lr_factor=1.0, end_lr_factor=0.1, end_epoch=2),
    ]
)
evaluation = dict(start=2)
log_config = dict(interval=1)
total_epochs = 2
