"""Datasets that come with Étude, and the loader that turns any dataset into batches."""
