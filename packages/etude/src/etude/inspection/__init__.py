"""Inspects a config without importing or building anything."""
