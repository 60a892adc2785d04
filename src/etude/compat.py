"""Make the import names of other systems work in a script of one's own: ``etude.compat.install()``."""

from __future__ import annotations

from etude.dialects.imports import install as install

__all__ = ["install"]
