"""The dialect of LiBai and detectron2: lazy configs, trainers with hooks, an event storage."""

from __future__ import annotations

from etude.errors.own_code import add_package

__version__ = "0.1.0"

add_package(__name__)
