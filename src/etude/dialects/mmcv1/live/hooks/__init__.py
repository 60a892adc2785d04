"""The hooks of mmcv 1.x."""
