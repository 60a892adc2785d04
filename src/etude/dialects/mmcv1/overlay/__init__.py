"""Engine ours, layers theirs: what Étude takes from the mmcv that is on disk."""
