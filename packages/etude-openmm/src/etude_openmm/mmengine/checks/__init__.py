"""Finds mistakes in MMEngine configs without building anything."""
