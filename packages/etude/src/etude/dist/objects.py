"""Exchanges picklable objects between the ranks of a process group, with the seal of the job.

A pickle is a program, and torch's own object collectives run whatever arrives. Here a message without the seal of the
job ends it before it is read.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch
from torch import distributed

from etude.dist.jobs import secret
from etude.errors import PeerError

#: Bytes of a message that no rank sends.
_LONGEST = 1 << 36


def broadcast(value: Any, src: int = 0, group: Any = None) -> Any:
    """Return what the process with the global rank ``src`` has."""
    is_source = distributed.get_rank() == src
    message = _message(value, group) if is_source else torch.empty(0)
    length = torch.tensor([len(message)], device=_device(group))
    distributed.broadcast(length, src, group=group)
    if not is_source:
        message = torch.empty(bounded(int(length)), dtype=torch.uint8, device=_device(group))
    distributed.broadcast(message, src, group=group)
    return value if is_source else _value(message)


def all_gather(value: Any, group: Any = None) -> list[Any]:
    """Return what every process of the group has, by rank."""
    own, lengths = _of_equal_length(value, group)
    everyone = [torch.empty_like(own) for _ in lengths]
    distributed.all_gather(everyone, own, group=group)
    return [_value(one[:length]) for one, length in zip(everyone, lengths, strict=True)]


def gather(value: Any, dst: int = 0, group: Any = None) -> list[Any] | None:
    """Return what every process of the group has on the one with the global rank ``dst``, None on the others."""
    own, lengths = _of_equal_length(value, group)
    everyone = [torch.empty_like(own) for _ in lengths] if distributed.get_rank() == dst else None
    distributed.gather(own, everyone, dst, group=group)
    if everyone is None:
        return None
    return [_value(one[:length]) for one, length in zip(everyone, lengths, strict=True)]


def opened(data: bytes, mark: bytes) -> Any:
    """Return the value of a message, if ``mark`` is its seal."""
    try:
        return pickle.loads(secret.unseal(data, mark))
    except secret.BrokenSeal as error:
        raise PeerError(f"{error}: somebody else writes to the ranks") from error


def bounded(length: int) -> int:
    """Return the length of a message; one that no rank sends is refused before memory is taken for it."""
    if not 0 <= length <= _LONGEST:
        raise PeerError(f"a message of {length} bytes is not by a process of this job")
    return length


def _of_equal_length(value: Any, group: Any) -> tuple[torch.Tensor, list[int]]:
    """Return this rank's message, as long as the longest, and the lengths of all."""
    message = _message(value, group)
    length = torch.tensor([len(message)], device=message.device)
    found = [torch.empty_like(length) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(found, length, group=group)
    lengths = [bounded(int(one)) for one in found]
    return torch.nn.functional.pad(message, (0, max(lengths) - len(message))), lengths


def _message(value: Any, group: Any) -> torch.Tensor:
    data = bytearray(secret.closed(pickle.dumps(value)))
    return torch.frombuffer(data, dtype=torch.uint8).to(_device(group))


def _value(message: torch.Tensor) -> Any:
    data = message.cpu().numpy().tobytes()
    return opened(data[secret.SIZE :], data[: secret.SIZE])


def _device(group: Any) -> torch.device:
    """Return where a group exchanges tensors: NCCL alone has no messages of the CPU."""
    only_cuda = distributed.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if only_cuda else torch.device("cpu")
