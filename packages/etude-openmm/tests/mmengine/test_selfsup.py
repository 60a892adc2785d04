"""What MMSelfSup and MMPretrain add: scopes, base model, hooks, layer-wise learning rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from etude.dialects import imports
from etude.errors import OutOfScope

imports.install()

from mmpretrain.registry import HOOKS as PRETRAIN_HOOKS  # noqa: E402
from mmpretrain.registry import VISUALIZERS as PRETRAIN_VISUALIZERS  # noqa: E402
from mmselfsup.engine.hooks import SwAVHook  # noqa: E402
from mmselfsup.models import BaseModel  # noqa: E402
from mmselfsup.registry import HOOKS, MODELS, OPTIMIZERS, VISUALIZERS  # noqa: E402
from mmselfsup.utils import get_model, register_all_modules  # noqa: E402

from mmengine.optim import build_optim_wrapper  # noqa: E402
from mmengine.registry import OPTIMIZERS as ROOT_OPTIMIZERS  # noqa: E402
from mmengine.registry import DefaultScope  # noqa: E402
from mmengine.runner import Runner  # noqa: E402

LAYERED = "LearningRateDecayOptimWrapperConstructor"


@MODELS.register_module(force=True)
class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


@MODELS.register_module(force=True)
class Clusters(nn.Module):
    """A head that can be started anew."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.loss = nn.Module()
        self.starts = 0
        self._is_init = False

    def init_weights(self) -> None:
        if not self._is_init:
            self.starts += 1
        self._is_init = True


