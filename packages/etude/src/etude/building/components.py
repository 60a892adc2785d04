"""Builds the objects that specs name: :func:`build_component` any of them, and what a kind needs besides."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from etude.config.conform import takes_only_tensors
from etude.config.imports import is_folder
from etude.core.evaluation import by_name, require_metric
from etude.core.hook import FunctionHook, Hook, require_points
from etude.core.run import Run
from etude.errors import ConfigError, EtudeError, UserCodeError, placed
from etude.fast_dataclass import replace
from etude.losses.outputs import fitted
from etude.plan import HookPlan, Plan, Spec
from etude.registry import TABLES, Registry, import_file, trust, walk

KINDS: dict[str, Registry] = {table.kind: table for table in TABLES.values()}


def build_component(spec: Spec, *args: Any, **extra: Any) -> Any:
    """Build the object that ``spec`` names; specs among its arguments are built first."""
    if spec.kind not in KINDS:
        table = next((table for table in KINDS.values() if spec.name in table), KINDS["model"])
        return table.build(_filled(spec), *args, **extra)
    try:
        filled = _filled(spec)
        return KINDS[spec.kind].build(replace(filled, args=_with_tensors(filled)), *args, **extra)
    except EtudeError:
        raise
    except Exception as error:
        raise UserCodeError(f"{spec.at}: {spec.kind} {spec.name} raised {type(error).__name__}: {error}") from error


def _with_tensors(spec: Spec) -> dict[str, Any]:
    """Return the arguments of a component, with tensors for numbers and lists where its signature takes only those:
    the ``weight`` of a loss. Those of a loss are floats."""
    numbers = {key: value for key, value in spec.args.items() if _is_numbers(value)}
    if not numbers:
        return dict(spec.args)
    try:
        parameters = inspect.signature(KINDS[spec.kind].get(spec.name, at=str(spec.at))).parameters
    except (TypeError, ValueError):
        return dict(spec.args)
    kind = torch.float32 if spec.kind == "loss" else None
    made = {}
    for key, value in numbers.items():
        declared = parameters[key].annotation if key in parameters else ""
        if takes_only_tensors(declared.__name__ if isinstance(declared, type) else str(declared)):
            made[key] = torch.tensor(value, dtype=kind)
    return {**spec.args, **made}


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple) and value:
        return all(map(_is_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def import_modules(plan: Plan) -> None:
    """Import what the config lists under ``imports``: what it registers becomes usable by name."""
    roots = [Path(file).parent for file in plan.files[:1]]
    for entry in plan.imports:
        if entry.endswith(".py"):
            path = next((p for root in [*roots, Path.cwd()] if (p := root / entry).is_file()), None)
            if path is None:
                raise ConfigError(f"imports: there is no file {entry}", at=_file(plan))
            _search(path.resolve().parent)
            trust(_guarded(plan, entry, partial(import_file, str(path), path.stem)).__name__)
            continue
        if is_folder(entry):
            there = [path for root in roots if (path := (root / entry).resolve()).is_dir()]
            if not there:
                raise ConfigError(f"imports: there is no folder {entry}", at=_file(plan))
            roots += there[:1]
            continue
        for root in roots:
            _search(root.resolve())
        _guarded(plan, entry, partial(importlib.import_module, entry))
        trust(entry)


#: Folders of projects in which this process looks for modules.
_SEARCHED: set[Path] = set()


def _search(folder: Path) -> None:
    """Let code import the files of a folder. Another project's modules of their names are forgotten."""
    for file in folder.glob("*.py"):
        known = getattr(sys.modules.get(file.stem), "__file__", None)
        if known is not None and Path(known).parent in _SEARCHED - {folder}:
            del sys.modules[file.stem]
    _SEARCHED.add(folder)
    sys.path[:] = [str(folder), *(path for path in sys.path if path != str(folder))]


def _collate(spec: Spec) -> Callable[[list[Any]], Any]:
    """Return the collate function: a plain function of the samples, or an object of a class."""
    found = KINDS["collate function"].get(spec.name, at=str(spec.at))
    return build_component(spec) if isinstance(found, type) else partial(found, **spec.args)


