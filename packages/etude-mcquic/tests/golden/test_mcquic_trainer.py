"""Whole runs of McQuic's trainer, its saver, and its command line, as recorded."""

from __future__ import annotations

import logging
import re
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from etude.dialects import imports
from etude_mcquic import command
from etude_mcquic.config import Config
from etude_mcquic.files import Saver
from etude_mcquic.live import builtin, hooks, registry
from etude_mcquic.live.trainer import MainTrainer
from tests.golden.goldens import data, params

STAMP = re.compile(r"\d{6}-\d{6}")


@pytest.fixture(autouse=True)
def clean_registries():
    imports.install()
    before = {table: dict(table._map) for table in registry.REGISTRIES}
    builtin.registerBuiltinFunctions()
    registry.OptimizerRegistry.register("SGD")(torch.optim.SGD)
    yield
    for table, entries in before.items():
        table._map.clear()
        table._map.update(entries)


class OneWeight(torch.nn.Module):
    """Distortion mean((w·x - 2·x)²), with everything that the trainer shows of a compressor."""

    CodeUsage = 0.5
    PostProcessEnabled = True

    def __init__(self, events) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(1.0))
        self.events = events

    def forward(self, x):
        self.events.append(["forward", self.PostProcessEnabled, self.training])
        restored = self.w * x
        distortion = ((restored - 2 * x) ** 2).mean()
        zero = torch.zeros(())
        return {"rate": zero, "distortion": distortion, "restored": x, "postProcessed": x, "codes": [], "logits": x}

    def refresh(self, rank):
        self.events.append(["refresh"])
        return 0.25


class Recorder(Saver):
    def __init__(self, events, *args, **kwds) -> None:
        super().__init__(*args, **kwds)
        self.events, self.lines = events, []

    def add_scalar(self, tag, value, global_step=None, **kwds):
        self.events.append(["add_scalar", tag, float(value), global_step])

    def add_images(self, tag, images, global_step=None, **kwds):
        self.events.append(["add_images", tag])

    def add_histogram(self, tag, values, global_step=None, **kwds):
        self.events.append(["add_histogram", tag])


def make_spy(events, stop=None):
    class SpyHook(hooks.BeforeRunHook, hooks.AfterRunHook, hooks.EpochStartHook, hooks.EpochFinishHook, hooks.StepStartHook, hooks.StepFinishHook):  # fmt: skip
        def __init__(self, tag=""):
            self.tag = tag

        def note(self, kind, step, epoch, trainer, kwds):
            lr = trainer._optimizer.param_groups[0]["lr"]
            events.append([kind, step, epoch, lr, sorted(kwds)])
            if stop and [kind, step, epoch] == stop:
                raise KeyboardInterrupt

        def beforeRun(self, step, epoch, trainer, *args, logger, **kwds):
            self.note("beforeRun", step, epoch, trainer, kwds)

        def afterRun(self, step, epoch, trainer, *args, logger, **kwds):
            self.note("afterRun", step, epoch, trainer, kwds)

        def epochStart(self, step, epoch, trainer, *args, logger, **kwds):
            self.note("epochStart", step, epoch, trainer, kwds)

        def epochFinish(self, step, epoch, trainer, *args, logger, **kwds):
            self.note("epochFinish", step, epoch, trainer, kwds)

        def stepStart(self, step, epoch, trainer, *args, logger, **kwds):
            self.note("stepStart", step, epoch, trainer, kwds)

        def stepFinish(self, step, epoch, trainer, *args, logger, **kwds):
            self.note("stepFinish", step, epoch, trainer, kwds)

    return SpyHook


def config_of(case, stage, root) -> Config:
    values = deepcopy(data("mcquic", "config")["meta"]["base"])
    values["train"] |= {
        "batchSize": 64, "epoch": 3, "valFreq": 2, "saveDir": str(root / "saved"), "hooks": case["hooks"] or [],
        "optim": {"key": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}, "schdr": {"key": "Exponential", "params": {"gamma": 0.5}},
    }  # fmt: skip
    values["train"] |= case["edits"] | stage["edits"]
    return Config.deserialize(values)


