"""The base classes of dialects: the methods through which Étude uses a config language.

.. code-block:: text

    reading      recognise  read  lower  check  bind_arguments
    running      build  shorten_plan  silenced  shorten_run  check_run  explain
    inference    build_model  weights_of  predict  program
    looking      prepare  rehearse  measure
    files        folders_made  bytes_beside  keep_apart
    catalogues   flags  listing  schema  reference  convert

A dialect that lowers its config to a native plan derives from :class:`Dialect` and implements ``recognise``, ``read``,
``lower``, ``schema`` and ``reference``. One whose own runner drives the run derives from :class:`Hosted`, or from
:class:`Packaged` if it names its modules and functions as the dialects here do. Either is found through the entry point
group ``etude.dialects``. The module of a dialect's class must be fast to import, because it is needed to recognise
files: methods import what they need for reading and running.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from etude.errors import ConfigError, EtudeError, Finding, UserError
from etude.fast_dataclass import field, record, replace
from etude.inspection.length import check_length

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from torch.nn import Module

    from etude.building.options import Options
    from etude.config.tree import Tree
    from etude.core.run import Run
    from etude.dialects.draft import Draft
    from etude.dialects.rehearsal import Record
    from etude.plan import Plan
    from etude.preview.explain import Facts

    #: Names of samples, their results as the system writes them, and rows of results for JSON.
    Answers = tuple[Sequence[str | int], Sequence[Any], Sequence[Mapping[str, Any]]]
    #: Positional arguments and keywords of a module.
    Inputs = tuple[tuple[Any, ...], dict[str, Any]]
    #: Étude's functions for native plans, passed to dialects so that they need not import them.
    Assemble = Callable[[Plan, Options], Run]
    Measure = Callable[[Plan, Options, str, str], Mapping[str, Any]]


@record
class Flag:
    """A flag of ``etude train`` for runs of a dialect. Dialects may share one."""

    name: str
    help: str = ""
    #: Further arguments of ``add_argument``.
    options: Mapping[str, Any] = field(default_factory=dict)
    aliases: Sequence[str] = ()
    #: What to use instead in dialects without this flag, for the error message.
    instead: str = ""
    #: Whether it is ignored where it has no effect, because launchers add it.
    ignorable: bool = False

    @property
    def dest(self) -> str:
        """Return the attribute of the parsed arguments."""
        return self.name.lstrip("-").replace("-", "_")


class Dialect(ABC):
    """One config language. Methods with a body here do what a native plan needs."""

    #: The name in ``--dialect`` and :attr:`etude.plan.Plan.dialect`.
    name: str
    #: The name that users know the system by.
    title: str
    #: Dialects are asked to recognise a file in ascending order of this number; Étude's own language is 100.
    asked: int = 50
    #: Whether the system's own runner drives the run, and writes its log and checkpoints.
    drives_itself: bool = False
    flags: Sequence[Flag] = ()
    #: Flags of ``etude train`` that have no effect in this dialect.
    idle_flags: Sequence[str] = ()
    #: A folder for ``PYTHONPATH`` with the system's launchers, which shell scripts start by ``python -m``.
    launchers: str = ""
    #: The key of the seed, if the system draws a random one for configs without it.
    seed_key: Sequence[str] = ()
    #: The keys of the result that a config keeps its best checkpoint by, and of which direction is better.
    best_keys: tuple[Sequence[str], Sequence[str]] = ((), ())

    # -- reading ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def recognise(self, path: str, text: str) -> bool:
        """Return whether the file is of this dialect, by its keys and imports."""

    @abstractmethod
    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any]) -> Tree:
        """Read the config, with overrides applied."""

    @abstractmethod
    def lower(self, tree: Tree) -> Plan:
        """Return the plan of a config. Raises one :class:`~etude.errors.ConfigError` with all mistakes."""

    def lower_unchecked(self, tree: Tree) -> Plan:
        """Return the plan of a config for ``--no-check``, where a plan can be made in spite of the mistakes."""
        return self.lower(tree)

    def check(self, tree: Tree) -> list[Finding]:
        """Return all findings about a config."""
        try:
            return self.bind_arguments(self.lower(tree))[1]
        except ConfigError as error:
            return list(error.findings)

    def bind_arguments(self, plan: Plan, tree: Tree | None = None) -> tuple[Plan, list[Finding]]:
        """Return the plan with arguments converted to the types of their components, and findings about it."""
        from etude.inspection.check import bind_arguments

        return bind_arguments(plan)

    def with_flags(self, tree: Tree, flags: Mapping[str, Any]) -> tuple[Tree, dict[str, Any]]:
        """Return the config with the flags of the command line that it has a key for, and the other flags. Those are
        recorded in the run's folder, too."""
        return tree, dict(flags)

    # -- running ---------------------------------------------------------------------------------------------------

    def build(self, plan: Plan, options: Options, assemble: Assemble) -> Run:
        """Build the run of a plan. ``assemble`` builds that of a native one."""
        return assemble(plan, options)

    def shorten_plan(self, plan: Plan) -> Plan:
        """Return the plan for ``--fast-dev-run``, if the plan decides the length of a run."""
        return plan

    def silenced(self, plan: Plan) -> Plan:
        """Return a plan that trains the same, and writes nothing but into its own folder: no trackers, no alerts, no
        files elsewhere. `etude replay` runs it."""
        hooks = tuple(hook for hook in plan.hooks if hook.spec.name not in ("Checkpoint", "Alerts", "Profiler"))
        return replace(plan, hooks=hooks, writers=())

    def shorten_run(self, run: Run, steps: int = 2) -> None:
        """Let a built run end after one epoch of ``steps`` batches."""
        run.total_steps = run.steps_per_epoch = run.hooks.steps_per_epoch = min(steps, run.steps_per_epoch or steps)
        run.max_epochs = 1
        for split, loader in run.data.items():
            if split != "train":
                loader.limit = steps  # type: ignore[attr-defined]
        run.hooks.compile()

    def check_run(self, run: Run, facts: Callable[[Run], Facts], folder: Callable[[], str | Path]) -> list[Finding]:
        """Return findings that need the data, the model and the disk, right before the first step."""
        from etude.inspection.check.reality import check_facts

        if run.plan is None:
            return []
        names = [name for name, _ in run.model.named_parameters()]
        return check_facts(run.plan, facts(run), parameters=names, folder=str(folder()))

    def explain(self, error: BaseException, plan: Plan | None) -> EtudeError | None:
        """Return the error to report for an exception that the config caused; None if it did not."""
        return getattr(error, "etude_reported", None)

    # -- inference: what a dialect that :attr:`drives_itself` does for a run that has ended ------------------------

    def build_model(self, plan: Plan) -> Module:
        """Return the model of a plan, without its weights."""
        raise UserError(f"the models of {self.name} configs cannot be built alone; `etude ckpt convert` reads weights")

    def weights_of(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the entries of a checkpoint's weights that belong to the model."""
        return state

    def predict(self, plan: Plan, options: Options, checkpoint: str, split: str, data: Path | None) -> Answers:
        """Return names, results and rows for JSON of all samples of a split, or of the pictures at ``data``."""
        raise UserError(f"`etude predict` does not know {self.name} configs")

    def program(self, plan: Plan, model: Module, shape: Sequence[int] | None) -> tuple[Module, Inputs]:
        """Return a module whose inputs and outputs are tensors, with an example of its inputs, to be traced."""
        raise UserError(f"`etude export` writes no program of {self.name} configs; a .safetensors file takes weights")

    # -- plans and results -----------------------------------------------------------------------------------------

    def prepare(self, run: Run) -> None:  # noqa: B027 - most dialects build everything at once
        """Build the parts that a run builds only when it begins, so that its length and groups are known."""

    def rehearse(self, run: Run, record: Record) -> bool:
        """Rehearse a run that :attr:`drives_itself` without computing anything. Return False if that is impossible."""
        return False

    def measure(self, plan: Plan, options: Options, checkpoint: str, split: str, measure: Measure) -> Mapping[str, Any]:
        """Return the results of ``etude test``. ``measure`` computes those of a native plan."""
        return measure(plan, options, checkpoint, split)

    def best_result(self, plan: Plan) -> tuple[str, str]:
        """Return the result by which a config keeps its best checkpoint, and ``min`` or ``max``, or empty strings."""
        given = [hook.spec.args for hook in plan.hooks if hook.spec.name == "Checkpoint" and hook.spec.args.get("best")]
        return (str(given[0]["best"]), str(given[0].get("mode") or "")) if given else ("loss", "")

    def zoo(self, name: str) -> tuple[str, str] | None:
        """Return the address (empty if unknown) and the file name of weights that a config names as in
        ``torchvision://resnet50``; None for a text that is no such name."""
        return None

    # -- files -----------------------------------------------------------------------------------------------------

    def folders_made(self, plan: Plan, options: Options) -> list[Path]:
        """Return the folders that :meth:`build` may make."""
        return []

    def bytes_beside(self, run: Run) -> int:
        """Return the size of a checkpoint without parameters: random generators, counters, the config."""
        return 32_000

    def keep_apart(self, tree: Tree) -> list[str]:
        """Return overrides with which two runs of one config in two folders share no file."""
        return []

    # -- catalogues ------------------------------------------------------------------------------------------------

    def listing(self, tree: Tree | None = None) -> dict[str, dict[str, str]]:
        """Return the names that a config can use, as table → name → description, including the modules of ``tree``."""
        return {}

    @abstractmethod
    def schema(self, tree: Tree | None = None) -> dict[str, Any]:
        """Return the JSON Schema of a config, including the modules of ``tree``."""

    @abstractmethod
    def reference(self, tree: Tree | None = None) -> str:
        """Return the schema as Markdown."""

    def convert(self, tree: Tree) -> Draft:
        """Return a native config with everything that has a direct form. ``tree`` has no mistakes."""
        raise UserError(f"configs of {self.name} cannot be converted yet; `etude train` runs them as they are")


class Lowering(Protocol):
    """The module that reads the configs of a dialect and makes plans."""

    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any] | None = None) -> Tree: ...
    def lower(self, tree: Tree) -> Plan: ...
    def survey(self, tree: Tree) -> tuple[Plan | None, list[Finding]]: ...


