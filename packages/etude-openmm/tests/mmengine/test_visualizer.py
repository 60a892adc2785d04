"""The visualizer and its backends."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.dialects import imports
from etude.errors import MissingExtra
from etude.events.trackers import outbox
from tests.events.offline import read_wandb
from tests.projects.conftest import Projects, fetched

imports.install()

from mmengine.config import Config  # noqa: E402
from mmengine.logging import MMLogger  # noqa: E402
from mmengine.registry import VISBACKENDS, VISUALIZERS  # noqa: E402
from mmengine.visualization import (  # noqa: E402
    AimVisBackend,
    BaseVisBackend,
    ClearMLVisBackend,
    DVCLiveVisBackend,
    LocalVisBackend,
    MLflowVisBackend,
    NeptuneVisBackend,
    TensorboardVisBackend,
    Visualizer,
    WandbVisBackend,
)
from mmengine.visualization.vis_backend import force_init_env  # noqa: E402


@VISBACKENDS.register_module(force=True)
class Note(BaseVisBackend):
    """Notes what it is given."""

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir)
        self.seen: list[Any] = []

    def _init_env(self) -> None:
        self.seen.append("opened")

    @property
    @force_init_env
    def experiment(self) -> Any:
        return self

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self.seen.append((name, value, step))

    @force_init_env
    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        self.seen.append("graph")

    def close(self) -> None:
        self.seen.append("closed")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- the visualizer ----------------------------------------------------------------------------------------------------


def test_everything_goes_to_every_backend(tmp_path: Path) -> None:
    backends = [{"type": "Note"}, {"type": "Note", "name": "second"}, {"type": "LocalVisBackend"}]
    visualizer = VISUALIZERS.build(
        {"type": "Visualizer", "name": "all", "vis_backends": backends, "save_dir": str(tmp_path)}
    )
    assert Visualizer.get_instance("all") is visualizer is Visualizer.get_current_instance()
    visualizer.add_scalar("acc", 0.5, step=2)
    visualizer.add_scalars({"loss": torch.tensor(0.25)}, step=3, file_path="more.json")
    visualizer.add_graph(torch.nn.Linear(1, 1), None)
    visualizer.add_config(Config({"a": 1}))
    visualizer.add_image("img", np.zeros((2, 3, 3), dtype=np.uint8), step=4)
    visualizer.close()
    for name in ("Note", "second"):
        assert visualizer.get_backend(name).seen == ["opened", ("acc", 0.5, 2), "graph", "closed"]
    folder = tmp_path / "vis_data"
    assert rows(folder / "scalars.json") == [{"acc": 0.5, "step": 2}, {"loss": 0.25, "step": 3}]
    assert rows(folder / "more.json") == [{"loss": 0.25, "step": 3}]
    assert (folder / "config.py").exists() and (folder / "vis_image" / "img_4.png").exists()


def test_backends_without_a_folder_are_left_out() -> None:
    with pytest.warns(UserWarning, match="not initialized because save_dir is None"):
        visualizer = Visualizer(vis_backends=[{"type": "LocalVisBackend"}])
    assert visualizer._vis_backends == {}


def test_two_backends_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="already exists"):
        Visualizer(vis_backends=[{"type": "Note"}, {"type": "Note"}], save_dir=str(tmp_path))


# -- files -------------------------------------------------------------------------------------------------------------


def test_local_files_are_checked(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        LocalVisBackend(str(tmp_path), config_save_file="a.txt")
    with pytest.raises(AssertionError):
        LocalVisBackend(str(tmp_path), scalar_save_file="a.py")
    backend = LocalVisBackend(str(tmp_path))
    assert backend.experiment is backend
    with pytest.raises(AssertionError):
        backend.add_scalars(["a"])
    with pytest.raises(AssertionError):
        backend.add_scalars({"a": 1}, file_path="scalars.json")
    with pytest.raises(AssertionError):
        backend.add_image("img", np.zeros((2, 2, 3)))
    backend.add_scalars({"a": np.float32(1), "step": 9}, step=3)
    assert rows(tmp_path / "scalars.json") == [{"a": 1.0, "step": 9}]


def test_names_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    backend = LocalVisBackend(str(tmp_path / "vis"))
    with pytest.raises(ValueError, match="leads out of"):
        backend.add_image("../../escaped", np.zeros((2, 2, 3), dtype=np.uint8))
    with pytest.raises(ValueError, match="leads out of"):
        backend.add_scalars({"a": 1}, file_path="../escaped.json")
    backend.add_image("deeper/img", np.zeros((2, 2, 3), dtype=np.uint8))
    assert [path.name for path in tmp_path.rglob("*.png")] == ["img_0.png"]


def test_a_full_disk_does_not_end_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MMLogger.get_instance("full-disk")
    (tmp_path / "vis_data").mkdir()
    (tmp_path / "vis_data" / "scalars.json").symlink_to("/dev/full")
    visualizer = Visualizer(vis_backends=[{"type": "LocalVisBackend"}, {"type": "Note"}], save_dir=str(tmp_path))
    for step in range(3):
        visualizer.add_scalar("a", 1, step)
    assert visualizer.get_backend("Note").seen == ["opened", ("a", 1, 0), ("a", 1, 1), ("a", 1, 2)]
    assert capsys.readouterr().out.count("LocalVisBackend is given up") == 1


def test_tensorboard_has_the_scalars(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    backend = TensorboardVisBackend(str(tmp_path))
    backend.add_config(Config({"a": 1}))
    backend.add_scalars({"acc": torch.tensor(0.5), "loss": 2}, step=3)
    backend.add_image("img", np.zeros((2, 2, 3), dtype=np.uint8))
    with pytest.warns(UserWarning, match="skip it"):
        backend.add_scalar("text", "a")
    with pytest.raises(AssertionError):
        backend.add_scalars({"step": 1})
    backend.close()
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("acc")] == [(3, 0.5)]


@pytest.mark.thorough  # tests/events/test_trackers.py has both, too, and they take long to import
def test_wandb_and_mlflow_keep_scalars_images_and_the_config_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setattr(outbox, "OPENING", 300.0)
    monkeypatch.chdir(tmp_path)  # W&B keeps the code of the current folder
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # MLflow sets it, for its children
    config = Config({"lr": 0.1, "hooks": [{"type": "Report", "api_key": "abc-hidden"}], "work_dir": str(tmp_path)})
    backends = [
        WandbVisBackend(
            str(tmp_path / "w"),
            init_kwargs={"mode": "offline", "settings": {"silent": True}},
            define_metric_cfg={"loss": "min"},
        ),
        MLflowVisBackend(str(tmp_path), exp_name="e", run_name="r", tags={"t": 1}, params={"p": 2}),
    ]
    try:
        for backend in backends:
            backend.add_config(config)
            backend.add_scalars({"loss": 1.0, "acc": torch.tensor(0.5)}, step=3)
            backend.add_scalar("loss", np.float32(0.25), 4)
            backend.add_image("img.png", np.zeros((4, 4, 3), dtype=np.uint8), 4)
        assert backends[1].experiment.active_run().data.tags["mlflow.runName"] == "r"
        assert backends[0].experiment.run is not None
        for backend in backends:
            backend.close()
        client = mlflow.MlflowClient()
        (run,) = client.search_runs([client.get_experiment_by_name("e").experiment_id])
        losses = client.get_metric_history(run.info.run_id, "loss")
    finally:
        mlflow.set_tracking_uri("")
    assert [(metric.step, metric.value) for metric in losses] == [(3, 1.0), (4, 0.25)]
    assert run.data.params["lr"] == "0.1" and run.data.params["hooks.0.api_key"] == "REDACTED"
    assert run.data.params["p"] == "2" and run.info.status == "FINISHED"
    assert {path.name for path in (tmp_path / "mlartifacts").rglob("*.p*")} == {"config.py", "img.png"}
    kept = read_wandb(tmp_path / "w")
    assert [(row.get("loss"), row.get("acc")) for row in kept.rows] == [(1, 0.5), (0.25, None), (None, None)]
    assert kept.config["lr"] == 0.1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"abc-hidden" in path.read_bytes()]


@pytest.mark.parametrize(
    ("package", "kind", "settings", "written"),
    [
        ("aim", AimVisBackend, {"log_system_params": False}, ".aim"),
        ("clearml", ClearMLVisBackend, {"project_name": "p", "task_name": "t"}, ""),
        ("dvclive", DVCLiveVisBackend, {"dir": "live", "save_dvc_exp": False, "dvcyaml": None}, "live/metrics.json"),
        ("neptune", NeptuneVisBackend, None, ".neptune"),
    ],
)
def test_a_tracker_takes_scalars_where_it_is_installed(
    package: str, kind: Any, settings: Any, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARML_OFFLINE_MODE", "1")
    pytest.importorskip(package)
    monkeypatch.setattr(outbox, "OPENING", 300.0)
    monkeypatch.chdir(tmp_path)
    backend = kind(save_dir=str(tmp_path), init_kwargs=settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{kind.__name__}")
        backend.add_config(Config({"lr": 0.1}))
        backend.add_scalars({"loss": 1.0, "acc": torch.tensor(0.5)}, step=3)
        backend.add_image("img", np.zeros((4, 4, 3), dtype=np.uint8), 3)
        assert backend.experiment is not None
        backend.close()
    assert (tmp_path / written).exists()


@pytest.mark.parametrize(
    "kind", [AimVisBackend, ClearMLVisBackend, DVCLiveVisBackend, MLflowVisBackend, NeptuneVisBackend]
)
def test_a_missing_package_is_named(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aim", "clearml", "dvclive", "mlflow", "neptune"):
        monkeypatch.setitem(sys.modules, name, None)
    backend = kind(save_dir=str(tmp_path))
    with pytest.raises(MissingExtra, match="needs the package .*: pip install"):
        backend.add_scalar("a", 1)
    backend.close()


# -- drawing -----------------------------------------------------------------------------------------------------------


DRAWN = """\
import etude.compat
etude.compat.install()
import os, unittest
import numpy as np, torch
from mmengine.registry import VISUALIZERS
from mmengine.runner import Runner
from mmengine.testing import RunnerTestCase, assert_keys_equal
from mmengine.visualization import Visualizer
from mmengine.visualization.utils import check_type


