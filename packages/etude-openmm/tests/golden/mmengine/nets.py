"""The models whose parameter groups were recorded, and the one of the self-supervised hooks."""

from __future__ import annotations

import torch
from torch import nn

from tests.golden.mmengine import toys


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, groups=4)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 4)


class GroupNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.scale = nn.Parameter(torch.ones(4))
        self.stem = nn.Conv2d(3, 4, 3)
        self.bn1 = nn.BatchNorm2d(4)
        self.backbone = nn.Module()
        self.backbone.layer0, self.backbone.layer1 = Block(), Block()
        self.ln = nn.LayerNorm(4)
        self.gn = nn.GroupNorm(2, 4)
        self.inorm = nn.InstanceNorm2d(4, affine=True)
        self.head = nn.Linear(4, 2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.tied = nn.Linear(4, 2)
        self.tied.weight = self.head.weight


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(4)
        self.attn = nn.Linear(4, 4)


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Module()
        self.backbone.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.backbone.pos_embed = nn.Parameter(torch.zeros(1, 1, 4))
        self.backbone.patch_embed = nn.Conv2d(3, 4, 2)
        self.backbone.layers = nn.ModuleList(Layer() for _ in range(3))
        self.backbone.ln1 = nn.LayerNorm(4)
        self.head = nn.Linear(4, 2)

    def get_layer_depth(self, name: str) -> tuple[int, int]:
        part = name.removeprefix("backbone.")
        if part.startswith(("cls_token", "pos_embed", "patch_embed")):
            return 0, 5
        return (int(part.split(".")[1]) + 1, 5) if part.startswith("layers.") else (4, 5)


class SSNet(toys.ToyNet):
    def __init__(self) -> None:
        super().__init__()
        self.predictor = toys._linear(0.5, 0.1)
        self.head = nn.Module()
        self.head.prototypes = toys._linear(0.5, 0.1)
        self.head.temp = 2.0
        self.head.loss = nn.Module()
        self.loss_lambda = 0.5


class TwoOptimizers(toys.TwoPart):
    """Steps both of its optimizers itself."""

    def train_step(self, data, optim_wrapper):
        losses = self(**self.data_preprocessor(data, True), mode="loss")
        loss, log = self.parse_losses(losses)
        loss.backward()
        for wrapper in optim_wrapper.values():
            wrapper.step()
            wrapper.zero_grad()
        return log


def described(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list]:
    """Groups as they were recorded: name(s), lr, decay, and what else differs from the optimizer's defaults."""
    names = {id(param): name for name, param in model.named_parameters()}
    plain = ("params", "lr", "weight_decay", "param_names")
    rows = []
    for group in optimizer.param_groups:
        members = [names[id(param)] for param in group["params"]]
        row = [members if len(members) > 1 else members[0], group["lr"], group["weight_decay"]]
        other = {k: v for k, v in group.items() if k not in plain and optimizer.defaults.get(k, plain) != v}
        rows.append([*row, other] if other else row)
    return rows
