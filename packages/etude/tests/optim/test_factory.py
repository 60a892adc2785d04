"""How an optimizer is made: which kernels it gets, and what is said where that fails."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etude import registry
from etude.errors import ConfigError, UserCodeError
from etude.optim.factory import _way, build_optimizer
from etude.plan import Group, Optimizer, Place, Spec
from etude.registry import OPTIMIZERS

registry.load_builtins()


def built(name: str, model: nn.Module | None = None, **args) -> torch.optim.Optimizer:
    spec = Spec(kind="optimizer", name=name, args=args, at=Place("train.yaml", 9))
    return build_optimizer(Optimizer(spec=spec), model or nn.Linear(2, 2))


def on(*devices: str, dtype=torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.empty(2, device=device, dtype=dtype)) for device in devices]


@pytest.mark.parametrize(
    ("params", "way"),
    [
        (on("cpu", "cpu"), {"fused": True}), (on("meta"), {"foreach": True}), (on("cpu", "meta"), {"foreach": True}),
        (on("cpu", dtype=torch.bfloat16), {"foreach": True}), (on("cpu", dtype=torch.float64), {"fused": True}),
        ([*on("cpu"), *on("cpu", dtype=torch.float16)], {"foreach": True}),
    ],
)  # fmt: skip
def test_kernels_are_fused_where_all_parameters_allow_it(params, way):
    model = nn.Linear(1, 1)
    assert _way({"fused": None, "foreach": None}, {}, model, params) == way
    assert _way({"foreach": None}, {}, model, params) == {"foreach": True} and _way({}, {}, model, params) == {}


@pytest.mark.parametrize("given", ["fused", "foreach", "capturable", "differentiable"])
def test_a_config_that_chooses_the_kernels_is_left_alone(given):
    params = on("cpu")
    assert _way({"fused": None}, {given: False}, nn.Linear(1, 1), params) == {}
    assert _way({"fused": None}, {given: None}, nn.Linear(1, 1), params) == {"fused": True}


def test_a_model_with_sparse_gradients_gets_the_plain_way():
    sparse = nn.Sequential(nn.Linear(1, 1), nn.Embedding(2, 2, sparse=True))
    dense = nn.Sequential(nn.Linear(1, 1), nn.Embedding(2, 2))
    assert _way({"fused": None}, {}, sparse, on("cpu")) == {}
    assert _way({"fused": None}, {}, dense, on("cpu")) == {"fused": True}


def test_options_of_groups_have_the_defaults_of_the_optimizer_as_their_base():
    spec = Spec(kind="optimizer", name="AdamW", args={"lr": 0.1, "betas": [0.8, 0.9]}, at=Place("train.yaml", 9))
    groups = (Group(match="bias", lr_mult=2.0, decay_mult=3.0),)
    optimizer = build_optimizer(Optimizer(spec=spec, groups=groups), nn.Linear(2, 2))
    found = {group["name"]: (group["lr"], group["weight_decay"], group["betas"]) for group in optimizer.param_groups}
    assert found == {"bias": (0.2, 0.03, (0.8, 0.9)), "all": (0.1, 0.01, (0.8, 0.9))}


def test_an_option_that_the_optimizer_lacks_is_not_scaled():
    spec = Spec(kind="optimizer", name="Rprop", args={}, at=Place("train.yaml", 9))
    groups = (Group(match="bias", lr_mult=0.5, decay_mult=0.0),)
    found = build_optimizer(Optimizer(spec=spec, groups=groups), nn.Linear(2, 2)).param_groups
    assert {group["name"]: group["lr"] for group in found} == {"bias": 0.005, "all": 0.01}
    assert all("weight_decay" not in group for group in found)


def test_a_misspelt_option_of_a_group_is_told():
    spec = Spec(kind="optimizer", name="SGD", args={"lr": 0.1}, at=Place("train.yaml", 9))
    groups = (Group(match="bias", options={"momentun": 0.5}, at=Place("train.yaml", 12)),)
    with pytest.raises(ConfigError, match="train.yaml:12: SGD has no group option 'momentun'; did you mean 'momentum'"):
        build_optimizer(Optimizer(spec=spec, groups=groups), nn.Linear(2, 2))


def test_an_optimizer_of_yours_that_fails_is_named_with_its_error():
    @OPTIMIZERS.register("Failing", force=True)
    def failing(params, lr=0.1):
        raise KeyError("inside")

    with pytest.raises(UserCodeError, match="train.yaml:9: Failing raised KeyError: 'inside'"):
        built("Failing")


def test_an_optimizer_without_a_signature_is_made_with_the_options_alone():
    class Native:
        __signature__ = "none"

        def __call__(self, params, **options):
            return torch.optim.SGD(params, **options)

    OPTIMIZERS.register("Native", force=True)(Native())
    assert built("Native", lr=0.3).param_groups[0]["lr"] == 0.3
