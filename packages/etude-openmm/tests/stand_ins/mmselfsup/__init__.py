"""Stands in for MMSelfSup 1.x in tests: its registries, and the parts that configs of tests name."""
