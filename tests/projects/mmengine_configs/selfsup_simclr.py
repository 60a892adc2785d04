_base_ = "mmselfsup::selfsup/simclr/simclr_resnet50_8xb32-coslr-200e_in1k.py"

model = dict(
    backbone=dict(depth=18, base_channels=8, stem_channels=8, norm_cfg=dict(type="BN")),
    neck=dict(in_channels=64, hid_channels=32, out_channels=16),
)
view_pipeline = [
    dict(type="RandomResizedCrop", size=32, backend="pillow"),
    dict(type="RandomFlip", prob=0.5),
    dict(
        type="RandomApply",
        transforms=[dict(type="ColorJitter", brightness=0.8, contrast=0.8, saturation=0.8)],
        prob=0.8,
    ),
    dict(type="RandomGrayscale", prob=0.2, keep_channels=True, channel_weights=(0.114, 0.587, 0.2989)),
    dict(type="RandomGaussianBlur", sigma_min=0.1, sigma_max=2.0, prob=0.5),
]
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="MultiView", num_views=2, transforms=[view_pipeline]),
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
