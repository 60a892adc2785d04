"""The registries of mmcv 1.x (``_v1``) and MMEngine (``_v2``)."""
