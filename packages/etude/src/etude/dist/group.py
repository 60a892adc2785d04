"""Joins and leaves the process group, and exchanges control messages apart from gradients.

Control messages have their own group (gloo, on the CPU), so that they need no accelerator and never block gradients.
Every rank calls these functions in the same order; a single process returns at once.
"""

from __future__ import annotations

import os
import pickle
import re
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import distributed

from etude.dist import objects
from etude.dist.jobs import collectives, secret
from etude.dist.jobs.meeting import LOOPBACK, MEETING, listen
from etude.dist.world import World, interface_of
from etude.errors import ConfigError, EtudeError, Finding, PeerError, UserError, printable
from etude.torch_private import default_store, stores

P = ParamSpec("P")
T = TypeVar("T")
#: The time that a rank waits for the others before the first step, and in a collective, unless you say otherwise.
PATIENCE = timedelta(minutes=5)
_TRIES = 20
#: Bytes of a message to all ranks that say how long it is, of its seal, and that it may have: the generators of a rank
#: fit.
_LENGTH, _ROOM = 8, 1 << 15
_HEAD = _LENGTH + secret.SIZE
_control: Any = None
_mail: Any = None
#: Whether this is rank 0 while it works on what :func:`first` gives to all.
_is_asking = False
#: Whether this process exchanges a message right now; read by the thread that accounts a run's time.
is_waiting = False


def _waiting(function: Callable[P, T]) -> Callable[P, T]:
    """Mark the time in which ``function`` waits for the other ranks."""

    @wraps(function)
    def wait(*args: P.args, **kwargs: P.kwargs) -> T:
        global is_waiting
        outer, is_waiting = is_waiting, True
        try:
            return function(*args, **kwargs)
        finally:
            is_waiting = outer

    return wait


def join(world: World, *, backend: str = "gloo", timeout: timedelta = PATIENCE) -> None:
    """Join the process group. Each attempt of a launcher has its own keys, so that addresses of dead ranks are never
    read."""
    global _control, _mail
    collectives.keep()
    if distributed.is_available() and distributed.is_initialized():
        _control = _control or distributed.new_group(backend="gloo", timeout=timeout)
        return
    if not world.address or not world.port:
        raise UserError("WORLD_SIZE is set, but not MASTER_ADDR and MASTER_PORT; `etude train --nproc N` sets all")
    try:
        # The store outlives an attempt: without a prefix for each, 4 of 12 jobs did not recover from a killed rank.
        there = _meeting_place(world, timeout)
        _mail = stores().PrefixStore(secret.prefix(f"mail/{world.attempt}"), there)
        store = _private(world) or stores().PrefixStore(secret.prefix(f"ranks/{world.attempt}"), there)
        distributed.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=timeout)
        _control = distributed.new_group(backend="gloo", timeout=timeout)
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"rank {world.rank} of {world.size} on {socket.gethostname()} does not find the others at "
            f"{world.address}:{world.port}: {_first_line(error)}"
        ) from error


def _meeting_place(world: World, timeout: timedelta) -> Any:
    """Return the store that the launcher hosts, or that of rank 0. A port that is still in use is tried again."""
    hosts = world.is_main and not world.hosted
    address = world.address
    if world.size == world.local_size and not world.hosted:
        address = LOOPBACK
        name = interface_of(LOOPBACK)
        if name:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    for attempt in range(_TRIES):
        try:
            if hosts and address == LOOPBACK:
                return listen(address, world.port)
            return stores().TCPStore(
                address, world.port, world.size, is_master=hosts, timeout=timeout, wait_for_workers=False
            )
        except (RuntimeError, OSError) as error:
            if not hosts or "in use" not in str(error) or attempt == _TRIES - 1:
                raise
            time.sleep(0.25)
    raise AssertionError


def _private(world: World) -> Any:
    """Return the store in the launcher's own folder, if all ranks are on its machine; else None.

    gloo takes the addresses that it finds for true, and crashes on others. No other user can write to this folder.
    """
    place = os.environ.get(MEETING)
    return stores().FileStore(f"{place}-{world.attempt}", world.size) if place else None


def mail(name: str) -> Any:
    """Return a store for values that background threads of ranks exchange; what is in it may be by anybody."""
    return stores().PrefixStore(name, _mail if _mail is not None else default_store())


def leave() -> None:
    """Leave the group; does nothing for a single process and the second time."""
    global _control, _mail
    if distributed.is_available() and distributed.is_initialized():
        _control = _mail = None
        distributed.destroy_process_group()


