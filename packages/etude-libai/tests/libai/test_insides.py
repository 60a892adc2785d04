"""What the originals' own tests, and code that looks inside them, find at the places they know."""

from __future__ import annotations

import copy
import inspect
import io
import json
import os
import pickle
import unittest
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import oneflow as flow
import oneflow.unittest
import pytest
import torch
from detectron2 import model_zoo
from detectron2.checkpoint import Checkpointer, DetectionCheckpointer
from detectron2.config import CfgNode, LazyConfig, get_cfg
from detectron2.config.instantiate import dump_dataclass
from detectron2.data.samplers import InferenceSampler
from detectron2.engine import SimpleTrainer, hooks
from detectron2.evaluation import inference_on_dataset, print_csv_format, verify_results
from detectron2.solver import LRMultiplier, WarmupParamScheduler
from detectron2.solver.build import (
    _create_gradient_clipper,
    _generate_optimizer_class_with_gradient_clipping,
    build_lr_scheduler,
)
from detectron2.solver.lr_scheduler import _get_warmup_factor_at_iter
from detectron2.utils import events
from detectron2.utils.env import TORCH_VERSION
from detectron2.utils.events import CommonMetricPrinter, EventStorage, JSONWriter
from fvcore.common.checkpoint import get_missing_parameters_message
from torch import nn

from etude.errors import UserError
from libai.data.samplers import CyclicSampler
from libai.data.structures import DistTensorData
from libai.engine.trainer import EagerTrainer, TrainerBase
from tests import zygote


class Simple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": x.sum() + sum(p.mean() for p in self.parameters())}


def batches() -> Iterator[torch.Tensor]:
    while True:
        yield torch.rand(3, 3)


def a_trainer(**options: object) -> SimpleTrainer:
    model = Simple()
    return SimpleTrainer(model, batches(), torch.optim.SGD(model.parameters(), 0.1), **options)


# -- events ------------------------------------------------------------------------------------------------------------


def test_metrics_that_are_written_in_the_background_are_all_there_at_the_end(tmp_path: Path) -> None:
    trainer = a_trainer(async_write_metrics=True)
    writers = [CommonMetricPrinter(200), JSONWriter(str(tmp_path / "metrics.json"), window_size=1)]
    trainer.register_hooks([hooks.IterationTimer(), hooks.PeriodicWriter(writers, period=1)])
    trainer.train(0, 200)
    for name in ("data_time", "total_loss"):
        assert [at for _, at in trainer.storage.history(name).values()] == list(range(200))
    assert len(trainer.storage.history("time").values()) == 198


def test_metrics_that_are_gathered_now_and_then_are_smoothed_over_what_there_is(tmp_path: Path) -> None:
    trainer = a_trainer(gather_metric_period=5)
    file = tmp_path / "metrics.json"
    trainer.register_hooks([hooks.IterationTimer(), hooks.PeriodicWriter([JSONWriter(str(file), 10)], period=10)])
    trainer.train(0, 50)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["iteration"] for line in lines] == [9, 19, 29, 39, 49]
    values = [value for value, _ in trainer.storage.history("total_loss").values()]
    assert [line["total_loss"] for line in lines] == [
        (a + b) / 2 for a, b in zip(values[::2], values[1::2], strict=True)
    ]


