"""Converts a McQuic config to a plan, and reports mistakes with file and line."""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from etude.config import no_code
from etude.config import read as read_files
from etude.config.conform import Misfit, conform
from etude.config.imports import near_module
from etude.config.tree import Path, Tree, dotted
from etude.dialects import ownership
from etude.errors import ConfigError, Finding
from etude.errors.spelling import nearest, suggest
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude.plan import HookPlan, Loader, Optimizer, Phase, Plan, Schedule, Spec, Training
from etude.registry import MODELS
from etude.units import Amount
from etude_mcquic.names import REGISTERED
from etude_mcquic.schema import TARGETS, fields, is_required

__all__ = ["lower", "read", "survey"]

INSTALL = "install McQuic, run in a checkout of it, or name a model of your own"
#: Arguments that the trainer gives.
GIVEN = ("params", "optimizer", "last_epoch", "verbose")


def read(path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any] | None = None) -> Tree:
    with no_code.data("a config of McQuic"):
        tree = read_files([path], overrides)
    for key in [key for key in tree.values if "$" in str(key)]:
        del tree.values[key]
    return tree


def lower(tree: Tree) -> Plan:
    """Return the plan. Raises one error with all mistakes."""
    low = _Lowering(tree)
    low.section((), "Config")
    low.section(("model",), "General")
    low.section(("train",), "Train")
    low.section(("train", "gpu"), "GPU")
    for path in (("train", "optim"), ("train", "schdr"), *low.hook_paths()):
        low.section(path, "General")
    parts: dict[Path, tuple[str, str]] = {
        ("model",): ("model", "model"),
        ("train", "optim"): ("OptimizerRegistry", "optimizer"),
        ("train", "schdr"): ("LrSchedulerRegistry", "schedule"),
        **dict.fromkeys(low.hook_paths(), ("HookRegistry", "hook")),
    }
    specs = {path: low.spec(path, *words) for path, words in parts.items() if low.is_component(path)}
    for path in low.hook_paths():
        if tree.get(*path) is None:
            low.error(path, f"{dotted(path)} may not be empty", "give key and params")
    if len(specs) < len(parts):
        low.raise_errors()
    model, optim, schdr, *others = (specs[path] for path in parts)
    hooks = tuple(HookPlan(spec=spec) for spec in others)
    low.check_values(optim)
    low.raise_errors()
    train = tree.values["train"]
    whole = Phase(curve=schdr, by="epoch", at=schdr.at)
    return Plan(
        dialect="mcquic",
        name="mcquic",
        folder=str(train["saveDir"]),
        imports=tuple(train.get("externalLib") or ()),
        model=model,
        losses=(Spec(kind="loss", name=str(train["target"]), at=tree.place("train", "target")),),
        data={
            "train": _images(tree, "trainSet", int(train["batchSize"]), shuffle=True),
            "val": _images(tree, "valSet", 1, shuffle=False),
        },
        optimizers={"": Optimizer(spec=optim)},
        schedules=(Schedule(target="lr", phases=(whole,)),),
        update=Spec(kind="update", name="mcquic.Trainer"),
        loop=Spec(kind="loop", name="epochs"),
        hooks=(HookPlan(spec=Spec(kind="hook", name="validate"), every=Amount(train["valFreq"], "epoch")), *hooks),
        # McQuic's own seed: no key of a config changes it.
        train=Training(epochs=int(train["epoch"]), seed=3407),
        source=tree.values,
        files=tuple(tree.files),
    )


def survey(tree: Tree) -> tuple[Plan | None, list[Finding]]:
    """Return the plan and all mistakes, including missing files."""
    missing = list(_missing_files(tree))
    try:
        return lower(tree), missing
    except ConfigError as error:
        return None, [*error.findings, *missing]


def _missing_files(tree: Tree) -> Iterator[Finding]:
    for key in ("trainSet", "valSet"):
        value = tree.get("train", key)
        if isinstance(value, str) and not FilePath(value).exists():
            text = f"train.{key}: there is no {value}"
            yield Finding(str(tree.place("train", key)), text, near_path(value), severity="warning")
    folder = tree.get("train", "saveDir")
    if isinstance(folder, str) and FilePath(folder).is_file():
        yield Finding(str(tree.place("train", "saveDir")), f"train.saveDir: {folder} is a file, not a folder")


def near_path(path: str | FilePath) -> str:
    """Return a hint with a similar name beside a path that does not exist."""
    beside = FilePath(path).absolute().parent
    near = nearest(FilePath(path).name, [entry.name for entry in beside.iterdir()] if beside.is_dir() else [])
    return f"did you mean {near!r}?" if near else f"looked for {FilePath(path).absolute()}"


