"""Annotation files are data: a pickle among them may hold plain values and arrays, and names nothing else."""

from __future__ import annotations

import pickle
from typing import Any

from etude.checkpoint import inert
from etude.dialects.openmm.fileio import load
from etude.errors import DataError, ResumeError


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return inert.find(module, name)


def read_annotations(path: str) -> Any:
    """What the file holds, by its suffix."""
    if not path.endswith((".pkl", ".pickle")):
        return load(path)
    try:
        with open(path, "rb") as file:
            return inert.plain(_Unpickler(file).load())
    except ResumeError as error:
        raise DataError(
            f"{path}: {error}. Annotations may hold plain values and arrays; rewrite the file so"
        ) from error
