"""Tells datasets from batches, and makes the loaders of a :class:`~etude.Trainer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from etude.data.loader import Loader, is_stream
from etude.data.order import Limited, Sliced
from etude.data.resume import Replay
from etude.errors import UserError
from etude.inspection.check.results import is_further
from etude.script.placement import Placement

Data = Iterable[Any] | Any


def size_of(data: Data, given: int | None, usual: int, workers: int = 0) -> int | None:
    """Return the batch size for a dataset; None for batches, whose size is not ours to choose."""
    if not gives_batches(data):
        return usual if given is None else given
    for name, value in (("batch_size", given), ("workers", workers or None)):
        if value is not None:
            raise UserError(
                f"{name}={value} does nothing: the data is a {type(data).__name__}, which gives batches already"
            )
    return None


def gives_batches(data: Data) -> bool:
    """Return whether ``data`` gives batches already, and no samples."""
    gives_samples = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list | tuple)
    stream = isinstance(data, torch.utils.data.IterableDataset)
    return isinstance(data, Loader | torch.utils.data.DataLoader) or not (gives_samples or stream)


def validation_sets(val: Any) -> dict[str, Data]:
    """Return the validation data by split: ``val``, and what a mapping has beside it (``val_noisy``)."""
    if not isinstance(val, Mapping) or not val:
        return {} if val is None else {"val": val}
    if "val" not in val or not all(name == "val" or is_further(str(name)) for name in val):
        names = ", ".join(map(str, val))
        raise UserError(
            f"val is a dataset, or a mapping with val and others that are called val_…; this is one of {names}: write "
            'val={"val": …, "val_noisy": …}, and measure others with trainer.evaluate'
        )
    return dict(val)


def require_fixed_order(data: Data) -> None:
    """Refuse a loader that shuffles where the same batches are due."""
    sampler = getattr(data, "sampler", None)
    if isinstance(data, torch.utils.data.DataLoader) and not isinstance(sampler, torch.utils.data.SequentialSampler):
        raise UserError("overfit needs the same batches in every epoch, and this DataLoader shuffles; pass its dataset")


def require_data(data: Data) -> None:
    """Refuse what would be taken for batches and is none."""
    if isinstance(data, tuple) and len(data) > 1 and all(isinstance(one, torch.Tensor) for one in data):
        raise UserError("a tuple of tensors is not a dataset; wrap it: torch.utils.data.TensorDataset(inputs, targets)")
    if isinstance(data, torch.utils.data.Dataset) and not hasattr(data, "__len__") and not is_stream(data):
        raise UserError(f"the dataset {type(data).__name__} has no __len__; a stream has __iter__ instead")
    if isinstance(data, Mapping):
        names = ", ".join(map(str, data))
        raise UserError(
            f"data is a dataset or gives batches; this is a {type(data).__name__} with {names}: pass one of them, and "
            "measure others with trainer.evaluate"
        )
    first = data[0] if isinstance(data, list | tuple) and data else None
    if isinstance(first, torch.utils.data.DataLoader | Loader) or _is_dataset(first):
        raise UserError(
            f"a list is taken as a list of batches, and its first item is a {type(first).__name__}; pass that, join "
            "several with torch.utils.data.ConcatDataset, and measure others with trainer.evaluate"
        )
    if isinstance(first, list | tuple) and len(first) > 1 and _is_scalar(first[-1]):
        raise UserError(
            "a list is taken as a list of batches, and its first item looks like one sample: its target is a single "
            "number; pass a dataset, or DataLoader(list, batch_size=…)"
        )


def _is_dataset(value: Any) -> bool:
    plain = isinstance(value, torch.Tensor | list | tuple | Mapping | str) or hasattr(value, "dtype")
    return not plain and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.ndim == 0)


def deals_out(data: Any) -> bool:
    """Return whether a loader gives every rank different batches, as one with torch's DistributedSampler does."""
    samplers = (getattr(data, "sampler", None), getattr(getattr(data, "batch_sampler", None), "sampler", None))
    return any(isinstance(sampler, torch.utils.data.DistributedSampler) for sampler in samplers)


def loader_of(
    placed: Placement,
    data: Data,
    batch_size: int | None,
    *,
    seed: int | None,
    shuffle: bool = False,
    workers: int = 0,
    limit: int | None = None,
    in_parts: bool = True,
) -> Any:
    """Return the loader of a dataset, or one around what gives batches already (``batch_size`` None)."""
    parts = placed.mesh.parts if in_parts else 0
    if batch_size is None:
        # A loader that cannot say where it is: an exact resume reads it again up to there.
        own = data if hasattr(data, "load_state_dict") else Replay(data)
        if (placed.world.is_many and not deals_out(data)) or parts:
            own = Sliced(own, placed.mesh.share, parts)
        return own if limit is None else Limited(own, limit)
    return Loader(
        data,
        batch_size=batch_size,
        shuffle=shuffle and not is_stream(data),
        seed=seed or 0,
        device=None if placed.device.type == "cpu" else placed.device,
        workers=workers,
        shard=placed.mesh.share,
        parts=parts,
        limit=limit,
    )
