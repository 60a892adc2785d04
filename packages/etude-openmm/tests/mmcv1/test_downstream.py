"""mmcls and mmtrack: registries, builders, datasets, and their training functions called by a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.mmcv1.toys import Net, Noisy

from mmcls.datasets import DATASETS, PIPELINES, BaseDataset, build_dataloader, build_dataset  # isort: skip
from mmcls.models import CLASSIFIERS, accuracy, build_classifier
from mmcv import Config

SCORES = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])
LABELS = np.array([0, 1, 2, 2])


@PIPELINES.register_module(force=True)
class Halve:
    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        return results | {"img": torch.from_numpy(results["img"] / 2)}


@DATASETS.register_module(force=True)
class Points(BaseDataset):
    CLASSES = ("a", "b", "c")

    def load_annotations(self) -> list[dict[str, Any]]:
        return [{"img": np.full((1, 4, 4), label, dtype=np.float32), "gt_label": label} for label in LABELS]


@CLASSIFIERS.register_module(force=True)
class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))

    def forward(self, img: torch.Tensor, return_loss: bool = True, **kwargs: Any) -> Any:
        return list(self.body(img).softmax(1).detach().numpy())

    def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        loss = nn.functional.cross_entropy(self.body(data["img"]), torch.as_tensor(data["gt_label"]))
        return {"loss": loss, "log_vars": {"loss": loss}, "num_samples": len(data["img"])}


@PIPELINES.register_module(force=True)
class OnlyImage:
    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        return {"img": results["img"]}


PIPELINE = [{"type": "Halve"}]
TEST_PIPELINE = [{"type": "Halve"}, {"type": "OnlyImage"}]
MODEL = {"type": "Tiny"}


def _settings(folder: Path, **changes: Any) -> Any:
    return Config(
        {
            "data": {
                "samples_per_gpu": 2,
                "workers_per_gpu": 0,
                "train": {"type": "Points", "pipeline": PIPELINE},
                "val": {"type": "Points", "pipeline": TEST_PIPELINE},
            },
            "optimizer": {"type": "SGD", "lr": 0.1},
            "optimizer_config": {"grad_clip": None},
            "lr_config": {"policy": "fixed"},
            "runner": {"type": "EpochBasedRunner", "max_epochs": 2},
            "checkpoint_config": {"interval": 1},
            "log_config": {"interval": 1, "hooks": [{"type": "TextLoggerHook"}]},
            "evaluation": {"interval": 1, "save_best": "auto", "metric_options": {"topk": (1, 2)}},
            "workflow": [("train", 1)],
            "work_dir": str(folder),
            "load_from": None,
            "resume_from": None,
            "gpu_ids": [0],
            **changes,
        }
    )


def test_a_script_trains_with_the_function_of_mmcls(tmp_path: Path) -> None:
    from mmcls.apis import init_random_seed, set_random_seed, train_model

    cfg = _settings(tmp_path)
    set_random_seed(init_random_seed(1))
    model = build_classifier(MODEL)
    train_model(
        model, build_dataset(cfg.data.train), cfg, validate=True, timestamp="now", device="cpu", meta={"seed": 1}
    )
    lines = (tmp_path / "now.log.json").read_text()
    assert "accuracy_top-1" in lines
    assert "accuracy_top-2" in lines
    assert "top-1" in lines
    assert any(path.name.startswith("best_accuracy_top-1_epoch_") for path in tmp_path.iterdir())


def test_without_a_runner_the_old_key_is_used(tmp_path: Path) -> None:
    from mmcls.apis import train_model

    cfg = _settings(tmp_path, total_epochs=1)
    cfg.pop("runner")
    with pytest.warns(UserWarning, match="`runner` section"):
        train_model(build_classifier(MODEL), build_dataset(cfg.data.train), cfg, device="cpu")
    assert (tmp_path / "epoch_1.pth").exists()


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    from mmcls.apis import train_model

    cfg = _settings(tmp_path)
    cfg.pop("lr_config")
    with pytest.raises(KeyError, match="no `lr_config`"):
        train_model(build_classifier(MODEL), build_dataset(cfg.data.train), cfg, device="cpu")


def test_a_script_trains_with_the_function_of_mmtrack(tmp_path: Path) -> None:
    from mmtrack.apis import train_model
    from mmtrack.datasets import DATASETS as TRACK_DATASETS
    from mmtrack.models import MODELS, build_model

    @TRACK_DATASETS.register_module(force=True)
    class Tracks(Noisy):
        def __init__(self, test_mode: bool = False) -> None:
            super().__init__()

        def evaluate(self, results: Any, logger: Any = None, **kwargs: Any) -> dict[str, float]:
            return {"acc": 0.0}

    @MODELS.register_module(force=True)
    class Tracker(Net):
        pass

    cfg = _settings(tmp_path, total_epochs=2, evaluation={"interval": 1, "save_best": "acc"})
    cfg.data.val = {"type": "Tracks"}
    train_model(build_model({"type": "Tracker"}), Tracks(), cfg, validate=True, meta={})
    assert (tmp_path / "best_acc_epoch_1.pth").exists()  # a score of 0 counts in mmtracking


def test_accuracy_counts_the_best_guesses() -> None:
    assert [float(share) for share in accuracy(SCORES, LABELS, (1, 3))] == [75.0, 100.0]
    assert float(accuracy(SCORES, LABELS, 1)) == 75.0
    assert float(accuracy(SCORES, LABELS, 1, thrs=0.55)) == 50.0


def test_a_dataset_is_scored_by_its_accuracy() -> None:
    dataset = build_dataset({"type": "Points", "pipeline": PIPELINE})
    found = dataset.evaluate(list(SCORES), metric_options={"topk": (1, 2)})
    assert found == {"accuracy_top-1": 75.0, "accuracy_top-2": 75.0}
    with pytest.raises(ValueError, match="did you mean 'accuracy'"):
        dataset.evaluate(list(SCORES), metric="acuracy")
    with pytest.raises(ValueError, match=r"pip install mmcls==0\.25\.0"):
        dataset.evaluate(list(SCORES), metric=["accuracy", "recall"])


def test_datasets_are_joined() -> None:
    one = {"type": "Points", "pipeline": PIPELINE}
    assert len(build_dataset([one, one])) == 8


@pytest.mark.parametrize(
    ("name", "package"),
    [("YOLOXLrUpdaterHook", "mmdet"), ("SiameseRPNOptimizerHook", "mmtrack"), ("MMClsWandbHook", "mmcls")],
)
def test_hooks_that_come_with_a_project_are_answered_with_its_package(name: str, package: str) -> None:
    from mmcv.runner import HOOKS

    with pytest.raises(KeyError, match=f"pip install {package}"):
        HOOKS.build({"type": name})


def test_a_loader_has_the_batch_size_of_all_devices() -> None:
    loader = build_dataloader(build_dataset({"type": "Points", "pipeline": PIPELINE}), 1, 0, num_gpus=2, dist=False)
    batch = next(iter(loader))
    assert batch["img"].shape == (2, 1, 4, 4)
    assert loader.batch_size == 2


def test_the_registry_of_models_knows_scopes() -> None:
    from mmcv.cnn import MODELS

    assert CLASSIFIERS.parent is MODELS
    assert MODELS.get("mmcls.Tiny") is CLASSIFIERS.get("Tiny")


def test_lamb_is_an_optimizer_of_mmcls() -> None:
    from mmcv.runner import build_optimizer

    optimizer = build_optimizer(nn.Linear(2, 2), {"type": "Lamb", "lr": 0.1, "weight_decay": 0.01})
    assert optimizer.param_groups[0]["lr"] == 0.1
