"""What the layers of the mmcv on disk find around them: registries, the engine's names, ops."""
