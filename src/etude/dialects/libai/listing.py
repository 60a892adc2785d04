"""Lists what a lazy config can name, for ``etude list --dialect libai``, from the sources alone. No torch."""

from __future__ import annotations

from etude.dialects import ownership
from etude.dialects.libai.names import MODULES
from etude.inspection import signatures as scan
from etude.inspection.index import kept

#: Kind → the import names under which configs name it.
KINDS: dict[str, tuple[str, ...]] = {
    "scheduler": ("libai.scheduler",),
    "optimizer": ("oneflow.optim",),
    "parameter groups": ("libai.optim", "detectron2.solver"),
    "loader": ("libai.data.build", "detectron2.data.build"),
    "sampler": ("libai.data.samplers", "detectron2.data.samplers"),
    "evaluator": ("libai.evaluation",),
    "hook": ("libai.engine.hooks", "detectron2.engine.hooks"),
    "writer": ("libai.utils.events", "detectron2.utils.events"),
    "trainer": ("libai.engine.trainer", "libai.engine.default", "detectron2.engine"),
    "multiplier": ("fvcore.common.param_scheduler", "detectron2.solver.lr_scheduler"),
    "graph": ("libai.models.utils",),
}
#: Names that stand in those modules and are no such thing.
_OTHERS = (
    "build_lr_scheduler", "HookBase", "ParamScheduler", "trivial_batch_collator", "worker_init_reset_seed",
)  # fmt: skip


def tables() -> dict[str, dict[str, str]]:
    """Kind → dotted name → a line about it; also the models of a LiBai that is installed or checked out."""
    found = {kind: dict(sorted(_entries(kind, modules))) for kind, modules in KINDS.items()}
    models = _models()
    return {"model": models, **found} if models else found


def _models() -> dict[str, str]:
    source = scan.find_source("libai.models") if ownership.original("libai") is not None else None
    targets = [f"libai.models:{name}" for name in sorted(source.names if source is not None else ())]
    return {target.replace(":", "."): _line(target) for target in targets if scan.class_of(target) is not None}


def _entries(kind: str, modules: tuple[str, ...]) -> list[tuple[str, str]]:
    found = []
    for module in modules:
        for name, target in MODULES[module].items():
            is_module = ":" not in target
            if is_module or name.startswith("_") or name in _OTHERS or not _fits(kind, name):
                continue
            found.append((f"{module}.{name}", _line(target) or _line(_elsewhere(name, modules)) or _of_torch(target)))
    return found


def _line(target: str) -> str:
    signature = scan.signature(target, known=kept) if target else None
    return signature.doc if signature is not None else ""


def _elsewhere(name: str, modules: tuple[str, ...]) -> str:
    """The same name in the other system, for what only says how it differs."""
    return next((MODULES[module][name] for module in modules if _line(MODULES[module].get(name, ""))), "")


def _of_torch(target: str) -> str:
    module, _, name = target.partition(":")
    return f"torch's {name}, with OneFlow's arguments" if module.endswith(".optimizers") else ""


def _fits(kind: str, name: str) -> bool:
    if kind == "parameter groups":
        return name.endswith("_params")
    if kind == "hook":
        return name[0].isupper() and not name.startswith("Event")
    if kind == "writer":
        return name.endswith(("Writer", "Printer"))
    if kind == "evaluator":
        return name.endswith(("Evaluator", "Evaluators"))
    return kind != "trainer" or name.endswith(("Trainer", "TrainerBase"))
