"""Evaluates LiBai models: runs them over a dataset and computes metrics."""