class Contrast(BaseModel):
    """The views of a sample should look alike."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("loss_weight", torch.ones(2))
        self.num_classes = 2

    def extract_feat(self, inputs: list[torch.Tensor], **kwargs: Any) -> Any:
        return [self.backbone(inputs[0])]

    def loss(self, inputs: list[torch.Tensor], data_samples: Any) -> dict[str, torch.Tensor]:
        one, other = (self.head.fc(self.backbone(view)) for view in inputs)
        return {"loss": (one - other).pow(2).mean()}


class Views:
    """Twelve samples, six of them at one place and six at another."""

    def __init__(self) -> None:
        self.data = torch.randn(12, 4) * 0.1 + torch.tensor([[3.0]] * 6 + [[-3.0]] * 6)
        self.labels: Any = None

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": [self.data[index], self.data[index] + 0.1], "sample": index}

    def assign_labels(self, labels: Any) -> None:
        self.labels = labels


def make_runner(folder: Path, hooks: list[Any], **model_parts: Any) -> Any:
    loader = {
        "batch_size": 4, "num_workers": 0, "collate_fn": {"type": "default_collate"}, "dataset": Views(),
        "sampler": {"type": "DefaultSampler", "shuffle": False},
    }  # fmt: skip
    model = Contrast(backbone={"type": "Encoder"}, head={"type": "Clusters"}, **model_parts)
    return Runner(
        model=model,
        work_dir=str(folder),
        train_dataloader=loader,
        train_cfg={"by_epoch": True, "max_epochs": 2},
        optim_wrapper={"optimizer": {"type": "LARS", "lr": 0.1}},
        default_scope="mmselfsup",
        custom_hooks=hooks,
        default_hooks={"checkpoint": None},
        experiment_name=folder.name,
        randomness={"seed": 0},
        log_level="ERROR",
    )


def test_names_are_found_in_their_scope_and_from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DefaultScope, "_instance_dict", DefaultScope._instance_dict.copy())
    assert HOOKS.get("SimSiamHook") is not None and HOOKS.get("EMAHook") is not None
    assert ROOT_OPTIMIZERS.get("mmselfsup.LARS") is OPTIMIZERS.get("LARS") is ROOT_OPTIMIZERS.get("LARS")
    register_all_modules()
    assert DefaultScope.get_current_instance().scope_name == "mmselfsup"
    assert get_model(nn.Linear(1, 1)).in_features == 1


def test_the_base_model_has_the_parts_it_was_given() -> None:
    model = Contrast(backbone={"type": "Encoder"}, pretrained="file.pth")
    assert (model.with_neck, model.with_head, model.with_target_generator) == (False, False, False)
    assert model.init_cfg == {"type": "Pretrained", "checkpoint": "file.pth"}
    assert type(model.data_preprocessor).__name__ == "SelfSupDataPreprocessor"
    with pytest.raises(RuntimeError, match="Invalid mode"):
        model([torch.ones(1, 4)], mode="wrong")
    with pytest.raises(NotImplementedError):
        model([torch.ones(1, 4)], mode="predict")


def test_a_queue_is_made_saved_and_found_again(tmp_path: Path) -> None:
    def train(length: int) -> Any:
        hook = SwAVHook(batch_size=4, epoch_queue_starts=1, feat_dim=3, queue_length=length)
        runner = make_runner(tmp_path, [hook])
        runner.train()
        return runner.model.head.loss

    first = train(9)
    assert tuple(first.queue.shape) == (2, 8, 3) and first.use_queue is False
    assert (tmp_path / "queue.pth").exists()
    torch.save({"queue": torch.full((2, 8, 3), 7.0)}, tmp_path / "queue.pth")
    assert train(9).queue.unique().tolist() == [7.0]


def layered(kind: str) -> nn.Module:
    model = nn.Module()
    model.backbone = nn.Module()
    model.backbone.patch_embed = nn.Linear(2, 2)
    stages = nn.ModuleList()
    for depth in (2, 1):
        stage = nn.Module()
        stage.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(depth))
        stage.downsample = nn.Linear(2, 2)
        stages.append(stage)
    setattr(model.backbone, "stages" if kind == "swin" else "layers", stages)
    model.head = nn.Linear(2, 2)
    return model


@pytest.mark.parametrize("kind", ["swin", "mixmim"])
def test_stages_have_learning_rates_of_their_own(kind: str) -> None:
    optimizer = {"type": "AdamW", "lr": 1.0, "weight_decay": 0.1, "model_type": kind, "layer_decay_rate": 0.5}
    custom = {"bias": {"decay_mult": 0.0}}
    wrapper = build_optim_wrapper(
        layered(kind),
        {"constructor": f"mmselfsup.{LAYERED}", "optimizer": optimizer, "paramwise_cfg": {"custom_keys": custom}},
    )
    found = {group["group_name"]: (group["lr"], group["weight_decay"]) for group in wrapper.optimizer.param_groups}
    scales = {0: 0.0625, 1: 0.125, 2: 0.25, 3: 0.5, 4: 1.0}
    expected = {f"layer_{layer}_decay": (scale, 0.1) for layer, scale in scales.items()}
    expected |= {f"layer_{layer}_no_decay": (scale, 0.0) for layer, scale in scales.items()}
    assert found == expected


def test_a_model_without_depths_cannot_have_layer_wise_rates() -> None:
    config = {"constructor": f"mmpretrain.{LAYERED}", "optimizer": {"type": "AdamW", "lr": 1.0}}
    with pytest.raises(NotImplementedError, match="get_layer_depth"):
        build_optim_wrapper(nn.Linear(1, 1), {**config, "paramwise_cfg": {"layer_decay_rate": 0.5}})


def test_the_visualizer_that_its_configs_name_shows_images(tmp_path: Path) -> None:
    options = {"type": "SelfSupVisualizer", "vis_backends": [{"type": "LocalVisBackend"}], "name": f"of {tmp_path}"}
    shown = VISUALIZERS.build({**options, "save_dir": str(tmp_path)})
    image = np.zeros((4, 4, 3), dtype=np.uint8)
    shown.add_datasample("one", image, step=3)
    shown.add_datasample("two", image, out_file=str(tmp_path / "two.png"))
    assert [path.name for path in sorted(tmp_path.rglob("*.png"))] == ["two.png", "one_3.png"]


def test_what_every_config_names_for_pictures_is_there_and_switched_off() -> None:
    PRETRAIN_HOOKS.build({"type": "VisualizationHook", "enable": False})
    with pytest.raises(OutOfScope, match="runner.visualizer.add_image"):
        PRETRAIN_HOOKS.build({"type": "VisualizationHook", "enable": True})
    shown = PRETRAIN_VISUALIZERS.build({"type": "UniversalVisualizer", "name": "of pretrain"})
    with pytest.raises(OutOfScope, match="use add_image"):
        shown.visualize_cls


def test_a_name_that_comes_only_with_a_project_is_answered_with_its_package() -> None:
    with pytest.raises(KeyError, match=r"pip install mmpretrain"):
        ROOT_OPTIMIZERS.build({"type": "Adan", "params": [nn.Parameter(torch.zeros(1))]})
