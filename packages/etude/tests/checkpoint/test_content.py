"""What a checkpoint of any system is made of, under names that all of them share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etude.checkpoint.store import Store
from etude.checkpoint.tools import content
from etude.checkpoint.tools.content import NATIVE, Content, layout_of

W = {"w": torch.ones(1)}
OPTIMIZER = {"state": {0: {"step": 1}}, "param_groups": [{"lr": 0.1}]}


@pytest.mark.parametrize(
    ("state", "layout"),
    [
        ({"state_dict": W, "meta": {}, "message_hub": {}}, "mmengine"), ({"state_dict": W, "meta": {}}, "mmcv"),
        ({"state_dict": W}, "torch"), ({"meta": {}}, "torch"), ({"state_dict": W, "message_hub": {}}, "torch"),
        ({"trainer": {"_model": W}}, "mcquic"), ({"trainer": {"_optimizer": W}}, "torch"),
        ({"model": W, "trainer": {}}, "libai"), ({"model": W}, "detectron2"), ({"model": torch.ones(1)}, "state_dict"),
        (W, "state_dict"), ({}, "state_dict"), ({**W, "epoch": 1}, "torch"),
    ],
)  # fmt: skip
def test_a_layout_is_known_by_its_keys(state: dict[str, Any], layout: str) -> None:
    assert layout_of(state) == layout


def test_facts_of_a_part_are_split_as_deep_as_they_are_independent() -> None:
    state = {
        "meta": {"seed": 1, "env": {"a": 1}}, "message_hub": {"scalars": {"loss": {"x": 1}}, "keys": 3},
        "model": W, "counters": {"step": 3}, 5: {"a": 1},
    }  # fmt: skip
    assert Content("x", "mmengine", state).parts() == {
        "meta.seed": 1, "meta.env": {"a": 1}, "message_hub.scalars.loss": {"x": 1}, "message_hub.keys": 3, "model": W,
        "counters.step": 3, "5": {"a": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "keys"),
    [
        ({"0": 1, "1": 2}, [0, 1]), ({"weight": 1, 2: 3}, ["weight", 2]), ({}, []), (None, []),
    ],
)  # fmt: skip
def test_the_parameters_of_an_optimizer_are_numbered_as_in_torch(state: Any, keys: list[Any]) -> None:
    found = Content("x", "torch", {"optimizer": {"state": state, "param_groups": []}}).optimizer()
    assert list(found["state"]) == keys and found["param_groups"] == []


def test_an_optimizer_of_another_form_is_left_as_it_is() -> None:
    for form in ({"gen": OPTIMIZER}, [OPTIMIZER], {"state": {"0": 1}}):
        assert Content("x", "torch", {"optimizer": form}).optimizer() is form
    assert Content("x", "mcquic", {"trainer": {"_optimizer": OPTIMIZER}}).optimizer() == OPTIMIZER
    assert Content("x", "torch", {"model": W}).optimizer() is None


def test_common_names_are_those_of_all_systems_and_the_rest_keeps_its_own() -> None:
    state = {
        "state_dict": W, "optimizer": OPTIMIZER, "meta": {"epoch": 2, "iter": 4, "seed": 5}, "message_hub": {"a": {"b": 6}},
        "trainer": {"x": {"y": 1}},
    }  # fmt: skip
    assert Content("x", "mmengine", state, step=4, epoch=2).common_parts() == {
        "model": W, "optimizer": OPTIMIZER, "step": 4, "epoch": 2, "meta.seed": 5, "message_hub.a.b": 6,
        "trainer.x": {"y": 1},
    }  # fmt: skip
    assert Content("x", "state_dict", dict(W)).common_parts() == {"model": W}
    assert Content("x", "torch", {"model": W, "seed": 5}).common_parts() == {"model": W, "seed": 5}
    assert Content("x", "torch", {"model": W, "trainer": 3, "step": 9}, step=0).common_parts() == {
        "model": W, "step": 0, "trainer": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("counters", "step", "epoch"),
    [({"step": 5, "epoch": 2}, 5, 2), ({}, 7, 3), (None, 7, 3), ({"step": 0, "epoch": 0}, 0, 0)],
)
def test_a_checkpoint_counts_what_its_counters_or_its_manifest_say(
    counters: dict[str, int] | None, step: int, epoch: int
) -> None:
    store = Store("c")
    store.save({"model": W} | ({} if counters is None else {"counters": counters}), step=7, epoch=3)
    store.close()
    found = content.read("c")
    assert (found.layout, found.step, found.epoch) == (NATIVE, step, epoch) and found.path.endswith("step-000000007")


def test_a_file_of_another_system_says_how_far_it_came_or_nothing() -> None:
    torch.save({"state_dict": W, "meta": {"iter": 4, "epoch": 2}}, "a.pth")
    torch.save({"state_dict": W, "meta": {"iter": 0}}, "b.pth")
    assert [(one.step, one.epoch, one.layout) for one in map(content.read, ("a.pth", "b.pth"))] == [
        (4, 2, "mmcv"),
        (None, None, "mmcv"),
    ]
