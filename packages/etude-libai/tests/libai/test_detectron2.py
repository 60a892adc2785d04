"""detectron2's faces, used as its own users and tests use them."""

from __future__ import annotations

import itertools
import json
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from detectron2.checkpoint import Checkpointer, DetectionCheckpointer
from detectron2.config import CfgNode, LazyCall, LazyConfig, configurable, instantiate
from detectron2.engine import AMPTrainer, DefaultTrainer, SimpleTrainer, hooks
from detectron2.evaluation import DatasetEvaluator, inference_on_dataset
from detectron2.solver import LRMultiplier, WarmupParamScheduler, build_lr_scheduler
from detectron2.utils.events import CommonMetricPrinter, JSONWriter
from fvcore.common.param_scheduler import CosineParamScheduler, MultiStepParamScheduler
from torch import nn

from etude.checkpoint.formats import foreign
from etude.errors import OutOfScope, ResumeError
from tests.libai import project


class Simple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": x.sum() + sum(p.mean() for p in self.parameters())}


def batches() -> Iterator[torch.Tensor]:
    while True:
        yield torch.rand(3, 3)


def simple_trainer() -> SimpleTrainer:
    model = Simple()
    return SimpleTrainer(model, batches(), torch.optim.SGD(model.parameters(), 0.1))


# -- trainers and hooks ------------------------------------------------------------------------------------------------


def test_a_simple_trainer_trains_and_takes_other_data() -> None:
    trainer = simple_trainer()
    trainer.train(0, 10)
    assert trainer.iter == 10
    trainer.reset_data_loader(batches)
    trainer.train(0, 10)


@pytest.mark.parametrize(("total", "period", "count"), [(30, 15, 2), (31, 15, 3), (20, 0, 1)])
def test_evaluations_come_by_period_and_at_the_end(total: int, period: int, count: int) -> None:
    seen: list[int] = []
    trainer = simple_trainer()
    trainer.register_hooks([hooks.EvalHook(period, lambda: seen.append(1) or {"metric": 3.0})])
    trainer.train(0, total)
    assert len(seen) == count


