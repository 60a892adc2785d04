"""Converts checkpoints to the layouts of other systems and back, and averages several."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

import torch

from etude.checkpoint import warm_start
from etude.checkpoint.find import find, is_native
from etude.checkpoint.formats import layouts, safetensors
from etude.checkpoint.formats.torch_file import reported
from etude.checkpoint.manifest import Manifest
from etude.checkpoint.snapshot import Arena
from etude.checkpoint.storage import disk
from etude.checkpoint.storage.places import LocalDisk, local_path, locate
from etude.checkpoint.tools import content
from etude.checkpoint.tools.content import NATIVE, Content
from etude.checkpoint.write import Job, Outcome, write_checkpoint
from etude.errors import ConfigError, SaveError, UserError, printable
from etude.errors.spelling import nearest

#: A folder as ``torch.distributed.checkpoint`` writes and reads it.
DCP = "dcp"
_WEIGHTS_ALONE = ("safetensors", "state_dict")
#: What a file of this ending is taken for by everything else that opens it.
ENDINGS = {
    ".safetensors": "safetensors", ".pth": "state_dict", ".pt": "state_dict", ".bin": "state_dict",
    ".ckpt": "state_dict",
}  # fmt: skip


def convert(
    source: str, target: str, *, layout: str = "", key: str = "", optimizer: bool = False, trust: bool = False
) -> tuple[str, str]:
    """Write the weights of ``source`` (those at ``key``) to ``target``; return what was written and its layout."""
    layout = choose_layout(target, layout)
    if optimizer and layout in _WEIGHTS_ALONE:
        others = [one for one in choices() if one not in _WEIGHTS_ALONE]
        raise UserError(f"{layout} holds weights alone; --optimizer goes with --to {', '.join(others)}")
    _check_room(target, layout)
    found = content.read(source, trust=trust)
    state = found.optimizer() if optimizer else None
    if optimizer and state is None:
        raise ConfigError(f"{printable(source)} has no optimizer state to convert")
    if layout == NATIVE:
        return write_native(target, found, key, state), layout
    meta = {"epoch": found.epoch or 0, "iter": found.step or 0}
    write(target, found.weights(key), layout=layout, meta=meta, optimizer=state)
    return target, layout


def choices() -> tuple[str, ...]:
    """Return the layouts that can be written."""
    return (*_WEIGHTS_ALONE, *layouts.writable(), DCP, NATIVE)


def choose_layout(target: str, layout: str = "", *, among: Sequence[str] = ()) -> str:
    """Return the requested layout, or that of the name's ending; refuse a name that contradicts its layout."""
    among = among or choices()
    ending = os.path.splitext(target)[1].lower()
    if layout == DCP and ("://" in local_path(target) or (os.path.isdir(target) and os.listdir(target))):
        raise UserError(f"{printable(target)}: --to {DCP} writes a folder on a local disk that is new or empty")
    if layout not in (NATIVE, DCP) and os.path.isdir(target):
        example = os.path.join(target, "model.pth")
        raise UserError(f"{printable(target)} is a folder; name the file to write, as {printable(example)}")
    if layout and layout not in among:
        raise ConfigError(f"no layout is called {layout!r}", hint=f"one of {', '.join(among)}")
    stands_for = ENDINGS.get(ending, "")
    if not layout and not stands_for:
        near = nearest(ending, list(ENDINGS)) or ".safetensors or .pth"
        raise UserError(
            f"{printable(target)}: unknown layout, because of the ending; use {near}, or pass --to " + " | ".join(among)
        )
    if layout in (NATIVE, DCP) and stands_for:
        raise UserError(f"{printable(target)}: --to {layout} writes a folder; leave the ending {ending} out")
    if layout and stands_for and (layout == "safetensors") != (stands_for == "safetensors"):
        right = ".safetensors" if layout == "safetensors" else ".pth"
        raise UserError(f"{printable(target)} looks like {stands_for}, but --to says {layout}; use the ending {right}")
    return layout or stands_for


def _check_room(target: str, layout: str) -> None:
    """Refuse a target that cannot be written before a large file is read."""
    target = local_path(target)
    if "://" in target:
        return
    if layout == NATIVE:
        if os.path.isfile(target):
            raise UserError(f"{printable(target)} is a file; --to {NATIVE} writes a folder below the one you name")
        return
    above = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(above):
        raise UserError(f"there is no folder {printable(above)} to write {printable(os.path.basename(target))} to")


