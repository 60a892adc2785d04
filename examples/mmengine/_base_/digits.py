"""What both pretrainings share: the digits, a linear probe after the last epoch, the log."""

custom_imports = dict(imports=["ssl_digits"], allow_failed_imports=False)

train_dataloader = dict(
    batch_size=128,
    num_workers=0,
    drop_last=True,
    sampler=dict(type="DefaultSampler", shuffle=True),
    collate_fn=dict(type="default_collate"),
    dataset=dict(type="DigitViews", split="train", views=2),
)

val_dataloader = dict(
    batch_size=256,
    num_workers=0,
    sampler=dict(type="DefaultSampler", shuffle=False),
    collate_fn=dict(type="default_collate"),
    dataset=dict(type="DigitViews", split="all"),
)
val_cfg = dict()
val_evaluator = dict(type="LinearProbe")

default_hooks = dict(
    logger=dict(type="LoggerHook", interval=5),
    checkpoint=dict(type="CheckpointHook", interval=5, max_keep_ckpts=1, save_best="probe/accuracy", rule="greater"),
)
randomness = dict(seed=0)
