"""Writes scalars, configs and images of a run."""
