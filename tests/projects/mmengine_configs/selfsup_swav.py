_base_ = "mmselfsup::selfsup/swav/swav_resnet50_8xb32-mcrop-2-6-coslr-200e_in1k-224-96.py"

model = dict(
    backbone=dict(depth=18, base_channels=8, stem_channels=8),
    neck=dict(in_channels=64, hid_channels=32, out_channels=16),
    head=dict(loss=dict(feat_dim=16, num_prototypes=12)),
)
large = [
    dict(type="RandomResizedCrop", size=32, scale=(0.14, 1.0), backend="pillow"),
    dict(type="RandomFlip", prob=0.5),
]
small = [
    dict(type="RandomResizedCrop", size=16, scale=(0.05, 0.14), backend="pillow"),
    dict(type="RandomFlip", prob=0.5),
]
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="MultiView", num_views=[2, 6], transforms=[large, small]),
    dict(type="PackSelfSupInputs", meta_keys=["img_path"]),
]
train_dataloader = dict(
    batch_size=6,
    num_workers=2,
    collate_fn=dict(_delete_=True, type="default_collate"),
    dataset=dict(data_root="data/images", pipeline=train_pipeline),
)
custom_hooks = [
    dict(
        type="SwAVHook",
        priority="VERY_HIGH",
        batch_size=6,
        epoch_queue_starts=15,  # the queue lies on a GPU
        crops_for_assign=[0, 1],
        feat_dim=16,
        queue_length=12,
        frozen_layers_cfg=dict(prototypes=3),
    )
]
train_cfg = dict(max_epochs=2)
param_scheduler = [
    dict(type="CosineAnnealingLR", T_max=2, eta_min=6e-4, by_epoch=True, begin=0, end=2, convert_to_iter_based=True)
]
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(interval=1))
randomness = dict(seed=3)
