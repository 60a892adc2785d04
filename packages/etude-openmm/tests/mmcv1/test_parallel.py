"""Containers, collation and wrappers on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mmcv.parallel import DataContainer, MMDataParallel, collate, is_module_wrapper, scatter  # isort: skip


def test_plain_samples_are_stacked() -> None:
    batch = collate([{"x": torch.ones(2), "n": 1, "s": "a"}, {"x": torch.zeros(2), "n": 2, "s": "b"}])
    assert batch["x"].shape == (2, 2)
    assert batch["n"].tolist() == [1, 2]
    assert batch["s"] == ["a", "b"]


def test_images_of_several_sizes_are_padded_per_device() -> None:
    samples = [{"img": DataContainer(torch.ones(1, side, side), stack=True)} for side in (2, 3, 4)]
    batch = collate(samples, samples_per_gpu=2)["img"]
    assert [tuple(part.shape) for part in batch.data] == [(2, 1, 3, 3), (1, 1, 4, 4)]
    assert batch.data[0][0, 0, 2].sum() == 0


def test_other_containers_stay_lists() -> None:
    metas = collate([DataContainer({"name": str(n)}, cpu_only=True) for n in range(3)], samples_per_gpu=2)
    assert metas.data == [[{"name": "0"}, {"name": "1"}], [{"name": "2"}]]
    boxes = collate([DataContainer(torch.zeros(n, 4)) for n in (1, 2)], samples_per_gpu=2)
    assert [len(one) for one in boxes.data[0]] == [1, 2]


def test_scatter_to_the_cpu_unpacks() -> None:
    batch = {"img": DataContainer([torch.ones(2)], stack=True), "n": 3}
    assert torch.equal(scatter(batch, [-1])[0]["img"], torch.ones(2))


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 1)

    def forward(self, x: Any, meta: Any = None) -> Any:
        return self.fc(x), meta

    def train_step(self, data: Any, optimizer: Any) -> Any:
        return {"x": data["x"], "meta": data["meta"], "optimizer": optimizer}

    val_step = train_step


@pytest.mark.parametrize("step", ["train_step", "val_step"])
def test_a_wrapped_model_gets_what_is_inside_the_containers(step: str) -> None:
    model = MMDataParallel(Inner())
    data = {
        "x": DataContainer([torch.ones(3, 2)], stack=True),
        "meta": DataContainer([[{"a": 1}]], cpu_only=True),
    }
    out = getattr(model, step)(data, None)
    assert out["x"].shape == (3, 2)
    assert out["meta"] == [{"a": 1}]
    assert model(**data)[1] == [{"a": 1}]
    assert is_module_wrapper(model)
    assert not is_module_wrapper(model.module)
