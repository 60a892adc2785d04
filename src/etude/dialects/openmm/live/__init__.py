"""The running half that mmcv 1.x and MMEngine share: checkpoints, positions in data, adapters."""
