"""A model of layers that are split as LiBai's are, two stages of them, and a config that trains it."""

from __future__ import annotations

from pathlib import Path

from tests.libai import project

PARTS = '''
import oneflow as flow
from oneflow import nn
from libai.data import DistTensorData, Instance
from libai.utils import distributed as dist


def sbp(word):
    split = {"col": flow.sbp.split(0), "row": flow.sbp.split(1)}.get(word, flow.sbp.broadcast)
    return dist.get_nd_sbp([flow.sbp.broadcast, split])


class Linear(nn.Module):
    def __init__(self, inputs, outputs, parallel, layer_idx):
        super().__init__()
        place = dist.get_layer_placement(layer_idx)
        self.parallel = parallel
        self.weight = nn.Parameter(flow.empty(outputs, inputs, placement=place, sbp=sbp(parallel)))
        self.bias = nn.Parameter(flow.zeros(outputs, placement=place, sbp=sbp("col" if parallel == "col" else "")))
        nn.init.xavier_normal_(self.weight)

    def forward(self, x):
        if self.parallel == "row":
            x = flow.matmul(x, self.weight, transpose_b=True)
            return x.to_global(sbp=dist.get_hidden_sbp()) + self.bias
        return flow.matmul(x.to_global(grad_sbp=x.sbp), self.weight, transpose_b=True) + self.bias


class Block(nn.Module):
    def __init__(self, size, layer_idx, dropout):
        super().__init__()
        self.layer_idx = layer_idx
        self.up = Linear(size, 4 * size, "col", layer_idx)
        self.down = Linear(4 * size, size, "row", layer_idx)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x.to_global(placement=dist.get_layer_placement(self.layer_idx))
        return x + self.drop(self.down(flow.tanh(self.up(x))))


class Net(nn.Module):
    def __init__(self, dropout=0.0, size=4, layers=4, fault=""):
        super().__init__()
        self.first = Linear(2, size, "data", 0)
        self.blocks = nn.ModuleList([Block(size, n, dropout) for n in range(layers)])
        self.last = Linear(size, 1, "data", -1)
        self.fault = fault

    def forward(self, x, labels):
        if self.fault == "no rule":
            x = flow._C.fold(x.reshape(-1, 1, 2).transpose(1, 2), (1, 1), (1, 1)).reshape(-1, 2)
        if self.fault == "reads" and x.sum().item() > 1e9:
            return {}
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        predicted = self.last(x)
        if not self.training:
            return {"prediction_scores": predicted}
        return {"mse_loss": nn.functional.mse_loss(predicted, labels), "l1_loss": 0.1 * (predicted - labels).abs().mean()}


class Pairs(flow.utils.data.Dataset):
    """Points; ``noisy`` draws from torch's generator, as an augmentation would."""

    def __init__(self, n, noisy=False):
        self.n, self.noisy = n, noisy

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        x = flow.tensor([index % 7 / 7.0, index % 5 / 5.0])
        if self.noisy:
            x = x + 0.01 * flow.randn(2)
        return Instance(x=DistTensorData(x), labels=DistTensorData(x.sum().reshape(1), placement_idx=-1))
'''


def write(folder: Path) -> Path:
    config = project.write(folder)
    (folder / "split_parts.py").write_text(PARTS)
    text = config.read_text().replace(
        "from line_parts import Error, Line, Points", "from line_parts import Error\nfrom split_parts import Net, Pairs"
    )
    text = text.replace("LazyCall(Line)(dropout=0.0)", "LazyCall(Net)(dropout=0.0)").replace(
        "LazyCall(Points)", "LazyCall(Pairs)"
    )
    text += "train.dist.pipeline_num_layers = 4\ntrain.log_period = 1\noptim.params.clip_grad_max_norm = 0.5\n"
    config.write_text(text + "optim.params.clip_grad_norm_type = 2.0\n")
    return config
