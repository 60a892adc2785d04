"""The JSON Schema accepts what trains and refuses what does not, as an editor would."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from etude import config
from etude.dialects.native import schema
from tests.inspection.support import Validator
from tests.places import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples" / "native").glob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> Validator:
    return Validator(schema.schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_accepted(validator: Validator, path: Path) -> None:
    assert validator.accepts(config.read(str(path)).values)


GOOD: dict[str, Any] = {
    "model": {"type": "MLP", "sizes": [64, 10]},
    "loss": "CrossEntropyLoss",
    "data": {"train": {"dataset": {"type": "Digits", "split": "train"}, "batch_size": 64}},
    "optim": {"type": "SGD", "lr": 0.1, "groups": [{"match": "*.bias", "weight_decay": 0}]},
    "schedule": {"lr": [{"type": "Linear", "from": 0.1, "until": "1ep"}, {"type": "Cosine"}]},
    "train": {"epochs": 2, "validate": "1ep"},
}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    made: Any = copy.deepcopy(GOOD)
    holder = made
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = to
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("optim", "momentum"), 0.9), (("optim", "clip_norm"), 1), (("optim", "lr"), "${env:ETUDE_LR}"),
        (("optim",), {"one": {"type": "SGD", "params": ["a.*"]}, "two": {"type": "AdamW", "betas": [0.9, 0.99]}}),
        (("model",), {"type": "my.own.Net", "anything": 1}), (("model",), "my.own.Net"),
        (("schedule", "momentum"), {"type": "Cosine"}), (("loss",), ["MSELoss", {"type": "L1Loss"}]),
        (("hooks",), [{"type": "my.Hook", "every": "2ep", "priority": "LOW"}]), (("checkpoint",), False),
    ],
)  # fmt: skip
def test_what_is_right_is_accepted(validator: Validator, path: tuple[Any, ...], value: Any) -> None:
    assert validator.accepts(GOOD)
    assert validator.accepts(changed(*path, to=value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("optim", "momentm"), 0.9), (("optim", "lr"), "fast"), (("optim", "type"), "SDG"), (("modle",), "MLP"),
        (("model", "sises"), [1]), (("train", "epochs"), "two"), (("train", "epoch"), 2), (("loss",), "CrossEntropy"),
        (("data", "trian"), {}), (("data", "train", "batch_size"), "many"), (("schedule", "lr", 0, "form"), 1),
        (("checkpoint",), {"kep": 3}), (("train", "precision"), "fp61"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(validator: Validator, path: tuple[Any, ...], value: Any) -> None:
    assert not validator.accepts(changed(*path, to=value))


def test_a_config_that_builds_on_another_may_leave_things_out(validator: Validator) -> None:
    assert validator.accepts({"_base_": "a.yaml", "optim": {"lr": 1}})
    assert not validator.accepts({"_base_": "a.yaml", "optm": {"lr": 1}})


def test_the_reference_names_every_section_and_component() -> None:
    text = schema.markdown()
    for word in ("## `optim`", "`train.epochs`", "`data.SPLIT.batch_size`", "## Optimizers", "`CrossEntropyLoss`"):
        assert word in text