def registered(tree: Tree) -> dict[str, dict[str, str]]:
    """Return the entries of each registry, including the external libraries: registry → key → ``module:attr``."""
    return _Lowering(tree).registered


class _Lowering:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.findings: list[Finding] = []
        self.folders = tuple(dict.fromkeys([*(str(FilePath(f).absolute().parent) for f in tree.files), os.getcwd()]))
        #: Whether a library registers names that its source does not show.
        self.unreadable = False
        self.registered = {table: dict(entries) for table, entries in REGISTERED.items()} | {"model": {}}
        if ownership.original("mcquic") is not None:
            self.registered["model"]["Compressor"] = "mcquic.modules.compressor:Compressor"
        libraries = tree.get("train", "externalLib", default=[])
        for index, entry in enumerate(libraries if isinstance(libraries, list) else []):
            self._read_library(index, entry)

    def error(self, path: Path, message: str, hint: str = "") -> None:
        self.findings.append(Finding(str(self.tree.place(*path)), message, hint))

    def raise_errors(self) -> None:
        if self.findings:
            raise ConfigError(self.findings)

    def is_component(self, path: Path) -> bool:
        """Return whether ``path`` has a key, and params that are a mapping if there are any."""
        value = self.tree.get(*path)
        mapping = isinstance(value, Mapping)
        return mapping and isinstance(value.get("key"), str) and isinstance(value.get("params", {}), Mapping)

    def section(self, path: Path, name: str) -> None:
        """Check a section: missing and unknown keys, and values that the schema does not allow."""
        value = self.tree.get(*path) if path else self.tree.values
        if value is None:
            return
        if not isinstance(value, Mapping):
            self.error(path, f"{dotted(path)} must be a mapping, not {value!r}")
            return
        known = fields(name)
        unknown = [key for key in value if key not in known]
        # A misspelt key is not reported as missing, too.
        meant = {nearest(str(key), list(known)) for key in unknown}
        for key in unknown:
            self.error((*path, key), f"unknown key {dotted((*path, key))}", _hint(str(key), name))
        for key, schema in known.items():
            if key not in value and is_required(name, key) and key not in meant:
                self.error(path, f"{dotted((*path, key))} is missing", f"{key}: {schema['description']}")
            elif key in value:
                self._fits((*path, key), value[key], schema)

    def _fits(self, path: Path, value: Any, schema: Mapping[str, Any]) -> None:
        kinds = {"integer": int, "string": str, "boolean": bool, "object": Mapping, "array": list}
        kind = schema.get("type")
        if kind is None:
            if value is None:
                self.error(path, f"{dotted(path)} may not be empty", "leave it out, or give key and params")
            return
        wrong = not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool))
        if wrong:
            self.error(path, f"{dotted(path)} must be of type {kind}, not {value!r}")
        elif "enum" in schema and value not in schema["enum"] and value not in self.registered["LossRegistry"]:
            self.error(path, f"{dotted(path)}: {value!r} is not known", suggest(value, TARGETS))
        elif kind == "integer" and value < schema.get("minimum", value):
            self.error(path, f"{dotted(path)} must be at least {schema['minimum']}, not {value}")

    def hook_paths(self) -> list[Path]:
        hooks = self.tree.get("train", "hooks", default=[])
        return [("train", "hooks", index) for index in range(len(hooks if isinstance(hooks, list) else []))]

    def spec(self, path: Path, table: str, kind: str) -> Spec:
        """Return the component at ``path``, after comparing its params with the signature of its class."""
        key, params = str(self.tree.get(*path, "key")), self.tree.get(*path, "params", default={})
        places = {name: self.tree.place(*path, "params", name) for name in params}
        at = self.tree.place(*path, "key")
        spec = Spec(kind=kind, name=key, args=dict(params), at=at, places=places)
        target = self._target(path, key, self._known(table), "no model" if table == "model" else table)
        signature = scan.signature(target, folders=self.folders, known=cached) if target else None
        if signature is not None:
            self._bind(spec, path, signature)
        return spec

    def _known(self, table: str) -> dict[str, str]:
        """Return the names in a registry; models are also those of ``ModuleRegistry`` and of Étude."""
        if table != "model":
            return self.registered[table]
        return {**{name: MODELS.origin(name) for name in MODELS.names()}, **self.registered.get("MODELS", {}),
                **self.registered.get("ModuleRegistry", {}), **self.registered["model"]}  # fmt: skip

    def _target(self, path: Path, key: str, known: Mapping[str, str], table: str) -> str:
        """Return ``module:attr`` of a key; empty, with a finding, if it is unknown."""
        if key in known:
            return known[key]
        module, _, attribute = key.rpartition(".")
        if not module:
            if not self.unreadable:
                said = f"{table} has no entry {key!r}" if table != "no model" else f"no model is called {key!r}"
                hint = (
                    INSTALL
                    if key == "Compressor"
                    else suggest(key, known) + ("" if nearest(key, list(known)) else "; a dotted path works too")
                )
                self.error((*path, "key"), said, hint)
            return ""
        source = scan.find_source(module, self.folders)
        if source is None and not scan.has_module(module, self.folders):
            self.error((*path, "key"), f"{key!r}: there is no module {module!r}", near_module(module, self.folders))
        elif source is not None and not source.stars and not {attribute, "__getattr__"} & set(source.names):
            near = nearest(attribute, list(source.names))
            hint = f"did you mean {f'{module}.{near}'!r}?" if near else suggest(attribute, source.names)
            self.error((*path, "key"), f"the module {module} has no {attribute!r}", hint)
        return f"{module}:{attribute}"

    def _bind(self, spec: Spec, path: Path, signature: Any) -> None:
        takes = {p.key: p for p in signature.parameters if p.key not in GIVEN and p.word}
        for name, value in spec.args.items():
            if name in takes:
                self._conform((*path, "params", name), spec.name, value, takes[name])
            elif not signature.open:
                self.error((*path, "params", name), f"{spec.name} has no parameter {name!r}", suggest(name, takes))
        meant = {nearest(name, list(takes)) for name in spec.args if name not in takes}
        for parameter in signature.parameters:
            if parameter.required and parameter.key in takes and parameter.key not in {*spec.args, *meant}:
                self.error((*path, "key"), f"{spec.name} needs the parameter {parameter.key!r}")

    def _conform(self, path: Path, owner: str, value: Any, parameter: scan.Parameter) -> None:
        if value is None and parameter.default == "None":
            return
        try:
            conform(value, parameter.annotation)
        except Misfit as misfit:
            self.error(path, f"{owner}: {path[-1]} must be {misfit}", misfit.hint)

    def check_values(self, optim: Spec) -> None:
        """Check the learning rate. It is scaled before the optimizer gets it, so the optimizer cannot check it."""
        lr, path = optim.args.get("lr"), ("train", "optim", "params", "lr")
        if lr is None or any(finding.at == str(self.tree.place(*path)) for finding in self.findings):
            return
        if not isinstance(lr, int | float) or isinstance(lr, bool) or not math.isfinite(lr):
            self.error(path, f"lr must be a number, not {lr!r}")
        elif lr < 0:
            self.error(path, f"lr must not be less than zero, as {lr!r} is")

    def _read_library(self, index: int, entry: Any) -> None:
        """Add the names that a file registers, from its source. The file is not executed."""
        path: Path = ("train", "externalLib", index)
        if not isinstance(entry, str):
            self.error(path, f"train.externalLib: {entry!r} is not a path")
            return
        file = FilePath(entry).absolute()
        if not file.is_file():
            self.error(path, f"train.externalLib: there is no file {entry}", f"looked for {file}")
            return
        if file.suffix != ".py":
            self.error(path, f"train.externalLib: {entry} is not a Python file")
            return
        try:
            ast.parse(file.read_bytes(), str(file))
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            self.findings.append(Finding(f"{entry}:{line}", f"not valid Python: {getattr(error, 'msg', error)}"))
            return
        self.folders = (*self.folders, str(file.parent))
        self.unreadable = self.unreadable or scan.registers_unreadably(file.stem, str(file))
        for found in scan.registrations(file.stem, str(file), folders=self.folders):
            self.registered.setdefault(found.table, {})[found.name] = found.target


def _images(tree: Tree, key: str, batch_size: int, *, shuffle: bool) -> Loader:
    place = tree.place("train", key)
    dataset = Spec(kind="dataset", name="mcquic.Images", args={"path": tree.get("train", key)}, at=place)
    return Loader(dataset=dataset, batch_size=batch_size, shuffle=shuffle, at=place)


def _hint(key: str, section: str) -> str:
    known = list(fields(section))
    if section == "General" and not nearest(key, known):
        return "did you mean 'key'?" if key == "type" else f"arguments stand under `params`: params: {{{key}: …}}"
    return suggest(key, known)
