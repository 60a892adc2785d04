"""A LiBai config as a native one that trains the same, where the native form has a word for everything in it."""

from __future__ import annotations