def write(
    target: str, weights: Mapping[str, torch.Tensor], *, layout: str, meta: Mapping[str, Any], optimizer: Any = None
) -> None:
    """Write ``weights`` as a file or folder of another system, completely or not at all."""
    if layout == DCP:
        more = {"optimizer": optimizer} if optimizer is not None else {}
        _write_dcp(target, {"model": dict(weights), **more, "step": meta["iter"], "epoch": meta["epoch"]})
        return
    if layout == "safetensors":
        unknown = next((name for name, value in weights.items() if value.dtype not in safetensors.CODES), None)
        if unknown is not None:
            kind = str(weights[unknown].dtype).removeprefix("torch.")
            raise UserError(f"{printable(unknown)}: safetensors has no {kind}; a .pth file has")
        plain = {"format": "pt"} | {key: str(value) for key, value in meta.items()}
        _put(target, lambda file: safetensors.write(file, weights, metadata=plain))
        return
    made: dict[str, Any] = dict(weights)
    for known in layouts.known():
        if known.name == layout and known.arrange is not None:
            made = known.arrange(weights, meta, optimizer)
    _put(target, lambda file: torch.save(made, file))


def write_native(folder: str, found: Content, key: str = "", optimizer: Any = None) -> str:
    """Write the weights as a checkpoint ``weights-N`` below ``folder``, with checksums: to start from, not to resume
    from."""
    parts = {"model": found.weights(key)} | ({"optimizer": optimizer} if optimizer is not None else {})
    return _write_below(
        folder, parts, Manifest(step=found.step or 0, epoch=found.epoch or 0, kind="weights"), "weights"
    )


def _write_below(folder: str, state: Mapping[str, Any], manifest: Manifest, prefix: str) -> str:
    """Write ``state`` as a checkpoint of Étude below ``folder``; return its path."""
    snapshot = Arena().take(state)
    described = replace(manifest, parts=snapshot.parts, files={}, shards={})
    place, where = locate(folder)
    with reported(folder):
        entry = write_checkpoint(place, where, Job(snapshot, described, prefix, (), Outcome(manifest.step)))
    return place.join(folder, entry.name)


def _write_dcp(target: str, state: dict[str, Any]) -> None:
    """Write with torch's own writer to a temporary file, and rename when everything is there."""
    # Here, since importing it takes about two seconds.
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_saver import save

    part = f"{local_path(target).rstrip('/')}.tmp-{os.getpid()}"
    try:
        with reported(target), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save(state, checkpoint_id=part, no_dist=True)
            os.rename(part, local_path(target))
    except CheckpointException as failed:
        reason = next(iter(failed.failures.values()), (failed,))[0]
        raise SaveError(f"{printable(target)} could not be written: {printable(str(reason))}") from failed
    finally:
        disk.remove_tree(part)


def consolidate(source: str, folder: str) -> str:
    """Write a checkpoint that lies in the pieces of several ranks with whole tensors below ``folder``."""
    path = find(source)
    if not is_native(path):
        raise UserError(f"{printable(path)} is not an Étude checkpoint; `etude ckpt convert` reads it")
    loaded = warm_start.load_native(path)
    if not loaded.manifest.shards:
        raise UserError(f"{printable(path)} has whole tensors already: there is nothing to put together")
    prefix = os.path.basename(path.rstrip("/")).rpartition("-")[0]
    return _write_below(folder, loaded.state, loaded.manifest, prefix)


def _put(target: str, fill: Callable[[IO[bytes]], Any]) -> None:
    """Write a file for others to load: readable as the umask says, unlike a run's own files."""
    place, where = locate(target)
    with reported(target):
        if isinstance(place, LocalDisk):
            disk.write_atomically(where, fill, mode=0o666)
        else:
            place.write_atomically(where, fill)


def average(sources: Sequence[str], target: str, *, key: str = "", trust: bool = False) -> int:
    """Average the weights of several checkpoints; return how many tensors were averaged.

    Sums are kept in double precision. What is no floating-point number (a counter) is taken from the last one.
    """
    if len(sources) < 2:
        raise UserError("an average needs at least two checkpoints")
    layout = choose_layout(target, among=_WEIGHTS_ALONE)
    _check_room(target, layout)
    total: dict[str, torch.Tensor] = {}
    last: dict[str, torch.Tensor] = {}
    for source in sources:
        before, last = last, warm_start.read_weights(source, key=key, trust=trust)
        if before:
            _require_same_names(before, last, sources[0], source)
        for name, value in last.items():
            if value.is_floating_point() or value.is_complex():
                total[name] = total[name] + _wide(value) if name in total else _wide(value)
    mean = {name: total[name].div(len(sources)).to(v.dtype) if name in total else v for name, v in last.items()}
    write(target, mean, layout=layout, meta={"averaged": len(sources)})
    return len(total)


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _require_same_names(
    first: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor], left: str, right: str
) -> None:
    """Refuse to average different models, and name the first weights that do not match."""
    match = warm_start.compare(first, other)
    if not match.exact:
        raise ConfigError(
            f"{printable(right)} has other weights than {printable(left)}\n"
            + warm_start.describe(match, most=8, sides=("first", "other"))
        )