def test_an_exception_while_metrics_are_written_is_logged_where_it_happened(caplog: pytest.LogCaptureFixture) -> None:
    class Nan(Simple):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": super().forward(x)["loss"] * float("nan")}

    model = Nan()
    trainer = SimpleTrainer(model, batches(), torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(FloatingPointError, match="at iteration=0"):
        trainer.train(0, 3)
    assert "Exception in writing metrics: " in caplog.messages


def test_what_is_inside_a_storage_is_up_to_date() -> None:
    with EventStorage(5) as storage:
        storage.put_scalar("a", torch.tensor(3.0))
        assert storage._latest_scalars["a"] == (3.0, 5)
        storage.put_scalar("a", torch.tensor(4.0))
        assert storage._history["a"].latest() == 4.0
        assert events._CURRENT_STORAGE_STACK[-1] is storage


def test_a_storage_can_be_copied_and_sent() -> None:
    storage = EventStorage(5)
    storage.put_scalar("a", torch.tensor(3.0))
    for other in (copy.deepcopy(storage), pickle.loads(pickle.dumps(storage))):
        other.put_scalar("a", 4.0)
        assert [value for value, _ in other.history("a").values()] == [3.0, 4.0]
    assert storage.latest()["a"] == (3.0, 5)


def test_the_time_that_is_left_can_be_asked_for() -> None:
    printer = CommonMetricPrinter(100)
    with EventStorage(3) as storage:
        assert (printer._get_eta(storage), printer._last_write[0]) == (None, 3)
        storage.put_scalar("time", 2.0)
        assert printer._get_eta(storage) == "0:03:12"
        assert storage.latest()["eta_seconds"] == (192.0, 3)


# -- checkpoints and paths ---------------------------------------------------------------------------------------------


def test_a_path_may_ask_for_matching_by_names_and_for_nothing_else(tmp_path: Path) -> None:
    path, model = tmp_path / "checkpoint.pth", nn.Linear(1, 1)
    torch.save({"model": nn.Linear(1, 1).state_dict()}, path)
    with pytest.raises(UserError, match="matching_heuristics=True needs detectron2"):
        DetectionCheckpointer(model).load(f"{path}?matching_heuristics=True")
    with pytest.raises(ValueError, match="Unsupported query"):
        DetectionCheckpointer(model).load(f"{path}?matching=True")


def test_checkpoints_go_through_a_path_manager_of_ones_own(tmp_path: Path) -> None:
    file_io = pytest.importorskip("iopath.common.file_io", reason="pip install 'etude[detectron2]'")

    class InFolder(file_io.PathHandler):  # type: ignore[name-defined,misc]
        def _get_supported_prefixes(self) -> list[str]:
            return ["test://"]

        def _get_local_path(self, path: str, **kwargs: Any) -> str:
            return str(tmp_path / path.removeprefix("test://"))

        def _open(self, path: str, mode: str = "r", buffering: int = -1, **kwargs: Any) -> Any:
            return open(self._get_local_path(path), mode, buffering, **kwargs)

        def _exists(self, path: str, **kwargs: Any) -> bool:
            return Path(self._get_local_path(path)).exists()

    manager = file_io.PathManager()
    manager.register_handler(InFolder())
    saved, loaded = nn.Linear(2, 2), nn.Linear(2, 2)
    for model in (saved, loaded):
        checkpointer = DetectionCheckpointer(model, "test://")
        checkpointer.path_manager = manager
        if model is saved:
            checkpointer.save("first", iteration=4)
    assert checkpointer.has_checkpoint()
    assert checkpointer.get_checkpoint_file() == "test://first.pth"
    assert checkpointer.resume_or_load("", resume=True) == {"iteration": 4}
    assert torch.equal(saved.weight, loaded.weight)


def test_what_observes_for_quantization_takes_its_shape_from_the_checkpoint(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 2), torch.ao.quantization.PerChannelMinMaxObserver())

    seen, fresh = model(), model()
    seen(torch.rand(3, 2))
    Checkpointer(seen, str(tmp_path)).save("seen")
    checkpointer = Checkpointer(fresh, str(tmp_path))
    checkpointer.load(checkpointer.get_checkpoint_file())
    assert torch.equal(fresh[1].min_val, seen[1].min_val)


# -- solver ------------------------------------------------------------------------------------------------------------


def test_gradients_are_clipped_one_by_one_or_all_together() -> None:
    clip = CfgNode({"ENABLED": True, "CLIP_TYPE": "norm", "CLIP_VALUE": 1.0, "NORM_TYPE": 2.0})
    clipper = _create_gradient_clipper(clip)
    for way, left in (("per_param_clipper", 1.0), ("global_clipper", 0.5**0.5)):
        kind = _generate_optimizer_class_with_gradient_clipping(torch.optim.SGD, **{way: clipper})
        parameters = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
        for parameter in parameters:
            parameter.grad = torch.full((1,), 9.0)
        kind(parameters, lr=1.0).step()
        assert [round(-parameter.item(), 4) for parameter in parameters] == [round(left, 4)] * 2
    clip.CLIP_TYPE = "length"
    with pytest.raises(ValueError, match="length"):
        _create_gradient_clipper(clip)


