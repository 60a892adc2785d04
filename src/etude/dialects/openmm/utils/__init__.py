"""Small helpers under the names that ``mmcv.utils`` and ``mmengine.utils`` give them. No torch."""
