"""What ``etude ckpt`` does: list, show, verify, compare, convert, prune and average checkpoints of any system."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from etude.checkpoint import disk, foreign, tensors, warm
from etude.checkpoint import load as reading
from etude.checkpoint import manifest as manifests
from etude.checkpoint.find import find
from etude.checkpoint.manifest import human
from etude.checkpoint.places import locate
from etude.checkpoint.store import Store
from etude.errors import ConfigError, ResumeError, UserError, printable
from etude.events.jsonl import TIMING_OFFSET

LAYOUTS = ("safetensors", "state_dict", "mmcv", "mmengine")


def store_folder(path: str) -> str:
    """The folder with the checkpoints: ``path`` itself, or the one inside a run's folder."""
    place = locate(path)[0]
    inner = place.join(path, "checkpoints")
    if "://" not in path and not os.path.isdir(path):
        raise UserError(f"{printable(path)} is not a folder")
    return inner if place.names(locate(inner)[1]) else path


def is_checkpoint(path: str) -> bool:
    """Whether ``path`` is one native checkpoint, not a folder of them or a file."""
    place, where = locate(path)
    return manifests.NAME in place.names(where)


def rows(path: str) -> list[tuple[str, ...]]:
    """One line per checkpoint for ``ls``: name, step, epoch, size, when, metrics or what is wrong."""
    place, folder = locate(store_folder(path))
    listed: list[tuple[str, ...]] = []
    for name in place.names(folder):
        if name.startswith(".") or name == "latest":
            continue
        try:
            manifest = reading.read_manifest(place, place.join(folder, name), trust_owner=True)
        except ResumeError as error:
            listed.append((name, "", "", "", "", str(error)))
            continue
        metrics = "  ".join(f"{key} {value:.4g}" for key, value in manifest.metrics.items())
        note = manifest.kind if manifest.kind != "full" else ""
        listed.append(
            (name, str(manifest.step), str(manifest.epoch), human(manifest.size), manifest.saved, metrics or note)
        )
    return listed


def read_any(path: str, *, trust: bool = False) -> dict[str, Any]:
    """The content of a native checkpoint (part → state), of the newest one of a run, or of a foreign file."""
    path = find(path)
    if is_checkpoint(path):
        place, where = locate(path)
        return reading.load(place, where, trust_owner=trust).state
    return foreign.read(path, trust=trust)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree that is no container, with its dotted path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}" if path else str(index))
    else:
        yield path, value


def describe(value: Any) -> str:
    """A tensor by dtype, shape and range; anything else by its beginning."""
    if isinstance(value, torch.Tensor):
        shape = "×".join(map(str, value.shape)) or "scalar"
        kind = str(value.dtype).removeprefix("torch.")
        if value.numel() and value.is_floating_point():
            low, high = torch.aminmax(value.float())
            return f"{kind} {shape}  {float(low):.4g} … {float(high):.4g}"
        return f"{kind} {shape}"
    return printable(repr(value))[:80]


def check(path: str, *, trust_owner: bool = False) -> list[tuple[str, str]]:
    """Verify one checkpoint or all of a folder: (name, what is wrong or empty)."""
    if os.path.isfile(path) and os.path.basename(path) == "latest":
        path = find(path)
    place, where = locate(path)
    found = [where]
    if not is_checkpoint(path):
        folder = locate(store_folder(path))[1]
        kept = [name for name in place.names(folder) if not name.startswith(".") and name != "latest"]
        found = [place.join(folder, name) for name in kept]
        if not found:
            raise UserError(f"no checkpoint in {printable(path)}")
    results = []
    for one in found:
        try:
            reading.verify(place, one, trust_owner=trust_owner)
            results.append((os.path.basename(one), ""))
        except ResumeError as error:
            results.append((os.path.basename(one), str(error)))
    return results


@dataclass(frozen=True)
class Difference:
    """One path at which two contents are not the same."""

    path: str
    left: str
    right: str


def differences(left: Any, right: Any) -> list[Difference]:
    """All leaves that differ, except for what the clock says; tensors are compared bit by bit and told by their
    largest difference."""
    first, second = (
        {path: value for path, value in leaves(tree) if not path.endswith(TIMING_OFFSET)} for tree in (left, right)
    )
    found = []
    for path in [*first, *(path for path in second if path not in first)]:
        if path not in first or path not in second:
            found.append(Difference(path, _side(first, path), _side(second, path)))
        elif not same(first[path], second[path]):
            found.append(Difference(path, *_contrast(first[path], second[path])))
    return found