def test_steps_behind_the_end_are_left_out_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    cfg = get_cfg()
    cfg.SOLVER.STEPS = (20, 150_000)
    build_lr_scheduler(cfg, torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))
    assert "SOLVER.STEPS contains values larger than SOLVER.MAX_ITER" in caplog.text
    assert _get_warmup_factor_at_iter("linear", 5, 10, 0.5) == 0.75


# -- LiBai -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumed", [4 * 11, 8 * 11])
def test_a_sampler_of_several_processes_goes_on_by_their_count_or_by_its_own(consumed: int) -> None:
    for rank in range(2):
        options = {"micro_batch_size": 4, "shuffle": True, "seed": 123, "data_parallel_rank": rank}
        whole = list(islice(CyclicSampler(range(10), **options, data_parallel_size=2), 50))
        resumed = CyclicSampler(range(10), **options, data_parallel_size=2, consumed_samples=consumed)
        assert list(islice(resumed, 39)) == whole[11:]


def test_samples_that_do_not_go_together_are_not_stacked() -> None:
    one = DistTensorData(flow.rand(2, 3))
    assert DistTensorData.stack([one, DistTensorData(flow.rand(2, 3))]).tensor.shape == (2, 2, 3)
    for other, reason in (
        (DistTensorData(flow.rand(3, 2)), "tensor shape"),
        (DistTensorData(flow.rand(2, 3), sbp_list=["broadcast"]), "sbp_list"),
        (DistTensorData(flow.rand(2, 3), placement_idx=-1), "placement_idx"),
    ):
        with pytest.raises(AssertionError, match=reason):
            DistTensorData.stack([one, other])


def test_tests_for_oneflow_run_where_there_are_as_many_processes() -> None:
    class Some(flow.unittest.TestCase):
        @flow.unittest.skip_unless_1n1d()
        def test_alone(self) -> None:
            self.assertTrue(flow.equal(flow.zeros(2), flow.zeros_like(flow.ones(2))))

        @flow.unittest.skip_unless_1n4d()
        def test_among_four(self) -> None:
            self.fail()

    result = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(Some))
    assert (result.testsRun, len(result.skipped), result.wasSuccessful()) == (2, 1, True)


# -- names of arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "names"),
    [
        (LazyConfig.apply_overrides, "cfg overrides"),
        (dump_dataclass, "obj"),
        (hooks.BestCheckpointer._update_best, "self val iteration"),
        (verify_results, "cfg results"),
        (print_csv_format, "results"),
    ],
)
def test_arguments_have_the_names_they_are_called_by(called: Any, names: str) -> None:
    assert " ".join(inspect.signature(called).parameters) == names


def test_the_originals_tell_their_versions() -> None:
    import detectron2
    import fvcore

    import libai

    assert all(module.__version__ for module in (detectron2, fvcore, libai))


def test_the_end_of_an_evaluation_tells_its_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    inference_on_dataset(nn.Identity(), [1, 2, 3], None)
    assert "Start inference on 3 batches" in caplog.messages
    assert any(message.startswith("Total inference time: 0:00:00") for message in caplog.messages)


# -- replacing parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["detectron2.utils.comm", "detectron2.engine.train_loop.comm"])
def test_what_is_replaced_in_a_module_is_replaced_where_it_is_used(where: str) -> None:
    trainer = a_trainer()
    with mock.patch(f"{where}.is_main_process", return_value=False):
        trainer.train(0, 3)
    assert set(trainer.storage.histories()) == {"rank_data_time"}
    with mock.patch("detectron2.utils.comm.get_world_size", return_value=4):
        assert len(list(InferenceSampler(16))) == 4
    assert len(list(InferenceSampler(16))) == 16


