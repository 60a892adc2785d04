"""The small models: shapes, options, and that each can learn."""

from __future__ import annotations

import pytest
import torch

from etude.data.datasets.digits import Digits
from etude.data.datasets.text import Characters
from etude.data.loader import Loader
from etude.errors import ConfigError
from etude.models import MLP, CharTransformer, ConvNet


def losses_after(model, loader, steps: int = 30, lr: float = 5e-3) -> tuple[float, float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    seen = []
    while len(seen) < steps:
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(float(loss.detach()))
            if len(seen) == steps:
                break
    return seen[0], seen[-1]


@pytest.mark.parametrize(
    ("make", "flat"),
    [
        (lambda: MLP([64, 32, 32, 10], dropout=0.1, activation="GELU"), True),
        (lambda: ConvNet(channels=[8, 16]), False),
    ],
)
def test_models_of_images_learn_the_digits(make, flat):
    torch.manual_seed(0)
    first, last = losses_after(make(), Loader(Digits(flat=flat), batch_size=64, shuffle=True))
    assert last < first * 0.8


def test_the_model_of_text_learns_and_does_not_look_ahead():
    torch.manual_seed(0)
    model = CharTransformer(width=32, depth=1, length=32)
    data = Characters(length=32)
    first, last = losses_after(model, Loader(data, batch_size=16, shuffle=True), steps=20)
    assert last < first * 0.8
    text = data[0][0].unsqueeze(0)
    changed = text.clone()
    changed[0, -1] = 0
    torch.testing.assert_close(model(text)[..., :-1], model(changed)[..., :-1])


def test_characters_come_with_the_next_ones(tmp_path):
    path = tmp_path / "text"
    path.write_text("0123456789" * 4)
    data = Characters(str(path), length=5, split="all", stride=5)
    inputs, targets = data[1]
    assert bytes(inputs.tolist()) == b"56789" and bytes(targets.tolist()) == b"67890"
    assert len(data) == 7 and len(Characters(str(path), length=50)) == 0
    with pytest.raises(ConfigError, match="there is no file .*none"):
        Characters(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        Characters(split="trian")


def test_what_cannot_be_built_is_said():
    with pytest.raises(ConfigError, match="did you mean 'ReLU'"):
        MLP([2, 2], activation="Relu")
    with pytest.raises(ConfigError, match="at least an input and an output"):
        MLP([2])
    with pytest.raises(ConfigError, match="cannot be shared by 3 heads"):
        CharTransformer(width=64, heads=3)
