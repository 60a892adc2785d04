"""Parameter groups and the optimizer that they end up in."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etude import builtins, registry
from etude.errors import ConfigError
from etude.optim.factory import _way, build_optimizer
from etude.optim.groups import describe, layer_depths
from etude.plan import Group, Optimizer, Place, Spec

registry.load_builtins()
AT = Place("train.yaml", 9)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(2))
        self.head = nn.Linear(4, 2)


def built(*groups: Group, model: nn.Module | None = None, params: tuple[str, ...] = (), name: str = "AdamW", **args):
    args = {"lr": 0.1, "weight_decay": 0.5} | args
    spec = Spec(kind="optimizer", name=name, args=args, at=AT)
    return build_optimizer(Optimizer(spec=spec, groups=groups, params=params), model or Net())


def rows(optimizer) -> dict[str, tuple]:
    return {row["name"]: (row["tensors"], row["lr"], row["weight_decay"]) for row in describe(optimizer.param_groups)}


def test_a_parameter_goes_to_the_first_rule_that_fits():
    optimizer = built(
        Group(match="head.*", lr_mult=10.0),
        Group(kind="norm", decay_mult=0.0),
        Group(match="*.bias", options={"weight_decay": 0.25, "name": "biases"}),
    )
    assert rows(optimizer) == {
        "all": (3, 0.1, 0.5),
        "head.*": (2, 1.0, 0.5),
        "norm": (4, 0.1, 0.0),
        "biases": (3, 0.1, 0.25),
    }
    assert sum(row["numbers"] for row in describe(optimizer.param_groups)) == sum(p.numel() for p in Net().parameters())


def test_conditions_of_one_rule_are_all_wanted():
    assert (
        rows(built(Group(match="blocks.*", module="Linear", kind="bias", lr_mult=2.0)))["blocks.* Linear bias"][0] == 2
    )


def test_depth_decay_goes_together_with_other_rules():
    optimizer = built(Group(depth_decay=0.5), Group(kind="norm", options={"weight_decay": 0.0}))
    assert rows(optimizer) == {
        "all depth 0": (2, pytest.approx(0.0125), 0.5),
        "all depth 1": (2, pytest.approx(0.025), 0.5),
        "all depth 2": (2, pytest.approx(0.05), 0.5),
        "all depth 3": (2, 0.1, 0.5),
        "norm depth 1": (2, pytest.approx(0.025), 0.0),
        "norm depth 2": (2, pytest.approx(0.05), 0.0),
    }


@pytest.mark.parametrize(
    ("names", "depths"),
    [
        (["stem", "blocks.0.w", "blocks.1.w", "blocks.1.b", "head"], [0, 1, 2, 2, 3]),
        (["blocks.0.w", "between", "blocks.1.w"], [1, 1, 2]), (["layer1.0.w", "layer1.1.w", "layer2.0.w"], [1, 2, 3]),
        (["stem", "head"], [0, 0]), (["blocks.3.w", "head"], [1, 2]), ([], []),
    ],
)  # fmt: skip
def test_blocks_are_depths_and_what_stands_around_them_belongs_to_the_one_before(names, depths):
    found = layer_depths(nn.Identity(), names)
    assert found == {name: (depth, max(depths) + 1) for name, depth in zip(names, depths, strict=True)}


def test_a_model_may_say_its_depths_itself():
    model = Net()
    model.get_layer_depth = lambda name: (int(name.startswith("head")), 2)
    assert layer_depths(model, ["head.weight", "stem.bias"]) == {"head.weight": (1, 2), "stem.bias": (0, 2)}


def test_every_parameter_is_in_exactly_one_group():
    model = Net()
    optimizer = built(Group(kind="bias", lr_mult=2.0), Group(module="Linear", lr_mult=3.0), model=model)
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([Group(match="*.bais", at=AT)], "'\\*.bais' fits no parameter; did you mean '\\*.bias'"),
        ([Group(match="haed.*", at=AT)], "did you mean 'head.\\*'"),
        ([Group(module="LayerNrm", at=AT)], "did you mean 'LayerNorm'"),
        ([Group(kind="embedding", at=AT)], "kind 'embedding' fits no parameter"),
        ([Group(depth_decay=0.5, decay_mult=0.0, at=AT)], "need a rule of their own"),
        ([Group(match="*"), Group(match="*.bias", at=AT)], "rules before it have taken"),
        ([Group(match="*.bias", options={"wieght_decay": 0}, at=AT)], "did you mean 'weight_decay'"),
    ],
)
def test_a_rule_that_does_nothing_is_a_mistake(rules, says):
    with pytest.raises(ConfigError, match=says) as caught:
        built(*rules)
    assert "train.yaml:9" in str(caught.value)


def test_an_optimizer_can_have_a_part_of_the_model():
    assert rows(built(params=("head", "blocks.*.bias")))["all"][0] == 6
    with pytest.raises(ConfigError, match="'haed' fits no parameter; did you mean 'head'"):
        built(params=("haed",))


def test_the_fastest_way_is_taken_unless_the_user_said_otherwise():
    assert built().defaults["fused"] is True
    assert built(foreach=False).defaults["fused"] is None
    assert built(name="RMSprop").defaults["foreach"] is True
    sparse = nn.Embedding(3, 2, sparse=True)
    assert built(name="SGD", model=sparse).defaults["fused"] is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_on_a_cpu_takes_the_steps_of_plain_sgd(dtype):
    torch.manual_seed(0)
    ours, theirs = nn.Linear(8, 8, dtype=dtype), nn.Linear(8, 8, dtype=dtype)
    theirs.load_state_dict(ours.state_dict())
    for model, optimizer in (
        (ours, built(name="SGD", model=ours, weight_decay=0.1)),
        (theirs, torch.optim.SGD(theirs.parameters(), 0.1, weight_decay=0.1, foreach=False)),
    ):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=0.01, atol=0.01)


def test_fused_and_plain_take_the_same_steps():
    ends = []
    for options in ({}, {"foreach": False}):
        torch.manual_seed(0)
        model = Net().double()
        optimizer = built(Group(kind="norm", lr_mult=0.5), model=model, **options)
        for _ in range(3):
            model.head(
                model.blocks[1](model.blocks[0](model.stem(torch.ones(2, 4).double())))
            ).square().sum().backward()
            optimizer.step()
        ends.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(*ends)


@pytest.mark.parametrize("name", sorted(set(builtins.OPTIMIZERS) - {"LBFGS", "SparseAdam"}))
def test_optimizers_are_known_by_name(name):
    model = Net()
    spec = Spec(kind="optimizer", name=name, args={"lr": 0.1}, at=AT)
    optimizer = build_optimizer(Optimizer(spec=spec, params=("head.weight",)), model)
    model.head(torch.ones(1, 4)).sum().backward()
    before = model.head.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(before, model.head.weight)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"lr": -1.0}, "train.yaml:9: AdamW: Invalid learning rate"),
        ({"betas": [0.9, 2.0]}, "Invalid beta"),
        ({"lrr": 1.0}, "lrr"),
        ({"name": "AdmW"}, "did you mean 'AdamW'"),
    ],
)
def test_what_an_optimizer_refuses_is_told_with_its_place(args, says):
    with pytest.raises(ConfigError, match=says):
        built(**args)


def test_a_model_without_parameters_cannot_be_trained():
    with pytest.raises(ConfigError, match="no parameters"):
        built(model=nn.ReLU())


def test_the_table_shows_options_that_differ_and_the_rate_and_the_decay():
    common = {"lr": 0.1, "weight_decay": 0.0, "eps": 1e-8}
    groups = [
        {"params": [torch.zeros(2, 3), torch.zeros(4)], "name": "a", **common, "momentum": 0.9},
        {"params": [torch.zeros(5)], **common, "momentum": 0.8},
    ]
    assert describe(groups) == [
        {"name": "a", "tensors": 2, "numbers": 10, "lr": 0.1, "weight_decay": 0.0, "momentum": 0.9},
        {"name": "all", "tensors": 1, "numbers": 5, "lr": 0.1, "weight_decay": 0.0, "momentum": 0.8},
    ]


def test_a_way_to_compute_is_chosen_only_for_parameters_that_have_a_size():
    lazy = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(2))
    assert _way({"fused": True, "foreach": True}, {}, lazy, list(lazy.parameters())) == {}
    whole = nn.Linear(2, 2)
    assert _way({"foreach": True}, {}, whole, list(whole.parameters())) == {"foreach": True}
    assert _way({"foreach": True}, {"foreach": False}, whole, list(whole.parameters())) == {}
    assert _way({"foreach": True}, {"lr": torch.tensor(0.1)}, whole, list(whole.parameters())) == {}
