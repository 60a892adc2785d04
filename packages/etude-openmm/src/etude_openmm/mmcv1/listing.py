"""Lists the keys (``keys.json``) and class names of mmcv 1.x configs, for checks and ``etude list``."""

from __future__ import annotations

from collections.abc import Mapping

from etude.config.tree import Tree
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude_openmm.mmcv1 import names
from etude_openmm.mmcv1.projects import installed
from etude_openmm.shared.checks.project_sources import registered
from etude_openmm.shared.checks.schemas import KeyTable, line_about

KEYS = KeyTable(__file__)
LR, MOMENTUM = "LrUpdaterHook", "MomentumUpdaterHook"
#: Hooks that no config can name: base classes, and those that have their own key.
_UNNAMED = ("Hook", LR, MOMENTUM, "LoggerHook", "EvalHook", "DistEvalHook")
_TORCH_OPTIMIZERS = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam",
    "RMSprop", "Rprop", "SGD", "SparseAdam",
)  # fmt: skip
_INITIALIZERS = ("Constant", "Xavier", "Normal", "TruncNormal", "Uniform", "Kaiming", "Caffe2Xavier")


def _names_ending_with(ending: str, *modules: str) -> dict[str, str]:
    return {
        name: target
        for module in modules
        for name, target in names.MODULES[module].items()
        if name.endswith(ending) and name not in _UNNAMED
    }


HOOKS: Mapping[str, str] = _names_ending_with("Hook", "mmtrack.core", "mmcls.core", "mmcv.runner")
RUNNERS: Mapping[str, str] = _names_ending_with("BasedRunner", "mmcv.runner")
OPTIMIZERS: Mapping[str, str] = {name: f"torch.optim:{name}" for name in _TORCH_OPTIMIZERS} | {
    "Lamb": "etude.optim.lamb:LAMB"
}
INITIALIZERS: Mapping[str, str] = {
    **{name: f"mmengine.model.weight_init:{name}Init" for name in _INITIALIZERS},
    "Pretrained": names.MODULES["mmcv.cnn"]["PretrainedInit"],
}


def policies(suffix: str) -> dict[str, str]:
    """Return the names that configs write as ``policy``, for hooks whose class ends in ``suffix``."""
    found = {name.removesuffix(suffix): target for name, target in HOOKS.items() if name.endswith(suffix)}
    return {name.lower() if name == name.title() else name: target for name, target in sorted(found.items())}


def registries() -> dict[str, Mapping[str, str]]:
    """Map registry → name → ``module:attr``. Policies have the name that a config writes."""
    others = {name: target for name, target in HOOKS.items() if not name.endswith((LR, MOMENTUM))}
    return {
        "RUNNERS": RUNNERS,
        "OPTIMIZERS": OPTIMIZERS,
        "OPTIMIZER_BUILDERS": {
            "DefaultOptimizerConstructor": names.MODULES["mmcv.runner"]["DefaultOptimizerConstructor"]
        },
        "HOOKS": others,
        "lr_config policies": policies(LR),
        "momentum_config policies": policies(MOMENTUM),
        "INITIALIZERS": INITIALIZERS,
    }


def tables(tree: Tree | None = None) -> dict[str, dict[str, str]]:
    """Map registry → name → origin and description, including what installed projects register."""
    found = {table: dict(entries) for table, entries in registries().items()}
    for project in reversed(installed()):
        for (table, name), target in registered(project.package).items():
            found.setdefault(table, {})[name] = target
    return {
        table: {
            name: line_about(target, scan.signature(target, known=cached)) for name, target in sorted(entries.items())
        }
        for table, entries in found.items()
    }
