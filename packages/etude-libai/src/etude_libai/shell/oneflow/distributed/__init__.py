"""Holds ``python -m oneflow.distributed.launch``."""
