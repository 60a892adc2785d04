"""The runners of mmcv 1.x."""
