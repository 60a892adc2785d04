"""Helpers of ``mmcv.utils`` and ``mmengine.utils``. They import no torch."""
