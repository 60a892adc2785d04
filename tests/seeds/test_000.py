"""Every snippet of McQuic's training document, as files of a user's project, run on Étude."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
import torch

from etude.cli import main
from etude.dialects import imports
from etude_mcquic.live import builtin, registry
from tests.mcquic import project

OPTIM = """\
import torch
from mcquic.utils.registry import OptimizerRegistry

# or @OptimizerRegistry.register("amaz") to give a special name
@OptimizerRegistry.register
class MyAmazOptim(torch.optim.Optimizer):
  def __init__(self, params, myparam):
    assert myparam == "myvalue"
    super().__init__(params, {"lr": 0.1})

  @torch.no_grad()
  def step(self, closure=None):
    for group in self.param_groups:
      for p in group["params"]:
        if p.grad is not None:
          p -= group["lr"] * p.grad

@OptimizerRegistry.register("amaz")
class Special(MyAmazOptim):
  pass
"""

HOOK = """\
from mcquic.train.hooks import BeforeRunHook, AfterRunHook, EpochStartHook, EpochFinishHook, StepStartHook, StepFinishHook
from mcquic.utils.registry import HookRegistry

SEEN = []

@HookRegistry.register
class MyAmazHook(BeforeRunHook, AfterRunHook, EpochStartHook, EpochFinishHook, StepStartHook, StepFinishHook):
  def __init__(self, myparam):
    self.myparam = myparam

  def beforeRun(self, step, epoch, trainer, *args, logger, **kwds): SEEN.append(("beforeRun", step, epoch))
  def afterRun(self, step, epoch, trainer, *args, logger, **kwds): SEEN.append(("afterRun", step, epoch))
  def epochStart(self, step, epoch, trainer, *args, logger, **kwds): SEEN.append(("epochStart", step, epoch))
  def epochFinish(self, step, epoch, trainer, *args, logger, **kwds): SEEN.append(("epochFinish", step, epoch))
  def stepStart(self, step, epoch, trainer, *args, logger, **kwds): SEEN.append(("stepStart", step, epoch))
  def stepFinish(self, step, epoch, trainer, *args, logger, **kwds): SEEN.append(("stepFinish", step, epoch))
"""


@pytest.fixture(autouse=True)
def clean_registries():
    imports.install()
    assert builtin.OWN, "what McQuic brings is registered before it is noted down"
    before = {table: dict(table._map) for table in registry.REGISTRIES}
    yield
    for table, entries in before.items():
        table._map.clear()
        table._map.update(entries)


def test_a_config_that_names_lamb_gets_lamb(workdir):
    project.write(workdir, optim={"key": "Lamb", "params": {"lr": 1.0e-3}})
    assert main(["train", "config.yaml", "-q"]) == 0
    from mcquic import Config
    from mcquic.utils.registry import OptimizerRegistry

    config = Config.deserialize(project.config(optim={"key": "Lamb", "params": {"lr": 1e-3}}, batchSize=64))
    optimClass = OptimizerRegistry.get(config.Train.Optim.Key)  # "Lamb"
    optim = optimClass([torch.nn.Parameter(torch.zeros(1))], **config.Train.Optim.Params)
    assert type(optim).__name__ == "LAMB" and optim.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize("key", ["MyAmazOptim", "amaz"])
def test_an_optimizer_of_ones_own_by_an_external_library(workdir, key):
    (workdir / "path" / "to").mkdir(parents=True)
    (workdir / "path" / "to" / "my_amaz_optim.py").write_text(OPTIM)
    change = {"externalLib": ["path/to/my_amaz_optim.py"], "optim": {"key": key, "params": {"myparam": "myvalue"}}}
    project.write(workdir, **change)
    assert main(["check", "config.yaml"]) == 0
    assert main(["train", "config.yaml", "-q"]) == 0
    name = hashlib.md5(str(workdir / "path/to/my_amaz_optim.py").encode()).hexdigest()
    assert name in sys.modules


def test_a_hook_of_ones_own_is_installed_for_every_kind_it_implements(workdir):
    (workdir / "my_amaz_hook.py").write_text(HOOK)
    hooks = [{"key": "MyAmazHook", "params": {"myparam": "myvalue"}}]
    project.write(workdir, externalLib=["my_amaz_hook.py"], hooks=hooks, epoch=2)
    assert main(["train", "config.yaml", "-q"]) == 0
    module = sys.modules[hashlib.md5(str(workdir / "my_amaz_hook.py").encode()).hexdigest()]
    assert module.SEEN == [
        ("beforeRun", 0, 0),
        ("epochStart", 0, 0), ("stepStart", 0, 0), ("stepFinish", 1, 0), ("epochFinish", 1, 1),
        ("epochStart", 1, 1), ("stepStart", 1, 1), ("stepFinish", 2, 1), ("epochFinish", 2, 2),
        ("afterRun", 2, 2),
    ]  # fmt: skip


def test_registries_tell_their_entries():
    from mcquic.utils.registry import HookRegistry, LossRegistry, LrSchedulerRegistry, OptimizerRegistry

    builtin.registerBuiltinFunctions()
    for table, name in ((OptimizerRegistry, "Adam"), (LrSchedulerRegistry, "CyclicLR"), (LossRegistry, "PSNR"), (HookRegistry, "CodebookReassign")):  # fmt: skip
        assert name in table.summary()


def test_debug_prints_every_registry(workdir, capfd):
    project.write(workdir, epoch=1)
    assert main(["train", "-D", "config.yaml"]) == 0
    assert "LrSchedulerRegistry" in capfd.readouterr().out
    assert Path("saved/latest/saved.ckpt").exists()


def test_a_script_sees_the_entries_without_training():
    from mcquic.utils.registry import HookRegistry, LossRegistry

    assert "PSNR" in LossRegistry.summary() and "CodebookReassign" in HookRegistry.summary()
