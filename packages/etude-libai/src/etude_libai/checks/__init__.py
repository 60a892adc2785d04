"""Finds mistakes in lazy configs without building anything."""
