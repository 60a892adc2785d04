"""Trains projects of mmcv 1.x and MMEngine on Étude: configs, hooks, runners and registries of both generations.

``mmcv1/`` and ``mmengine/`` are the two dialects. ``shared/`` is what both are made of, so they come in one package.
"""

from __future__ import annotations

from etude.errors.own_code import add_package

__version__ = "0.1.0"

add_package(__name__)
