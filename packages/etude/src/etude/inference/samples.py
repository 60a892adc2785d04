"""What the model of a guest answers to every sample: written as the guest writes it, and as JSON lines."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from etude.errors import UserError
from etude.fast_dataclass import record
from etude.units import either

FORMATS = (".jsonl", ".pkl")


@record
class Samples:
    """Results by sample. ``results`` are what the guest's own test script would write; ``rows`` say them in words."""

    names: Sequence[str | int]
    results: Sequence[Any]
    rows: Sequence[Mapping[str, Any]]

    def write(self, path: str | Path) -> None:
        """Write ``.jsonl`` or, as the guest does, ``.pkl``; the file appears whole or not at all."""
        target = Path(path)
        if target.suffix not in FORMATS:
            raise UserError(f"{target}: predictions of this run are written as {either(FORMATS)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        with part.open("wb") as file:
            if target.suffix == ".pkl":
                pickle.dump(list(self.results), file)
            else:
                for name, row in zip(self.names, self.rows, strict=True):
                    file.write(json.dumps({"sample": name, **plain(row)}).encode() + b"\n")
        os.replace(part, target)


#: Which types a value may have, and its form in JSON. The first that fits is taken.
_PLAIN: Sequence[tuple[Any, Callable[[Any], Any]]] = (
    (str | bool | int | float | None, lambda value: value),
    (Tensor, lambda value: value.detach().cpu().tolist()),
    (np.ndarray | np.generic, lambda value: value.tolist()),
    (Mapping, lambda value: {str(key): plain(one) for key, one in value.items()}),
    (list | tuple | set, lambda value: [plain(one) for one in value]),
    (bytes, lambda value: value.decode("ascii", "backslashreplace")),
)


def plain(value: Any) -> Any:
    """Return nested values as JSON has them: tensors and arrays as lists, and what has no such form as its text."""
    form = next((form for kind, form in _PLAIN if isinstance(value, kind)), str)
    return form(value)
