"""Reads lazy configs: relative imports, names that are only sketched, and errors with their place."""
