"""Implements ``etude ckpt`` and ``etude verify-resume``."""
