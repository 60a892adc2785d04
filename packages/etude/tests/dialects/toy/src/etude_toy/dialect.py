"""Reads configs of the Toy engine: one ``key = number`` per line, in files that end in ``.toy``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.dialect_api import ConfigError, Dialect, Flag, Place, Plan, Tree, lower_native, suggest

KEYS = {"hidden": 16, "epochs": 2, "batch": 256, "save": 1}


class Toy(Dialect):
    """Every config trains the digits; only sizes can be said."""

    name, title = "toy", "Toy"
    flags = (Flag("--tiny", "train with a hidden size of 2", {"action": "store_true"}),)

    def recognise(self, path: str, text: str) -> bool:
        return path.endswith(".toy") and "hidden" in text

    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any]) -> Tree:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        values, wrong = dict(KEYS), []
        for number, line in enumerate([*lines, *overrides], 1):
            key, _, value = (word.strip() for word in line.partition("="))
            if key in KEYS and value.isdecimal():
                values[key] = int(value)
            elif line.strip():
                wrong.append(ConfigError(f"unknown line {line!r}; {suggest(key, KEYS)}", at=f"{path}:{number}"))
        if wrong:
            raise ConfigError([finding for error in wrong for finding in error.findings])
        hidden = 2 if options.get("tiny") else values["hidden"]
        config = {
            "model": {"type": "MLP", "sizes": [64, hidden, 10], "dropout": 0.1},
            "loss": "CrossEntropyLoss",
            "data": {
                "train": {
                    "dataset": {"type": "Digits", "split": "train"},
                    "batch_size": values["batch"],
                    "shuffle": True,
                },
            },
            "optim": {"type": "SGD", "lr": 0.1, "momentum": 0.9},
            "train": {"epochs": values["epochs"], "seed": 1},
            "hooks": [{"type": "etude_toy.hooks.Counter"}],
            "checkpoint": {"every": f"{values['save']}ep"},
        }
        places = {("model",): Place(path, 1)}
        return Tree(config, places=places, files={path: "\n".join(lines)})

    def lower(self, tree: Tree) -> Plan:
        return lower_native(tree)

    def schema(self, tree: Tree | None = None) -> dict[str, Any]:
        return {"type": "object", "properties": {key: {"type": "integer", "default": KEYS[key]} for key in KEYS}}

    def reference(self, tree: Tree | None = None) -> str:
        return "\n".join(f"- `{key}`: {default}" for key, default in KEYS.items())
