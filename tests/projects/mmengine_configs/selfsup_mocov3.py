_base_ = "mmselfsup::selfsup/mocov3/mocov3_vit-small-p16_16xb256-amp-coslr-300e_in1k.py"

model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=24, num_layers=2, num_heads=2, feedforward_channels=48),
        img_size=32,
        patch_size=8,
    ),
    neck=dict(in_channels=24, hid_channels=32, out_channels=16),
    head=dict(predictor=dict(in_channels=16, hid_channels=32, out_channels=16)),
)
optim_wrapper = dict(_delete_=True, type="OptimWrapper", optimizer=dict(type="AdamW", lr=2.4e-3, weight_decay=0.1))
view_pipeline = [
    dict(type="RandomResizedCrop", size=32, scale=(0.08, 1.0), backend="pillow"),
    dict(type="RandomGaussianBlur", sigma_min=0.1, sigma_max=2.0, prob=0.5),
    dict(type="RandomFlip", prob=0.5),
]
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="MultiView", num_views=[1, 1], transforms=[view_pipeline, view_pipeline]),
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
