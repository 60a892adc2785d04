"""The dialect of McQuic: YAML configs with ``key`` and ``params``, registries, external libraries, hooks."""

from __future__ import annotations

from etude.errors.own_code import add_package

__version__ = "0.1.0"

add_package(__name__)
