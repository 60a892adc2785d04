"""Helpers of mmcv 1.x: process groups, half precision, seeds, and the log of the environment."""
