"""Losses that only the device looks at: nothing is read between log lines, and nothing bad is learnt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import etude
from etude.core import nonfinite
from etude.core.hook import FunctionHook
from etude.errors import Diverged

BAD = 7


class Reads:
    """Counts how often values of tensors became Python's: by a method, or inside of an operation."""

    count = 0


class ByMethod(TorchFunctionMode):
    def __init__(self, reads: Reads) -> None:
        super().__init__()
        self.reads = reads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads.count += getattr(func, "__name__", "") in ("tolist", "item", "numpy", "__bool__", "__float__", "cpu")
        return func(*args, **(kwargs or {}))


class ByOperation(TorchDispatchMode):
    def __init__(self, reads: Reads) -> None:
        super().__init__()
        self.reads = reads

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads.count += any(word in str(func) for word in ("_local_scalar_dense", "is_nonzero", "aten.equal"))
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def device_is_far(monkeypatch):
    monkeypatch.setattr(nonfinite, "sees_memory", lambda device: False)


def job(bad: tuple[int, ...] = (), *, optimizer: Callable[..., Any] | None = None, hooks=(), **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    made = optimizer or (lambda params: torch.optim.AdamW(params, lr=0.1, fused=True))
    batches = [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(20)]
    for number in bad:
        batches[number - 1][0].fill_(float("nan"))
    trainer = etude.Trainer(
        model, loss=torch.nn.CrossEntropyLoss(), optimizer=made(model.parameters()), hooks=hooks, quiet=True, **options
    )
    return trainer, batches


def flat(model: torch.nn.Module) -> list[float]:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
    ],
    ids=["AdamW", "SGD"],
)
def test_nothing_is_read_between_log_lines(precision, optimizer):
    reads, seen = Reads(), {}

    def note(run):
        seen[run.done] = reads.count
        reads.count = 0

    hook = FunctionHook(note, "after_step", priority=1000)
    trainer, batches = job(optimizer=optimizer, hooks=[hook], precision=precision, clip_norm=1.0)
    with ByMethod(reads), ByOperation(reads):
        trainer.fit(batches, steps=20, log="10step")
    # The first output is looked at once: whether it is a softmax already.
    assert [step for step, count in seen.items() if count] == [1, 10, 20]


def test_a_bad_loss_never_reaches_the_parameters_and_ends_the_run_with_the_next_log_line():
    states = []
    trainer, batches = job((BAD,), hooks=[lambda run: states.append(flat(run.model))])
    with pytest.raises(Diverged, match=f"not finite at step {BAD}"):
        trainer.fit(batches, steps=20, log="10step")
    assert len(states) == 10 and len(set(map(tuple, states[: BAD - 1]))) == BAD - 1
    assert all(state == states[BAD - 2] for state in states[BAD - 1 :])


def test_a_bad_loss_is_noticed_at_the_end_too():
    trainer, batches = job((BAD,))
    with pytest.raises(Diverged, match=f"not finite at step {BAD}"):
        trainer.fit(batches, steps=20, log="1000step")


def test_bad_losses_are_skipped_as_where_each_is_read(monkeypatch):
    def trained(far: bool) -> list[float]:
        monkeypatch.setattr(nonfinite, "sees_memory", lambda device: not far)
        trainer, batches = job((3, BAD, BAD + 1, BAD + 2), nonfinite="skip")
        return flat(trainer.fit(batches, steps=20, log="10step").model)

    assert trained(True) == trained(False)


def test_too_many_in_a_row_end_the_run():
    trainer, batches = job((4, 5, 6, 7), nonfinite="skip")
    with pytest.raises(Diverged, match="4 times in a row"):
        trainer.fit(batches, steps=20, log="10step")


@pytest.mark.parametrize("options", [{"optimizer": lambda p: torch.optim.Adagrad(p, foreach=True)}, {"accumulate": 2}])
def test_where_the_device_cannot_be_told_each_loss_is_read(options):
    trainer, batches = job((BAD,), **options)
    with pytest.raises(Diverged, match=f"not finite at step {BAD} "):
        trainer.fit(batches, steps=20, log="10step")


def fused(**options) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, **options)


@pytest.mark.parametrize(
    ("optimizers", "settings", "waits"),
    [
        ([{"fused": True}, {"fused": True}], {}, ""),
        ([{"fused": True}, {"foreach": True}], {}, "this run has an optimizer that is not fused"),
        ([{"fused": True}], {"accumulate": 2}, "this run accumulates"),
        ([{"fused": True}], {"precision": "fp16"}, "this run uses fp16"),
        ([{"fused": True}], {"policy": "rollback"}, "this run may roll back"),
    ],
)  # fmt: skip
def test_a_run_that_waits_for_the_device_at_every_step_says_why(optimizers, settings, waits):
    usual = {"policy": "stop", "limit": 3, "accumulate": 1, "precision": "fp32"} | settings
    guard = nonfinite.guard_of([fused(**one) for one in optimizers], torch.device("meta"), **usual)
    assert guard.waits == waits and isinstance(guard, nonfinite.DeferredGuard) == (not waits)
