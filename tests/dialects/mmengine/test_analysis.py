"""Parameters, operations and activations of models, by the numbers of the original."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etude.dialects import imports
from etude.errors import OutOfScope

imports.install()

from mmengine.analysis import (  # noqa: E402
    ActivationAnalyzer,
    FlopAnalyzer,
    flop_count,
    get_model_complexity_info,
    parameter_count,
    parameter_count_table,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.GroupNorm(2, 8))
        self.pool, self.fc, self.ln = nn.AdaptiveAvgPool2d(2), nn.Linear(32, 5), nn.LayerNorm(5)
        self.idle = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.ln(self.fc(self.pool(self.stem(x)).flatten(1)))
        return y.unsqueeze(2) @ y.unsqueeze(1)


@pytest.mark.parametrize(("training", "norm"), [(True, 5), (False, 2)])
def test_operations_and_activations_are_counted_by_parts(training: bool, norm: int) -> None:
    model, inputs = Net().train(training), (torch.randn(1, 3, 4, 4),)
    flops, activations = FlopAnalyzer(model, inputs), ActivationAnalyzer(model, inputs)
    conv, elements = 27 * 8 * 16, 8 * 16
    by_module = flops.by_module()
    assert (by_module["stem.0"], by_module["stem.1"], by_module["stem.2"]) == (conv, norm * elements, 5 * elements)
    assert (by_module["pool"], by_module["fc"], by_module["ln"], by_module["idle"]) == (elements, 160, 25, 0)
    assert flops.total() == by_module[""] == conv + (norm + 5 + 1) * elements + 160 + 25 + 25
    assert flops.by_operator("stem")["conv"] == conv
    assert dict(activations.by_operator()) == {"conv": elements, "addmm": 5, "bmm": 25}
    assert flop_count(model, inputs)[0]["conv"] == conv / 1e9


def test_parameters_are_counted_by_parts() -> None:
    model = Net()
    count = parameter_count(model)
    assert (count[""], count["fc"], count["fc.weight"]) == (216 + 16 + 16 + 165 + 10 + 6, 165, 160)
    table = parameter_count_table(model, max_depth=2)
    assert "fc.weight" in table and "(5, 32)" in table and "stem.0.weight" not in table


def test_the_complexity_comes_as_numbers_text_and_tables() -> None:
    found = get_model_complexity_info(Net().eval(), (3, 4, 4))
    assert (found["flops"], found["flops_str"], found["params_str"]) == (4690, "4.69K", "0.429K")
    assert "| stem.0 " in found["out_table"] and "(fc): Linear(in_features=32" in found["out_arch"]
    with pytest.raises(ValueError, match="should be set"):
        get_model_complexity_info(Net())
    with pytest.raises(ValueError, match="cannot be both set"):
        get_model_complexity_info(Net(), (3, 4, 4), torch.zeros(1))
    with pytest.raises(OutOfScope, match="custom_mapping"):
        FlopAnalyzer(Net(), ()).set_op_handle
