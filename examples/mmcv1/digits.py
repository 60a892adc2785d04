# Handwritten digits, configured as for mmclassification 0.x:
#   etude train examples/mmcv1/digits.py --work-dir work_dirs/digits
#   etude train examples/mmcv1/digits.py --work-dir work_dirs/digits --resume-from work_dirs/digits/epoch_7.pth
_base_ = ["_base_/runtime.py"]
custom_imports = dict(imports=["digits_parts"], allow_failed_imports=False)

model = dict(
    type="DigitNet",
    width=16,
    dropout=0.1,
    init_cfg=[
        dict(type="Kaiming", layer="Conv2d"),
        dict(type="Normal", layer="Linear", std=0.01),
        dict(type="Constant", layer="_BatchNorm", val=1.0),
    ],
)

data = dict(
    samples_per_gpu=64,
    workers_per_gpu=0,
    train=dict(type="DigitImages", split="train", noise=0.05),
    val=dict(type="DigitImages", split="val"),
    val_dataloader=dict(samples_per_gpu=256),
)

optimizer = dict(type="AdamW", lr=5e-3, weight_decay=0.05, paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0))
optimizer_config = dict(_delete_=True, grad_clip=dict(max_norm=5.0, norm_type=2))
lr_config = dict(
    policy="CosineAnnealing", min_lr_ratio=1e-2, by_epoch=False, warmup="linear", warmup_iters=20, warmup_ratio=0.1
)

runner = dict(type="EpochBasedRunner", max_epochs=8)
workflow = [("train", 1), ("val", 1)]
evaluation = dict(interval=1, metric="accuracy", save_best="auto")
custom_hooks = [
    dict(type="EMAHook", momentum=0.05, warm_up=10, priority="ABOVE_NORMAL"),
    dict(type="LargestGradHook", interval=10),
]
seed = 0
