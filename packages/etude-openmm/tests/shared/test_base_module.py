"""Modules that initialise themselves, in both systems' order, and the notes they leave in the log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.dialects import imports
from etude.errors import UserError
from etude_openmm.shared import logging as openmm_logging
from etude_openmm.shared.init import module_v1 as base_module_v1
from etude_openmm.shared.init import module_v2 as base_module

imports.install()

import mmcv.cnn  # noqa: E402
import mmengine.model  # noqa: E402

BOTH = [
    pytest.param((base_module, mmengine.model), id="mmengine"),
    pytest.param((base_module_v1, mmcv.cnn), id="mmcv1"),
]


def constant(layer: Any, val: float, bias: float = 0, **more: Any) -> dict[str, Any]:
    return {"type": "Constant", "layer": layer, "val": val, "bias": bias, **more}


def values(module: nn.Module) -> dict[str, float]:
    return {name: parameter.flatten()[0].item() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("dialect", BOTH)
class TestBothFlavours:
    def test_initialisers_touch_layers_by_class_or_direct_base(self, dialect: Any) -> None:
        net = nn.Sequential(nn.Conv2d(3, 1, 3), nn.ReLU(), nn.Linear(1, 2))
        dialect[1].ConstantInit(val=1, bias=2, layer="Conv2d")(net)
        dialect[1].ConstantInit(val=3, bias_prob=0.01, layer="Linear")(net)
        assert torch.equal(net[0].weight, torch.full(net[0].weight.shape, 1.0))
        assert net[2].bias[0].item() == pytest.approx(dialect[1].bias_init_with_prob(0.01))
        dialect[1].ConstantInit(val=4, bias=5, layer="_ConvNd")(net)
        assert net[0].bias.item() == 5

    def test_arguments_of_the_wrong_kind_are_refused(self, dialect: Any) -> None:
        for wrong in ({"bias": "1"}, {"bias_prob": "1"}, {"layer": 1}):
            with pytest.raises(TypeError):
                dialect[1].ConstantInit(val=1, **wrong)
        with pytest.raises(AssertionError):
            dialect[1].xavier_init(nn.Linear(1, 1), distribution="gauss")
        with pytest.raises(TypeError):
            dialect[1].initialize(nn.Linear(1, 1), "init")

    @pytest.mark.parametrize("name", ["Xavier", "Normal", "TruncNormal", "Uniform", "Kaiming", "Caffe2Xavier"])
    def test_random_initialisers_change_weights_and_set_the_bias(self, dialect: Any, name: str) -> None:
        net = nn.Sequential(nn.Conv2d(3, 1, 3), nn.Linear(1, 2))
        before = net[0].weight.clone()
        dialect[1].initialize(net, {"type": name, "layer": ["Conv2d", "Linear"], "bias": 0.1})
        assert not torch.equal(before, net[0].weight)
        assert torch.allclose(net[1].bias, torch.full((2,), 0.1))

    def test_truncated_values_stay_inside_the_bounds(self, dialect: Any) -> None:
        layer = nn.Linear(100, 10)
        dialect[1].trunc_normal_init(layer, mean=1, std=2, a=0, b=1.5, bias=3)
        assert layer.weight.min() >= 0
        assert layer.weight.max() <= 1.5

    def test_overrides_reach_named_parts(self, dialect: Any) -> None:
        class Net(dialect[0].BaseModule):
            def __init__(self) -> None:
                super().__init__(
                    constant("Conv2d", 1, 2, override={"type": "Constant", "name": "reg", "val": 3, "bias": 4})
                )
                self.conv, self.reg, self.cls = nn.Conv2d(1, 1, 1), nn.Linear(1, 1), nn.Linear(1, 1)

        net = Net()
        net.cls.weight.data.fill_(-9)
        net.init_weights()
        got = values(net)
        assert (got["conv.weight"], got["reg.weight"], got["reg.bias"], got["cls.weight"]) == (1, 3, 4, -9)
        for override, error in (
            ({"type": "Constant", "val": 1}, ValueError), ({"name": "zzz"}, RuntimeError),
            ({"name": "reg", "val": 1}, ValueError), ("reg", TypeError),
        ):  # fmt: skip
            with pytest.raises(error):
                dialect[1].initialize(net, constant("Conv2d", 1, override=override))

    def test_children_override_their_parents(self, dialect: Any) -> None:
        class Part(dialect[0].BaseModule):
            def __init__(self, init_cfg: Any = None) -> None:
                super().__init__(init_cfg)
                self.fc = nn.Linear(1, 1)

        class Whole(dialect[0].BaseModule):
            def __init__(self) -> None:
                super().__init__(constant("Linear", 1, 2))
                self.plain, self.own = Part(), Part(constant("Linear", 3, 4))

        net = Whole()
        net.init_weights()
        assert values(net) == {"plain.fc.weight": 1, "plain.fc.bias": 2, "own.fc.weight": 3, "own.fc.bias": 4}
        assert net.is_init
        assert net.own.is_init

    def test_containers_take_an_init_cfg(self, dialect: Any) -> None:
        module = dialect[0]
        layers = [nn.Linear(1, 1), module.Sequential(nn.Linear(1, 1), init_cfg=constant("Linear", 2))]
        sequence = module.Sequential(*layers, init_cfg=constant("Linear", 1))
        sequence.init_weights()
        assert [sequence[0].weight.item(), sequence[1][0].weight.item()] == [1, 2]
        listed = module.ModuleList([nn.Linear(1, 1)], init_cfg=constant("Linear", 5))
        named = module.ModuleDict({"a": nn.Linear(1, 1)}, init_cfg=constant("Linear", 6))
        listed.init_weights()
        named.init_weights()
        assert [listed[0].weight.item(), named["a"].weight.item()] == [5, 6]
        assert sequence.init_cfg == constant("Linear", 1)

    def test_notes_are_gone_afterwards(self, dialect: Any) -> None:
        net = dialect[0].Sequential(nn.Linear(1, 1), init_cfg=constant("Linear", 1))
        net.init_weights()
        assert not any(hasattr(part, "_params_init_info") for part in net.modules())

    def test_a_parameter_that_appears_during_initialisation_is_told(self, dialect: Any) -> None:
        class Net(dialect[0].BaseModule):
            def __init__(self) -> None:
                super().__init__()
                self.part = Part()

        class Part(dialect[0].BaseModule):
            def init_weights(self) -> None:
                self.extra = nn.Parameter(torch.ones(1))

        with pytest.raises(AssertionError, match="extra"):
            Net().init_weights()

    def test_repr_shows_the_init_cfg(self, dialect: Any) -> None:
        assert "init_cfg={'type': 'Constant'" in repr(dialect[0].Sequential(init_cfg=constant("Linear", 1)))


def test_pretrained_comes_last_in_mmengine_and_alone_in_mmcv(tmp_path: Path) -> None:
    path = str(tmp_path / "w.pth")
    torch.save({"0.weight": torch.full((1, 1), 42.0), "0.bias": torch.full((1,), 42.0)}, path)
    rules = [{"type": "Pretrained", "checkpoint": path}, constant("Linear", 1)]
    new = base_module.Sequential(nn.Linear(1, 1), init_cfg=rules)
    old = base_module_v1.Sequential(nn.Linear(1, 1), init_cfg=rules)
    new.init_weights()
    old.init_weights()
    assert (new[0].weight.item(), old[0].weight.item()) == (42, 1)


def test_the_log_tells_who_initialised_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmm_logging, "logger_initialized", {})
    monkeypatch.setattr(base_module_v1, "logger_initialized", openmm_logging.logger_initialized)
    file = tmp_path / "run.log"
    logger = openmm_logging.get_logger("init_logger_of_test", log_file=str(file))

    class Own(nn.Conv2d, base_module_v1.BaseModule):
        def init_weights(self) -> None:
            nn.init.constant_(self.weight, 7)

    class Net(base_module_v1.BaseModule):
        def __init__(self) -> None:
            super().__init__([constant("Conv2d", 0.5), constant("Linear", 0, 1)])
            self.conv1, self.conv2, self.fc, self.norm = (
                nn.Conv2d(1, 1, 1), Own(1, 1, 1), nn.Linear(1, 1), nn.LayerNorm(1)
            )  # fmt: skip

    Net().init_weights()
    for handler in logger.handlers:
        handler.flush()
    lines = file.read_text().splitlines()
    said = {line.split(" - ")[0]: lines[number + 1] for number, line in enumerate(lines) if " - torch.Size" in line}
    assert "ConstantInit" in said["conv1.weight"]
    assert "`init_weights` in Own" in said["conv2.weight"]
    assert "ConstantInit" in said["fc.weight"]
    assert "the same" in said["norm.weight"]
    for handler in list(logger.handlers):
        handler.close()
        logger.removeHandler(handler)


def test_a_rule_that_is_no_dict_is_refused() -> None:
    with pytest.raises(AssertionError, match="but got 5"):
        base_module.Sequential(nn.Linear(1, 1), init_cfg=[constant("Linear", 1), 5]).init_weights()


def test_a_second_call_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    old = base_module_v1.Sequential(nn.Linear(1, 1))
    old.init_weights()
    with pytest.warns(UserWarning, match="more than once"):
        old.init_weights()
    new = base_module.Sequential(nn.Linear(1, 1), init_cfg=constant("Linear", 1))
    new.init_weights()
    new[0].weight.data.fill_(9)
    logging.getLogger("mmengine").propagate = True
    new.init_weights()
    assert new[0].weight.item() == 9


@pytest.mark.parametrize("kind", [base_module, base_module_v1])
@pytest.mark.parametrize(("file", "lack"), [("", "no file is named"), ("a.pth", "there is no file 'a.pth'")])
def test_pretrained_weights_that_are_not_there_are_a_mistake_of_the_config(kind: Any, file: str, lack: str) -> None:
    net = kind.Sequential(nn.Linear(1, 1), init_cfg={"type": "Pretrained", "checkpoint": file})
    with pytest.raises(FileNotFoundError, match=f"checkpoint of a Pretrained init_cfg: {lack}") as raised:
        net.init_weights()
    assert isinstance(raised.value, UserError)
