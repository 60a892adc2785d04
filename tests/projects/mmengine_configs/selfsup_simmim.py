_base_ = "mmselfsup::selfsup/simmim/simmim_swin-base_16xb128-amp-coslr-100e_in1k-192.py"

model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=16, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 2]),
        img_size=64,
        stage_cfgs=dict(block_cfgs=dict(window_size=2)),
    ),
    neck=dict(in_channels=128, encoder_stride=32),
)
optim_wrapper = dict(
    _delete_=True,
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=4e-4, betas=(0.9, 0.999), weight_decay=0.05),
    clip_grad=dict(max_norm=5.0),
    paramwise_cfg=dict(custom_keys={"norm": dict(decay_mult=0.0), "bias": dict(decay_mult=0.0)}),
)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", size=64, scale=(0.67, 1.0), ratio=(3.0 / 4.0, 4.0 / 3.0)),
    dict(type="RandomFlip", prob=0.5),
    dict(type="SimMIMMaskGenerator", input_size=64, mask_patch_size=32, model_patch_size=4, mask_ratio=0.6),
    dict(type="PackSelfSupInputs", algorithm_keys=["mask"], meta_keys=["img_path"]),
]
train_dataloader = dict(
    batch_size=6,
    num_workers=2,
    collate_fn=dict(_delete_=True, type="default_collate"),
    dataset=dict(data_root="data/images", pipeline=train_pipeline),
)
train_cfg = dict(max_epochs=2)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-4, by_epoch=True, begin=0, end=1, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", T_max=1, by_epoch=True, begin=1, end=2, convert_to_iter_based=True),
]
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(interval=1))
randomness = dict(seed=3)
resume = False
