"""How names of weights that found no place are reported: those of one layer in one line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def get_missing_parameters_message(keys: Iterable[str]) -> str:
    return "Some model parameters or buffers are not found in the checkpoint:\n" + "\n".join(_by_layer(keys))


def get_unexpected_parameters_message(keys: Iterable[str]) -> str:
    head = "The checkpoint state_dict contains keys that are not used by the model:\n"
    return head + "\n".join(f"  {line}" for line in _by_layer(keys))


def _by_layer(keys: Iterable[str]) -> list[str]:
    """``fc.{bias, weight}`` for what a layer has, in the order of the names."""
    layers: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        layer, dot, name = key.rpartition(".")
        layers[layer if dot else name].extend([name] if dot else [])
    return [layer + _listed(sorted(names)) for layer, names in sorted(layers.items())]


def _listed(names: list[str]) -> str:
    return f".{{{', '.join(names)}}}" if len(names) > 1 else "".join(f".{name}" for name in names)
