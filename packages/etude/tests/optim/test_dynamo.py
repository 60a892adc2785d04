"""torch's compiler stays out of runs that compile nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from etude.optim.dynamo import spare_dynamo

PROGRAM = """
import sys
import torch
from torch import nn
from etude import registry
from etude.optim.factory import build_optimizer
from etude.plan import Optimizer, Place, Spec

registry.load_builtins()
model = nn.Linear(3, 3, bias=False)


def trained(optimizer):
    with torch.no_grad():
        model.weight.fill_(1.0)
    for _ in range(3):
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    return model.weight.tolist()


def all_trained():
    for name in ("AdamW", "SGD", "LARS"):
        spec = Spec(kind="optimizer", name=name, args={"lr": 0.1}, at=Place("train.yaml", 1))
        yield trained(build_optimizer(Optimizer(spec=spec), model))


before = list(all_trained())
assert "torch._dynamo" not in sys.modules
import torch._dynamo

after = list(all_trained())
assert before == after, (before, after)
assert hasattr(torch.optim.Optimizer.zero_grad.__wrapped__, "__dynamo_disable")
assert "etude" not in getattr(torch.optim.Optimizer.zero_grad.__wrapped__, "__dynamo_disable").__module__
print("done")
"""


@pytest.mark.thorough  # imports torch's compiler
def test_optimizers_import_no_compiler_until_something_else_does():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


def test_only_classes_of_optimizers_are_changed(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)

    class Own(torch.optim.Optimizer):
        def step(self, closure=None): ...

    own = Own.step
    for kind in (Own, dict, print):
        spare_dynamo(kind)
    assert Own.step is own
