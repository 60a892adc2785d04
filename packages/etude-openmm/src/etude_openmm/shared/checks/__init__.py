"""Checks that mmcv 1.x and MMEngine configs share."""
