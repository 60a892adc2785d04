"""Compares every component of a config with the class that it names, as far as sources show it.

The runner makes its components from exactly the arguments that the config writes. A parameter that the class does not
take, or a missing one that it needs, is an error. Parts inside a part (a model's backbone) are made by user code,
which may add or remove arguments: there a misspelt name is an error, and the rest is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from etude.config.conform import Misfit, Want, conform, declared
from etude.config.tree import Path, dotted
from etude.dialects import imports, ownership
from etude.errors.own_code import is_own
from etude.errors.spelling import is_slip, nearest, suggest
from etude.inspection import signatures as scan
from etude_openmm.mmengine.projects import beside_mmcv2, registered_by, scope_of
from etude_openmm.shared.checks.lowering import Lowering, beside_arguments
from etude_openmm.shared.checks.project_sources import scoped
from etude_openmm.shared.checks.schemas import written
from etude_openmm.shared.checks.source_coverage import reads_all
from etude_openmm.shared.checks.typos import Words, report_methods
from etude_openmm.shared.project_names import missing_mmcv, missing_project, owner_of, remedy
from etude_openmm.shared.reading.imported import imported_by, missing_name

_HOOK = "etude_openmm.mmengine.live.hooks.hook:Hook"
#: Points of mmcv 1.x that MMEngine calls otherwise.
_FORMER = {
    "before_epoch": "before_train_epoch", "after_epoch": "after_train_epoch", "before_iter": "before_train_iter",
    "after_iter": "after_train_iter",
}  # fmt: skip
_SPLITS = ("train", "val", "test")
_DATASET = [f"{split}_dataloader.dataset" for split in _SPLITS]
_EVALUATORS = [f"{split}_evaluator" for split in _SPLITS[1:]]
#: The ways to what the runner makes itself → the registries that its name is looked up in; ``*`` is any index.
_ROLES: dict[str, tuple[str, ...]] = {
    "model": ("MODELS",), "data_preprocessor": ("MODELS",), "model.data_preprocessor": ("MODELS",),
    **{path + inner: ("DATASETS",) for path in _DATASET for inner in ("", ".dataset", ".datasets.*")},
    **dict.fromkeys(_EVALUATORS, ("METRICS", "EVALUATOR")),
    **{path + inner: ("METRICS",) for path in _EVALUATORS for inner in (".*", ".metrics", ".metrics.*")},
    "custom_hooks.*": ("HOOKS",), "default_hooks.*": ("HOOKS",), "optim_wrapper": ("OPTIM_WRAPPERS",),
    "optim_wrapper.optimizer": ("OPTIMIZERS",), "param_scheduler": ("PARAM_SCHEDULERS",),
    "param_scheduler.*": ("PARAM_SCHEDULERS",), "visualizer": ("VISUALIZERS",),
    "visualizer.vis_backends": ("VISBACKENDS",), "visualizer.vis_backends.*": ("VISBACKENDS",),
    "log_processor": ("LOG_PROCESSORS",),
    "train_cfg": ("LOOPS",), "val_cfg": ("LOOPS",), "test_cfg": ("LOOPS",),
    **{f"{split}_dataloader.sampler": ("DATA_SAMPLERS",) for split in _SPLITS},
    **{f"{split}_dataloader.collate_fn": ("FUNCTIONS",) for split in _SPLITS},
}  # fmt: skip
#: Compared with their classes where they are lowered to specs.
_BOUND = ("HOOKS", "OPTIM_WRAPPERS", "OPTIMIZERS", "PARAM_SCHEDULERS", "DATA_SAMPLERS")
#: Parts of a model that are usually built from the registry of models.
_PARTS = ("backbone", "neck", "head", "target_generator")
#: Registries that are asked by a ``type`` alone; the others have something usual.
_TYPED = ("MODELS", "DATASETS", "METRICS", "OPTIMIZERS", "DATA_SAMPLERS", "FUNCTIONS")
#: What is given beside the config, by registry.
_GIVEN: dict[str, tuple[str, ...]] = {
    "LOOPS": ("runner", "dataloader", "evaluator"), "VISUALIZERS": ("name", "save_dir"), "VISBACKENDS": ("save_dir",),
    "FUNCTIONS": ("data_batch", "batch"), "MODELS": ("data_preprocessor",),
}  # fmt: skip
#: Keys that stand beside the arguments of a class.
_BESIDE = ("type", "_scope_", "_delete_", "by_epoch")
_BROUGHT = ("MODELS", "DATASETS", "METRICS", "FUNCTIONS")
_CONSTRUCTORS = {"LearningRateDecayOptimWrapperConstructor", "LayerDecayOptimWrapperConstructor"}


class Components:
    """Adds wrong names and arguments to the findings of ``low``. ``words`` are the dialect's own."""

    def __init__(self, low: Lowering, words: Words, tables: Mapping[str, Mapping[str, str]]) -> None:
        self.low, self.words, self.tables = low, words, tables
        self.project = scope_of(low.tree.values, low.tree.files)
        self.projects = set(registered_by(self.project).values())
        self.folders = (*low.folders, *beside_mmcv2())
        self.lacking = missing_project(self.project)

    def tell(self) -> None:
        if ownership.original("mmengine") is None:
            first = next(iter(self.low.tree.values), "train_cfg")
            hint = "pip install mmengine-lite (or mmengine)"
            self.low.error(self.low.place(str(first)), "MMEngine, which the config is for, is not installed", hint)
            return
        if lack := missing_mmcv(self.project):
            self.low.error(self.low.place("default_scope"), f"{self.project} needs mmcv", lack)
        for path, value in self.low.tree.walk():
            if isinstance(value, Mapping) and path[0] in self.words.top:
                self._component(path, value)
        constructor = ("optim_wrapper", "constructor")
        self._name(constructor, self.low.tree.get(*constructor), ("OPTIM_WRAPPER_CONSTRUCTORS",), also=_CONSTRUCTORS)
        for path, value in self.low.tree.walk():
            if path[0] in ("custom_hooks", "default_hooks") and value == "EMAHook" and path[-1] == "type":
                self._averaged(path[:-1], self.low.tree.get(*path[:-1]))

    def _averaged(self, path: Path, value: Mapping[Any, Any]) -> None:
        """Check what ``EMAHook`` takes as ``**kwargs``: it hands them on to the averaged model."""
        name = value.get("ema_type", "ExponentialMovingAverage")
        self._name((*path, "ema_type"), name, ("MODELS",))
        averaged, hook = (
            self._signature(self.target(name, ("MODELS",))),
            self._signature(self.target("EMAHook", ("HOOKS",))),
        )
        if averaged is None or averaged.open or hook is None:
            return
        takes = {p.key for signature in (averaged, hook) for p in signature.parameters} - {"model"}
        for key in value:
            if key not in (*takes, *_BESIDE, "priority") and not self.low.has_error((*path, key)):
                text = f"unknown key {dotted((*path, key))}: neither EMAHook nor {name} takes it"
                self.low.error(self.low.place(*path, key), text, suggest(str(key), takes))

    def _signature(self, target: str) -> scan.Signature | None:
        return scan.signature(target, folders=self.folders, known=self.words.known) if target else None

    def target(self, name: Any, tables: Iterable[str] = ()) -> str:
        """Return ``module:attr`` of what a config calls ``name``; empty if that is not known."""
        if not isinstance(name, str) or not name:
            return ""
        scope, _, last = name.rpartition(".")
        if (found := scoped(scope).get(last)) is not None:
            return found
        bare = _bare(name)
        of_another = self.projects if scope not in ("", "mmengine", self.project) else ()  # `mmdet.RandomCrop`
        for table in tables:
            found = self.low.registered.get((table, bare)) or self.tables.get(table, {}).get(bare)
            if found and found not in of_another:
                return found
        if not tables:
            own = [to for (_, entry), to in self.low.registered.items() if entry == bare and to not in of_another]
            found = own[0] if own else self.words.names.get(bare)
            if found:
                return found
        module, _, attribute = name.rpartition(".")
        served = imports.served_names(module) if module else None
        return served.get(attribute, "") if served is not None else f"{module}:{attribute}" if module else ""

    # -- names ---------------------------------------------------------------------------------------------------

    def _component(self, path: Path, value: Mapping[Any, Any]) -> None:
        tables = _role(path)
        name = value.get("type", self.words.defaults.get(tuple(map(str, path))))
        bound = tables is not None and (tables[0] in _BOUND or path == ("train_cfg",))
        if not bound and tables is not None and "type" in value:
            self._name((*path, "type"), name, tables)
        if tables is not None and name is None:
            self._nameless(path, value, tables[0])
        if isinstance(name, str):
            self._inner_part(path, name)
        self._call(path, value, name, tables, bound=bound)

    def _inner_part(self, path: Path, name: str) -> None:
        """Report the name of a part of a model or of a pipeline, whose registry the config does not tell."""
        if path[0] == "model" and path[-1] in _PARTS:
            self._part((*path, "type"), name)
            self._unheard_of((*path, "type"), name)
        if ("pipeline" in path and isinstance(path[-1], int)) or "augments" in path:
            self._unheard_of((*path, "type"), name)

    def _call(
        self, path: Path, value: Mapping[Any, Any], name: Any, tables: tuple[str, ...] | None, *, bound: bool
    ) -> None:
        """Compare the arguments with what the class takes; those of a ``bound`` one are compared elsewhere."""
        target = self.target(name, tables or ())
        signature = self._signature(target)
        if signature is None:
            return
        if target not in self.projects:  # what they declare is not what they take everywhere
            self._values(path, value, signature, own=not (is_own(target) or target.startswith(("torch.", "mmengine."))))
        is_mixin = tables is None and not signature.parameters and not signature.bases
        if not bound and not signature.open and not is_mixin:
            given = _GIVEN.get(tables[0], ()) if tables else ()
            self._unknown(path, value, [p.key for p in signature.parameters if p.word], str(name), given)
            self._required(path, value, signature, str(name), given)

    def _nameless(self, path: Path, value: Mapping[Any, Any], table: str) -> None:
        """Report a dict without a `type` where a registry needs one. A misspelt `type` is reported elsewhere."""
        by_constructor = table == "OPTIMIZERS" and "constructor" in (self.low.tree.get("optim_wrapper") or {})
        if table not in _TYPED or path[-1] == "data_preprocessor" or by_constructor or "metrics" in value:
            return
        evaluators = ("", *self.tables["EVALUATOR"])
        if path[-1] == "metrics" and _last(self.low.tree.get(*path[:-1], "type")) not in evaluators:
            return  # an evaluator of the project may take its metrics in another form
        outer = self.low.tree.get(*(path[:-2] if isinstance(path[-1], int) else path[:-1]))
        if table == "DATASETS" and _last(outer.get("type")) not in ("", *self.tables["DATASETS"]):
            return  # what a user-defined wrapper makes of it is not known
        if not nearest("type", [str(key) for key in value]) and not self.low.has_error(path):
            text = f"{dotted(path)} has no `type`"
            lost = self._lost(path)
            self.low.error(self.low.place(*path), text, f"it replaces a dict with type={lost!r}" if lost else "")

    def _part(self, path: Path, name: str) -> None:
        """Warn about a part of a model whose name nothing registers."""
        known = name.rpartition(".")[2] in (*self._names_of("MODELS"), *self.words.names) or self.target(name)
        if not known and self._knows_all("MODELS") and not nearest(name, self._names_of("MODELS")):
            text = f"{dotted(path)}: nothing that this config imports is called {name!r}"
            self.low.warning(self.low.place(*path), text, self._where_it_would_be(("MODELS",)))

    def _lost(self, path: Path) -> str:
        """Return the type that an earlier file gave, where a later dict took its place instead of being merged."""
        before = [value for _, value in self.low.tree.history.get(path, ()) if isinstance(value, Mapping)]
        names = [value["type"] for value in before if isinstance(value.get("type"), str)]
        return str(names[-1]) if names else ""

    def _name(self, path: Path, name: Any, tables: tuple[str, ...], also: Iterable[str] = ()) -> None:
        """Report a name that nothing registers, if all names are known, and a dotted one that leads nowhere."""
        if not isinstance(name, str) or self.low.has_error(path):
            return
        module, _, attribute = name.rpartition(".")
        known = [entry for table in tables for entry in self._names_of(table)]
        if _bare(name) in (*known, *also):
            return
        if module and _bare(name) == name:
            wrong = None if self._is_scope(module) else missing_name(module, attribute, self.low.folders)
            if wrong and not self._is_imported(module, attribute):
                self.low.error(self.low.place(*path), *wrong)
            return
        near = nearest(name, known)
        if owner_of(name) or self._knows_all(tables[0]) or (near and is_slip(name.casefold(), near.casefold())):
            word = tables[0].lower().replace("_", " ").rstrip("s")
            hint = remedy(name, known) if near or owner_of(name) else self._where_it_would_be(tables)
            self.low.error(self.low.place(*path), f"no {word} is called {name!r}", hint)
        else:
            self._unheard_of(path, name)

    def _unheard_of(self, path: Path, name: str) -> None:
        """Warn about a name that neither the installed project nor a module of the user registers, as sources show.

        Where the project is not installed, the name is a mistake.
        """
        known = {*self.words.names, *(entry for _, entry in self.low.registered)}
        if self.low.has_unread_modules or not name.isidentifier() or name in known:
            return
        near = nearest(name, list(known))
        if self.lacking and not (near and is_slip(name.casefold(), near.casefold())):  # `Words` reports a slip
            self.low.error(self.low.place(*path), f"nothing is called {name!r}", self.lacking)
            self.lacking = ""  # one name is enough: all of the project are unknown
        if not self.projects:
            return
        text = f"{dotted(path)}: neither {self.project} nor what this config imports registers {name!r}"
        self.low.warning(self.low.place(*path), text, suggest(name, known) if near else "")

    def _is_scope(self, module: str) -> bool:
        """Return whether ``module`` is a package with registries: ``mmdet.ResNet`` is a name in one of them."""
        return "." not in module and scan.has_module(f"{module}.registry", self.low.folders)

    def _knows_all(self, table: str) -> bool:
        """Return whether all names of a registry are known: without imports, a script may bring models and data."""
        return (bool(self.low.modules) or table not in _BROUGHT) and self._knows_all_names

    def _names_of(self, table: str) -> list[str]:
        return [*self.tables.get(table, {}), *(entry for where, entry in self.low.registered if where == table)]

    def _where_it_would_be(self, tables: tuple[str, ...]) -> str:
        if not self.low.modules:
            return "list the module that defines it under `custom_imports`"
        homes = {source.module for source in self.low.sources()}
        listed = self.low.registered.items()
        own = sorted(entry for (table, entry), to in listed if table in tables and to.partition(":")[0] in homes)
        if own:
            return f"{', '.join(self.low.modules)} registers {', '.join(own)}"
        return f"known: {', '.join(sorted(entry for table in tables for entry in self._names_of(table)))}"

    def _is_imported(self, module: str, attribute: str) -> bool:
        """Return whether the config imports the name: then the mistake is reported at that line."""
        found = imported_by(self.low.tree.files)
        return any(entry.module == module and entry.name in (attribute, "") for entry in found)

    @cached_property
    def _knows_all_names(self) -> bool:
        """Return whether sources show everything that is registered when this config runs."""
        scope = self.low.tree.get("default_scope") or "mmengine"
        return imports.is_served("mmengine") and imports.is_served(str(scope)) and reads_all(self.low)

    # -- arguments -----------------------------------------------------------------------------------------------

    def _unknown(
        self, path: Path, value: Mapping[Any, Any], takes: list[str], name: str, given: tuple[str, ...]
    ) -> None:
        """Report arguments that the class does not take."""
        takes = [*takes, *beside_arguments(path)]
        inner = _role(path) is None
        for key in value:
            if key in (*takes, *_BESIDE, *given) or not isinstance(key, str) or self.low.has_error((*path, key)):
                continue
            if inner and self._is_for_owner(path, key):
                continue
            near = nearest(key, [word for word in takes if word not in value]) or nearest(key, [*takes, "_delete_"])
            tell = self.low.error if not inner or (near and is_slip(key, near)) else self.low.warning
            hint = f"did you mean {near!r}?" if near else suggest(key, takes) if takes else "it takes none"
            tell(self.low.place(*path, key), f"{_bare(name)} has no parameter {key!r}", hint)

    def _is_for_owner(self, path: Path, key: str) -> bool:
        """Return whether a class that holds this part reads ``key`` itself, by its name, before it builds the part."""
        owners = (self.low.tree.get(*path[:end]) for end in range(len(path) - 1, 0, -1))
        names = [owner.get("type") for owner in owners if isinstance(owner, Mapping)]
        targets = [target for target in map(self.target, names) if target]
        return any(key in scan.words_in(target, folders=self.low.folders) for target in targets)

    def _required(
        self, path: Path, value: Mapping[Any, Any], signature: scan.Signature, name: str, given: tuple[str, ...]
    ) -> None:
        """Report arguments that the class needs and the config does not give.

        Of parts in a part, only those are reported that nobody is known to complete: settings like ``norm_cfg`` get
        the rest where they are used.
        """
        made_here = _role(path) is not None or _is_step(path)
        if not made_here and (self._is_completed(path) or str(path[-1]).endswith("_cfg")):
            return
        unknown = [str(key) for key in value if key not in [p.key for p in signature.parameters]]
        tell = self.low.error if made_here else self.low.warning
        for parameter in signature.parameters:
            missing = parameter.required and parameter.key not in (*value, *given)
            if missing and nearest(parameter.key, unknown) is None:
                tell(self.low.place(*path), f"{_bare(name)} needs the parameter {parameter.key!r}")

    def _is_completed(self, path: Path) -> bool:
        """Return whether the owner of a part is unknown, so that it may add arguments."""
        owner = self.low.tree.get(*path[:-1])
        return not (isinstance(owner, Mapping) and self.target(owner.get("type"), _role(path[:-1]) or ()))

    def _values(self, path: Path, given: Mapping[Any, Any], signature: scan.Signature, *, own: bool) -> None:
        """Report a text or a container where the class wants a number or a switch."""
        for parameter in signature.parameters:
            value, annotation = given.get(parameter.key), written(parameter.annotation)
            where = (*path, parameter.key)
            wants_scalar = isinstance(value, str | list | dict) and _is_scalar(declared(annotation))
            if not wants_scalar or self.low.has_error(where):
                continue
            try:
                conform(value, annotation)
            except Misfit as misfit:
                tell, at = self.low.warning if own else self.low.error, self.low.place(*where)
                tell(at, f"{dotted(where)} must be {misfit}", _as_yaml(value, at.file) or misfit.hint)


