_base_ = "mmselfsup::selfsup/mae/mae_vit-base-p16_8xb512-coslr-400e_in1k.py"

model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=24, num_layers=2, num_heads=2, feedforward_channels=48),
        img_size=32,
        patch_size=8,
    ),
    neck=dict(num_patches=16, patch_size=8, embed_dim=24, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2),
    head=dict(patch_size=8),
)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", size=32, scale=(0.2, 1.0), backend="pillow", interpolation="bicubic"),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackSelfSupInputs", meta_keys=["img_path"]),
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