class Hosted(Dialect):
    """A dialect of a system whose own runner drives the run."""

    drives_itself: bool = True

    @abstractmethod
    def lowering(self) -> Lowering:
        """Return the module that reads configs."""

    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any]) -> Tree:
        from etude.dialects.ownership import enter_checkout

        enter_checkout()
        return self.lowering().read(path, overrides, options=options)

    def lower(self, tree: Tree) -> Plan:
        ledger = tree.get("ledger") is not False  # no system has such a key of its own
        return replace(self.lowering().lower(tree), places=tree.places, ledger=ledger)

    def lower_unchecked(self, tree: Tree) -> Plan:
        plan = self.lowering().survey(tree)[0]
        return replace(plan, places=tree.places) if plan is not None else self.lower(tree)

    def check(self, tree: Tree) -> list[Finding]:
        plan, findings = self.lowering().survey(tree)
        wrong = any(finding.severity == "error" for finding in findings)
        return [*findings, *(self.bind_arguments(plan)[1] if plan is not None and not wrong else ())]

    def bind_arguments(self, plan: Plan, tree: Tree | None = None) -> tuple[Plan, list[Finding]]:
        """Return the plan unchanged and, with a tree on rank 0, warnings in addition to those of lowering."""
        found: list[Finding] = []
        if tree is not None and os.environ.get("RANK", "0") == "0":
            found = [one for one in self.lowering().survey(tree)[1] if one.severity == "warning"]
        return plan, [*found, *(check_length(plan) if self.trains(plan) else ())]

    def trains(self, plan: Plan) -> bool:
        """Return whether a plan trains, so that it needs a length."""
        return "train" in plan.data or not plan.data

    def shorten_plan(self, plan: Plan) -> Plan:
        return replace(plan, train=replace(plan.train, limit_batches=2, epochs=1, steps=None))

    def silenced(self, plan: Plan) -> Plan:
        return replace(plan, source=self.silent(plan.source))

    def silent(self, source: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the config of a run that trains the same, and writes nothing but into its own folder. What it keeps
        apart from that (hooks, evaluations) must draw the same random numbers as before."""
        return source

    def shorten_run(self, run: Run, steps: int = 2) -> None:
        """Do nothing: the plan was shortened."""

    def check_run(self, run: Run, facts: Callable[[Run], Facts], folder: Callable[[], str | Path]) -> list[Finding]:
        return []

    def explain(self, error: BaseException, plan: Plan | None) -> EtudeError | None:
        from etude.dialects.config_errors import as_mistake

        return as_mistake(error, plan)

    def measure(self, plan: Plan, options: Options, checkpoint: str, split: str, measure: Measure) -> Mapping[str, Any]:
        raise UserError(f"`etude test` does not measure {self.name} configs")

    def best_result(self, plan: Plan) -> tuple[str, str]:
        name, mode = (_at(plan.source, keys) for keys in self.best_keys)
        known = name if isinstance(name, str) and name != "auto" else ""
        return known, {"less": "min", "min": "min", "greater": "max", "max": "max"}.get(str(mode), "")

    def folders_made(self, plan: Plan, options: Options) -> list[Path]:
        if options.folder is not None:
            return [options.folder]
        from pathlib import Path

        return [Path(plan.folder), *(Path("work_dirs", Path(file).stem) for file in plan.files[:1])]


def _at(source: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        source = source.get(key) if isinstance(source, Mapping) else None
    return source if keys else None


def accepted(found: tuple[Plan, list[Finding]]) -> Plan:
    """Return the plan of a survey; raise one :class:`~etude.errors.ConfigError` with everything that is wrong."""
    plan, findings = found
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise ConfigError(errors)
    return plan


class Packaged(Hosted):
    """A hosted dialect whose package has modules of the names below; each is imported when it is needed."""

    def module(self, name: str) -> Any:
        """Return a module of the package in which the dialect's class is defined."""
        return importlib.import_module(f"{type(self).__module__.rpartition('.')[0]}.{name}")

    def lowering(self) -> Lowering:
        found: Lowering = self.module("lower")
        return found

    def build(self, plan: Plan, options: Options, assemble: Assemble) -> Run:
        run: Run = self.module("live.build").build(plan, options)
        return run

    def rehearse(self, run: Run, record: Record) -> bool:
        self.module("live.rehearse").rehearse(run, record)
        return True

    def measure(self, plan: Plan, options: Options, checkpoint: str, split: str, measure: Measure) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.module("live.build").measure(plan, options, checkpoint, split)
        return found

    def build_model(self, plan: Plan) -> Module:
        model: Module = self.module("live.inference").build_model(plan)
        return model

    def predict(self, plan: Plan, options: Options, checkpoint: str, split: str, data: Path | None) -> Answers:
        found: Answers = self.module("live.inference").predict(plan, options, checkpoint, split, data)
        return found

    def program(self, plan: Plan, model: Module, shape: Sequence[int] | None) -> tuple[Module, Inputs]:
        made: tuple[Module, Inputs] = self.module("live.inference").program(plan, model, shape)
        return made

    def listing(self, tree: Tree | None = None) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = self.module("listing").tables(tree)
        return found

    def schema(self, tree: Tree | None = None) -> dict[str, Any]:
        found: dict[str, Any] = self.module("schema").json_schema(tree)
        return found

    def reference(self, tree: Tree | None = None) -> str:
        return str(self.module("schema").markdown_schema(tree))

    def convert(self, tree: Tree) -> Draft:
        drafted: Draft = self.module("convert").convert(tree)
        return drafted