def build_losses(specs: Sequence[Spec], device: torch.device) -> dict[str, Callable[..., torch.Tensor]]:
    """Return the losses by name; the second of a name is recorded as ``name#2``."""
    losses: dict[str, Callable[..., torch.Tensor]] = {}
    for spec in specs:
        name = spec.name.rpartition(".")[2]
        count = 1 + sum(known.partition("#")[0] == name for known in losses)
        losses[name if count == 1 else f"{name}#{count}"] = _loss(spec, device)
    return losses


def _loss(spec: Spec, device: torch.device) -> Callable[..., torch.Tensor]:
    """Return a callable of output and target: a module, or a plain function of the two."""
    found = KINDS["loss"].get(spec.name, at=str(spec.at))
    if not isinstance(found, type) and _takes_two(found):
        return fitted(partial(found, **spec.args))
    made = build_component(spec)
    return fitted(made.to(device) if isinstance(made, torch.nn.Module) else made)


def _takes_two(function: Callable[..., Any]) -> bool:
    first = list(inspect.signature(function).parameters.values())[:2]
    return len(first) == 2 and all(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in first)


def build_loop(spec: Spec) -> Callable[[Run], None]:
    """Return the loop: a function of the run, or an object of a class."""
    found = KINDS["loop"].get(spec.name, at=str(spec.at))
    return build_component(spec) if isinstance(found, type) or spec.args else found


def build_metrics(plan: Plan, device: torch.device) -> dict[str, Any]:
    made = [require_metric(build_component(spec), at=str(spec.at)) for spec in plan.metrics]
    with placed(plan.metrics[-1].at if plan.metrics else ""):
        named = by_name(made)
    return {name: m.to(device) if isinstance(m, torch.nn.Module) else m for name, m in named.items()}


def build_attached_hook(plan: HookPlan, run: Run) -> Hook:
    hook = build_hook(plan)
    attach = getattr(hook, "attach", None)
    if attach is not None:
        with placed(plan.spec.at):
            attach(run)
    return hook


def build_hook(plan: HookPlan) -> Hook:
    """Return the hook that a plan names, with its priority and its interval."""
    factory = KINDS["hook"].get(plan.spec.name, at=str(plan.spec.at))
    if isinstance(factory, type) and issubclass(factory, Hook):
        hook = build_component(plan.spec)
    elif callable(factory) and not isinstance(factory, type):
        args = dict(plan.spec.args)
        hook = FunctionHook(factory, args.pop("point", "after_step"))
    else:
        raise ConfigError(f"{plan.spec.name} is not a hook", at=str(plan.spec.at), hint="derive it from etude.Hook")
    hook.priority, hook.essential = plan.priority, plan.essential
    if plan.every is not None:
        hook.every = plan.every
    require_points(hook, at=str(plan.spec.at))
    return hook  # type: ignore[no-any-return]


def _filled(spec: Spec) -> Spec:
    owner = spec.name.partition(".")[0] if "." in spec.name else ""
    return Spec(kind=spec.kind, name=spec.name, args={k: _fill(v, owner) for k, v in spec.args.items()}, at=spec.at)


def _fill(value: Any, owner: str = "") -> Any:
    if isinstance(value, Spec):
        return _of_package(value) if owner and value.name.startswith(f"{owner}.") else build_component(value)
    if isinstance(value, Mapping):
        return {key: _fill(item, owner) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_fill(item, owner) for item in value)
    return value


def _of_package(spec: Spec) -> Any:
    """Return an argument that is a class of the component's own package, such as a config of transformers."""
    found = walk(spec.name)
    if not isinstance(found, type):
        raise ConfigError(f"there is no class {spec.name!r}", at=str(spec.at))
    return Registry("object").build(Spec(kind="", name=spec.name, args=_filled(spec).args, at=spec.at))


def _file(plan: Plan) -> str:
    return plan.files[0] if plan.files else ""


def _guarded(plan: Plan, entry: str, load: Callable[[], Any]) -> Any:
    """Import code of the user. A mistake in it is reported with its own place, without Étude's traceback."""
    try:
        return load()
    except EtudeError:
        raise
    except ModuleNotFoundError as error:
        if error.name == entry.split(".")[0] or error.name == entry:
            raise ConfigError(f"imports: no module {entry!r}", at=_file(plan)) from error
        raise UserCodeError(f"imports: {entry} raised {type(error).__name__}: {error}") from error
    except Exception as error:
        raise UserCodeError(f"imports: {entry} raised {type(error).__name__}: {error}") from error
