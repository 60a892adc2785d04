"""Writes a model as a program or as weights, and checks the file against the model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude.errors import MissingExtra, UserCodeError, UserError, printable
from etude.losses.outputs import as_mapping
from etude.units import either

SUFFIXES = (".pt2", ".onnx", ".safetensors")
Inputs = tuple[tuple[Any, ...], dict[str, Any]]
#: How far the answers of an exported program may differ from the model's.
_RTOL, _ATOL = 1e-3, 1e-4


def write(model: torch.nn.Module, path: Path, inputs: Inputs | None) -> str:
    """Write ``model`` to ``path`` by its suffix and check it; a file that fails the check is removed."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"{printable(str(path))}: a model is exported as {either(SUFFIXES)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        said = _weights(model, part) if inputs is None else _program(model, part, inputs)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return said


def _weights(model: torch.nn.Module, path: Path) -> str:
    from safetensors.torch import load_model, save_model

    save_model(model, str(path))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    load_model(model, str(path))
    wrong = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    if wrong:
        raise UserCodeError(f"the weights that were written differ from the model's in {wrong[0]}")
    return f"{len(before)} tensors, the same as the model's"


@torch.no_grad()
def _program(model: torch.nn.Module, path: Path, inputs: Inputs) -> str:
    model.eval()
    args, words = inputs
    shapes = _dynamic(args, words)
    try:
        program = torch.export.export(model, args, words or None, dynamic_shapes=shapes)
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserCodeError(f"torch.export cannot trace {type(model).__name__}: {printable(first)}") from error
    other = _resized(args), {key: _resized(value) for key, value in words.items()}
    wanted = _tensors(model(*other[0], **other[1]))
    if path.suffix == ".pt2":
        torch.export.save(program, str(path))
        found = _tensors(torch.export.load(str(path)).module()(*other[0], **other[1]))
    else:
        found = _by_onnx(program, path, other)
    return _compared(wanted, found, _size(other))


def _by_onnx(program: Any, path: Path, inputs: Inputs) -> list[Tensor]:
    """Write the program as ONNX, and return the outputs that onnxruntime computes."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "onnxruntime", "export", "exporting to ONNX") from None
    torch.onnx.export(program, f=str(path), external_data=False, verbose=False)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    values = [value for value in (*inputs[0], *inputs[1].values()) if isinstance(value, Tensor)]
    feed = {slot.name: value.numpy() for slot, value in zip(session.get_inputs(), values, strict=True)}
    return [torch.from_numpy(value) for value in session.run(None, feed)]


def _dynamic(args: tuple[Any, ...], words: Mapping[str, Any]) -> Any:
    """Return the dynamic shapes: the first dimension of every input is the batch, of any size."""
    batch = torch.export.Dim("batch", min=1)

    def of(value: Any) -> Any:
        if isinstance(value, Tensor) and value.ndim:
            return {0: batch}
        return None

    return {key: of(value) for key, value in words.items()} if words else tuple(of(value) for value in args)


def _resized(value: Any) -> Any:
    """Return the inputs without their last sample: another batch size than the traced one."""
    if isinstance(value, tuple):
        return tuple(_resized(one) for one in value)
    return value[: max(1, len(value) - 1)] if isinstance(value, Tensor) and value.ndim else value


def _size(inputs: Inputs) -> int:
    return next((len(v) for v in (*inputs[0], *inputs[1].values()) if isinstance(v, Tensor) and v.ndim), 0)


def _tensors(output: Any) -> list[Tensor]:
    named = as_mapping(output)
    values = list(named.values()) if named is not None else output if isinstance(output, list | tuple) else [output]
    return [value for value in values if isinstance(value, Tensor)]


def _compared(wanted: list[Tensor], found: list[Tensor], size: int) -> str:
    if len(wanted) != len(found):
        raise UserCodeError(f"the exported program gives {len(found)} tensors, the model {len(wanted)}")
    worst = max(float((a.double() - b.double()).abs().max()) for a, b in zip(wanted, found, strict=True))
    for a, b in zip(wanted, found, strict=True):
        if a.shape != b.shape or not torch.allclose(a.double(), b.double(), rtol=_RTOL, atol=_ATOL):
            raise UserCodeError(f"the exported program differs from the model by {worst:.2g} on a batch of {size}")
    return f"checked on a batch of {size}: differs from the model by at most {worst:.2g}"
