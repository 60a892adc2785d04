"""The visualizer and its backends."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import call, patch

import numpy as np
import pytest
import torch

from etude.dialects import imports
from etude.errors import MissingExtra

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


def test_wandb_takes_rows_where_it_is_installed(tmp_path: Path) -> None:
    backend = WandbVisBackend(str(tmp_path), init_kwargs={"mode": "disabled"}, define_metric_cfg={"loss": "min"})
    if find_spec("wandb") is None:
        with pytest.raises(MissingExtra):
            backend.add_scalar("acc", 0.5)
        return
    backend.add_scalars({"loss": 1.0}, step=3)
    backend.add_scalar("acc", 0.5)
    assert backend.experiment.__name__ == "wandb"
    backend.close()


@pytest.mark.parametrize(
    "kind", [AimVisBackend, ClearMLVisBackend, DVCLiveVisBackend, MLflowVisBackend, NeptuneVisBackend]
)
def test_a_missing_package_is_named(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aim", "clearml", "dvclive", "mlflow", "neptune"):
        monkeypatch.setitem(sys.modules, name, None)
    backend = kind(save_dir=str(tmp_path))
    with pytest.raises(MissingExtra, match=r"pip install 'etude\[tracking\]'"):
        backend.add_scalar("a", 1)
    backend.close()


# -- drawing -----------------------------------------------------------------------------------------------------------


def make() -> Visualizer:
    return Visualizer(image=np.zeros((40, 60, 3), dtype=np.uint8))


def test_an_image_is_needed() -> None:
    with pytest.raises(AssertionError):
        Visualizer().get_image()
    with pytest.raises(AssertionError):
        make().set_image(None)
    assert make().get_image().shape == (40, 60, 3)


@pytest.mark.parametrize(
    "draw",
    [
        lambda v: v.draw_bboxes(torch.tensor([5, 5, 20, 20])),
        lambda v: v.draw_bboxes(
            torch.tensor([[5, 5, 20, 20], [1, 1, 4, 4]]), edge_colors=["r", (0, 255, 0)], line_widths=[1, 2]
        ),
        lambda v: v.draw_texts(["a", "b"], torch.tensor([[5, 5], [20, 20]]), colors=["r", "g"], font_sizes=12),
        lambda v: v.draw_lines(torch.tensor([1, 30]), torch.tensor([2, 30])),
        lambda v: v.draw_circles(torch.tensor([20, 20]), torch.tensor([5])),
        lambda v: v.draw_polygons([torch.tensor([[1, 1], [20, 2], [9, 30]])], face_colors="b"),
        lambda v: v.draw_points(torch.tensor([[10, 10], [20, 20]]), colors="r"),
        lambda v: v.draw_binary_masks(np.eye(60, dtype=bool)[:40], colors=(255, 0, 0)),
    ],
)
def test_shapes_are_drawn(draw: Any) -> None:
    visualizer = make()
    assert draw(visualizer) is visualizer
    assert visualizer.get_image().any() and visualizer.get_image().shape == (40, 60, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda v: v.draw_bboxes(torch.tensor([5, 5, 2, 2])),
        lambda v: v.draw_bboxes(torch.tensor([5, 5, 2])),
        lambda v: v.draw_texts(["a"], torch.tensor([[5, 5], [20, 20]])),
        lambda v: v.draw_lines(torch.tensor([1, 30]), torch.tensor([[2, 30], [1, 2]])),
        lambda v: v.draw_circles(torch.tensor([20, 20]), torch.tensor([5, 6])),
        lambda v: v.draw_polygons([torch.tensor([1, 2, 3])]),
        lambda v: v.draw_binary_masks(np.zeros((3, 3), dtype=bool)),
        lambda v: v.draw_binary_masks(np.zeros((40, 60))),
        lambda v: v.draw_featmap(np.zeros((1, 2, 2))),
        lambda v: v.draw_featmap(torch.zeros(2, 2)),
        lambda v: v.draw_featmap(torch.zeros(30, 2, 2), channel_reduction=None, topk=30),
        lambda v: v.draw_featmap(torch.zeros(5, 2, 2), channel_reduction="wrong"),
    ],
)
def test_wrong_shapes_are_refused(wrong: Any) -> None:
    with pytest.raises(AssertionError):
        wrong(make())


def test_lists_of_numbers_are_refused() -> None:
    with pytest.raises(TypeError):
        make().draw_bboxes([1, 1, 2, 2])
    with pytest.raises(TypeError):
        make().draw_texts(3, torch.tensor([1, 2]))
    with pytest.raises(AssertionError):
        make().draw_texts(["a", "b"], torch.tensor([[5, 5], [3, 3]]), colors=["r"])


def test_what_lies_outside_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="out of bounds"):
        make().draw_bboxes(torch.tensor([5, 5, 200, 20]))


def test_feature_maps_become_colours() -> None:
    features = torch.rand(6, 5, 7)
    assert Visualizer.draw_featmap(features).shape == (5, 7, 3)
    assert Visualizer.draw_featmap(features, channel_reduction="select_max", resize_shape=(10, 14)).shape == (10, 14, 3)
    image = np.zeros((10, 14, 3), dtype=np.uint8)
    assert Visualizer.draw_featmap(features, image, channel_reduction=None, topk=6, arrangement=(2, 3)).shape == (
        20,
        42,
        3,
    )


def test_a_window_shows_the_image_until_it_may_go_on() -> None:
    visualizer = Visualizer("window")
    image = np.ones((2, 2, 3), dtype=np.uint8)
    with patch("mmengine.visualization.visualizer.wait_continue", return_value=0) as waited:
        visualizer.show(image, win_name="one", wait_time=1)
        first = visualizer.manager
        visualizer.show(image, win_name="two")
    assert visualizer.manager is first
    assert waited.call_args_list == [
        call(first.canvas.figure, timeout=1, continue_key=" "),
        call(first.canvas.figure, timeout=0.0, continue_key=" "),
    ]
    with pytest.raises(ValueError, match='backend should be "matplotlib" or "cv2"'):
        visualizer.show(image, backend="unknown")


def test_subclasses_draw_on_the_axes_themselves() -> None:
    visualizer = Visualizer("axes", image=np.zeros((8, 8, 3), dtype=np.uint8))
    visualizer.ax_save.fill([0, 8, 8, 0], [0, 0, 8, 8], color="white")
    assert visualizer.fig_save_canvas is visualizer.fig_save.canvas
    assert (visualizer.get_image()[2:6, 2:6] == 255).all()


def test_masks_are_coloured_by_names_too() -> None:
    visualizer = Visualizer("masks", image=np.zeros((2, 2, 3), dtype=np.uint8))
    masks = np.array([[[True, False], [False, False]], [[False, False], [False, True]]])
    visualizer.draw_binary_masks(masks, colors=["red", (0, 255, 0)], alphas=1.0)
    assert visualizer.get_image()[0, 0].tolist() == [255, 0, 0]
    assert visualizer.get_image()[1, 1].tolist() == [0, 255, 0]


def test_what_is_outside_of_the_image_is_warned_of_and_wrong_backends_are_refused() -> None:
    visualizer = Visualizer("outside", image=np.zeros((4, 4, 3), dtype=np.uint8))
    with pytest.warns(UserWarning, match="Warning: The bbox is out of bounds"):
        visualizer.draw_bboxes(np.array([1, 1, 9, 2]))
    with pytest.raises(TypeError, match="vis_backends must be a list of dicts"):
        Visualizer("wrong", vis_backends="local")
