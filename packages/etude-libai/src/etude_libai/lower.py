"""Converts LiBai and detectron2 configs to plans. The dialect's builder reads the config itself."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

from etude.config import no_code
from etude.config.tree import Path, Tree, dotted
from etude.dialects.base import accepted
from etude.errors import EtudeError, Finding
from etude.errors.spelling import is_slip, meaning, nearest
from etude.plan import HookPlan, Loader, Optimizer, Place, Plan, Spec, Training
from etude.units import Amount
from etude_libai import stages
from etude_libai.checks.calls import unknown_arguments
from etude_libai.checks.missing import missing_packages, missing_targets
from etude_libai.checks.structure import is_detectron2, structure
from etude_libai.checks.typos import beside, slips
from etude_libai.checks.values import missing_weights, wrong_values
from etude_libai.lazy.extra import container, without_tuples
from etude_libai.lazy.load import DetectronLazyConfig, LazyConfig
from etude_libai.lazy.reading.errors import as_config_error
from etude_libai.lazy.reading.sketches import asleep, by_name
from etude_libai.lazy.targets import locate, target_name
from etude_libai.places import key_of, project_folders, survey_files, way_of
from etude_libai.schema import KEYS, NAMESPACES

__all__ = ["is_detectron2", "lower", "read", "survey"]


def read(path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any] | None = None) -> Tree:
    """Read the config with overrides. A Python config is executed."""
    options = options or {}
    from etude.dialects import imports

    imports.install()
    for folder in project_folders(path):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    places, files = survey_files(path)
    values = _sketch(path, overrides) if options.get("sketch") else _run(path, overrides)
    if os.path.basename(path) == "plan.yaml" and not options.get("sketch"):
        values = _with_members(values)
    for text in overrides:
        places[way_of(key_of(text))] = Place(f"override '{text}'", 0, key_of(text))
    return Tree(values, places, {}, files)


def _sketch(path: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Read a config without importing what it names, neither torch nor the project.

    OmegaConf is imported if the config needs it or is wrong, for its error messages. The rest is imported only if the
    config computes with it.
    """
    try:
        with asleep(lightly=not overrides) as reading:
            values = _run(path, overrides)
        if not reading.lost:
            return values
    except Exception:
        pass  # what is wrong is said when it is read again
    with asleep(lightly=False) as reading:
        try:
            values = _run(path, overrides)
            if not reading.lost:
                return values
        except EtudeError as error:
            if not reading.computed and "Sketch" not in str(error):
                raise
    return _run(path, overrides)


