"""Lists what a config runs beyond the components that come with Étude: files of the user, and classes by dotted path.

A config in YAML, TOML or JSON is data, but it may name code. ``etude check`` says what it names, and
``--no-python-config`` refuses it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etude.config.files import display
from etude.config.imports import find_imports, is_folder
from etude.config.tree import Tree
from etude.errors import ConfigError, Finding
from etude.errors.own_code import is_own
from etude.fast_dataclass import field_names, record
from etude.inspection.index import table_of
from etude.plan import Place, Plan, Spec

#: Packages whose classes do what their names say and run nothing that a config could name.
_KNOWN = ("etude", "torch.nn", "torch.optim", "torch.utils.data", "torchvision", "torchmetrics", "timm")
#: Arguments by which other packages run what they download.
_TRUSTING = ("trust_remote_code", "trust_repo")


@record
class Way:
    """One way into code: the place in the config, what it names, and whether that is no part of Étude and torch."""

    at: Place
    what: str
    own: bool = True


def ways_in(plan: Plan, tree: Tree | None = None) -> list[Way]:
    """Return everything that a plan runs and that is not entered in a table of Étude, in the order of the plan."""
    found = list(_imports(plan))
    for spec in _specs([getattr(plan, name) for name in field_names(plan) if name not in ("source", "places")]):
        table = table_of(spec.kind)
        if "." in spec.name and (table is None or not table.origin(spec.name)) and not _is_scoped(spec, plan):
            found.append(Way(spec.at, spec.name, not _is_known(spec.name, plan)))
    for path, value in tree.walk() if tree is not None else ():
        if path[-1] in _TRUSTING and value not in (False, None):
            found.append(Way(tree.place(*path) if tree is not None else Place(""), f"{path[-1]}: {value}"))
    return list({(str(way.at), way.what): way for way in found}.values())


def refuse_code(plan: Plan, tree: Tree | None = None) -> None:
    """Raise for a plan that runs user code, under ``--no-python-config``."""
    if refused := refusals(ways_in(plan, tree)):
        raise ConfigError(refused)


def refusals(ways: Iterable[Way]) -> list[Finding]:
    """Return a finding for each way into code that is no part of Étude and torch."""
    hint = "leave out --no-python-config if you trust it"
    return [
        Finding(str(way.at), f"{way.what} runs code, and --no-python-config forbids that", hint)
        for way in ways
        if way.own
    ]


def _imports(plan: Plan) -> Iterator[Way]:
    first = Place(plan.files[0] if plan.files else "")
    for number, entry in enumerate(plan.imports):
        if is_folder(entry):
            continue
        at = plan.places.get(("imports", number), plan.places.get(("imports",), first))
        folders = [one for one in plan.imports[:number] if is_folder(one)]
        located = find_imports([*folders, entry], plan.files)[0]
        file = located[-1].file if located else None
        named = display(file) if file and file.endswith(".py") and not display(file).startswith("/") else ""
        yield Way(at, f"imports: {entry}" + (f" ({named})" if named and named != entry else ""))


def _specs(value: Any) -> Iterator[Spec]:
    """Yield every spec inside of a value, those among the arguments of others too."""
    if isinstance(value, Spec):
        yield value
        yield from _specs(value.args)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _specs(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _specs(item)
    else:
        for name in field_names(value):
            if name not in ("source", "at", "places"):
                yield from _specs(getattr(value, name))


def _is_scoped(spec: Spec, plan: Plan) -> bool:
    """Return whether a dialect with separate registries, whose names have scopes, looks this name up.

    What a dialect does itself, its plans call by its name: ``mcquic.Images``.
    """
    own = spec.name.startswith(f"{plan.dialect}.")
    return plan.dialect != "native" and (own or table_of(spec.kind) is None)


def _is_known(name: str, plan: Plan) -> bool:
    """Return whether a dotted path leads into a known package, and not into a folder of the user that is called so."""
    top = name.partition(".")[0]
    if not is_own(top) and not any(name.startswith(f"{package}.") for package in _KNOWN):
        return False
    folders = {os.getcwd(), *(os.path.dirname(os.path.abspath(file)) for file in plan.files)}
    return not any(os.path.exists(os.path.join(folder, one)) for folder in folders for one in (top, f"{top}.py"))