class Sampler:
    def __init__(self, events) -> None:
        self.events = events

    def set_epoch(self, epoch):
        self.events.append(["set_epoch", epoch])


def play(case, stage, root, *, resume=None, results=None):
    """One stage: build everything as the original's process does, train, and tell what happened."""
    events: list = []
    config = config_of(case, stage, root)
    saver = Recorder(events, config.Train.SaveDir, config=config, loggingLevel=logging.DEBUG)
    handler = Lines(saver.lines)
    saver.logger.addHandler(handler)
    results = list(results if results is not None else case["validation_results"])
    count = iter(range(10**6))

    def validator(epoch, trainer):
        value = results[min(next(count), len(results) - 1)]
        events.append(["validate", epoch, value])
        return {"MsSSIM": value, "PSNR": value, "BPP": 0.1}, torch.zeros(1, 3, 2, 2)

    spy = make_spy(events, stage["spy"].get("stop"))
    registry.HookRegistry.register("Spy")(spy)
    train = config.Train
    trainer = MainTrainer(config, lambda: OneWeight(events), registry.OptimizerRegistry.get(train.Optim.Key), registry.LrSchedulerRegistry.get(train.Schdr.Key), saver, validator=validator)  # fmt: skip
    if resume is not None:
        trainer.restoreStates(resume)
    chains = hooks.getAllHooks(train.Hooks)
    mine = hooks.splitHooks(spy())
    chains = {name: hooks.ChainHook(chains[name], mine[name]) for name in chains}
    batches = [torch.full((2,), float(i + 1)) for i in range(case["batches_per_epoch"])]
    error = None
    restored = {"epoch": trainer._epoch, "step": trainer._step, "w": float(trainer._model.w)}
    try:
        trainer.train(batches, Sampler(events), **chains)
    except BaseException as caught:
        error = caught
    saver.logger.removeHandler(handler)
    saver.close()
    return trainer, events, error, saver, restored


class Lines(logging.Handler):
    def __init__(self, lines) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record):
        self.lines.append([record.levelname, record.getMessage()])


