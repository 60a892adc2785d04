"""Makes the import names of other systems work in your own script: ``etude.compat.install()``."""

from __future__ import annotations

from etude.dialects.imports import install as install

__all__ = ["install"]