@pytest.mark.parametrize(
    ("mode", "metrics", "saves"),
    [("max", [0.3, 0.4, 0.35, 0.5], 3), ("min", [1.0, 0.8, 0.9, 0.9], 2), ("min", [math.nan, 0.8, 0.9, 0.9], 1)],
)
def test_the_best_model_is_saved_when_it_is_better(
    mode: str, metrics: list[float], saves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = simple_trainer()
    checkpointer = Checkpointer(trainer.model, str(tmp_path), trainer=trainer)
    saved: list[str] = []
    monkeypatch.setattr(checkpointer, "save", lambda name, **kwargs: saved.append(name))
    served = iter(metrics)
    trainer.register_hooks(
        [
            hooks.EvalHook(10, lambda: {"metric": next(served)}),
            hooks.BestCheckpointer(10, checkpointer, "metric", mode=mode),
        ]
    )
    trainer.train(0, 40)
    assert len(saved) == saves


def test_a_checkpoint_brings_iteration_optimizer_and_scheduler_back(tmp_path: Path) -> None:
    def made(lr: float) -> tuple[SimpleTrainer, Any, Checkpointer]:
        model = Simple()
        optimizer = torch.optim.SGD(model.parameters(), lr)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        trainer = SimpleTrainer(model, batches(), optimizer)
        checkpointer = Checkpointer(model, str(tmp_path), opt=optimizer, trainer=trainer)
        trainer.register_hooks([hooks.LRScheduler(scheduler=scheduler), hooks.PeriodicCheckpointer(checkpointer, 10)])
        return trainer, scheduler, checkpointer

    trainer, scheduler, _ = made(0.1)
    trainer.train(0, 12)
    assert scheduler.last_epoch == 12
    again, restored, checkpointer = made(999)
    checkpointer.resume_or_load("non_exist.pth")
    assert again.iter == 11
    assert restored.last_epoch == 12
    assert again.optimizer.param_groups[0]["lr"] == pytest.approx(1e-5)


def test_the_final_evaluation_is_in_the_last_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.json"
    trainer = simple_trainer()
    writers = [CommonMetricPrinter(50), JSONWriter(str(path))]
    trainer.register_hooks([hooks.EvalHook(0, lambda: {"metric": 100}), hooks.PeriodicWriter(writers)])
    with caplog.at_level("INFO", "detectron2.utils.events"):
        trainer.train(0, 50)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [19, 39, 49, 50]
    assert lines[-1]["metric"] == 100
    printed = [record.getMessage() for record in caplog.records if record.name == "detectron2.utils.events"]
    assert [text.split("iter: ")[1].split()[0] for text in printed] == ["19", "39", "49"]


def test_hooks_act_between_backward_and_step() -> None:
    class Watching(hooks.HookBase):
        grads: list[bool] = []

        def after_backward(self) -> None:
            self.grads.append(self.trainer.model.fc.weight.grad is not None)

    trainer = simple_trainer()
    trainer.register_hooks([Watching()])
    trainer.train(0, 2)
    assert Watching.grads == [True, True]


def test_an_early_stop_is_a_normal_end() -> None:
    trainer = simple_trainer()
    worse = itertools.count(0, -1)
    ended: list[int] = []
    trainer.register_hooks(
        [
            hooks.EvalHook(1, lambda: {"acc": float(next(worse))}),
            hooks.EarlyStop("acc", patience=3),
            hooks.CallbackHook(after_train=lambda trainer: ended.append(trainer.iter)),
        ]
    )
    trainer.train(0, 100)
    assert ended == [4]


def test_a_stop_says_why_and_saves_with_the_hook_that_saves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for saves in (False, True):
        ending = hooks.CallbackHook(before_step=lambda trainer: trainer.stop("enough") if trainer.iter == 3 else None)
        trainer = simple_trainer()
        checkpointer = DetectionCheckpointer(trainer.model, str(tmp_path), trainer=trainer)
        trainer.register_hooks([ending, hooks.PeriodicCheckpointer(checkpointer, 50) if saves else None])
        trainer.train(0, 100)
        assert (tmp_path / "model_0000003.pth").exists() == saves
    assert "enough: the end after 4 of 100 iterations" in caplog.messages
    assert "enough, saved; --resume goes on with iteration 4" in caplog.messages


def test_a_loss_that_is_not_finite_ends_training_before_the_step() -> None:
    trainer = simple_trainer()
    trainer.model.fc.bias.data[0] = math.inf
    before = trainer.model.fc.weight.detach().clone()
    with pytest.raises(FloatingPointError, match="iteration=0"):
        trainer.train(0, 3)
    assert torch.equal(trainer.model.fc.weight, before)


def test_amp_needs_cuda() -> None:
    model = Simple()
    trainer = AMPTrainer(model, batches(), torch.optim.SGD(model.parameters(), 0.1), grad_scaler=object())
    if not torch.cuda.is_available():
        with pytest.raises(AssertionError, match="CUDA is required"):
            trainer.train(0, 1)


def test_precise_bn_gives_true_means() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    data = [torch.randn(8, 2) + 3 for _ in range(5)]
    hook = hooks.PreciseBN(0, model, data, 5)
    hook.update_stats()
    torch.testing.assert_close(model[0].running_mean, torch.stack([batch.mean(0) for batch in data]).mean(0))


def test_metrics_can_be_written_beside_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line and a checkpoint wait for those of their iteration."""
    model, write = Simple(), SimpleTrainer._write_metrics

    def slowly(self: Any, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.02)
        write(self, *args, **kwargs)

    monkeypatch.setattr(SimpleTrainer, "_write_metrics", slowly)
    trainer = SimpleTrainer(model, batches(), torch.optim.SGD(model.parameters(), 0.1), async_write_metrics=True)
    saver = DetectionCheckpointer(model, str(tmp_path), trainer=trainer)
    writers = [JSONWriter(str(tmp_path / "metrics.json"))]
    trainer.register_hooks([hooks.PeriodicCheckpointer(saver, 3), hooks.PeriodicWriter(writers, 2)])
    trainer.train(0, 5)
    assert [iteration for _, iteration in trainer.storage.history("total_loss").values()] == [0, 1, 2, 3, 4]
    lines = [json.loads(line)["iteration"] for line in (tmp_path / "metrics.json").read_text().splitlines()]
    assert lines == [1, 3, 4]
    kept = foreign.read(tmp_path / "model_0000002.pth")["trainer"]["etude"]["storage"]
    assert kept["latest"]["total_loss"][1] == 2


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_an_fvcore_schedule_is_stepped_by_the_hook() -> None:
    trainer = simple_trainer()
    schedule = WarmupParamScheduler(CosineParamScheduler(1, 0), 0.001, 0.5)
    trainer.register_hooks([hooks.LRScheduler(scheduler=schedule)])
    trainer.train(0, 10)
    rates = [value for value, _ in trainer.storage.history("lr").values()]
    assert rates[0] == pytest.approx(0.0001)
    assert max(rates) == rates[5]


def test_only_fvcore_schedules_are_multipliers() -> None:
    with pytest.raises(ValueError, match="ParamScheduler"):
        LRMultiplier(torch.optim.SGD(Simple().parameters(), 0.1), lambda where: 1.0, 10)


def test_a_yacs_config_builds_its_scheduler() -> None:
    cfg = CfgNode(
        {
            "SOLVER": {
                "LR_SCHEDULER_NAME": "WarmupMultiStepLR", "STEPS": (6, 8), "MAX_ITER": 10, "GAMMA": 0.1,
                "WARMUP_FACTOR": 0.5, "WARMUP_ITERS": 2, "WARMUP_METHOD": "linear", "RESCALE_INTERVAL": False,
            }
        }
    )  # fmt: skip
    optimizer = torch.optim.SGD(Simple().parameters(), 1.0)
    scheduler = build_lr_scheduler(cfg, optimizer)
    assert isinstance(scheduler._multiplier, WarmupParamScheduler)
    assert MultiStepParamScheduler([1, 0.1], 10, [5])(0.6) == 0.1
    assert optimizer.param_groups[0]["lr"] == 0.5


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_wrapped_model_and_a_bare_one_share_checkpoints(tmp_path: Path) -> None:
    trained, fresh = nn.DataParallel(Simple()), Simple()
    Checkpointer(trained, save_dir=str(tmp_path)).save("weights")
    checkpointer = Checkpointer(fresh, save_dir=str(tmp_path))
    assert checkpointer.has_checkpoint()
    assert checkpointer.get_checkpoint_file() == str(tmp_path / "weights.pth")
    assert checkpointer.get_all_checkpoint_files() == [str(tmp_path / "weights.pth")]
    checkpointer.load(checkpointer.get_checkpoint_file())
    assert torch.equal(fresh.fc.weight, trained.module.fc.weight)


def test_what_does_not_fit_is_told_and_left() -> None:
    checkpointer = Checkpointer(Simple())
    found = checkpointer._load_model({"model": {"module.fc.weight": torch.zeros(2, 2), "module.other": torch.zeros(1)}})
    assert found.missing_keys == ["fc.weight", "fc.bias"]
    assert found.unexpected_keys == ["other"]
    assert found.incorrect_shapes == [("fc.weight", (2, 2), (3, 3))]


def test_a_file_that_holds_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"model": Payload()}, tmp_path / "bad.pth")
    with pytest.raises(ResumeError, match="refused"):
        DetectionCheckpointer(Simple(), str(tmp_path)).load(str(tmp_path / "bad.pth"))
    assert not (tmp_path / "ran").exists()


def test_a_key_is_taken_once() -> None:
    checkpointer = Checkpointer(Simple(), obj=Simple())
    with pytest.raises(KeyError, match="already used"):
        checkpointer.add_checkpointable("obj", Simple())
    with pytest.raises(TypeError):
        checkpointer.add_checkpointable("number", 3)


# -- configs -----------------------------------------------------------------------------------------------------------


class Thing:
    def __init__(self, int_arg: Any, list_arg: Any = None, dict_arg: Any = None, extra_arg: Any = None) -> None:
        self.int_arg, self.list_arg, self.dict_arg, self.extra_arg = int_arg, list_arg, dict_arg, extra_arg

    def __call__(self, call_arg: int) -> int:
        return call_arg + self.int_arg


@dataclass
class Point:
    x: int
    y: str


def test_interpolations_see_the_whole_config() -> None:
    config = LazyCall(Thing)(int_arg=3, list_arg=[10], extra_arg=LazyCall(Thing)(int_arg=4, list_arg="${..list_arg}"))
    made = instantiate(config)
    assert made.extra_arg.list_arg == made.list_arg == [10]
    config.extra_arg.list_arg = [5]
    assert instantiate(config).extra_arg.list_arg == [5]


def test_what_is_no_config_stays_what_it_is() -> None:
    for value in (5, [3, 4, 5], Thing(1), {"xx": "yy"}):
        assert instantiate(value) is value


def test_a_target_may_be_made_first() -> None:
    config = LazyCall(LazyCall(len)(int_arg=3))(call_arg=4)
    config._target_._target_ = Thing
    assert instantiate(config) == 7


def test_dataclasses_are_made_and_kept() -> None:
    made = instantiate(LazyCall(Thing)(int_arg=LazyCall(Point)(x=1, y="s"), extra_arg=Point(x=2, y="t")))
    assert made.int_arg == Point(1, "s")
    assert made.extra_arg == Point(2, "t")


def test_to_py_is_laid_out_like_black(tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text(
        "from itertools import count\nfrom detectron2.config import LazyCall as L\nobj = L(count)(x='a', y='b')\n"
    )
    config = LazyConfig.load(str(path))
    config.obj.x = {"a": 1, "b": 2, "c": LazyCall(itertools.count)(x={"r": "a", "s": 2.4, "t": [1, 2, 3, "z"]})}
    config.list = ["a", 1, "b", 3.2]
    assert LazyConfig.to_py(config) == (
        'cfg.list = ["a", 1, "b", 3.2]\n'
        "cfg.obj = itertools.count(\n"
        "    x={\n"
        '        "a": 1,\n'
        '        "b": 2,\n'
        '        "c": itertools.count(x={"r": "a", "s": 2.4, "t": [1, 2, 3, "z"]}),\n'
        "    },\n"
        '    y="b",\n'
        ")\n"
    )


def test_a_constructor_takes_its_arguments_from_a_config() -> None:
    class Made:
        @configurable
        def __init__(self, a: int, b: int = 2) -> None:
            self.a, self.b = a, b

        @classmethod
        def from_config(cls, cfg: Any) -> dict[str, int]:
            return {"a": cfg.A}

    assert Made(CfgNode({"A": 5})).a == 5
    assert Made(CfgNode({"A": 5}), b=7).b == 7
    assert Made(a=1).b == 2


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_logger() -> Iterator[None]:
    """As in a script that has set up nothing."""
    project.forget_loggers()
    logging.getLogger("detectron2").setLevel(logging.NOTSET)
    yield
    project.forget_loggers()


def test_a_default_trainer_of_a_subclass_trains_and_resumes(
    tmp_path: Path, fresh_logger: None, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = CfgNode(
        {
            "OUTPUT_DIR": str(tmp_path),
            "SOLVER": {
                "REFERENCE_WORLD_SIZE": 0, "MAX_ITER": 6, "CHECKPOINT_PERIOD": 3, "BASE_LR": 0.1, "MOMENTUM": 0.9,
                "NESTEROV": False, "WEIGHT_DECAY": 0.0, "WEIGHT_DECAY_NORM": None, "WEIGHT_DECAY_BIAS": None,
                "BIAS_LR_FACTOR": 1.0, "LR_SCHEDULER_NAME": "WarmupCosineLR", "BASE_LR_END": 0.0, "WARMUP_FACTOR": 0.1,
                "WARMUP_ITERS": 2, "WARMUP_METHOD": "linear", "RESCALE_INTERVAL": False,
                "CLIP_GRADIENTS": {"ENABLED": True, "CLIP_TYPE": "norm", "CLIP_VALUE": 1.0, "NORM_TYPE": 2.0},
                "AMP": {"ENABLED": False},
            },
            "MODEL": {"WEIGHTS": ""}, "TEST": {"EVAL_PERIOD": 0, "EXPECTED_RESULTS": [], "PRECISE_BN": {"ENABLED": False}},
            "DATASETS": {"TEST": ("val",)},
        }
    )  # fmt: skip

    class Own(DefaultTrainer):
        @classmethod
        def build_model(cls, cfg: Any) -> nn.Module:
            return Simple()

        @classmethod
        def build_train_loader(cls, cfg: Any) -> Any:
            return batches()

    trainer = Own(cfg)
    trainer.resume_or_load(resume=False)
    trainer.train()
    assert (tmp_path / "last_checkpoint").read_text() == "model_final.pth"
    again = Own(cfg)
    again.resume_or_load(resume=True)
    assert again.start_iter == 6
    assert torch.equal(again.model.fc.weight, trainer.model.fc.weight)
    said = capsys.readouterr().out
    assert "Starting training from iteration 0" in said
    assert "No evaluator found." in said
    looking = type("Looking", (Own,), {"build_evaluator": classmethod(lambda cls, cfg, name: DatasetEvaluator())})
    with pytest.raises(OutOfScope, match=r"override `build_test_loader\(cls, cfg, dataset_name\)` in Looking"):
        looking(cfg)


def test_hooks_are_named_beside_the_trainers_too() -> None:
    import detectron2.engine as engine

    assert engine.BestCheckpointer is hooks.BestCheckpointer
    assert engine.EvalHook is hooks.EvalHook
    assert engine.defaults.hooks is hooks


def test_the_model_is_in_its_mode_again_after_an_evaluation_that_raised() -> None:
    class Raising(DatasetEvaluator):
        def process(self, inputs: Any, outputs: Any) -> None:
            raise RuntimeError("look")

    model = nn.Linear(3, 3)
    with pytest.raises(RuntimeError, match="look"):
        inference_on_dataset(model, [torch.ones(3)], Raising())
    assert model.training


def test_what_is_out_of_scope_says_what_to_do() -> None:
    with pytest.raises(OutOfScope, match="bring the class"):
        import detectron2.modeling.backbone  # noqa: F401
    with pytest.raises(OutOfScope, match="it comes with detectron2, which is not installed here"):
        from detectron2.utils.memory import retry_if_cuda_oom  # noqa: F401
    with pytest.raises(OutOfScope, match="OneFlow"):
        from libai.models import BertModel  # noqa: F401


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    import importlib

    module = importlib.import_module("detectron2.config.instantiate")
    from detectron2.config import instantiate as function

    assert callable(function)
    assert module.instantiate is function
    made = function(module.dump_dataclass(Point(1, "s")))
    assert made == Point(1, "s")
