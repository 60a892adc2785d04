_base_ = [
    "configs/_base_/datasets/cifar10_bs16.py",
    "configs/_base_/schedules/imagenet_bs1024_adamw_swin.py",
    "configs/_base_/default_runtime.py",
]
custom_imports = dict(imports=["tiny_cifar"])
model = dict(
    type="ImageClassifier",
    backbone=dict(
        type="VisionTransformer",
        arch=dict(embed_dims=24, num_layers=2, num_heads=2, feedforward_channels=48),
        img_size=32,
        patch_size=8,
        drop_path_rate=0.1,
    ),
    head=dict(
        type="VisionTransformerClsHead",
        num_classes=10,
        in_channels=24,
        loss=dict(type="LabelSmoothLoss", label_smooth_val=0.1, mode="classy_vision"),
    ),
)
data = dict(samples_per_gpu=16, workers_per_gpu=1)
lr_config = dict(warmup_iters=4)
runner = dict(max_epochs=2)
log_config = dict(interval=1)
