"""Collects a model's outputs for every sample of some data, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from etude.core.evaluation import PREDICTION, own_step
from etude.core.forward import Forward, takes
from etude.data.to_device import move
from etude.dist.layout.shards import whole_in
from etude.errors import UserCodeError
from etude.losses.outputs import as_mapping


@torch.no_grad()
def predict(
    forward: Forward,
    batches: Iterable[Any],
    *,
    device: torch.device | None = None,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Any:
    """Return the answers to all batches as one tensor on the CPU, as a mapping of tensors if the model gives one,
    or as a list if it gives a mapping for each sample."""
    answers = list(answers_to(forward, batches, device=device, autocast=autocast))
    if not answers:
        raise UserCodeError("there is nothing to predict: the data gave no batch")
    return joined(answers)


@torch.no_grad()
def answers_to(
    forward: Forward,
    batches: Iterable[Any],
    *,
    device: torch.device | None = None,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[Any]:
    """Yield the model's answer to each batch, on the CPU, with the model in eval mode meanwhile."""
    model = forward.model
    training = model.training
    model.eval()
    try:
        for batch in batches:
            if device is not None and device.type != "cpu":
                batch = move(batch, device)
            with autocast():
                output = _answer(forward, batch)
            yield _on_cpu(whole_in(output))
    finally:
        model.train(training)


def inputs_of(forward: Forward, batch: Any) -> Any:
    """Return what the model gets of a batch: all but the target, where the batch has one."""
    if isinstance(batch, Mapping):
        return {key: value for key, value in batch.items() if key not in forward.target_keys}
    if isinstance(batch, Sequence) and not isinstance(batch, str) and len(batch) >= 2:
        return batch[:-1]
    return batch


def joined(answers: Sequence[Any]) -> Any:
    """Concatenate the outputs of batches; drop entries that are not a tensor per sample."""
    first = answers[0]
    if isinstance(first, list):
        return [item for answer in answers for item in answer]
    if isinstance(first, Tensor):
        return torch.cat([answer if answer.ndim else answer[None] for answer in answers])
    names = [name for name, value in first.items() if isinstance(value, Tensor) and value.ndim]
    if not names:
        raise UserCodeError(
            f"the model gives no tensor per sample: it returns {', '.join(map(str, first)) or 'nothing'}"
        )
    return {name: torch.cat([answer[name] for answer in answers]) for name in names}


def _answer(forward: Forward, batch: Any) -> Any:
    """Call the model without the target first; one that computes its own loss may need the target, too."""
    own = own_step(forward, PREDICTION)
    if own is not None:
        return own(batch)
    inputs = inputs_of(forward, batch)
    if forward.losses:
        return forward.call(inputs)
    try:
        return forward.call(inputs)
    except TypeError:
        if takes(forward.model, inputs):
            raise
        return forward.call(batch)


def _on_cpu(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.detach().float().cpu() if output.is_floating_point() else output.cpu()
    named = as_mapping(output)
    if isinstance(output, list) and all(isinstance(item, Mapping) for item in output):
        return [_on_cpu(item) for item in output]  # boxes and the like: as many for each sample as there are
    if named is None and isinstance(output, list | tuple) and output:
        named = {str(number): value for number, value in enumerate(output)}
    if named is None:
        raise UserCodeError(
            f"the model returns a {type(output).__name__}; predictions are tensors, or mappings of them"
        )
    return {str(name): _on_cpu(value) for name, value in named.items() if isinstance(value, Tensor)}