def same(left: Any, right: Any) -> bool:
    """The same bits; NaN is the same as NaN."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and bytes(tensors.bytes_of(left.contiguous())) == bytes(tensors.bytes_of(right.contiguous()))
    if hasattr(left, "dtype") and hasattr(right, "dtype"):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    return type(left) is type(right) and (left == right or (left != left and right != right))


def _side(known: Mapping[str, Any], path: str) -> str:
    return describe(known[path]) if path in known else "(none)"


def _contrast(left: Any, right: Any) -> tuple[str, str]:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.shape == right.shape:
        gap = (left.double() - right.double()).abs().max() if left.numel() else 0.0
        return describe(left), f"{describe(right)}  (largest difference {float(gap):.3g})"
    return describe(left), describe(right)


def convert(source: str, target: str, *, layout: str = "", optimizer: bool = False, trust: bool = False) -> str:
    """Weights of ``source`` into the file ``target``; returns the layout that was written."""
    layout = layout or ("safetensors" if target.endswith(".safetensors") else "state_dict")
    if layout not in LAYOUTS:
        raise ConfigError(f"no layout is called {layout!r}", hint=f"one of {', '.join(LAYOUTS)}")
    content = read_any(source, trust=trust)
    weights = warm.weights_in(content, at=source)
    write(target, weights, layout=layout, meta=_meta(source, content), optimizer=_optimizer(content, optimizer))
    return layout


def write(
    target: str, weights: Mapping[str, torch.Tensor], *, layout: str, meta: Mapping[str, Any], optimizer: Any = None
) -> None:
    """``weights`` as a file of another system, whole or not at all."""
    if layout == "safetensors":
        plain = {"format": "pt"} | {key: str(value) for key, value in meta.items()}
        disk.write_atomically(target, lambda file: tensors.write(file, weights, metadata=plain))
        return
    content: dict[str, Any] = dict(weights)
    if layout in ("mmcv", "mmengine"):
        content = {"meta": dict(meta), "state_dict": dict(weights)}
        if layout == "mmengine":
            content["message_hub"] = {"log_scalars": {}, "runtime_info": dict(meta), "resumed_keys": {}}
        if optimizer is not None:
            content["optimizer"] = optimizer
    disk.write_atomically(target, lambda file: torch.save(content, file))


def _meta(source: str, content: Mapping[str, Any]) -> dict[str, Any]:
    given = content.get("meta") or content.get("counters") or {}
    steps = given.get("iter", given.get("step", 0)) if isinstance(given, Mapping) else 0
    epochs = given.get("epoch", 0) if isinstance(given, Mapping) else 0
    return {"epoch": int(epochs), "iter": int(steps)}


def _optimizer(content: Mapping[str, Any], wanted: bool) -> Any:
    if not wanted:
        return None
    if "optimizer" not in content:
        raise ConfigError("there is no optimizer state to convert")
    return content["optimizer"]


def average(sources: Sequence[str], target: str, *, trust: bool = False) -> int:
    """The mean of the weights of several checkpoints; returns how many tensors were averaged.

    Sums are kept in double precision. What is no floating-point number (a counter) is taken from the last one.
    """
    if len(sources) < 2:
        raise UserError("an average needs at least two checkpoints")
    total: dict[str, torch.Tensor] = {}
    last: dict[str, torch.Tensor] = {}
    for source in sources:
        last = warm.read_weights(source, trust=trust)
        if total and set(total) != {name for name, value in last.items() if value.is_floating_point()}:
            raise ConfigError(f"{printable(source)} has other weights than {printable(sources[0])}")
        for name, value in last.items():
            if value.is_floating_point():
                total[name] = total[name] + value.double() if name in total else value.double()
    mean = {name: total[name].div(len(sources)).to(v.dtype) if name in total else v for name, v in last.items()}
    layout = "safetensors" if target.endswith(".safetensors") else "state_dict"
    write(target, mean, layout=layout, meta={"averaged": len(sources)})
    return len(total)


def prune(store: Store, *, aside: bool = False, dry: bool = False) -> list[str]:
    """Delete what the store's retention does not keep, and on request what was set aside; returns the names."""
    kept = {entry.name for entry in store.retention.keep(store.entries())}
    gone = [entry.name for entry in store.entries() if entry.name not in kept]
    extra = [name for name in os.listdir(store.folder) if name.startswith(("aside-", "broken-"))] if aside else []
    if not dry:
        store.prune()
        for name in extra:
            store.discard(name)
    return [*gone, *sorted(extra)]


def newest_run(root: str = "runs") -> str:
    """The run folder that was written last, for commands without a path."""
    found = sorted(Path(root).glob("*/*/checkpoints"), key=lambda path: path.parent.name)
    if not found:
        raise UserError(f"no run with checkpoints below {root}/; give a path")
    return str(found[-1].parent)
