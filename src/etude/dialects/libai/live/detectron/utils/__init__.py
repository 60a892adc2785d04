"""Utilities that detectron2 scripts import: paths, logging, processes."""
