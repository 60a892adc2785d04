"""Small parts of mmcv 1.x beside the runner: processes, half precision, seeds, the log of the environment."""
