_base_ = [
    "mmpretrain::_base_/models/resnet18.py",
    "mmpretrain::_base_/datasets/imagenet_bs64_deit3_224.py",
    "mmpretrain::_base_/schedules/imagenet_bs256_coslr_coswd_300e.py",
    "mmpretrain::_base_/default_runtime.py",
]

model = dict(
    backbone=dict(base_channels=8, stem_channels=8),
    head=dict(num_classes=3, in_channels=64, topk=(1,)),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="ResizeMix", alpha=1.0)]),
)
data_preprocessor = dict(num_classes=3)
steps = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", scale=32, backend="pillow", interpolation="bicubic"),
    dict(type="AutoAugment", policies="imagenet"),
    dict(type="PackInputs"),
]
plain = [dict(type="LoadImageFromFile"), dict(type="Resize", scale=(32, 32)), dict(type="PackInputs")]
part = dict(
    data_root="data/images", pipeline=steps, split="", ann_file="meta/train.txt", data_prefix="train",
    metainfo=dict(classes=["a", "b", "c"]),
)  # fmt: skip
train_dataloader = dict(
    batch_size=6, num_workers=2, dataset=part, sampler=dict(_delete_=True, type="RepeatAugSampler", shuffle=True)
)
val_dataloader = dict(
    batch_size=8, num_workers=0, persistent_workers=False,
    dataset={**part, "pipeline": plain, "ann_file": "meta/val.txt", "data_prefix": "val"},
)  # fmt: skip
val_evaluator = dict(topk=(1,))
test_dataloader = val_dataloader
test_evaluator = val_evaluator
optim_wrapper = dict(clip_grad=dict(max_norm=5.0), paramwise_cfg=dict(norm_decay_mult=0.0))
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=True, begin=0, end=1, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", T_max=1, eta_min=1e-6, by_epoch=True, begin=1, end=2),
    dict(
        type="CosineAnnealingParamScheduler", param_name="weight_decay", eta_min=1e-5, by_epoch=True, begin=0, end=2
    ),
]  # fmt: skip
train_cfg = dict(max_epochs=2)
custom_hooks = [
    dict(type="EMAHook", momentum=0.05, priority="ABOVE_NORMAL", update_buffers=True),
    dict(
        type="SwitchRecipeHook",
        schedule=[
            dict(
                action_epoch=1, batch_augments=None, train_pipeline=plain,
                loss=dict(type="LabelSmoothLoss", label_smooth_val=0.1, mode="original"),
            )
        ],
    ),
]  # fmt: skip
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(interval=1, save_best="auto", max_keep_ckpts=2))
randomness = dict(seed=3)
