"""What ``etude ckpt`` and ``etude verify-resume`` do with checkpoints."""
