_base_ = "configs/resnet/resnet18_8xb16_cifar10.py"
custom_imports = dict(imports=["tiny_cifar"])
model = dict(backbone=dict(stem_channels=8, base_channels=8), head=dict(in_channels=64))
data = dict(samples_per_gpu=16, workers_per_gpu=2)
runner = dict(max_epochs=2)
log_config = dict(interval=1)
