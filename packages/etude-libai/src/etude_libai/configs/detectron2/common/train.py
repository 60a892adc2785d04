"""The keys of ``train`` that detectron2's lazy scripts read, with their defaults."""

train = {
    "output_dir": "./output",
    "init_checkpoint": "",
    "max_iter": 90000,
    "amp": {"enabled": False},
    "ddp": {"broadcast_buffers": False, "find_unused_parameters": False, "fp16_compression": False},
    "checkpointer": {"period": 5000, "max_to_keep": 100},
    "eval_period": 5000,
    "log_period": 20,
    "device": "cuda",
}
