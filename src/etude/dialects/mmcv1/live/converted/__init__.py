"""Adapters that converted mmcv 1.x configs name."""
