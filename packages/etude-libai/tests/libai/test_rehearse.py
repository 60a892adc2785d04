"""What ``etude plan`` tells of a lazy config is what the run then does."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.api import load_plan
from etude.build import build
from etude.building.options import Options
from etude.cli import main
from etude.dialects.rehearsal import EVALUATION, LOG_LINE, SAVE, Record, rehearse
from etude_libai.live.detectron.hooks import writers as d2_writers
from etude_libai.live.events import writers
from tests.libai import project, test_detectron2_resume
from tests.sampling import examples

LIBAI = settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
FEWER = settings(LIBAI, max_examples=examples(6))
NUMBER = itertools.count()

SCHEDULERS = st.sampled_from(
    [
        ("WarmupCosineLR", "alpha=0.01"),
        ("WarmupCosineAnnealingLR", "eta_min=0.001"),
        ("WarmupStepLR", "step_size=3,gamma=0.5"),
        ("WarmupMultiStepLR", "milestones=[0.3,0.7],gamma=0.1"),
        ("WarmupExponentialLR", "gamma=0.9"),
        ("WarmupPolynomialLR", "end_learning_rate=0.001,power=2.0"),
        ("WarmupPolynomialLR", "end_learning_rate=0.0,power=1.0,cycle=true"),
    ]
)


@st.composite
def libai_options(draw: st.DrawFn) -> list[str]:
    name, arguments = draw(SCHEDULERS)
    steps = draw(st.sampled_from([1, 1, 2, 3]))
    made = [
        "train.scheduler=null", "train.scheduler={_target_:libai.scheduler." + name + ",warmup_factor:0.1}", *(f"train.scheduler.{a}" for a in _split(arguments)),
        f"train.scheduler.warmup_method={draw(st.sampled_from(['linear', 'constant']))}",
        f"train.train_iter={draw(st.integers(4, 9))}", f"train.warmup_ratio={draw(st.sampled_from([0, 0.2, 0.5]))}",
        f"train.num_accumulation_steps={steps}", f"train.log_period={draw(st.integers(1, 5))}",
        f"train.checkpointer.period={draw(st.integers(1, 6))}",
        f"train.checkpointer.max_to_keep={draw(st.sampled_from([1, 2, 100]))}",
        f"train.evaluation.eval_period={draw(st.integers(1, 6))}",
        f"train.evaluation.enabled={draw(st.sampled_from(['true', 'true', 'false']))}",
    ]  # fmt: skip
    if draw(st.booleans()):
        backends = ("graph.train_graph.backend=eager", "graph.eval_graph.backend=eager")
        made += ["graph.enabled=true", *backends]
    if draw(st.booleans()):
        made += ["train.train_epoch=1", "train.train_iter=0"]
    if draw(st.booleans()):
        made += ["train.evaluation.eval_after_n_epoch=1", "train.checkpointer.save_model_after_n_epoch=1"]
    return made


def _split(arguments: str) -> list[str]:
    return re.findall(r"\w+=(?:\[[^]]*\]|[^,]*)", arguments)


MULTIPLIERS = st.sampled_from(
    [
        "{_target_:fvcore.common.param_scheduler.CosineParamScheduler,start_value:1.0,end_value:0.1}",
        "{_target_:fvcore.common.param_scheduler.LinearParamScheduler,start_value:1.0,end_value:0.0}",
        "{_target_:fvcore.common.param_scheduler.ExponentialParamScheduler,start_value:1.0,decay:0.1}",
        "{_target_:fvcore.common.param_scheduler.PolynomialDecayParamScheduler,base_value:1.0,power:0.9}",
        "{_target_:fvcore.common.param_scheduler.MultiStepParamScheduler,values:[1.0,0.1],milestones:[3],num_updates:9}",
    ]
)


@st.composite
def detectron2_options(draw: st.DrawFn) -> list[str]:
    return [
        "lr_multiplier.scheduler=null", f"lr_multiplier.scheduler={draw(MULTIPLIERS)}",
        f"lr_multiplier.warmup_length={draw(st.sampled_from([0.0, 0.3]))}", "train.max_iter=9",
        f"train.log_period={draw(st.integers(1, 5))}", f"train.eval_period={draw(st.integers(0, 5))}",
        f"train.checkpointer.period={draw(st.integers(1, 6))}",
        f"train.checkpointer.max_to_keep={draw(st.sampled_from([1, 2, 100]))}",
    ]  # fmt: skip


def _built(overrides: list[str], folder: Path) -> Any:
    plan, _ = load_plan("config.py", overrides)
    return build(plan, Options(folder=folder, quiet=True))


def _rehearsed(overrides: list[str]) -> Record:
    folder = Path(f"plan{next(NUMBER)}")
    record = rehearse(_built(overrides, folder))
    assert not folder.exists()
    return record


def _noting(record: Record, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any, **options: Any) -> Any:
        if what == SAVE:
            record.saves.append((record.run.done, args[0]))
        else:
            record.done.setdefault(what, []).append(record.run.done)
        return call(*args, **options)

    return noted


def _trained(overrides: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Record, list[str]]:
    """The same record, taken from the run itself; and the names of the checkpoints that it leaves."""
    folder = Path(f"run{next(NUMBER)}")
    run = _built(overrides, folder)
    trainer, record = run.runner, Record(run)
    step = trainer.run_step
    trainer.run_step = lambda: (record.update(), step())
    evaluation = next((hook for hook in trainer._hooks if hasattr(hook, "_func")), None)
    if evaluation is not None:
        evaluation._func = _noting(record, EVALUATION, evaluation._func)
    saving = next(hook for hook in trainer._hooks if hasattr(hook, "recent_checkpoints"))
    saving.checkpointer.save = _noting(record, SAVE, saving.checkpointer.save)
    with monkeypatch.context() as patch:
        for module in (writers, d2_writers):
            kind = module.CommonMetricPrinter
            patch.setattr(kind, "write", _noting(record, LOG_LINE, kind.write))
        run.train_fn(run)
    project.forget_loggers()
    left = sorted(path.name for path in folder.glob("model_*") if "best" not in path.name)
    shutil.rmtree(folder)
    return record, left


def assert_told(told: Record, real: Record, left: list[str]) -> None:
    assert told.values == real.values
    assert told.done.get(EVALUATION) == real.done.get(EVALUATION)
    assert [(step, name.removesuffix(".pth")) for step, name in told.saves] == [
        (step, name) for step, name in real.saves if name != "model_best"
    ]
    assert sorted(told.kept) == left


@LIBAI
@given(overrides=libai_options())
def test_a_libai_plan_is_what_the_run_does(overrides: list[str], config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = _rehearsed(overrides)
    real, left = _trained(overrides, monkeypatch)
    assert_told(told, real, left)
    assert told.done[LOG_LINE] == real.done[LOG_LINE]
    assert told.steps == real.steps == real.run.step


@pytest.fixture
def detectron2_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "d2_parts.py").write_text(test_detectron2_resume.PARTS)
    (tmp_path / "config.py").write_text(test_detectron2_resume.CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("d2_parts", None)
    project.forget_loggers()


@FEWER
@given(overrides=detectron2_options())
def test_a_detectron2_plan_is_what_the_run_does(
    overrides: list[str], detectron2_config: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = _rehearsed(overrides)
    real, left = _trained(overrides, monkeypatch)
    assert_told(told, real, left)


def test_hooks_of_the_users_are_noted_and_never_called(trainer_of: Callable[..., Any]) -> None:
    from etude_libai.live.rehearse import rehearse as of_libai
    from libai.engine import DefaultTrainer, hooks

    class Mine(hooks.HookBase):
        def after_step(self) -> None:
            raise AssertionError("called")

    class MyTrainer(DefaultTrainer):
        def build_hooks(self) -> list[Any]:
            return [*super().build_hooks(), Mine(), hooks.EarlyStop("mse", mode="min")]

    trainer = trainer_of(kind=MyTrainer)
    run = trainer.engine
    run.total_steps, run.optimizers = trainer.max_iter, {"": trainer.optimizer}
    record = Record(run, keep_acts=True)
    of_libai(run, record)
    assert record.calls["after_step", "Mine"] == 12
    assert [act.who for act in record.acts if act.point == "after_step"][-1] == "EarlyStop"
    assert any("depends on mse" in note for note in record.notes)
    assert any("model_best" in note for note in record.notes)


def test_the_command_tells_times_files_and_curves(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(Path().rglob("*"))
    assert main(["plan", "config.py", "dataloader.train.num_workers=2"]) == 0
    said = capsys.readouterr().out
    assert "evaluation       4 8 12  (3 times)" in said
    assert "model_0000004 model_0000009 model_final, perhaps model_best" in said
    assert "curve      lr" in said
    assert {path for path in set(Path().rglob("*")) - before if "__pycache__" not in str(path)} == set()


@pytest.mark.parametrize("kind", ["libai", "detectron2"])
def test_the_room_that_is_told_is_the_room_that_is_taken(
    kind: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    request.getfixturevalue("config" if kind == "libai" else "detectron2_config")
    assert main(["plan", "config.py"]) == 0
    told = re.search(r"disk +(\d+) checkpoints of about ([\d.]+) kB", capsys.readouterr().out)
    assert told is not None
    assert main(["train", "config.py", "--folder", "run"]) == 0
    made = list(Path("run").glob("model_*"))
    files = [file for path in made for file in (path.rglob("*") if path.is_dir() else [path])]
    taken = sum(file.stat().st_size for file in files) / len(made) / 1000
    assert int(told[1]) == len(made)
    assert 0.9 * taken < float(told[2]) < 1.5 * taken
