"""``mmengine.analysis``: parameters, operations and activations of a model, counted by torch's own counter.

As there, one multiplication with its addition is one operation, and norms, resizing and adaptive pooling count too.
What is counted is what runs, not a traced graph: attention in one kernel counts, and so does what no trace can follow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from etude.errors import OutOfScope

_Formula = Callable[..., int]


def _norm(*shapes: Any, out_shape: Any = None, **_: Any) -> int:
    affine = len(shapes) > 1 and isinstance(shapes[1], torch.Size | list | tuple) and bool(shapes[1])
    return int(2 * prod(shapes[0]) * (5 if affine else 4))


def _layer_norm(*shapes: Any, out_shape: Any = None, **_: Any) -> int:
    return int(2 * prod(shapes[0]) * (5 if shapes[2] is not None else 4))


def _batch_norm(*shapes: Any, out_shape: Any = None, **_: Any) -> int:
    """Outside of training it is a product and a sum."""
    if len(shapes) > 5 and shapes[5] is True:
        return _norm(*shapes)
    return int(2 * prod(shapes[0]) * (2 if shapes[1] is not None else 1))


def _of_input(share: int) -> _Formula:
    return lambda *shapes, out_shape=None, **_: 2 * share * prod(shapes[0])


def _of_output(share: int) -> _Formula:
    return lambda *shapes, out_shape=None, **_: 2 * share * prod(out_shape)


def _elements(*shapes: Any, out_shape: Any = None, **_: Any) -> int:
    return prod(out_shape)


#: torch's operators beside products, which its counter knows, by their names; those that a version lacks are left out.
_OPERATIONS: dict[str, _Formula] = {
    "native_batch_norm": _batch_norm, "cudnn_batch_norm": _batch_norm, "native_group_norm": _norm,
    "native_layer_norm": _layer_norm, "upsample_nearest2d": _of_output(1), "upsample_bilinear2d": _of_output(4),
    "_adaptive_avg_pool2d": _of_input(1), "grid_sampler_2d": _of_output(4),
}  # fmt: skip
_ACTIVE = ("convolution", "_convolution", "addmm", "mm", "bmm", "baddbmm")
_WORDS = {"convolution": "conv", "_convolution": "conv", "native_batch_norm": "batch_norm",
          "cudnn_batch_norm": "batch_norm", "native_group_norm": "group_norm", "native_layer_norm": "layer_norm",
          "_adaptive_avg_pool2d": "adaptive_avg_pool2d", "grid_sampler_2d": "grid_sampler"}  # fmt: skip


class _Analyzer:
    """Counts while the model sees ``inputs`` once. ``""`` is the whole model, ``backbone.layer1`` a part of it."""

    _formulas: Mapping[str, _Formula]
    _share: int
    _only: tuple[str, ...] = ()

    def __init__(self, model: nn.Module, inputs: torch.Tensor | tuple[Any, ...]) -> None:
        self._model = model
        self._inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self._counted: dict[str, Counter[str]] | None = None

    def total(self, module_name: str = "") -> int:
        """All of a part."""
        return sum(self.by_operator(module_name).values())

    def by_operator(self, module_name: str = "") -> Counter[str]:
        """Of a part, by operators as torch calls them; a linear layer is ``addmm`` or ``mm``."""
        known = dict(self._model.named_modules(remove_duplicate=False))
        if module_name not in known:
            raise KeyError(f"{module_name} is not a module of {type(self._model).__name__}")
        return Counter(self.by_module_and_operator()[module_name])

    def by_module(self) -> Counter[str]:
        return Counter({name: sum(found.values()) for name, found in self.by_module_and_operator().items()})

    def by_module_and_operator(self) -> dict[str, Counter[str]]:
        if self._counted is None:
            self._counted = self._count()
        return self._counted

    def _count(self) -> dict[str, Counter[str]]:
        aten: Any = torch.ops.aten
        packets = {getattr(aten, name): formula for name, formula in self._formulas.items() if hasattr(aten, name)}
        # The overload beside its packet: what is not in the table as such is taken apart before it is counted.
        overloads = {packet.default: formula for packet, formula in packets.items() if hasattr(packet, "default")}
        mode = FlopCounterMode(display=False, custom_mapping={**packets, **overloads})
        with torch.no_grad(), mode:
            self._model(*self._inputs)
        root = type(self._model).__name__
        counted = {name: Counter[str]() for name, _ in self._model.named_modules(remove_duplicate=False)}
        for path, found in mode.get_flop_counts().items():
            name = "" if path in ("Global", root) else path.removeprefix(f"{root}.")
            if path != "Global" and name in counted:
                counted[name] = self._named(found)
        return counted

    def _named(self, found: Mapping[Any, int]) -> Counter[str]:
        named: Counter[str] = Counter()
        for operator, count in found.items():
            name = str(operator).rpartition(".")[2]
            if not self._only or name in self._only:
                named[_WORDS.get(name, name)] += count // self._share
        return named

    def __getattr__(self, name: str) -> Any:
        if name in ("set_op_handle", "unsupported_ops", "uncalled_modules", "tracer_warnings", "ancestor_mode"):
            raise OutOfScope(f"{type(self).__name__}.{name}: operators are counted by torch.utils.flop_counter, whose "
                             "`custom_mapping` takes formulas of your own")  # fmt: skip
        raise AttributeError(name)


class FlopAnalyzer(_Analyzer):
    """Operations: ``total()``, ``by_operator()``, ``by_module()``, ``by_module_and_operator()``."""

    _formulas, _share = _OPERATIONS, 2


class ActivationAnalyzer(_Analyzer):
    """Elements that convolutions and products give out."""

    _formulas, _share = dict.fromkeys(_ACTIVE, _elements), 1
    _only = _ACTIVE


def flop_count(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[defaultdict[str, float], Counter[str]]:
    """Operations in billions by operator; nothing is listed as unsupported."""
    found = FlopAnalyzer(model, inputs).by_operator()
    return defaultdict(float, {name: count / 1e9 for name, count in found.items()}), Counter()


def activation_count(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[defaultdict[str, float], Counter[str]]:
    """Activations in millions by operator; nothing is listed as unsupported."""
    found = ActivationAnalyzer(model, inputs).by_operator()
    return defaultdict(float, {name: count / 1e6 for name, count in found.items()}), Counter()


def parameter_count(model: nn.Module) -> defaultdict[str, int]:
    """Elements of every parameter and of every part; ``""`` is the whole model. What is shared counts once."""
    count: defaultdict[str, int] = defaultdict(int)
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        for depth in range(len(parts) + 1):
            count[".".join(parts[:depth])] += parameter.numel()
    return count


def parameter_count_table(model: nn.Module, max_depth: int = 3) -> str:
    """The same to read, down to ``max_depth``; of parameters their shapes."""
    shapes = {name: str(tuple(parameter.shape)) for name, parameter in model.named_parameters()}
    rows = [
        (" " * (name.count(".") + bool(name)) + (name or "model"), shapes.get(name) or formatted(count, digits=1))
        for name, count in parameter_count(model).items()
        if not name or name.count(".") < max_depth
    ]
    return f"parameter count of {type(model).__name__}\n{_table(('name', '#elements or shape'), rows)}"


def get_model_complexity_info(
    model: nn.Module,
    input_shape: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None,
    inputs: torch.Tensor | tuple[Any, ...] | None = None,
    show_table: bool = True,
    show_arch: bool = True,
) -> dict[str, Any]:
    """``flops``, ``activations`` and ``params``, also as text; a table by parts, and the model with the numbers."""
    if (input_shape is None) == (inputs is None):
        both = '"input_shape" and "inputs" cannot be both set.'
        raise ValueError('One of "input_shape" and "inputs" should be set.' if inputs is None else both)
    given = _random(model, input_shape) if inputs is None else inputs
    counts = {
        "params": parameter_count(model),
        "flops": FlopAnalyzer(model, given).by_module(),
        "activations": ActivationAnalyzer(model, given).by_module(),
    }
    found: dict[str, Any] = {}
    for word in ("flops", "activations", "params"):
        found[word] = counts[word][""]
        found[f"{word}_str"] = formatted(counts[word][""])
    found["out_table"] = f"\n{_by_parts(model, counts)}" if show_table else ""
    found["out_arch"] = f"\n{_architecture(model, counts)}" if show_arch else ""
    return found


def _random(model: nn.Module, shape: Any) -> tuple[torch.Tensor, ...]:
    shapes = (shape,) if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape) else shape
    if not isinstance(shapes, tuple) or not all(isinstance(one, tuple) for one in shapes):
        raise ValueError('"input_shape" should be a tuple of int, or a tuple of such tuples for several inputs')
    device = next(model.parameters()).device
    return tuple(torch.randn(1, *one).to(device) for one in shapes)


def formatted(count: float, digits: int = 3) -> str:
    """``1234567`` → ``1.235M``"""
    for least, unit, sign in ((1e14, 1e15, "P"), (1e11, 1e12, "T"), (1e8, 1e9, "G"), (1e5, 1e6, "M"), (1e2, 1e3, "K")):
        if abs(count) > least:
            text = f"{count / unit:.{digits}f}"
            return (text.rstrip("0").rstrip(".") if digits > 1 else text) + sign
    return str(count)


def _by_parts(model: nn.Module, counts: Mapping[str, Mapping[str, int]]) -> str:
    rows = [
        (name or "model", *(formatted(counts[word].get(name, 0)) for word in counts))
        for name, _ in model.named_modules()
    ]
    return _table(("module", "#parameters", "#flops", "#activations"), rows)


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    widths = [max(len(str(row[column])) for row in (head, *rows)) for column in range(len(head))]
    lines = ["| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
             for row in (head, *rows)]  # fmt: skip
    rule = "|-" + "-|-".join("-" * width for width in widths) + "-|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _architecture(model: nn.Module, counts: Mapping[str, Mapping[str, int]]) -> str:
    """``repr`` of the model with the numbers of every part in its first line."""

    def shown(module: nn.Module, name: str) -> str:
        numbers = [f"#{word}: {formatted(counts[word].get(name, 0))}" for word in counts if counts[word].get(name)]
        lines = [", ".join([word for word in (module.extra_repr(), *numbers) if word])]
        for key, child in module.named_children():
            inner = shown(child, f"{name}.{key}" if name else key)
            lines.append(f"({key}): {inner}")
        body = "\n".join(lines)
        return f"{type(module).__name__}({body})" if len(lines) == 1 else (
            f"{type(module).__name__}(\n" + "\n".join(f"  {line}" for line in body.splitlines()) + "\n)"
        )  # fmt: skip

    return shown(model, "")
