"""Serves the layers of the mmcv on disk: registries, the engine's names, ops."""