def tree(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_file():
            name = STAMP.sub("<stamp>", str(path.relative_to(root)))
            found.append(re.sub(r"events\.out.*", "events.out.tfevents.*", name))
    return sorted(found)


def close(rows):
    return [[pytest.approx(v, rel=1e-5, abs=1e-6) if isinstance(v, float) else v for v in row] for row in rows]


@pytest.mark.parametrize("case", params("mcquic", "trainer_run"))
def test_trainer_run(case, tmp_path):
    if case["id"].startswith("plateau"):
        plateau_works(case, tmp_path)
        return
    resume = None
    for number, stage in enumerate(case["stages"]):
        if stage["resume"]:
            resumed_exactly(case, stage, tmp_path, resume)
            return
        trainer, events, error, saver, _ = play(case, stage, tmp_path)
        assert (type(error).__name__ if error else None) == stage["raises"]
        assert events == close(stage["events"])
        assert tree(tmp_path / "saved") == sorted(stage["files"])
        end = stage["end"]
        assert [trainer._epoch, trainer._step] == [end["epoch"], end["step"]]
        assert float(trainer._model.w) == pytest.approx(end["w"], rel=1e-5)
        assert trainer._optimizer.param_groups[0]["lr"] == pytest.approx(end["lr"], rel=1e-6)
        assert [trainer.bestDistortion, trainer.bestRate] == end["best"]
        checkpoint(stage["ckpt"], saver.SavePath)
        assert said(saver.lines, stage["log"]) == said(stage["log"], stage["log"])
        resume = tmp_path / f"resume-{number}.ckpt"
        resume.write_bytes(Path(saver.SavePath).read_bytes())


def said(lines, recorded):
    """Messages that are promised: of the recorded levels, without the board's address and the way to test a model."""
    levels = {level for level, _ in recorded}
    kept = [[level, re.sub(r"[\w.<>]*SpyHook", "SpyHook", text)] for level, text in lines if level in levels]
    kept = [[level, text.replace("etude_mcquic.live.trainer", "mcquic.train.trainer")] for level, text in kept]
    return [row for row in kept if "See you at" not in row[1] and "Test this model" not in row[1]]


def checkpoint(expected, path) -> None:
    content = Saver.load(path)
    assert [key for key in content if key != "etude"] == expected["keys"]
    assert sorted(content["trainer"]) == expected["trainer_keys"]
    assert [content["trainer"]["_epoch"], content["trainer"]["_step"]] == [expected["epoch"], expected["step"]]
    assert sorted(content["config"]) == expected["config_keys"]
    assert sorted(content["config"]["train"]) == expected["config_train_keys"]


def resumed_exactly(case, stage, root, path) -> None:
    """A departure: going on restores optimizer, schedule and best result, and ends as a run that never stopped."""
    straight, *_ = play(case, dict(stage, spy={}), root / "straight")
    trainer, events, error, _, restored = play(case, stage, root, resume=path)
    after = stage["after_restore"]
    assert error is None
    assert (restored["epoch"], restored["step"]) == (after["epoch"], after["step"])
    assert restored["w"] == pytest.approx(after["w"], rel=1e-5)
    assert set(stage["files"]) - set(tree(root / "saved")) <= {"latest/best.ckpt"}, "the best is still the older one"
    assert torch.equal(trainer._model.w, straight._model.w)
    assert trainer._optimizer.param_groups[0]["lr"] == straight._optimizer.param_groups[0]["lr"]
    assert [row[:3] for row in events if row[0].startswith(("step", "epoch", "before", "after"))] == [
        row[:3] for row in stage["events"] if row[0].startswith(("step", "epoch", "before", "after"))
    ]


def plateau_works(case, root) -> None:
    """A departure: a plateau scheduler is told the last result instead of failing."""
    trainer, _, error, _, _ = play(case, case["stages"][0], root)
    assert error is None and trainer._step == case["batches_per_epoch"] * case["edits"]["epoch"]


@pytest.mark.parametrize("case", params("mcquic", "saver"))
def test_saver(case, tmp_path):
    for number, expected in enumerate(case["files_after_each_run"]):
        saver = Saver(tmp_path / case["dir"], "saved.ckpt", config={"run": number}, **case["kwargs"])
        saver.add_scalar("x", 1.0, global_step=0)
        saver.save(x=number)
        saver.close()
        found = [re.sub(r"events\.out.*", "events.*", name) for name in tree(tmp_path / case["dir"])]
        assert sorted(found) == sorted(expected)
    assert saver.SavePath == str(tmp_path / case["save_path"])


@pytest.mark.parametrize("case", params("mcquic", "cli"))
def test_cli(case, tmp_path, capfd):
    if "logging_level" in case:
        assert command.level(case["debug"], case["quiet"]) == case["logging_level"]
        return
    for name in ("c.yaml", "r.ckpt"):
        (tmp_path / name).write_text("")
    argv = [word.replace("<DIR>", str(tmp_path)) for word in case["argv"]]
    if case["entry"] == "mcquic.train":
        argv = ["train", *argv]
    called: list = []

    def record(debug, quiet, resume, config):
        called.append([debug, quiet, resume and Path(resume).name, config and Path(config).name])
        return 0

    code = command.main(argv, train=record)
    if "quirk" in case:
        departed(case, code, called)
        return
    assert code == case["exit_code"] and called == case["called_with"]


def departed(case, code, called) -> None:
    """Departures: training needs no optimised mode, and a command without a config is told so (exit code 2)."""
    if case["called_with"]:
        assert code == 2 and not called
    else:
        assert code == 0 and called
