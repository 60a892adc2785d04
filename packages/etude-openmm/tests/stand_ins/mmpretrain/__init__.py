"""Stands in for MMPretrain in tests: its registries, and the parts that configs of tests name."""
