"""Runs a LiBai model over a dataset and computes its results."""
