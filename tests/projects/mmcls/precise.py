_base_ = "configs/resnet/resnet18_8xb16_cifar10.py"
custom_imports = dict(imports=["tiny_cifar"])
model = dict(backbone=dict(base_channels=8, stem_channels=8), head=dict(in_channels=64))
one = dict(type="CIFAR10", data_prefix="data/cifar10", pipeline={{_base_.train_pipeline}})
data = dict(
    workers_per_gpu=2,
    train=dict(
        _delete_=True,
        type="ConcatDataset",
        datasets=[
            dict(type="RepeatDataset", times=1, dataset=one),
            dict(type="ClassBalancedDataset", oversample_thr=0.2, dataset=one),
        ],
    ),
)
# PreciseBNHook goes over a part of the training data by itself, with the workers of the run.
custom_hooks = [dict(type="PreciseBNHook", num_samples=32), dict(type="EMAHook", momentum=0.1)]
optimizer_config = dict(type="GradientCumulativeOptimizerHook", cumulative_iters=2)
runner = dict(max_epochs=2)
log_config = dict(interval=1)
