"""Lets layers and ops of an installed mmcv run on Étude: registries, restored names, replaced ops."""
