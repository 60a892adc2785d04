"""Loads the model of a finished run, predicts with it, and exports it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude import dialects
from etude.api import load_plan, made_in_python, require_sound
from etude.building.components import build_component, import_modules
from etude.building.device import pick_device
from etude.checkpoint import manifest
from etude.checkpoint.find import FOLDER, find, find_best
from etude.checkpoint.state import check_weights
from etude.checkpoint.store import Store
from etude.checkpoint.warm_start import adapt, init_from, read_weights
from etude.dialects.base import Dialect
from etude.errors import NoCheckpoint, UserError, printable
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.plan import Plan, Spec


@record(kw_only=True)
class Origin:
    """Where a loaded model comes from: ``model.etude``."""

    checkpoint: str
    step: int | None
    metrics: Mapping[str, float]
    #: Whether the weights are the average that an EMA or SWA hook kept.
    averaged: bool
    #: The transform of the config's validation data, where it has one: what an input has to go through.
    transform: Any = None


def load(
    run: str | Path,
    *,
    best: bool | str | int = False,
    step: int | None = None,
    ema: bool | None = None,
    device: str = "cpu",
    model: torch.nn.Module | None = None,
) -> torch.nn.Module:
    """Return the model of a run with its weights, in eval mode; ``model.etude`` says where they come from.

    ``best`` chooses the checkpoint: ``True`` is the best one by ``checkpoint.best`` of the config; or name a metric,
    ``"latest"``, or a step (``step=120`` says the same). Without it you get the newest. ``ema=True`` takes the average
    of an EMA or SWA hook, ``ema=False`` the trained weights. Without it, you get the weights that the run was evaluated
    with. The weights must fit exactly. A run of :class:`~etude.Trainer` has no config: pass the ``model``.

    >>> import etude
    >>> from pathlib import Path
    >>> _ = Path("c.yaml").write_text('''
    ... model: {type: MLP, sizes: [64, 10]}
    ... loss: CrossEntropyLoss
    ... data: {train: {dataset: {type: Digits, split: train}, batch_size: 512}}
    ... optim: {type: AdamW, lr: 1e-2}
    ... train: {epochs: 1}
    ... ''')
    >>> _ = etude.train("c.yaml", options=etude.Options(folder="myrun", quiet=True))
    >>> model = etude.load("myrun")
    >>> model.training, model.etude.step
    (False, 3)
    """
    plan = None if model is not None else plan_of(run)
    path = checkpoint_of(run, best=best, step=step)
    spoken = guest_of(plan)
    if plan is not None and spoken is None:
        import_modules(plan)
    if plan is not None:
        model = build_component(plan.model) if spoken is None else spoken.build_model(plan)
    assert model is not None
    origin = _take(model, plan, path, ema) if spoken is None else _take_guest(model, spoken, path, ema)
    model.etude = origin  # type: ignore[assignment]
    return model.to(pick_device(device)).eval()


def plan_of(run: str | Path) -> Plan:
    """Return the plan that a run was trained by."""
    _require_run(Path(run))
    if Path(run).suffix in (".yaml", ".yml", ".toml", ".json", ".py"):
        raise UserError(f"{printable(str(run))} is a config; give the folder of a run that was trained with it")
    if (Path(run) / FOLDER).is_dir() and not (Path(run) / "plan.yaml").is_file():
        raise made_in_python(Path(run))
    plan, _ = load_plan(run)
    return require_sound(plan)


def guest_of(plan: Plan | None) -> Dialect | None:
    """Return the dialect of a plan whose own runner drove the run; None for a native one."""
    spoken = dialects.of(plan) if plan is not None else None
    return spoken if spoken is not None and spoken.drives_itself else None


def _take_guest(model: torch.nn.Module, spoken: Dialect, path: str, ema: bool | None) -> Origin:
    if ema is not None:
        text = f"{printable(path)}: a run of {spoken.title} has the weights that it was evaluated with"
        raise UserError(f"{text}; leave --ema out")
    weights = spoken.weights_of(adapt(read_weights(path)))
    check_weights(model, weights)
    model.load_state_dict(weights)
    return Origin(checkpoint=path, step=None, metrics={}, averaged=False)


def _require_run(path: Path) -> None:
    """Raise where nothing is at ``path``, with the runs that are near."""
    if path.exists() or "://" in str(path):
        return
    there = [str(one) for one in (*path.parent.glob("*"), *Path("runs").glob("*/*")) if one.is_dir()]
    hint = suggest(str(path), there, otherwise="`etude runs` lists those below runs/")
    raise UserError(f"{printable(str(path))}: no such run; {hint}")


def checkpoint_of(run: str | Path, *, best: bool | str | int = False, step: int | None = None) -> str:
    if isinstance(best, int) and not isinstance(best, bool):
        best, step = False, best
    if best and best != "latest":
        return find_best(str(run), "" if best is True else str(best))
    return find(str(run)) if step is None else _at_step(Path(run), step)


def _at_step(run: Path, step: int) -> str:
    entries = Store(str(run / FOLDER), write=False).entries()
    found = [entry.path for entry in entries if entry.step == step]
    if not found:
        there = ", ".join(str(entry.step) for entry in entries) or "none"
        raise NoCheckpoint(f"{printable(str(run))} has no checkpoint of step {step}; there are {there}")
    return found[-1]


def _take(model: torch.nn.Module, plan: Plan | None, path: str, ema: bool | None) -> Origin:
    transform = _transform(plan) if plan is not None else None
    if not os.path.isfile(os.path.join(path, manifest.NAME)):
        if ema:
            raise UserError(f"{printable(path)} holds weights only, and no average")
        init_from(model, path, strict=True)
        return Origin(checkpoint=path, step=None, metrics={}, averaged=False, transform=transform)
    loaded = Store(os.path.dirname(os.path.abspath(path)), write=False).load(path)
    weights, average = dict(loaded.state["model"]), _average(loaded.state, plan)
    if ema and not average:
        raise UserError(f"{printable(path)} holds no average: the config has no EMA or SWA hook that had begun")
    averaged = bool(average) if ema is None else ema
    weights |= average if averaged else {}
    check_weights(model, weights)
    model.load_state_dict(weights)
    made = loaded.manifest
    return Origin(checkpoint=path, step=made.step, metrics=made.metrics, averaged=averaged, transform=transform)


def _average(state: Mapping[str, Any], plan: Plan | None) -> dict[str, Tensor]:
    """Return the average that evaluations of the run used; of several, the one with ``evaluate``."""
    kept = {name: part for name, part in state.items() if name.startswith(("hook.Ema", "hook.Swa"))}
    specs = [hook.spec for hook in plan.hooks if hook.spec.name in ("EMA", "SWA")] if plan is not None else []
    seen: Counter[str] = Counter()
    for spec in specs:
        seen[spec.name] += 1
        number = f"#{seen[spec.name]}" if seen[spec.name] > 1 else ""
        part = kept.get(f"hook.{spec.name.capitalize()}{number}")
        if part is not None and spec.args.get("evaluate", True):
            return dict(part["average"])
    return dict(next(iter(kept.values()))["average"]) if kept else {}


def _transform(plan: Plan) -> Any:
    loader = plan.data.get("val") or plan.data.get("test")
    spec = loader.dataset.args.get("transform") if loader is not None else None
    return build_component(spec) if isinstance(spec, Spec) else None
