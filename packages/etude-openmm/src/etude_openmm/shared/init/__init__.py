"""Weight initialisation by ``init_cfg``, for mmcv 1.x (``_v1``) and MMEngine (``_v2``)."""
