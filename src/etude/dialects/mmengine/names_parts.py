"""Names of MMEngine: datasets, samplers, schedulers, constructors, logging, visualisation, evaluation, distribution."""

from __future__ import annotations

MODULES: dict[str, dict[str, str]] = {}
OUT_OF_SCOPE: dict[str, str] = {}