def test_a_storage_of_ones_own_takes_the_metrics() -> None:
    trainer, own = a_trainer(), mock.Mock()
    with mock.patch("detectron2.engine.train_loop.get_event_storage", return_value=own):
        trainer.train(0, 2)
    assert [call.args[0] for call in own.put_scalar.call_args_list] == ["rank_data_time", "data_time", "total_loss"] * 2


@pytest.mark.parametrize("where", ["libai.utils.distributed", "libai.engine.trainer.dist"])
def test_other_processes_of_libai_record_nothing(where: str) -> None:
    with EventStorage() as storage, mock.patch(f"{where}.is_main_process", return_value=False):
        EagerTrainer.write_metrics({"loss": 1.0}, 0.1)
        assert not storage.histories()


def test_what_the_model_zoo_does_not_have_is_said() -> None:
    assert model_zoo.get_config_file("common/train.py").endswith("train.py")
    for ask in (model_zoo.get, model_zoo.get_config, model_zoo.get_config_file, model_zoo.get_checkpoint_url):
        with pytest.raises(RuntimeError, match=r"Invalid/config.yaml not available in Model Zoo!"):
            ask("Invalid/config.yaml")
    assert TORCH_VERSION >= (2, 0)


@pytest.mark.parametrize(
    "name",
    ["detectron2.evaluation.COCOEvaluator", "detectron2.layers.Conv2d",
     "detectron2.utils.visualizer.Visualizer"],
)  # fmt: skip
def test_what_belongs_to_detection_is_refused_with_the_reason(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    with pytest.raises(ImportError, match="not part of the engine"):
        exec(f"from {module} import {attribute}")


def test_a_trainer_that_has_not_begun_is_at_iteration_0() -> None:
    trainer = TrainerBase()
    assert (trainer.iter, trainer.start_iter, trainer._hooks) == (0, 0, [])


def test_weights_without_a_place_are_told_layer_by_layer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.save(
        {"model": nn.ModuleDict({"fc": nn.Linear(2, 2), "more": nn.Linear(1, 1)}).state_dict()}, tmp_path / "a.pth"
    )
    Checkpointer(nn.ModuleDict({"fc": nn.Linear(2, 2), "other": nn.Linear(1, 1)})).load(str(tmp_path / "a.pth"))
    assert "not found in the checkpoint:\nother.{bias, weight}" in caplog.text
    assert "not used by the model:\n  more.{bias, weight}" in caplog.text
    assert get_missing_parameters_message(["a.b.c", "d"]).splitlines()[1:] == ["a.b.c", "d"]


def test_a_curve_of_an_installed_fvcore_is_one_too() -> None:
    class ParamScheduler:
        def __call__(self, where: float) -> float:
            raise NotImplementedError

    class Falling(ParamScheduler):
        def __call__(self, where: float) -> float:
            return 1.0 - where

    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = LRMultiplier(optimizer, WarmupParamScheduler(Falling(), 0.5, 0.25), 4)
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(3):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1.0, 1.5, 1.0, 0.5]
    with pytest.raises(ValueError, match="must be an instance of fvcore ParamScheduler"):
        LRMultiplier(optimizer, lambda where: where, 4)


def test_the_errors_of_an_installed_hydra_are_raised(tmp_path: Path) -> None:
    package = tmp_path / "hydra"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "errors.py").write_text(
        "class HydraException(Exception): ...\n"
        "class CompactHydraException(HydraException): ...\n"
        "class OverrideParseException(CompactHydraException):\n"
        "    def __init__(self, override, message): super().__init__(message)\n"
        "class InstantiationException(CompactHydraException): ...\n"
    )
    code = (
        "import hydra.errors as theirs; from etude_libai.lazy import errors as ours\n"
        "for name in ('HydraException', 'CompactHydraException', 'InstantiationException'):\n"
        "    assert isinstance(getattr(ours, name)('text'), getattr(theirs, name))\n"
        "error = ours.OverrideParseException('a=b=c', 'text')\n"
        "assert isinstance(error, theirs.OverrideParseException) and str(error) == 'text' and error.override == 'a=b=c'\n"
    )
    zygote.run("-c", code, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True)
