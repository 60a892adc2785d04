"""Constructors of optimizers: what they refuse, and what they tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from etude.dialects import imports

imports.install()

from mmengine.logging import MMLogger  # noqa: E402
from mmengine.optim import DefaultOptimWrapperConstructor, OptimWrapper, build_optim_wrapper  # noqa: E402
from mmengine.optim.optimizer.builder import TORCH_OPTIMIZERS  # noqa: E402
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIMIZERS  # noqa: E402

SGD = {"type": "SGD", "lr": 0.1, "weight_decay": 0.01}


class DeformConv2d(nn.Module):
    """Stands for a deformable convolution: it is known by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
        self.conv_offset = nn.Conv2d(1, 1, 1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1, groups=2)
        self.dcn = DeformConv2d()


def groups(paramwise: dict[str, Any]) -> dict[str, tuple[float, float]]:
    model = Net()
    wrapper = build_optim_wrapper(model, {"optimizer": SGD, "paramwise_cfg": paramwise})
    names = {id(param): name for name, param in model.named_parameters()}
    return {names[id(g["params"][0])]: (g["lr"], g["weight_decay"]) for g in wrapper.optimizer.param_groups}


def test_rules_for_deformable_and_depthwise_convolutions() -> None:
    found = groups({"dcn_offset_lr_mult": 0.1, "bias_lr_mult": 2, "bias_decay_mult": 0.0, "dwconv_decay_mult": 0.5})
    assert found == {
        "conv.weight": (0.1, 0.005), "conv.bias": (0.2, 0.0),
        "dcn.weight": (0.1, 0.01), "dcn.bias": (0.2, 0.0),
        "dcn.conv_offset.weight": (pytest.approx(0.01), 0.005), "dcn.conv_offset.bias": (pytest.approx(0.01), 0.005),
    }  # fmt: skip


def test_only_flat_decay_may_lack_a_decay_to_scale() -> None:
    without = {"type": "SGD", "lr": 0.1}
    model = Net()
    wrapper = build_optim_wrapper(model, {"optimizer": without, "paramwise_cfg": {"flat_decay_mult": 0.0}})
    assert {group["weight_decay"] for group in wrapper.optimizer.param_groups} == {0}
    with pytest.raises(ValueError, match="dwconv_decay_mult"):
        build_optim_wrapper(model, {"optimizer": without, "paramwise_cfg": {"dwconv_decay_mult": 0.0}})


def test_a_custom_key_switches_all_other_rules_off() -> None:
    found = groups({"custom_keys": {"conv.bias": {"lr_mult": 3}}, "bias_lr_mult": 2, "bias_decay_mult": 0.0})
    assert found["conv.bias"] == (pytest.approx(0.3), 0.01) and found["dcn.bias"] == (0.2, 0.0)


def test_a_key_that_matches_nothing_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    MMLogger.get_instance("idle-keys")
    groups({"custom_keys": {"convv": {"lr_mult": 3}, "conv": {"lr_mult": 2}}})
    found = capsys.readouterr().out
    assert "custom_keys['convv'] matches no parameter" in found and "'conv']" not in found
    assert "paramwise_options -- conv.weight:lr=0.2" in found


@pytest.mark.parametrize(
    ("optimizer", "paramwise", "error"),
    [
        (SGD, [1], TypeError),
        (SGD, {"custom_keys": [1]}, TypeError),
        ({"type": "SGD", "lr": 0.1}, {"norm_decay_mult": 0.0}, ValueError),
        ({"type": "Adam"}, {"bias_lr_mult": 2.0}, ValueError),
    ],
)
def test_configs_that_make_no_sense_are_refused(optimizer: Any, paramwise: Any, error: type) -> None:
    with pytest.raises(error):
        build_optim_wrapper(Net(), {"optimizer": optimizer, "paramwise_cfg": paramwise})


def test_the_constructor_itself_is_checked() -> None:
    with pytest.raises(TypeError):
        DefaultOptimWrapperConstructor("a")
    with pytest.raises(AssertionError):
        DefaultOptimWrapperConstructor({"type": "OptimWrapper"})


def test_a_constructor_of_ones_own_adds_parameters_its_way() -> None:
    @OPTIM_WRAPPER_CONSTRUCTORS.register_module(force=True)
    class OnlyWeights(DefaultOptimWrapperConstructor):
        def add_params(self, params: list[Any], module: nn.Module, **kwargs: Any) -> None:
            params += [{"params": [param]} for name, param in module.named_parameters() if name.endswith("weight")]

    config = {"constructor": "OnlyWeights", "optimizer": SGD, "paramwise_cfg": {"any": 1}, "clip_grad": {"max_norm": 1}}
    wrapper = build_optim_wrapper(Net(), config)
    assert isinstance(wrapper, OptimWrapper) and len(wrapper.optimizer.param_groups) == 3
    assert config["constructor"] == "OnlyWeights"


def test_every_optimizer_of_torch_is_found_by_its_name() -> None:
    assert {"SGD", "AdamW", "LBFGS", "TorchAdafactor", "Optimizer"} <= set(TORCH_OPTIMIZERS)
    for name in {*TORCH_OPTIMIZERS} - {"Optimizer"}:
        options = {"type": name, "params": [nn.Parameter(torch.ones(2, 2))]}
        assert isinstance(OPTIMIZERS.build(options if name != "SGD" else {**options, "lr": 0.1}), torch.optim.Optimizer)


def test_optimizer_state_can_be_split_over_ranks(tmp_path: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        config = {"optimizer": {"type": "ZeroRedundancyOptimizer", "optimizer_type": "Adam", "lr": 0.1}}
        wrapper = build_optim_wrapper(Net(), config)
        wrapper.update_params(sum(param.sum() for param in wrapper.optimizer.param_groups[0]["params"]))
        assert wrapper.state_dict()["state"]
    finally:
        torch.distributed.destroy_process_group()