def is_there() -> bool:
    """Return whether somebody (a runner of another system, a script) has made a group of several processes."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def is_joined() -> bool:
    """Return whether there is anybody to talk to."""
    return _control is not None


def start_max(values: torch.Tensor) -> Any:
    """Begin to replace ``values`` by their maximum over ranks; ``wait()`` of what is returned ends it."""
    return distributed.all_reduce(values, distributed.ReduceOp.MAX, group=_control, async_op=True)


@_waiting
def gather(value: T) -> list[T]:
    """Return what every rank has, by rank. What fits into one message of a fixed size takes one, else two more."""
    if _control is None:
        return [value]
    data = pickle.dumps(value)
    head = len(data).to_bytes(_LENGTH, "little") + secret.seal(data)
    heard = _gather_bytes(head + (data if len(data) <= _ROOM else b""), _HEAD + _ROOM)
    lengths = [int.from_bytes(one[:_LENGTH], "little") for one in heard]
    said = [one[_HEAD:] for one in heard]
    if max(lengths) > _ROOM:
        said = _gather_bytes(data, objects.bounded(max(lengths)))
    marks = [one[_LENGTH:_HEAD] for one in heard]
    return [objects.opened(one[:length], mark) for one, length, mark in zip(said, lengths, marks, strict=True)]


def _gather_bytes(data: bytes, room: int) -> list[bytes]:
    """Return the bytes of every rank, filled up to ``room``."""
    own = _filled(data, room)
    everyone = [torch.empty_like(own) for _ in range(distributed.get_world_size(_control))]
    distributed.all_gather(everyone, own, group=_control)
    return [one.numpy().tobytes() for one in everyone]


def _filled(data: bytes, room: int) -> torch.Tensor:
    made = torch.zeros(room, dtype=torch.uint8)
    if data:
        made[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return made


@_waiting
def broadcast(value: T) -> T:
    """Return what rank 0 has. What fits into one message of a fixed size takes one, else two."""
    if _control is None:
        return value
    is_main = distributed.get_rank(_control) == 0
    data = pickle.dumps(value) if is_main else b""
    head = len(data).to_bytes(_LENGTH, "little") + secret.seal(data)
    message = _filled(head + (data if len(data) <= _ROOM else b""), _HEAD + _ROOM)
    distributed.broadcast(message, src=0, group=_control)
    heard = message.numpy().tobytes()
    length, said = int.from_bytes(heard[:_LENGTH], "little"), heard[_HEAD:]
    if length > _ROOM:
        more = _filled(data, objects.bounded(length))
        distributed.broadcast(more, src=0, group=_control)
        said = more.numpy().tobytes()
    return value if is_main else objects.opened(said[:length], heard[_LENGTH:_HEAD])


@_waiting
def barrier() -> None:
    """Wait until every rank is here."""
    if _control is not None:
        distributed.barrier(group=_control)


def sums(values: list[float]) -> list[float]:
    """Return sums over ranks, in double precision, with the same bits on every rank."""
    if _control is None:
        return values
    gathered = gather(values)
    return [sum(column) for column in zip(*gathered, strict=True)]


class Told(EtudeError):
    """An error of another rank that every rank ends with; only that rank reports it."""

    is_told = True

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def first(call: Callable[[], T], answer: Callable[[Any], Any] | None = None) -> T:
    """Call ``call`` on rank 0 and return its result on every rank; when it raises, every rank does.

    While it works, rank 0 may :func:`ask` the others, who ``answer``.
    """
    global _is_asking
    if _control is None or _is_asking:
        return call()
    said: tuple[str, Any] = ("", None)
    error: BaseException | None = None
    if distributed.get_rank(_control) == 0:
        _is_asking = True
        try:
            said = ("value", call())
        except BaseException as raised:  # of any kind: the others wait for an answer
            error, said = raised, ("error", (str(raised), getattr(raised, "exit_code", 1)))
        finally:
            _is_asking = False
    while (heard := broadcast(said))[0] == "question":
        gather(answer(heard[1]) if answer is not None else None)
    kind, value = heard
    if error is not None:
        raise error
    if kind == "error":
        raise Told(*value)
    return value  # type: ignore[no-any-return]


def ask(question: Any) -> list[Any]:
    """Return the answers of all ranks to rank 0, which is inside of :func:`first`; its own is None. Elsewhere: none."""
    if not _is_asking:
        return []
    broadcast(("question", question))
    return gather(None)


def together(call: Callable[[], T], what: str) -> T:
    """Run ``call`` on every rank; if it raises on any, all ranks raise the error of the first that failed."""
    if _control is None:
        return call()
    result: Any = None
    error: EtudeError | None = None
    try:
        result = call()
    except EtudeError as raised:
        error = raised
    failure = None if error is None else (socket.gethostname(), str(error), error.exit_code)
    failed = [(rank, failure) for rank, failure in enumerate(gather(failure)) if failure is not None]
    if not failed:
        return result  # type: ignore[no-any-return]
    rank, (host, message, code) = failed[0]
    if error is not None and rank == distributed.get_rank(_control):
        raise error
    raise Told(f"rank {rank} on {host}: {what}: {message}", code)


def require_agreement(facts: dict[str, Any]) -> None:
    """Refuse ranks that were given another config, code, world or data than rank 0, before the first step."""
    everyone = gather((socket.gethostname(), facts))
    wanted = everyone[0][1]
    findings = []
    for rank, (host, own) in enumerate(everyone):
        keys = [key for key in {**wanted, **own} if own.get(key) != wanted.get(key)]
        for key in keys[:5]:
            here, there = printable(str(own.get(key)))[:80], printable(str(wanted.get(key)))[:80]
            findings.append(Finding("", f"rank {rank} on {host}: {key} is {here}, on rank 0 it is {there}"))
    if findings:
        raise ConfigError(findings)


#: What gloo, NCCL and the store say when somebody is gone or does not answer.
_LOST = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "gloo", "Gloo",
    "NCCL communicator was aborted", "Connection refused", "Application timeout", "heartbeat", "Socket Timeout",
    "DistBackendError", "ProcessGroup", "Failed to recv", "wait timeout",
)  # fmt: skip


def lost_peer(error: BaseException, *, step: int) -> PeerError | None:
    """Return the error to report if ``error`` means that another rank was lost; else None."""
    if isinstance(error, PeerError):
        return error
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, RuntimeError | ConnectionError) and any(word in str(seen) for word in _LOST):
            return PeerError(f"another rank was lost or did not answer after step {step}: {_first_line(seen)}")
        seen = seen.__cause__
    return None


def _first_line(error: BaseException) -> str:
    """Return what went wrong, without the library's source line and advice."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return printable(re.sub(r"^\[[^\]]*\.(cc|cpp|h):\d+\] ", "", line).partition(". This is")[0])[:200]
