"""Lazy configs: Python files with mappings and lazy calls, which are instantiated later."""
