"""The runners of mmcv 1.x: ``EpochBasedRunner`` and ``IterBasedRunner``."""