@VISUALIZERS.register_module()
class Framed(Visualizer):
    def draw_bboxes(self, bboxes, **options):
        self.ax_save.fill([0, 8, 8, 0], [0, 0, 8, 8], color="white")
        return super().draw_bboxes(bboxes, edge_colors="r", **options)


drawing = VISUALIZERS.build(dict(type="Framed", name="framed", image=np.zeros((40, 60, 3), dtype=np.uint8)))
drawing.draw_bboxes(torch.tensor([20, 5, 40, 30])).draw_texts(["a"], torch.tensor([[5, 25]]), colors="g")
image = drawing.get_image()
print(image.shape, (image[2:6, 2:6] == 255).all(), image[5:30, 19:41].any())
print(Visualizer.draw_featmap(torch.rand(6, 5, 7)).shape, VISUALIZERS.get("Visualizer").__module__)


class Case(RunnerTestCase):
    def test_runs(self):
        self.epoch_based_cfg.custom_hooks = [dict(type="ProfilerHook", json_trace_path="trace.json")]
        runner = self.build_runner(self.epoch_based_cfg)
        runner.train()
        assert runner.iter == 8 and os.path.getsize("trace.json")


result = unittest.TextTestRunner(verbosity=0).run(Case("test_runs"))
print(result.wasSuccessful(), assert_keys_equal(["a"], ["a"]), RunnerTestCase.__module__, Runner.__module__)
"""


def test_drawing_and_helpers_for_tests_come_from_the_installed_mmengine(tmp_path: Path) -> None:
    run = Projects(fetched(("mmengine-0.10.7", "opencv")), tmp_path).run("-c", DRAWN)
    assert run.returncode == 0, run.stderr
    first, second, *_, last = run.stdout.splitlines()
    assert [first, second, last] == [
        "(40, 60, 3) True True",
        "(5, 7, 3) etude_openmm.mmengine.live.visualization.visualizer",
        "True True mmengine.testing.runner_test_case etude_openmm.mmengine.live.runner.runner",
    ]


SAMPLES = """\
import etude.compat
etude.compat.install()
import mmengine, torch
from mmengine.model import BaseModel, BaseTTAModel
from mmengine.registry import HOOKS
from mmengine.structures import BaseDataElement, InstanceData, LabelData, PixelData


