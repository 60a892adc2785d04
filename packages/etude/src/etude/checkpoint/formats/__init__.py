"""File formats: safetensors, and the checkpoint files and folders of other systems, read as data."""
