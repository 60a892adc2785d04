"""Lazy configs: Python files whose mappings are the config, calls that are written down now and made later."""
