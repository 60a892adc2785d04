"""Datasets and their wrappers, samplers, and how samples become a batch."""
