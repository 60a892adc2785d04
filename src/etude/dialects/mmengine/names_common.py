"""Names of MMEngine: config, registry, base modules, checkpoint functions, files and utilities."""

from __future__ import annotations

MODULES: dict[str, dict[str, str]] = {}
OUT_OF_SCOPE: dict[str, str] = {}
