"""Datasets that come with Étude: one file per format."""