def _is_step(path: Path) -> bool:
    """Return whether this is a step of a pipeline, which is made of exactly what the config writes."""
    owner = next((key for key in reversed(path) if isinstance(key, str)), "")
    return isinstance(path[-1], int) and (owner == "pipeline" or ("pipeline" in path and owner == "transforms"))


def _as_yaml(value: Any, file: str) -> str:
    """Return a hint for a number like ``1e-3``, which YAML reads as text unless it has a point and a sign."""
    if not file.endswith((".yaml", ".yml")) or not isinstance(value, str) or "e" not in value.lower():
        return ""
    try:
        return f"YAML reads this as text: write {float(value)!r}"
    except ValueError:
        return ""


def _is_scalar(want: Want) -> bool:
    return all(part[0] in ("int", "float", "bool", "none") for part in (want[1:] if want[0] == "union" else (want,)))


def _role(path: Path) -> tuple[str, ...] | None:
    exact = ".".join(str(part) for part in path)
    general = ".".join("*" if isinstance(part, int) else str(part) for part in path)
    if path[:1] == ("default_hooks",) and len(path) == 2:
        general = "default_hooks.*"
    if path[:1] == ("param_scheduler",):
        general = "param_scheduler"
    if path[:1] == ("optim_wrapper",) and len(path) == 3 and path[2] == "optimizer":
        general = "optim_wrapper.optimizer"
    return _ROLES.get(exact) or _ROLES.get(general)


def _bare(name: str) -> str:
    """Return ``EMAHook`` for ``mmengine.EMAHook`` and ``mmengine.hooks.EMAHook``; other dotted names as they are."""
    return name.rpartition(".")[2] if imports.is_served(name.partition(".")[0]) else name


def _last(name: Any) -> str:
    return name.rpartition(".")[2] if isinstance(name, str) else ""


def report_hook_methods(components: Components) -> None:
    """Report methods of user-defined hooks that are almost called like a point: nothing would ever call them."""
    for path, name in components.low.tree.walk():
        if path[0] in ("custom_hooks", "default_hooks") and path[-1] == "type":
            report_methods(components.low, components.target(name, ("HOOKS",)), _HOOK, _FORMER)