def _run(path: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Run a config, and return its values as dicts and lists."""
    try:
        config = LazyConfig.load(path)
        if "optim" not in config and "optimizer" in config:
            config = DetectronLazyConfig.load(path)
        LazyConfig.apply_overrides(config, list(overrides))
    except Exception as error:
        raise as_config_error(error) from error
    values: dict[str, Any] = by_name(without_tuples(container(config)))
    return values


def _with_members(value: Any) -> Any:
    """Return the values of a run's ``plan.yaml`` with enum members in place of their dotted names."""
    if isinstance(value, dict):
        lazy = "_target_" in value
        return {
            key: _member(item) if lazy and isinstance(item, str) else _with_members(item) for key, item in value.items()
        }
    return [_with_members(item) for item in value] if isinstance(value, list) else value


def _member(text: str) -> Any:
    found = None
    if not no_code.is_forbidden() and re.fullmatch(r"[a-z_]\w*(\.\w+)*\.[A-Z]\w*\.\w+", text):
        with contextlib.suppress(ImportError, AttributeError):
            found = locate(text)
    return found if isinstance(found, Enum) else text


# -- lowering ----------------------------------------------------------------------------------------------------------


def lower(tree: Tree) -> Plan:
    """Return the plan. Raise one :class:`~etude.errors.ConfigError` with everything that is wrong.

    Missing initial weights are no error here, because a resumed run does not need them.
    """
    return accepted(_surveyed(tree))


def survey(tree: Tree) -> tuple[Plan, list[Finding]]:
    """Return the plan, and everything that is wrong with the config."""
    plan, findings = _surveyed(tree)
    return plan, [*findings, *missing_weights(tree), *missing_packages(tree)]


def _surveyed(tree: Tree) -> tuple[Plan, list[Finding]]:
    called = partial(unknown_arguments, slips=True)
    wrong = (structure, unknown, wrong_values, missing_targets, called, slips, beside, stages.findings)
    findings = [finding for look in wrong for finding in look(tree)]
    own, evaluator = "optim" if tree.get("optim") is not None else "optimizer", ("train", "evaluation", "evaluator")
    weights = tree.get("train", "load_weight", default=tree.get("train", "init_checkpoint"))
    plan = Plan(
        dialect="libai",
        name=os.path.splitext(os.path.basename(next(iter(tree.files), "run")))[0],
        folder=str(tree.get("train", "output_dir", default="./output")),
        model=_spec(tree, ("model",), "model"),
        data=_data(tree),
        optimizers={"": Optimizer(spec=_spec(tree, (own,), "optimizer"))},
        update=Spec(kind="update", name=f"libai.{_mode(tree)}", at=tree.place("graph")),
        loop=Spec(kind="loop", name="libai.iterations", at=tree.place("train")),
        hooks=tuple(_hooks(tree)),
        metrics=(_spec(tree, evaluator, "metric"),) if tree.get(*evaluator) is not None else (),
        train=_training(tree),
        init_from={"path": weights} if weights else {},
        source=tree.values,
        files=tuple(tree.files),
    )
    return plan, findings


def _mode(tree: Tree) -> str:
    if is_detectron2(tree.values):
        return "SimpleTrainer"
    return "GraphTrainer" if tree.get("graph", "enabled", default=True) else "EagerTrainer"


def _training(tree: Tree) -> Training:
    train: Mapping[str, Any] = tree.get("train", default={}) or {}
    epochs, steps = _whole(train.get("train_epoch")), _whole(train.get("train_iter", train.get("max_iter")))
    amp = bool(tree.get("train", "amp", "enabled", default=False))
    return Training(
        epochs=epochs if epochs and not steps else None,
        steps=steps or None,
        accumulate=1 if _mode(tree) == "GraphTrainer" else _accumulation(train),
        precision="fp16" if amp else "fp32",
        seed=_whole(train.get("seed")),
        device=str(train.get("input_placement_device", train.get("device", "auto"))),
        compile=_mode(tree) == "GraphTrainer",
    )


def _whole(value: Any) -> int:
    """Return a number of a config; 0 for anything else, which is reported elsewhere."""
    return int(value) if isinstance(value, int | float) else 0


def _accumulation(train: Mapping[str, Any]) -> int:
    """Return the micro-batches per update: as configured, or computed from the batch sizes of one process."""
    total, micro = _whole(train.get("global_batch_size")), _whole(train.get("train_micro_batch_size"))
    return _whole(train.get("num_accumulation_steps")) or (total // micro if micro and total > micro else 1)


def _hooks(tree: Tree) -> list[HookPlan]:
    """Return the hooks of the default trainer, in the order they are registered in."""
    made = [("IterationTimer", None, ()), ("LRScheduler", None, ("train", "scheduler"))]
    made.append(("PeriodicCheckpointer", tree.get("train", "checkpointer", "period"), ("train", "checkpointer")))
    period = tree.get("train", "evaluation", "eval_period", default=tree.get("train", "eval_period"))
    if tree.get("train", "evaluation", "enabled", default=True) and period is not None:
        made.append(("EvalHook", period, ("train", "evaluation")))
        if not is_detectron2(tree.values):
            made.append(("BestCheckpointer", period, ("train", "evaluation")))
    made.append(("PeriodicWriter", tree.get("train", "log_period"), ("train", "log_period")))
    return [
        HookPlan(
            spec=Spec(kind="hook", name=f"libai.{name}", at=tree.place(*way)),
            priority=50,
            every=Amount(float(every), "step") if isinstance(every, int) and every > 0 else None,
        )
        for name, every, way in made
    ]


def _data(tree: Tree) -> dict[str, Loader]:
    loaders = {}
    for split in ("train", "test"):
        way: Path = ("dataloader", split)
        node: Any = tree.get(*way)
        if isinstance(node, list):
            way, node = (*way, 0), node[0] if node else None
        if not isinstance(node, Mapping):
            continue
        inner: Path = (*way, "dataset")
        if isinstance(node.get("dataset"), list) and node["dataset"]:
            inner = (*inner, 0)
        said = node.get("total_batch_size", node.get("batch_size", 1))  # detectron2's loaders say it themselves
        size, workers = tree.get("train", f"{split}_micro_batch_size", default=said), node.get("num_workers")
        loaders[split] = Loader(
            dataset=_spec(tree, inner if tree.get(*inner) is not None else way, "dataset"),
            batch_size=size if isinstance(size, int) else 1,
            workers=workers if isinstance(workers, int) else 0,
            at=tree.place(*way),
        )
    return loaders


def _spec(tree: Tree, way: Path, kind: str) -> Spec:
    node: Any = tree.get(*way)
    if not isinstance(node, Mapping) or "_target_" not in node:
        return Spec(kind=kind, name="", at=tree.place(*way))
    return Spec(
        kind=kind,
        name=target_name(node["_target_"]),
        args={key: value for key, value in node.items() if key != "_target_"},
        at=tree.place(*way),
        places={str(key): tree.place(*way, key) for key in node},
    )


# -- findings ----------------------------------------------------------------------------------------------------------


def unknown(tree: Tree) -> list[Finding]:
    """Report unknown keys of sections with fixed keys: an error for one that is nearly a known key, else a warning."""
    findings = []
    for section, known in KEYS.items():
        node = tree.get(*section)
        if not isinstance(node, Mapping) or "_target_" in node:
            continue
        for key in node:
            if key in known or (section == () and not nearest(str(key), NAMESPACES)):
                continue
            near = nearest(str(key), list(known))
            if section == () and near in tree.values:
                continue
            misspelt = near is not None and _is_misspelt(str(key), near, known)
            findings.append(
                Finding(
                    str(tree.place(*section, key)),
                    f"unknown key {dotted((*section, key))}",
                    f"did you mean {near!r}?" if misspelt else "nothing of Étude reads it",
                    "error" if misspelt else "warning",
                )
            )
    return findings


def _is_misspelt(key: str, near: str, known: Collection[str]) -> bool:
    """Return whether ``key`` is a misspelling of ``near``, or another system's word for it.

    Projects put their own keys into ``train`` (``lr_scheduler_type`` beside ``scheduler``), which only they read.
    """
    from difflib import get_close_matches

    if is_slip(key, near) or meaning(key, list(known)) == near:
        return True
    longer = key in near or near in key
    return not longer and bool(get_close_matches(key, [near], cutoff=0.75))
