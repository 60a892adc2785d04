_base_ = "mmpretrain::resnet/resnet18_8xb16_cifar10.py"

model = dict(backbone=dict(base_channels=8, stem_channels=8), head=dict(in_channels=64))

custom_imports = dict(imports=["tiny_cifar"])
train_dataloader = dict(dataset=dict(type="TinyCIFAR10", data_root="data/cifar10"))
val_dataloader = dict(dataset=dict(type="TinyCIFAR10", data_root="data/cifar10"))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=2)
param_scheduler = dict(type="MultiStepLR", by_epoch=True, milestones=[1], gamma=0.1)
default_hooks = dict(logger=dict(interval=1), visualization=dict(enable=True, interval=8))
randomness = dict(seed=3)
