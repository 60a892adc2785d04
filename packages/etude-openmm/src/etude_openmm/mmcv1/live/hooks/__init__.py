"""The hooks of mmcv 1.x: learning rate, optimizer, EMA, evaluation, checkpoints and others."""
