"""MMClassification's ResNet that strikes back: LAMB, smoothed labels, mixed pictures, random augmentation."""

_base_ = "configs/resnet/resnet50_8xb256-rsb-a1-600e_in1k.py"
norm = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", size=32, backend="pillow", interpolation="bicubic"),
    dict(type="RandomFlip", flip_prob=0.5, direction="horizontal"),
    dict(
        type="RandAugment",
        policies={{_base_.rand_increasing_policies}},
        num_policies=2,
        total_level=10,
        magnitude_level=7,
        magnitude_std=0.5,
        hparams=dict(pad_val=[104, 116, 124], interpolation="bicubic"),
    ),
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
    backbone=dict(depth=18, base_channels=8, stem_channels=8, norm_cfg=dict(type="BN")),
    head=dict(num_classes=3, in_channels=64, topk=(1,)),
    train_cfg=dict(
        augments=[
            dict(type="BatchMixup", alpha=0.2, num_classes=3, prob=0.5),
            dict(type="BatchCutMix", alpha=1.0, num_classes=3, prob=0.5),
        ]
    ),
)
data = dict(
    samples_per_gpu=8,
    workers_per_gpu=2,
    train=dict(_delete_=True, type="CustomDataset", data_prefix="data/folder/train", pipeline=train_pipeline),
    val=dict(_delete_=True, type="CustomDataset", data_prefix="data/folder/val", pipeline=test_pipeline),
    test=dict(_delete_=True, type="CustomDataset", data_prefix="data/folder/val", pipeline=test_pipeline),
)
evaluation = dict(metric=["accuracy", "f1_score"], metric_options=dict(topk=(1,)), save_best="f1_score", rule="greater")
lr_config = dict(warmup_iters=1)
runner = dict(max_epochs=2)
log_config = dict(interval=1)
