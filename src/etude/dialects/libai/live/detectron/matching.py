"""Weights that find their place in a model by the ends of their names."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger("detectron2.checkpoint.c2_model_loading")


def align_and_update_state_dicts(
    model_state_dict: Mapping[str, Any], ckpt_state_dict: Mapping[str, Any], c2_conversion: bool = True
) -> dict[str, Any]:
    """The weights of a checkpoint under the names that the model has for them.

    ``layer1.weight`` fits ``backbone.layer1.weight``; of several that fit, the longest name wins. What fits nowhere
    keeps its name, so that it is reported. Caffe2's names are not translated: ``c2_conversion`` is taken and not used.
    """
    found: dict[str, Any] = {}
    taken_from: dict[str, str] = {}
    for name in sorted(model_state_dict):
        source = _longest_end(name, ckpt_state_dict)
        if source is None:
            continue
        value, own = ckpt_state_dict[source], model_state_dict[name]
        if tuple(value.shape) != tuple(own.shape):
            shapes = f"{tuple(value.shape)} in the checkpoint, {tuple(own.shape)} in the model"
            logger.warning(f"{source} will not be loaded as {name}: {shapes}")
            continue
        if source in taken_from:
            raise ValueError(
                f"Ambiguity found for {source} in checkpoint! "
                f"It matches at least two keys in the model ({name} and {taken_from[source]})."
            )
        taken_from[source], found[name] = name, value
    if not found:
        logger.warning("No weights in checkpoint matched with model.")
        return dict(ckpt_state_dict)
    return OrderedDict(found) | {name: value for name, value in ckpt_state_dict.items() if name not in taken_from}


def _longest_end(name: str, names: Mapping[str, Any]) -> str | None:
    """The longest of ``names`` that ``name`` is, or ends with after a dot."""
    rest = name
    while rest not in names:
        _, dot, rest = rest.partition(".")
        if not dot:
            return None
    return rest
