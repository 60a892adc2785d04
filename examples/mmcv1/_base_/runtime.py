checkpoint_config = dict(interval=1, max_keep_ckpts=3)
log_config = dict(interval=10, hooks=[dict(type="TextLoggerHook")])
dist_params = dict(backend="nccl")
log_level = "INFO"
load_from = None
resume_from = None
optimizer_config = dict(grad_clip=None)
