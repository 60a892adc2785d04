"""mmcv 1.x's ``ConfigDict``."""

from __future__ import annotations

from etude.dialects.openmm.config.dict_base import AttributeDict


class ConfigDict(AttributeDict):
    """A dict with attribute access; a missing name is an ``AttributeError``, a missing item a ``KeyError``."""
