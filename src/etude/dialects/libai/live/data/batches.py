"""Turns the batch of a loader into the arguments of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from etude.config.files import display
from etude.dialects.libai.lazy.reading.errors import is_users, put_on
from etude.dialects.libai.live.data.structures import DistTensorData, Instance
from etude.errors import DataError, UserCodeError


def to_device(data: Any, device: str | None, mixup_func: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Return the fields of a batch on ``device``, by the argument names of the model's ``forward``."""
    if isinstance(data, torch._utils.ExceptionWrapper):
        data.reraise()  # type: ignore[no-untyped-call]
    fields = data.get_fields() if isinstance(data, Instance) else data
    if not isinstance(fields, Mapping):
        raise DataError(
            f"a batch must be an Instance or a mapping of names to tensors, not a {type(fields).__name__}: "
            "the model is called with its fields by name"
        )
    batch = {name: _tensor(value, device) for name, value in fields.items()}
    if mixup_func is not None:
        batch["images"], batch["labels"] = mixup_func(batch["images"], batch["labels"])
    return batch


def _tensor(value: Any, device: str | None) -> Any:
    if isinstance(value, DistTensorData):
        if device is not None:
            value.to_global(device_type=device)
        return value.tensor
    return value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) and device is not None else value


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_WORKER = re.compile(r"in DataLoader worker process (\d+)")


@contextmanager
def reporting_workers() -> Iterator[None]:
    """Let the command line report the line of user code that failed in a data worker.

    torch raises the exception again with the worker's traceback as text, and without its frames.
    """
    try:
        yield
    except Exception as error:
        worker = _WORKER.search(str(error))
        if worker is not None:
            frames = [(file, line) for file, line in _FRAME.findall(str(error)) if is_users(file)]
            at = f"{display(frames[-1][0])}:{frames[-1][1]}: " if frames else ""
            last = str(error).strip("'\"").replace("\\n", "\n").strip().splitlines()[-1]
            put_on(error, UserCodeError(f"{at}{last} (in data worker {worker[1]})"))
        raise