class Net(BaseModel):
    def forward(self, inputs, data_samples=None, mode="tensor"):
        return [InstanceData(scores=view * 2) for view in inputs]


class Mean(BaseTTAModel):
    def merge_preds(self, data_samples_list):
        return [InstanceData.cat(list(views)) for views in data_samples_list]


views = {"inputs": [[torch.ones(2)], [torch.zeros(2)]], "data_samples": [[None], [None]]}
[merged] = Mean(module=Net()).test_step(views)
mmengine.dump([merged[:1]], "samples.pkl")
[read] = mmengine.load("samples.pkl")
print(len(merged), isinstance(merged, BaseDataElement), read.to("cpu").scores.tolist(), PixelData(a=torch.ones(1, 2, 3)).shape)
print(LabelData.label_to_onehot(torch.tensor([1]), 3).tolist(), HOOKS.build(dict(type="PrepareTTAHook", tta_cfg={})).priority)
"""


def test_kinds_of_samples_and_their_views_come_from_the_installed_mmengine(tmp_path: Path) -> None:
    run = Projects(fetched(("mmengine-0.10.7", "opencv")), tmp_path).run("-c", SAMPLES)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["4 True [2.0] (2, 3)", "[0, 1, 0] NORMAL"]


WITHOUT = """
import subprocess
import sys
from etude.dialects import imports, ownership
ownership.original = lambda package: None
imports.install()
exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    "line",
    [
        "from mmengine.structures import BaseDataElement",
        "import mmengine._strategy.deepspeed",
        "from mmengine.runner import Runner",
        "from mmengine.registry import HOOKS; HOOKS.build({'type': 'NaiveVisualizationHook'})",
    ],
)
def test_without_mmengine_an_import_says_what_to_install(line: str) -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT, line], capture_output=True, text=True, check=False)
    assert "pip install mmengine-lite" in run.stderr.splitlines()[-1]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        Visualizer().nothing
    with pytest.raises(TypeError, match="vis_backends must be a list of dicts"):
        Visualizer("wrong", vis_backends="local")
