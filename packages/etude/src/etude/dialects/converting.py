"""What converting configs of other systems to native ones has in common, whatever the system. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from etude.config.tree import Path, Tree
from etude.errors import ConfigError, Finding
from etude.inspection import signatures
from etude.plan import Plan

SAME = (
    "the weights are the same, bit by bit, where nothing is random after the model is made; the order of shuffled "
    "samples, augmentation and dropout draw other random numbers than the original's"
)
FORMULA = "learning rates are computed by formula: they may differ in the last digits"
_KERNELS = (
    "`differentiable: false` keeps torch's own kernels, which the original uses; without it the optimizer is faster "
    "and rounds differently"
)


class Refusing:
    """Collects the findings about parts of a config that have no native form, and the notes on differences."""

    def __init__(self, tree: Tree, plan: Plan) -> None:
        self.tree, self.plan = tree, plan
        self.notes: list[str] = [SAME]
        self.findings: list[Finding] = []

    def refuse(self, way: Path, what: str, hint: str = "") -> None:
        """Add an error that ``what`` has no native form."""
        text = f"{what} has no native form; `etude train` runs this config as it is"
        self.findings.append(Finding(str(self.tree.place(*way)), text, hint))

    def refuse_others(self, way: Path, given: Mapping[str, Any], known: Iterable[str], owner: str) -> None:
        """Refuse the arguments of ``owner`` that are not among ``known``, each at its own line."""
        for key in [key for key in given if key not in known]:
            self.refuse((*way, key), f"{key}={given[key]!r} of {owner}")

    def torch_optimizer(self, name: str) -> dict[str, Any]:
        """Return the native name of an optimizer of torch, with an argument that keeps torch's default kernels.

        The argument has no other effect. The kernels that the engine prefers round differently.
        """
        signature = signatures.signature(f"torch.optim:{name}")
        takes = [parameter.name for parameter in signature.parameters] if signature else []
        if "differentiable" not in takes:
            return {"type": name}
        self.notes.append(_KERNELS)
        return {"type": name, "differentiable": False}

    def finished(self, config: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the config without what natively is the default, and the notes. Raise one error for all findings."""
        if self.findings:
            raise ConfigError(self.findings)
        usual = {"workers": 0, "drop_last": False, "deterministic": False}
        for section in (*config["data"].values(), config["train"]):
            for key in [key for key, value in usual.items() if section.get(key, ...) == value]:
                del section[key]
        return {key: value for key, value in config.items() if value != []}, list(dict.fromkeys(self.notes))
