"""The JSON Schema accepts what trains and refuses what does not, as an editor would."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from etude import config
from etude.dialects.native import schema
from tests.places import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples" / "native").glob("*.yaml"))
TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip


class Validator:
    """As much of draft 2020-12 as the schema uses."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    def accepts(self, value: Any) -> bool:
        return self.evaluate(self.root, value) is not None

    def evaluate(self, rule: Any, value: Any) -> set[str] | None:
        """The keys that the rule has looked at; None where it refuses."""
        if isinstance(rule, bool):
            return set() if rule else None
        seen: set[str] = set()
        parts = [rule.get("allOf", []), [self.resolve(rule["$ref"])] if "$ref" in rule else []]
        for inner in [part for group in parts for part in group]:
            looked = self.evaluate(inner, value)
            if looked is None:
                return None
            seen |= looked
        if "anyOf" in rule:
            passed = [looked for inner in rule["anyOf"] if (looked := self.evaluate(inner, value)) is not None]
            if not passed:
                return None
            seen |= set().union(*passed)
        if "if" in rule:
            branch = "then" if self.evaluate(rule["if"], value) is not None else "else"
            looked = self.evaluate(rule.get(branch, True), value)
            if looked is None:
                return None
            seen |= looked
        if not self.fits(rule, value):
            return None
        return self.keys(rule, value, seen) if isinstance(value, dict) else seen

    def fits(self, rule: dict[str, Any], value: Any) -> bool:
        if "type" in rule and not any(
            self.is_of(value, t) for t in ([rule["type"]] if isinstance(rule["type"], str) else rule["type"])
        ):
            return False
        if "enum" in rule and not any(value == c and type(value) is type(c) for c in rule["enum"]):
            return False
        if "const" in rule and value != rule["const"]:
            return False
        if isinstance(value, str) and "pattern" in rule and not re.search(rule["pattern"], value):
            return False
        return not isinstance(value, list) or self.items(rule, value)

    def items(self, rule: dict[str, Any], value: list[Any]) -> bool:
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
            return False
        first = rule.get("prefixItems", [])
        pairs = [*zip(first, value, strict=False), *((rule.get("items", True), item) for item in value[len(first) :])]
        return all(self.evaluate(inner, item) is not None for inner, item in pairs)

    def keys(self, rule: dict[str, Any], value: dict[str, Any], seen: set[str]) -> set[str] | None:
        if any(key not in value for key in rule.get("required", [])):
            return None
        own = {key for key in value if key in rule.get("properties", {})}
        if any(self.evaluate(rule["properties"][key], value[key]) is None for key in own):
            return None
        seen |= own
        for word, rest in (("additionalProperties", set(value) - own), ("unevaluatedProperties", set(value) - seen)):
            if word in rule:
                if any(self.evaluate(rule[word], value[key]) is None for key in rest):
                    return None
                seen |= rest
        return seen

    def resolve(self, reference: str) -> Any:
        found: Any = self.root
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        return found

    @staticmethod
    def is_of(value: Any, name: str) -> bool:
        if name != "boolean" and isinstance(value, bool):
            return False
        return isinstance(value, TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer())


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
