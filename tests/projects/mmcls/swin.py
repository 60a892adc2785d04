"""MMClassification's Swin with its optimizer, schedule and augmentation: two small stages, on small pictures."""

_base_ = "configs/swin_transformer/swin-tiny_16xb64_in1k.py"
norm = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", size=56, backend="pillow", interpolation="bicubic"),
    dict(type="RandomFlip", flip_prob=0.5, direction="horizontal"),
    dict(
        type="RandAugment",
        policies={{_base_.rand_increasing_policies}},
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(pad_val=[104, 116, 124], interpolation="bicubic"),
    ),
    dict(type="RandomErasing", erase_prob=0.5, mode="rand", fill_color=norm["mean"], fill_std=norm["std"]),
    dict(type="Normalize", **norm),
    dict(type="ImageToTensor", keys=["img"]),
    dict(type="ToTensor", keys=["gt_label"]),
    dict(type="Collect", keys=["img", "gt_label"]),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", size=(64, -1), backend="pillow", interpolation="bicubic"),
    dict(type="CenterCrop", crop_size=56),
    dict(type="Normalize", **norm),
    dict(type="ImageToTensor", keys=["img"]),
    dict(type="Collect", keys=["img"]),
]
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=12, depths=[2, 2], num_heads=[2, 4]),
        img_size=56,
        out_indices=(1,),
        stage_cfgs=dict(),
    ),
    head=dict(num_classes=3, in_channels=24),
    train_cfg=dict(
        augments=[
            dict(type="BatchMixup", alpha=0.8, num_classes=3, prob=0.5),
            dict(type="BatchCutMix", alpha=1.0, num_classes=3, prob=0.5),
        ]
    ),
)
data = dict(
    samples_per_gpu=8,
    workers_per_gpu=2,
    train=dict(type="CustomDataset", data_prefix="data/folder/train", pipeline=train_pipeline),
    val=dict(type="CustomDataset", data_prefix="data/folder/val", ann_file=None, pipeline=test_pipeline),
    test=dict(type="CustomDataset", data_prefix="data/folder/val", ann_file=None, pipeline=test_pipeline),
)
evaluation = dict(interval=1, metric_options=dict(topk=(1,)))
lr_config = dict(warmup_iters=1)
runner = dict(max_epochs=2)
log_config = dict(interval=1)
