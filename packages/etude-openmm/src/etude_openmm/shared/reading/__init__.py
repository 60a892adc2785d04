"""Reads config files of mmcv 1.x and MMEngine into trees with file and line."""
