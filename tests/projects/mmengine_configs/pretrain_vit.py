_base_ = "mmpretrain::vision_transformer/vit-base-p16_32xb128-mae_in1k.py"

model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=24, num_layers=2, num_heads=2, feedforward_channels=48),
        img_size=32,
        patch_size=8,
    ),
    head=dict(num_classes=3, in_channels=24, topk=(1,)),
    data_preprocessor=dict(num_classes=3),
)
data_preprocessor = dict(num_classes=3)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", scale=32, backend="pillow", interpolation="bicubic"),
    dict(type="RandomFlip", prob=0.5, direction="horizontal"),
    dict(
        type="RandAugment",
        policies="timm_increasing",
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(pad_val=[104, 116, 124], interpolation="bicubic"),
    ),
    dict(
        type="RandomErasing",
        erase_prob=0.25,
        mode="rand",
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=[104, 116, 124],
        fill_std=[57, 57, 58],
    ),
    dict(type="PackInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="ResizeEdge", scale=36, edge="short", backend="pillow", interpolation="bicubic"),
    dict(type="CenterCrop", crop_size=32),
    dict(type="PackInputs"),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=2,
    dataset=dict(
        data_root="data/images",
        pipeline=train_pipeline,
        split="",
        ann_file="meta/train.txt",
        data_prefix="train",
        metainfo=dict(classes=["a", "b", "c"]),
    ),
)
val_dataloader = dict(
    batch_size=8,
    num_workers=2,
    dataset=dict(
        data_root="data/images",
        pipeline=test_pipeline,
        split="",
        ann_file="meta/val.txt",
        data_prefix="val",
        metainfo=dict(classes=["a", "b", "c"]),
    ),
)
val_evaluator = dict(topk=(1,))
test_dataloader = val_dataloader
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=2)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-3, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=1),
]
default_hooks = dict(logger=dict(interval=1))
randomness = dict(seed=3)
