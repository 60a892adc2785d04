"""Hooks that the recordings do not reach: trackers, profiler, precision, buffers, mmcls's own."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.errors import MissingExtra, OutOfScope
from etude.events.trackers import outbox
from etude.events.trackers.mlflow import MlflowRun
from etude.events.trackers.wandb import WandbRun
from tests.events.offline import read_wandb
from tests.mmcv1.toys import Net, assert_same_bits, noisy_loader, weights

import mmcv.runner  # isort: skip
from mmcv.runner import HOOKS, EvalHook, auto_fp16, force_fp32, set_random_seed, wrap_fp16_model  # isort: skip

TRAIN = [("train", 1)]


def _train(make_runner: Any, folder: Path, *, optimizer_config: Any = None, custom: Any = None, **kwargs: Any) -> Any:
    runner = make_runner(Net(), folder=folder, max_epochs=2)
    runner.register_training_hooks(
        {"policy": "fixed"}, optimizer_config or {}, None, custom_hooks_config=custom, **kwargs
    )
    set_random_seed(0)
    runner.run([noisy_loader()], TRAIN)
    return runner


def test_tensorboard_gets_scalars(make_runner: Any, tmp_path: Path) -> None:
    hooks = [{"type": "TextLoggerHook"}, {"type": "TensorboardLoggerHook"}]
    _train(make_runner, tmp_path, log_config={"interval": 2, "hooks": hooks})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tf_logs")).Reload()
    assert {"train/loss", "learning_rate", "momentum"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train/loss")] == [2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    ("hook", "package"),
    [
        ("MlflowLoggerHook", "mlflow"),
        ("NeptuneLoggerHook", "neptune"),
        ("ClearMLLoggerHook", "clearml"),
        ("DvcliveLoggerHook", "dvclive"),
        ("SegmindLoggerHook", "segmind"),
        ("PaviLoggerHook", "pavi"),
        ("WandbLoggerHook", "wandb"),
    ],
)
def test_a_tracker_is_built_where_its_package_is(hook: str, package: str) -> None:
    if importlib.util.find_spec(package) is not None and package != "dvclive":
        assert HOOKS.build({"type": hook, "interval": 3}).interval == 3
    else:
        with pytest.raises(MissingExtra, match=package) as caught:
            HOOKS.build({"type": hook})
        assert isinstance(caught.value, ImportError)


class Tracker:
    """A package of a tracker that writes down what it is given: any attribute is a function or a part of it."""

    def __init__(self, calls: list[Any], name: str = "") -> None:
        self.calls, self.name = calls, name

    def __getattr__(self, name: str) -> Tracker:
        if name.startswith("__"):
            raise AttributeError(name)
        return Tracker(self.calls, f"{self.name}.{name}".lstrip("."))

    def __getitem__(self, key: str) -> Tracker:
        return Tracker(self.calls, f"{self.name}[{key}]")

    def __call__(self, *args: Any, **kwargs: Any) -> Tracker:
        self.calls.append((self.name, args, kwargs))
        return Tracker(self.calls, f"{self.name}()")


@pytest.mark.parametrize(
    ("hook", "modules", "written"),
    [
        ({"type": "SegmindLoggerHook"}, ["segmind", "segmind.tracking", "segmind.tracking.fluent"], "log_metrics"),
        ({"type": "PaviLoggerHook", "add_last_ckpt": True}, ["pavi"], "SummaryWriter().add_scalars"),
    ],
)
def test_a_tracker_that_cannot_be_installed_gets_the_values(
    make_runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: Any, modules: list[str], written: str
) -> None:
    calls: list[Any] = []
    for module in modules:
        monkeypatch.setitem(sys.modules, module, Tracker(calls))
    _train(make_runner, tmp_path, log_config={"interval": 3, "hooks": [{"type": "TextLoggerHook"}, hook]})
    sent = [(args, kwargs) for name, args, kwargs in calls if name == written]
    assert len(sent) == 4
    values = next(v for v in (*sent[0][0], *sent[0][1].values()) if isinstance(v, dict))
    assert {name.removeprefix("train/") for name in values} >= {"loss", "learning_rate", "momentum"}


@pytest.mark.thorough  # tests/events has both, too, and they take long to import
def test_wandb_and_mlflow_get_the_values_and_the_files(
    make_runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setattr(outbox, "OPENING", 300.0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # MLflow sets it, for its children
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.create_experiment("e", (tmp_path / "artifacts").as_uri())
    wandb = {"type": "WandbLoggerHook", "init_kwargs": {"mode": "offline", "dir": str(tmp_path / "w")}}
    (tmp_path / "w").mkdir()
    seen: list[str] = []
    custom = {
        "type": "ClosureHook",
        "fn_name": "before_train_epoch",
        "fn": lambda runner: seen.append(mlflow.active_run().info.run_id),
    }
    try:
        hooks = [
            {"type": "TextLoggerHook"},
            {**wandb, "define_metric_cfg": {"acc": "max"}},
            {"type": "MlflowLoggerHook", "exp_name": "e", "tags": {"t": 1}, "params": {"p": 2}},
        ]
        _train(make_runner, tmp_path, log_config={"interval": 3, "hooks": hooks}, custom=[custom])
        assert mlflow.active_run() is None
        (run,) = mlflow.MlflowClient().search_runs(["1"])
        losses = mlflow.MlflowClient().get_metric_history(run.info.run_id, "train/loss")
    finally:
        mlflow.set_tracking_uri("")
    assert seen == [run.info.run_id] * 2 and run.info.status == "FINISHED"
    assert [metric.step for metric in losses] == [3, 6, 9, 12]
    assert run.data.params == {"p": "2"} and run.data.tags["t"] == "1"
    assert {"learning_rate", "momentum"} <= set(run.data.metrics)
    assert list((tmp_path / "artifacts").rglob("data/*"))  # the model
    kept = read_wandb(tmp_path / "w")
    assert [row["_step"] for row in kept.rows] == [3, 6, 9, 12]
    assert [row["train/loss"] for row in kept.rows] == pytest.approx([metric.value for metric in losses])
    ((name, _, _, files),) = kept.artifacts
    assert name == "artifacts" and any(file.endswith(".log.json") for file in files)


@pytest.mark.parametrize(
    ("package", "hook", "written"),
    [
        ("neptune", {"type": "NeptuneLoggerHook", "init_kwargs": {"mode": "offline"}}, ".neptune"),
        ("clearml", {"type": "ClearMLLoggerHook", "init_kwargs": {"project_name": "p", "task_name": "t"}}, ""),
        ("dvclive", {"type": "DvcliveLoggerHook", "save_dvc_exp": False, "by_epoch": False}, "dvclive/metrics.json"),
    ],
)
def test_a_tracker_gets_the_values_where_it_is_installed(
    make_runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, hook: Any, written: str
) -> None:
    monkeypatch.setenv("CLEARML_OFFLINE_MODE", "1")
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{hook['type']}")
        runner = _train(make_runner, tmp_path, log_config={"interval": 3, "hooks": [{"type": "TextLoggerHook"}, hook]})
    if package == "clearml":
        (tracker,) = [hook for hook in runner.hooks if type(hook).__name__ == "ClearMLLoggerHook"]
        with zipfile.ZipFile(Path(tracker.task.get_offline_mode_folder()).with_suffix(".zip")) as kept:
            assert kept.read("metrics.jsonl").count(b"learning_rate") >= 4
    else:
        assert (tmp_path / written).exists()


class FakeLive:
    """Has what the hook uses of ``dvclive.Live``."""

    def __init__(self) -> None:
        self.step, self.logged = -1, []

    def log_metric(self, name: str, value: float) -> None:
        self.logged.append((self.step, name))

    def make_summary(self) -> None:
        self.logged.append((self.step, "summary"))


def test_dvclive_gets_results_per_epoch(make_runner: Any, tmp_path: Path) -> None:
    live = FakeLive()
    runner = make_runner(Net(), max_epochs=2)
    hook = {"type": "DvcliveLoggerHook", "dvclive": live, "model_file": str(tmp_path / "model.pth")}
    runner.register_training_hooks({"policy": "fixed"}, {}, None, {"interval": 2, "hooks": [hook]})
    runner.register_hook(EvalHook(noisy_loader()), priority="LOW")
    runner.run([noisy_loader()], TRAIN)
    assert [entry for entry in live.logged if entry[1] == "val/acc"] == [(0, "val/acc"), (1, "val/acc")]
    assert (1, "summary") in live.logged
    assert (tmp_path / "model.pth").is_file()


def test_a_tracker_that_hangs_or_fails_does_not_stop_training(
    make_runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(outbox, "OPENING", 0.2)
    monkeypatch.setattr(outbox, "PATIENCE", 0.2)
    monkeypatch.setattr(WandbRun, "begin", lambda *args, **settings: gate.wait(300))
    monkeypatch.setattr(MlflowRun, "begin", lambda *args, **settings: 1 / 0)
    hooks = [{"type": "TextLoggerHook"}, {"type": "WandbLoggerHook"}, {"type": "MlflowLoggerHook"}]
    with pytest.warns(UserWarning) as said:
        runner = _train(make_runner, tmp_path, log_config={"interval": 3, "hooks": hooks})
    gate.set()
    assert runner.iter == 12
    text = "\n".join(str(one.message) for one in said)
    assert "WandbLoggerHook does not answer; 5 records were not sent" in text
    assert re.search(r"MlflowLoggerHook failed( and is switched off; training continues)?: ZeroDivisionError", text)


def test_a_tracker_that_takes_long_to_open_does_not_delay_training(
    make_runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    gate = threading.Event()

    def begin(*args: Any, **settings: Any) -> None:
        gate.wait(60)
        order.append("open")

    monkeypatch.delitem(sys.modules, "wandb", raising=False)  # a program that imports it waits for it
    monkeypatch.setattr(outbox, "OPENING", 300.0)
    monkeypatch.setattr(WandbRun, "begin", begin)
    monkeypatch.setattr(WandbRun, "row", lambda *args, **settings: None)
    monkeypatch.setattr(WandbRun, "files", lambda *args, **settings: None)
    monkeypatch.setattr(WandbRun, "finish", lambda *args: None)

    def train(runner: Any) -> None:
        order.append(f"epoch {runner.epoch}")
        gate.set()

    custom = {"type": "ClosureHook", "fn_name": "before_train_epoch", "fn": train}
    hooks = [{"type": "TextLoggerHook"}, {"type": "WandbLoggerHook"}]
    _train(make_runner, tmp_path, log_config={"interval": 3, "hooks": hooks}, custom=[custom])
    assert order[0] == "epoch 0" and "open" in order


def test_half_precision_without_cuda_trains_in_single_precision(make_runner: Any, tmp_path: Path) -> None:
    plain = _train(make_runner, tmp_path / "plain", optimizer_config={"grad_clip": {"max_norm": 1}})
    half = {"type": "Fp16OptimizerHook", "loss_scale": "dynamic", "grad_clip": {"max_norm": 1}}
    assert_same_bits(weights(plain), weights(_train(make_runner, tmp_path / "half", optimizer_config=half)))
    several = {"type": "GradientCumulativeFp16OptimizerHook", "cumulative_iters": 3, "loss_scale": 512.0}
    _train(make_runner, tmp_path / "several", optimizer_config=several)


def test_decorated_methods_run_on_the_cpu() -> None:
    class Decorated(nn.Module):
        fp16_enabled = False

        @auto_fp16(apply_to=("x",))
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.twice(x)

        @force_fp32()
        def loss(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    part = Decorated()
    part.twice = nn.Linear(3, 3, bias=False)
    nn.init.constant_(part.twice.weight, 2.0)
    assert part(torch.ones(1, 3)).dtype == torch.float
    wrap_fp16_model(part)
    assert part.fp16_enabled
    half = part(torch.ones(1, 3))
    assert half.dtype == torch.half
    loss = part.loss(half)
    assert (loss.dtype, loss.item()) == (torch.float, 18)


def test_parameters_that_the_loss_does_not_reach_are_told(make_runner: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Partial(Net):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(2, 2)

    runner = make_runner(Partial(), max_epochs=1)
    runner.register_optimizer_hook({"detect_anomalous_params": True})
    runner.run([noisy_loader()], TRAIN)
    named = {record.getMessage().split()[0] for record in caplog.records if record.levelname == "ERROR"}
    assert named == {"unused.weight", "unused.bias"}


def test_the_profiler_writes_a_trace(make_runner: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    hook = {"type": "ProfilerHook", "by_epoch": False, "profile_iters": 2, "json_trace_path": str(trace)}
    _train(make_runner, tmp_path, custom=[hook])
    assert trace.stat().st_size > 0
    with pytest.raises(ValueError, match="profile_iters"):
        _train(make_runner, tmp_path, custom=[{"type": "ProfilerHook", "profile_iters": 5}])


def test_hooks_for_several_processes_and_cuda_do_nothing_alone(make_runner: Any, tmp_path: Path) -> None:
    plain = _train(make_runner, tmp_path / "plain")
    idle = [{"type": "SyncBuffersHook"}, {"type": "EmptyCacheHook", "before_epoch": True, "after_iter": True}]
    assert_same_bits(weights(plain), weights(_train(make_runner, tmp_path / "idle", custom=idle)))


def test_a_closure_acts_at_its_stage(make_runner: Any, tmp_path: Path) -> None:
    seen: list[int] = []
    hook = {"type": "ClosureHook", "fn_name": "after_train_epoch", "fn": lambda runner: seen.append(runner.epoch)}
    _train(make_runner, tmp_path, custom=[hook])
    assert seen == [0, 1]
    assert HOOKS.build(hook).get_triggered_stages() == []


def test_what_is_not_served_says_so() -> None:
    with pytest.raises(OutOfScope, match="RFSearchHook"):
        HOOKS.build({"type": "RFSearchHook"})


class _Lost(Net):
    """Its loss is not a number any more from the eighth iteration on."""

    count = 0

    def forward(self, x: Any, y: Any = None, return_loss: bool = True) -> Any:
        self.count += 1
        return super().forward(x, y, return_loss) * (float("nan") if self.count > 7 else 1.0)


def test_a_loss_that_is_not_finite_is_warned_of_once(
    make_runner: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = make_runner(_Lost(), folder=tmp_path, max_epochs=4)
    lines = {"interval": 2, "hooks": [{"type": "TextLoggerHook"}]}
    runner.register_training_hooks({"policy": "fixed"}, {}, {"interval": 1}, lines)
    runner.run([noisy_loader()], TRAIN)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1 and said[0].startswith("loss is nan at iteration 8 or shortly before.")
    assert said[0].endswith(f"(iteration 6): stop the run with Ctrl-C, and resume from there with --resume-from {tmp_path}/epoch_1.pth")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("TensorboardLoggerHook", "log_dir interval ignore_last reset_flag by_epoch"),
        ("WandbLoggerHook", "init_kwargs interval ignore_last reset_flag commit by_epoch with_step"),
        ("MlflowLoggerHook", "exp_name tags params log_model interval ignore_last reset_flag by_epoch"),
        ("NeptuneLoggerHook", "init_kwargs interval ignore_last reset_flag with_step by_epoch"),
        ("PaviLoggerHook", "init_kwargs add_graph img_key add_last_ckpt interval ignore_last reset_flag by_epoch"),
        ("DistEvalHook", "dataloader start interval by_epoch save_best rule test_fn greater_keys less_keys"),
    ],
)
def test_arguments_stand_in_the_order_of_mmcv_because_subclasses_pass_them_by_position(name, first):
    parameters = list(inspect.signature(getattr(mmcv.runner, name)).parameters)
    assert parameters[: len(first.split())] == first.split()
