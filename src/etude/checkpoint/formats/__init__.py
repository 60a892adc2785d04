"""Reads the checkpoint files and folders of other systems, as data."""
