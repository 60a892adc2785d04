"""Reads lazy configs: relative imports, reading without imports, and errors with file and line."""
