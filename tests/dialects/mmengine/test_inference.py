"""Inferencers, configs of installed packages, and convolutions that take in the norm behind them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.dialects.mmengine import toy  # isort: skip  (serves the names below)
from mmengine.hub import get_config, get_model
from mmengine.infer import BaseInferencer
from mmengine.model.efficient_conv_bn_eval import turn_on_efficient_conv_bn_eval_for_single_model
from mmengine.registry import MODELS
from mmengine.runner import save_checkpoint

from etude.dialects.openmm.config.external import MODULE2PACKAGE


@MODELS.register_module(name="InferredNet", force=True)
class Net(toy.Net):
    pass


class Inferencer(BaseInferencer):
    preprocess_kwargs = {"scale"}
    postprocess_kwargs = {"rounded"}

    def preprocess(self, inputs: Any, batch_size: int = 1, scale: float = 1.0, **kwargs: Any) -> Any:
        return super().preprocess([value * scale for value in inputs], batch_size)

    def _init_pipeline(self, cfg: Any) -> Any:
        return lambda value: {"inputs": torch.full((2,), float(value))}

    def visualize(self, inputs: Any, preds: Any, show: bool = False, **kwargs: Any) -> Any:
        return [f"picture of {value}" for value in inputs]

    def postprocess(self, preds: Any, pictures: Any, return_datasample: bool = False, rounded: int = 3) -> Any:
        return {"predictions": [round(value, rounded) for value in preds], "visualization": pictures}


CONFIG = {"model": {"type": "InferredNet"}}


def test_inputs_go_through_all_stages_in_batches(tmp_path: Path) -> None:
    model = Net()
    nn.init.ones_(model.fc.weight)
    nn.init.zeros_(model.fc.bias)
    path = str(tmp_path / "weights.pth")
    save_checkpoint({"state_dict": model.state_dict(), "meta": {"cfg": "model = dict(type='InferredNet')"}}, path)
    wanted = {"predictions": [4.0, 8.0, 12.0], "visualization": [f"picture of {i}" for i in (1, 2, 3)]}
    assert Inferencer(CONFIG, path, show_progress=False)([1, 2, 3], batch_size=2, scale=2.0) == wanted
    inferencer = Inferencer(weights=path)
    assert inferencer.model.cfg.model.type == "InferredNet"
    assert inferencer(3, rounded=1) == {"predictions": [6.0], "visualization": ["picture of 3"]}


def test_mistakes_with_inferencers_are_told() -> None:
    with pytest.raises(TypeError, match="model must be a filepath or any ConfigType"):
        Inferencer([CONFIG])
    with pytest.raises(ValueError, match="the weights must be specified"):
        Inferencer()
    with pytest.warns(UserWarning, match="Checkpoint is not loaded"):
        inferencer = Inferencer(CONFIG)
    with pytest.raises(ValueError, match="unknown argument"):
        inferencer(1, colour="red")
    with pytest.raises(AssertionError, match="Class define error"):
        type("Wrong", (Inferencer,), {"forward_kwargs": {"scale"}})


def test_a_folder_is_all_of_its_files(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    with pytest.warns(UserWarning):
        inferencer = Inferencer(CONFIG)
    assert sorted(inferencer._inputs_to_list(str(tmp_path))) == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert inferencer._inputs_to_list("text") == ["text"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package with a model index."""
    index = tmp_path / "mmtoyzoo" / ".mim"
    (index / "configs" / "small").mkdir(parents=True)
    (tmp_path / "mmtoyzoo" / "__init__.py").write_text("")
    (tmp_path / "mmtoyzoo" / "utils.py").write_text("def register_all_modules():\n    pass\n")
    save_checkpoint({"state_dict": Net().state_dict()}, str(tmp_path / "zoo.pth"))
    (index / "configs" / "small" / "net.py").write_text("model = dict(type='InferredNet')\n")
    (index / "configs" / "small" / "base.py").write_text("size = 3\n")
    (index / "model-index.yml").write_text("Import:\n  - configs/small/metafile.yml\n")
    (index / "configs" / "small" / "metafile.yml").write_text(
        "Models:\n  - Name: small-net\n    Alias: tiny\n    Config: configs/small/net.py\n"
        f"    Weights: {tmp_path / 'zoo.pth'}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(MODULE2PACKAGE, "mmtoyzoo", "mmtoyzoo")
    yield "mmtoyzoo"
    for name in [name for name in sys.modules if name.startswith("mmtoyzoo")]:
        del sys.modules[name]


def test_models_of_a_package_are_found_by_their_names(package: str) -> None:
    assert Inferencer.list_models(package) == ["small-net", "tiny"]
    assert Inferencer("Tiny", scope=package, show_progress=False)([1])["predictions"]
    with pytest.raises(ValueError, match="Cannot find model: huge"):
        Inferencer("huge", scope=package)


def test_configs_and_models_of_a_package(package: str) -> None:
    assert get_config(f"{package}::small/base.py").size == 3
    assert get_config(f"{package}::small/net.py", pretrained=True).model_path.endswith("zoo.pth")
    model = get_model(f"{package}::small/net.py", pretrained=True)
    assert isinstance(model, Net) and model.is_init


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.second = nn.Conv2d(4, 4, 1, bias=False)
        self.norm = nn.BatchNorm2d(4, affine=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(torch.relu(self.first(x)))
        return self.norm(x)


def test_fixed_norms_are_taken_into_the_convolutions_before_them() -> None:
    torch.manual_seed(0)
    model, x = Convolutions(), torch.randn(8, 3, 8, 8)
    for _ in range(3):
        model(x)
    model.eval()
    before = model(x)
    turn_on_efficient_conv_bn_eval_for_single_model(model)
    calls: list[str] = []
    model.norm.register_forward_hook(lambda *_: calls.append("norm"))
    assert torch.allclose(model(x), before, atol=1e-6) and not calls
    model.train()
    model(x)
    assert calls == ["norm"]


def test_a_config_names_the_parts_whose_norms_are_taken_in(tmp_path: Path) -> None:
    model = toy.Net()
    model.backbone = Convolutions()
    runner = toy.make(tmp_path, model=model, cfg={"efficient_conv_bn_eval": ["backbone"]})
    runner.train()
    assert "forward" in vars(runner.model.backbone)
