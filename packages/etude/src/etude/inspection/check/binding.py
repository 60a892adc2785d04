"""Compares each component of a plan with the signature of the class or function that it names."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etude.config.conform import Misfit, conform
from etude.errors import Finding
from etude.errors.own_code import is_own
from etude.errors.spelling import nearest, suggest, with_article
from etude.fast_dataclass import replace
from etude.inspection import signatures as scan
from etude.inspection.check.packages import check_package
from etude.inspection.index import Index, table_of
from etude.inspection.points import meant_points
from etude.inspection.signatures import Parameter, Signature
from etude.plan import Optimizer, Plan, Spec
from etude.registry import TABLES, Registry, is_factory

#: How many leading parameters the engine gives by position, by kind.
_BY_POSITION = {"optimizer": 1, "sampler": 1, "update": 2}
#: What the engine gives by name, by kind.
_BY_NAME = {
    "writer": ("folder",),
    "update": ("accumulate", "clip", "precision", "nonfinite", "nonfinite_limit", "device"),
}
#: What a plain function takes as a hook, a loop or a curve: the engine calls it, the config says only this.
_OF_FUNCTIONS = {"hook": ("point",), "loop": ()}
#: Keys of a group rule, and values of groups that every optimizer has under one name.
_GROUP_WORDS = ("match", "module", "kind", "depth_decay", "lr_mult", "decay_mult", "name")
#: Names that code gives to torch's modules; no packages to install.
_TORCH = ("F", "nn", "optim")
#: The method of a model that measures a batch itself.
VALIDATION = "validation_step"
_TARGETS = ("lr", "momentum", "weight_decay")
#: Files next to a config that are searched for an unknown name, and their largest size.
_MOST_FILES = 200
_LARGEST = 500_000


class Binder:
    """Binds specs one by one, and collects mistakes in ``findings``."""

    def __init__(self, index: Index, *, complete: bool = True) -> None:
        self.index, self.complete = index, complete
        self.findings: list[Finding] = []
        #: Kinds of components of which a name is unknown: what such a component does is not known either.
        self.unknown: set[str] = set()
        #: The package of the component whose arguments are looked at: they may name classes of it.
        self._package = ""

    def bind(self, spec: Spec) -> Spec:
        """Return ``spec`` with its arguments, nested ones included, converted as declared."""
        above, self._package = self._package, spec.name.partition(".")[0] if "." in spec.name else ""
        inner = replace(spec, args={key: self._inside(value) for key, value in spec.args.items()})
        self._package = above
        if not spec.name:
            return inner
        of_package = list(check_package(spec))
        for finding in of_package:
            self._tell(finding.at, finding.message, finding.hint)
        if of_package:
            return inner
        table = table_of(spec.kind)
        if table is None:
            table = next((table for table in TABLES.values() if self.index.origin(table, spec.name)), None)
        origin = self._origin(spec, table)
        signature = self.index.signature(origin) if origin else None
        self.unknown |= set() if origin else {spec.kind}
        if spec.kind == "metric" and origin:
            self._check_metric(spec, origin)
        if spec.kind == "model" and signature is not None and self._defines([origin, *signature.bases], VALIDATION):
            self.unknown.add("metric")  # nobody can foretell what it gives
        if spec.kind == "hook" and origin and signature is not None and not is_own(origin.partition(":")[0]):
            self._check_points(spec, [origin, *signature.bases])
        return inner if signature is None else self._matched(inner, signature)

    def _check_metric(self, spec: Spec, origin: str) -> None:
        """Check that a class without parents has the methods of a metric."""
        found = scan.class_of(origin, folders=self.index.folders)
        if found is None or found[1].bases:
            return
        own = {node.name for node in found[1].body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        missing = [name for name in ("update", "compute", "reset") if name not in own]
        if missing and not found[1].decorator_list[1:]:
            hint = "a metric has update(output, target), compute() and reset()"
            self._tell(spec.at, f"metric {spec.name} has no method {missing[0]!r}", hint)

    def _check_points(self, spec: Spec, classes: Sequence[str]) -> None:
        """Check that methods of a native hook which look like a point are one; others are never called."""
        if not {"etude:Hook", "etude.core.hook:Hook"} & set(classes):
            return  # hooks of other systems have points of their own
        for name, near in meant_points(self._methods(classes)).items():
            text = f"hook {spec.name} has a method {name}, which is not a point"
            self._tell(spec.at, text, f"did you mean {near!r}?")

    def _defines(self, classes: Sequence[str], method: str) -> bool:
        """Return whether one of the classes, by their origins, is the user's and has such a method."""
        own = [name for name in classes if name.partition(".")[0].partition(":")[0] not in ("torch", "etude")]
        return method in self._methods(own)

    def _methods(self, classes: Sequence[str]) -> list[str]:
        found = [scan.class_of(name, folders=self.index.folders) for name in classes]
        nodes = [node for each in found if each is not None for node in each[1].body]
        return [node.name for node in nodes if isinstance(node, ast.FunctionDef)]

    def check_groups(self, plan: Plan) -> None:
        """Check that group rules and schedules name options of the optimizer."""
        words = {name: self._group_options(optimizer) for name, optimizer in plan.optimizers.items()}
        for name, optimizer in plan.optimizers.items():
            self._check_rules(optimizer, words[name])
        for schedule in plan.schedules:
            known = words.get(schedule.optimizer or next(iter(words), ""))
            known = [*known, "beta1", "beta2"] if known is not None and "betas" in known else known
            if known is None or schedule.target.startswith("model.") or schedule.target in (*known, *_TARGETS):
                continue
            at = schedule.phases[0].at if schedule.phases else ""
            several = [f"{name}.{word}" for name in words if name for word in (*known, *_TARGETS)]
            hint = suggest(schedule.target, [*known, *_TARGETS, *several])
            self._tell(at, f"the schedule drives {schedule.target!r}, which no parameter group has", hint)

    def steps_itself(self, plan: Plan) -> bool:
        """Return whether the update is user-defined and does not take the engine's ``step``."""
        if plan.update.name in ("Step", ""):
            return False
        signature = self._signature_of("update", plan.update.name)
        return signature is not None and all(parameter.name != "step" for parameter in signature.parameters)

    def _check_rules(self, optimizer: Optimizer, known: list[str] | None) -> None:
        for group in optimizer.groups if known is not None else ():
            for option in group.options:
                if known is not None and option not in (*known, "name"):
                    hint = suggest(option, [*_GROUP_WORDS, *known])
                    self._tell(group.at, f"{optimizer.spec.name} has no group option {option!r}", hint)

    # -- names ---------------------------------------------------------------------------------------------------

    def _origin(self, spec: Spec, table: Registry | None) -> str:
        """Return ``module:attr`` of what the spec names; empty, with a finding, if nothing has that name."""
        if self._package and spec.name.startswith(f"{self._package}."):
            return ""  # classes of such packages make their signatures while they run; building checks the arguments
        if table is None:
            origin = self.index.dotted(spec.name) if "." in spec.name else ""
            if origin.partition(":")[0] in self.index.imported:
                return origin
            every = [name for each in TABLES.values() for name in self.index.names(each)]
            self._tell(spec.at, f"nothing is called {spec.name!r}", suggest(spec.name, every))
            return ""
        origin = self.index.origin(table, spec.name)
        if origin:
            return origin
        root = spec.name.partition(".")[0]
        if "." in spec.name and not scan.has_module(root, self.index.folders):
            near = nearest(root, sorted({name.partition(".")[0] for name in self.index.imported}))
            meant = f"did you mean {near + spec.name[len(root) :]!r}?" if near else f"pip install {root}"
            if root in _TORCH:
                meant = suggest(spec.name.rpartition(".")[2], self.index.names(table))
            self._tell(spec.at, f"{spec.name!r}: the package {root!r} is not installed", meant)
            return ""
        if is_factory(table.kind, spec.name):
            return self.index.dotted(spec.name)
        if "." in spec.name and (found := self._dotted(spec, table)) is not None:
            return found
        if self.complete or nearest(spec.name, self.index.names(table)) is not None:
            # Otherwise the name may well be in the import that could not be read, which is reported already.
            self._tell(spec.at, f"no {table.kind} is called {spec.name!r}", self._name_hint(spec.name, table))
        return ""

    def _name_hint(self, name: str, table: Registry) -> str:
        other = next((each for each in TABLES.values() if self.index.origin(each, name)), None)
        if other is not None:
            return f"it is the name of {with_article(other.kind)}"
        adding = _import_that_adds(name, self.index.folders, exact=True)
        if adding is None and nearest(name, self.index.names(table)) is None:
            adding = _import_that_adds(name, self.index.folders, exact=False)
        if adding is not None:
            return adding
        return suggest(name, self.index.names(table))

    def _dotted(self, spec: Spec, table: Registry) -> str | None:
        """Return the path to a class or function; None if no module of that name exists."""
        origin = self.index.dotted(spec.name)
        module, _, attribute = origin.partition(":")
        source = scan.find_source(module, self.index.folders)
        if module.partition(".")[0] in sys.stdlib_module_names and module not in self.index.imported:
            hint = "list its module under `imports` if this is meant"
            self._tell(spec.at, f"{spec.name!r} of Python's own library is not {with_article(table.kind)}", hint)
            return ""
        signature = self.index.signature(origin)
        if signature is not None:
            self._require_kind(spec, table, origin, signature)
            return origin
        if source is None:
            return "" if scan.has_module(module, self.index.folders) else None
        if not source.stars and attribute not in source.names and "__getattr__" not in source.names:
            names = [name for name in source.names if not name.startswith("_")]
            near = nearest(attribute, names)
            meant = f"did you mean {f'{module}.{near}'!r}?" if near else suggest(attribute, names)
            self._tell(spec.at, f"the module {module} has no {attribute!r}", meant)
        return ""

    def _require_kind(self, spec: Spec, table: Registry, origin: str, signature: Signature) -> None:
        """Require that a dotted path leads to a class of the right kind, or to a function of a module under
        ``imports``."""
        if origin.partition(":")[0] in self.index.imported:
            return
        if not signature.is_class:
            hint = "list its module under `imports` if this function is meant"
            self._tell(spec.at, f"{spec.name!r} is a function, not {with_article(table.kind)}", hint)
            return
        wanted = table.base.partition(":")[2]
        known = all(self.index.signature(base) is not None for base in signature.bases)
        if wanted and known and wanted not in [base.partition(":")[2] for base in (origin, *signature.bases)]:
            self._tell(spec.at, f"{spec.name!r} is not {with_article(table.kind)}", f"a {table.base} is due here")

    # -- arguments -----------------------------------------------------------------------------------------------

    def _matched(self, spec: Spec, signature: Signature) -> Spec:
        takes, given = parameters_of(spec.kind, signature, spec.name)
        meant = self._unknown_arguments(spec, takes, given, is_open=signature.open)
        for name, parameter in takes.items():
            if parameter.required and name not in spec.args and name not in meant:
                annotation = f" ({parameter.annotation})" if parameter.annotation else ""
                self._tell(spec.at, f"{spec.name} needs the parameter {name!r}{annotation}", "")
        return replace(spec, args={key: self._fitted(spec, key, value, takes) for key, value in spec.args.items()})

    def _unknown_arguments(
        self, spec: Spec, takes: Mapping[str, Parameter], given: set[str], *, is_open: bool
    ) -> set[str]:
        """Report every argument that the component does not take; return the names that were probably meant."""
        meant: set[str] = set()
        for name in spec.args:
            if name in takes or (is_open and name not in given):
                continue
            if name in given:
                self._tell(spec.place(name), f"{name!r} of {spec.name} is given by the engine", "")
                continue
            right = [*takes, *spec.extra_keys]
            free = [known for known in right if known not in spec.args] or right
            near = nearest(str(name), free) or nearest(str(name), right)
            meant |= {near} if near else set()
            listed = suggest(str(name), takes) if takes else "it takes none"
            hint = f"did you mean {near!r}?" if near else listed
            self._tell(spec.place(name), f"{spec.name} has no parameter {name!r}", hint + _left_over(spec, name))
        return meant

    def _fitted(self, spec: Spec, name: str, value: Any, takes: Mapping[str, Parameter]) -> Any:
        parameter = takes.get(name)
        if parameter is None or (value is None and parameter.default == "None"):
            return value
        made = self._signature_of(value.kind, value.name) if isinstance(value, Spec) else None
        if made is not None and not made.is_class:  # what a function returns is not known
            return value
        try:
            return conform(value, parameter.annotation)
        except Misfit as misfit:
            self._tell(spec.place(name), f"{spec.name}: {name} must be {misfit}", misfit.hint)
            return value

    def _inside(self, value: Any) -> Any:
        if isinstance(value, Spec):
            return self.bind(value)
        if isinstance(value, Mapping):
            return {key: self._inside(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._inside(item) for item in value)
        return value

    def _group_options(self, optimizer: Optimizer) -> list[str] | None:
        """Return what a parameter group of this optimizer holds; None where that cannot be known."""
        signature = self._signature_of("optimizer", optimizer.spec.name)
        if signature is None or signature.open:
            return None
        return [parameter.name for parameter in signature.parameters[1:]]

    def _signature_of(self, kind: str, name: str) -> Signature | None:
        table = table_of(kind)
        origin = self.index.origin(table, name) if table is not None else ""
        return self.index.signature(origin or self.index.dotted(name))

    def _tell(self, at: object, message: str, hint: str) -> None:
        finding = Finding(str(at), message, hint)
        if finding not in self.findings:
            self.findings.append(finding)


def parameters_of(kind: str, signature: Signature, name: str = "") -> tuple[dict[str, Parameter], set[str]]:
    """Return what a config may pass to the component ``name`` of this kind, by key; and the names that the engine
    passes itself: to its own update, not to others."""
    if not signature.is_class and kind in _OF_FUNCTIONS:
        return {word: Parameter(word, "str", "''") for word in _OF_FUNCTIONS[kind]}, set()
    by_position = _BY_POSITION.get(kind, 0) if signature.is_class else _called_with(kind, signature)
    given = {p.name for p in signature.parameters[:by_position]}
    by_name = _BY_NAME.get(kind, ()) if kind != "update" or name == "Step" else ("step",)
    given |= {p.name for p in signature.parameters if p.name in by_name}
    return {p.key: p for p in signature.parameters if p.name not in given and p.word}, given


def _called_with(kind: str, signature: Signature) -> int:
    """Return how many parameters of a plain function the engine gives: it calls curves, collate functions and
    losses.
    """
    if kind == "loss":
        return 2 if [p.required for p in signature.parameters[:2]] == [True, True] else 0
    return 1 if kind in ("schedule", "collate function") else _BY_POSITION.get(kind, 0)


def _left_over(spec: Spec, name: str) -> str:
    """Return a hint when the argument is in another place than the type: it was probably left over from a base, or
    from the type that an override has replaced."""
    at, of = spec.place(name), spec.at
    if not of.file or at.file == of.file or not at.line:
        return ""
    if not of.line:  # on the command line
        return f" (it belonged to the type before the override; '~{of.key.removesuffix('.type')}.{name}' leaves it out)"
    return f" (it comes from {at.file}; `_replace_: true` drops what a base says)"


def _import_that_adds(name: str, folders: Sequence[str], *, exact: bool) -> str | None:
    """Return a hint that names the file to import; ``exact=False`` also finds similar names."""
    words = {word.upper() for word in TABLES}
    found: dict[str, str] = {}
    for path, entry in _files(folders):
        if not _mentions_registering(path):
            continue
        source_name = os.path.splitext(os.path.basename(path))[0]
        for registered in scan.registrations(source_name, path):
            if registered.table in words and registered.file == path:
                found.setdefault(registered.name, entry)
    meant = name if name in found else None if exact else nearest(name, list(found))
    if meant is None:
        return None
    asked = "" if meant == name else f"did you mean {meant!r}? "
    return f"{asked}{found[meant]} registers it: write imports: [{found[meant]}]"


def _files(folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield Python files in the folders and one level below, with their name for ``imports``."""
    count = 0
    for folder in folders:
        for top, names, files in os.walk(folder):
            depth = os.path.relpath(top, folder).count(os.sep) + (top != folder)
            names[:] = [] if depth >= 1 else sorted(n for n in names if not n.startswith((".", "_")) and n != "runs")
            for file in sorted(files):
                if file.endswith(".py") and count < _MOST_FILES:
                    count += 1
                    path = os.path.join(top, file)
                    yield path, os.path.relpath(path, folder)


def _mentions_registering(path: str) -> bool:
    try:
        if os.path.getsize(path) > _LARGEST:
            return False
        with open(path, "rb") as file:
            return b".register" in file.read()
    except OSError:
        return False
