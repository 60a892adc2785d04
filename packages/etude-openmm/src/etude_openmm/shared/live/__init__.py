"""Parts of running that mmcv 1.x and MMEngine share: checkpoints, process groups, adapters."""
