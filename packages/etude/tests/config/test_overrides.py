"""Changes from the command line."""

from __future__ import annotations

from typing import Any

import pytest

from etude.config import read
from etude.config.tree import Tree
from etude.errors import ConfigError

from .conftest import Write

CONFIG = """
optim: {type: AdamW, lr: 0.1}
loss: MSELoss
train: {epochs: 3}
hooks:
  - {type: EMA, momentum: 0.5}
  - {type: Log}
"""


@pytest.fixture
def config(write: Write) -> str:
    write("a.yaml", CONFIG)
    return "a.yaml"


def changed(config: str, *overrides: str) -> Tree:
    return read(config, overrides)


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("optim.lr=1e-3", ("optim", "lr"), 0.001),
        ("train.epochs=7", ("train", "epochs"), 7),
        ("hooks.0.momentum=0.25", ("hooks", 0, "momentum"), 0.25),
        ("hooks.-1.type=Timer", ("hooks", 1, "type"), "Timer"),
        ("loss={type: L1Loss, reduction: sum}", ("loss", "reduction"), "sum"),
        ("+optim.betas=[0.9, 0.95]", ("optim", "betas"), [0.9, 0.95]),
        ("+log.to=[csv]", ("log", "to"), ["csv"]),
        ("+hooks.2=Timer", ("hooks", 2), "Timer"),
        ("loss=a=b", ("loss",), "a=b"),
        ("loss=yes", ("loss",), "yes"),
        ("loss=", ("loss",), None),
    ],
)
def test_an_override_sets_a_value_and_is_its_place(
    config: str, override: str, path: tuple[Any, ...], value: Any
) -> None:
    tree = changed(config, override)
    assert tree.get(*path) == value
    assert str(tree.place(*path)) == f"override {override!r}"
    assert tree.history[path][-1][1] == value


def test_a_key_is_taken_away(config: str) -> None:
    tree = changed(config, "~hooks.0", "~optim.lr")
    assert tree.values["hooks"] == [{"type": "Log"}]
    assert tree.values["optim"] == {"type": "AdamW"}
    assert tree.place("hooks", 0, "type").line == 6
    assert [repr(value) for _, value in tree.history["optim", "lr"]] == ["0.1", "(taken away)"]


def test_overrides_leave_the_history_of_older_values_alone(config: str) -> None:
    tree = changed(config, "hooks.0.momentum=1", "hooks.0.momentum=2")
    assert [value for _, value in tree.history["hooks", 0, "momentum"]] == [0.5, 1, 2]
    assert tree.history["hooks",][0][1][0]["momentum"] == 0.5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.rl=1", "there is no key optim.rl; did you mean 'optim.lr'? (+optim.rl=… adds a new key)"),
        ("optm.lr=1", "there is no key optm.lr; did you mean 'optim.lr'?"),
        ("momentum=1", "there is no key momentum; did you mean 'hooks.0.momentum'?"),
        ("~train.epoch", "there is no key train.epoch; did you mean 'train.epochs'?"),
        ("hooks.5.x=1", "hooks has 2 items and no 5"),
        ("hooks.EMA.x=1", "hooks is a list: 'EMA' must be an index from 0"),
        ("+loss.weight=1", "loss is 'MSELoss' and holds no weight; write loss={type: MSELoss, weight: …}"),
        ("loss=[1", "not valid YAML"),
    ],
)
def test_an_override_that_cannot_be_applied_says_what_would_do(config: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(config, override)
    assert str(caught.value).startswith(f"override {override!r}")
    assert message in str(caught.value)


def test_what_is_no_override_is_refused_and_all_are_told_at_once(config: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(config, "optim.lr", "optim.rl=1", "=3")
    assert [finding.message for finding in caught.value.findings] == [
        "'optim.lr' is not an override",
        "there is no key optim.rl",
        "'=3' is not an override",
    ]
    assert caught.value.findings[0].hint == "write optim.lr=VALUE, or ~optim.lr to leave it out"
