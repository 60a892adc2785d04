"""Étude: a small, fast, exact training engine for PyTorch, driven by configuration files."""
