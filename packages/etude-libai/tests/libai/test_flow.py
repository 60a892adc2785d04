"""``oneflow`` as code for LiBai calls it: torch's under the same names, and words for what torch has not."""

from __future__ import annotations

import pytest
import torch

from etude.dialects import imports
from etude.registry import resolve
from etude_libai import names

imports.install()

import oneflow as flow  # noqa: E402
import oneflow.nn.functional as F  # noqa: E402
from oneflow import nn  # noqa: E402
from oneflow.nn.init import xavier_normal_  # noqa: E402

from libai.utils import distributed as dist  # noqa: E402


def test_every_name_leads_somewhere() -> None:
    for module in (name for name in names.MODULES if name.startswith(("oneflow", "flowvision"))):
        for target in names.MODULES[module].values():
            assert resolve(target) if ":" in target else __import__(target)


def test_a_model_for_oneflow_learns_on_torch() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            split = dist.get_nd_sbp([flow.sbp.broadcast, flow.sbp.split(0)])
            self.weight = nn.Parameter(
                flow.empty(3, 3, dtype=flow.float32, placement=dist.get_layer_placement(0), sbp=split)
            )
            xavier_normal_(self.weight)

        def forward(self, x: flow.Tensor) -> flow.Tensor:
            x = x.to_global(placement=flow.placement("cpu", ranks=[0]), sbp=flow.sbp.split(0))
            return F.gelu(flow.matmul(x, self.weight)).to_local().sum()

    flow.manual_seed(0)
    model = Block()
    model(flow.ones(2, 3, placement=flow.placement.all("cuda"), sbp=flow.sbp.broadcast)).backward()
    assert isinstance(model, torch.nn.Module)
    assert model.weight.grad is not None
    assert flow.env.get_rank() == 0
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 0
    assert isinstance(flow.optim.AdamW(model.parameters(), lr=0.1, do_bias_correction=True), torch.optim.AdamW)
    assert flow.sbp.broadcast != flow.sbp.partial_sum


@pytest.mark.parametrize(
    ("where", "name", "said"),
    [
        (nn, "OneEmbedding", "use torch.nn.Embedding"),
        (flow, "one_embedding", "use torch.nn.Embedding"),
        (flow, "matmull", "did you mean 'matmul'?"),
        (nn, "Lineer", "did you mean 'Linear'?"),
    ],
)
def test_what_torch_has_not_is_told(where: object, name: str, said: str) -> None:
    with pytest.raises((AttributeError, ImportError)) as told:
        getattr(where, name)
    assert said in str(told.value)
