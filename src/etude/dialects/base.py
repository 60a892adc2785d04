"""The Dialect contract: everything that Étude asks a config language, and the only way in which it asks.

.. code-block:: text

    reading      recognise  read  lower  check  settle
    running      build  shorten_plan  shorten_run  check_run  explain
    looking      prepare  rehearse  measure
    files        folders_made  bytes_beside  keep_apart
    catalogues   flags  listing  schema  reference  convert

A dialect that lowers its config to a native plan implements ``recognise``, ``read`` and ``lower`` and inherits the rest
from :class:`Dialect`. One whose own runner drives the run derives from :class:`Hosted`. Either is found through the
entry point group ``etude.dialects``. The module of a dialect's class stays light, because it is imported to recognise
files: what reads and what runs is imported by the methods that need it.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from etude.errors import ConfigError, EtudeError, Finding, UserError
from etude.inspection.length import check_length
from etude.records import field, record, replace

if TYPE_CHECKING:
    from pathlib import Path

    from etude.build import Options
    from etude.config.tree import Tree
    from etude.core.run import Run
    from etude.dialects.rehearsal import Record
    from etude.plan import Plan
    from etude.preview.explain import Facts

    #: What Étude does with a native plan; given to dialects, which need not know where it is.
    Assemble = Callable[[Plan, Options], Run]
    Measure = Callable[[Plan, Options, str, str], Mapping[str, Any]]


@record
class Flag:
    """A flag of ``etude train`` that runs of a dialect know. Dialects may share one."""

    name: str
    help: str = ""
    #: Further arguments of ``add_argument``.
    options: Mapping[str, Any] = field(default_factory=dict)
    aliases: Sequence[str] = ()
    #: What does the same in the dialects that do not know it, for the message that refuses it there.
    instead: str = ""
    #: Whether it is passed over where it has no effect, as launchers need it.
    ignorable: bool = False

    @property
    def dest(self) -> str:
        """The attribute of the parsed arguments."""
        return self.name.lstrip("-").replace("-", "_")


class Dialect(Protocol):
    """One config language. The methods that have a body here do what a native plan needs."""

    #: As in ``--dialect`` and :attr:`etude.plan.Plan.dialect`.
    name: str
    #: As its users call the system.
    title: str
    #: Whether a runner of its own drives the run, and keeps the log and the checkpoints as its users know them.
    drives_itself: bool = False
    flags: Sequence[Flag] = ()
    #: Flags of every ``etude train`` that change nothing here.
    idle_flags: Sequence[str] = ()
    #: The key of the seed, where one is drawn at every start of a config that has none.
    seed_key: Sequence[str] = ()

    # -- reading ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def recognise(self, path: str, text: str) -> bool:
        """Return whether the file is of this dialect, from its keys and imports alone."""

    @abstractmethod
    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any]) -> Tree:
        """Return what the config says, with overrides applied."""

    @abstractmethod
    def lower(self, tree: Tree) -> Plan:
        """Return what will run; raise one :class:`~etude.errors.ConfigError` with everything that is wrong."""

    def check(self, tree: Tree) -> list[Finding]:
        """Return everything that is wrong with a config."""
        try:
            return self.settle(self.lower(tree))[1]
        except ConfigError as error:
            return list(error.findings)

    def settle(self, plan: Plan, tree: Tree | None = None) -> tuple[Plan, list[Finding]]:
        """Return the plan with arguments as their components declare them, and what is wrong with it."""
        from etude.inspection.check import settle

        return settle(plan)

    # -- running ---------------------------------------------------------------------------------------------------

    def build(self, plan: Plan, options: Options, assemble: Assemble) -> Run:
        """Return the run of a plan. ``assemble`` makes that of a native one."""
        return assemble(plan, options)

    def shorten_plan(self, plan: Plan) -> Plan:
        """Return the plan of ``--fast-dev-run``, where the plan decides how long a run is."""
        return plan

    def shorten_run(self, run: Run, steps: int = 2) -> None:
        """Let a run that was built end after one epoch of ``steps`` batches, everything else being as planned."""
        run.total_steps = run.steps_per_epoch = run.hooks.steps_per_epoch = min(steps, run.steps_per_epoch or steps)
        run.max_epochs = 1
        for split, loader in run.data.items():
            if split != "train":
                loader.limit = steps  # type: ignore[attr-defined]
        run.hooks.compile()

    def check_run(self, run: Run, facts: Callable[[Run], Facts], folder: Callable[[], str | Path]) -> list[Finding]:
        """Return what only data, model and disk show to be wrong with a plan, right before the first step."""
        from etude.inspection.check.reality import check_facts

        if run.plan is None:
            return []
        names = [name for name, _ in run.model.named_parameters()]
        return check_facts(run.plan, facts(run), parameters=names, folder=str(folder()))

    def explain(self, error: BaseException, plan: Plan | None) -> EtudeError | None:
        """Return the error to report instead of an exception that the config caused; None where it did not."""
        return getattr(error, "etude_reported", None)

    def require_loadable(self, run: str) -> None:
        """Raise where ``etude.load`` cannot make the model of a run of this dialect."""

    # -- looking ---------------------------------------------------------------------------------------------------

    def prepare(self, run: Run) -> None:
        """Build what a run builds only when it begins, so that its lengths and groups are known."""

    def rehearse(self, run: Run, record: Record) -> bool:
        """Go through a run that :attr:`drives_itself` with nothing computed; False where that cannot be done."""
        return False

    def measure(self, plan: Plan, options: Options, checkpoint: str, split: str, measure: Measure) -> Mapping[str, Any]:
        """Return the results of ``etude test``. ``measure`` gets those of a native plan."""
        return measure(plan, options, checkpoint, split)

    # -- files -----------------------------------------------------------------------------------------------------

    def folders_made(self, plan: Plan, options: Options) -> list[Path]:
        """Return the folders that :meth:`build` may make."""
        return []

    def bytes_beside(self, run: Run) -> int:
        """Return what a checkpoint takes beside parameters: random numbers, counters, the config."""
        return 32_000

    def keep_apart(self, tree: Tree) -> list[str]:
        """Return overrides that let two runs of one config in two folders share no file."""
        return []

    # -- catalogues ------------------------------------------------------------------------------------------------

    def listing(self, tree: Tree | None = None) -> dict[str, dict[str, str]]:
        """Return what a config can name: table → name → a line about it; with what the modules of ``tree`` add."""
        return {}

    @abstractmethod
    def schema(self, tree: Tree | None = None) -> dict[str, Any]:
        """Return the keys of a config as JSON Schema, with what the modules of ``tree`` add."""

    @abstractmethod
    def reference(self, tree: Tree | None = None) -> str:
        """Return the same to read, in Markdown."""

    def convert(self, tree: Tree) -> tuple[dict[str, Any], list[str]]:
        """Return a native config that trains the same, and notes about it."""
        raise UserError(f"configs of {self.name} cannot be converted yet; `etude train` runs them as they are")


class Lowering(Protocol):
    """The module that reads a dialect's configs and makes plans of them."""

    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any] | None = None) -> Tree: ...
    def lower(self, tree: Tree) -> Plan: ...
    def survey(self, tree: Tree) -> tuple[Plan | None, list[Finding]]: ...


class Hosted(Dialect, Protocol):
    """A dialect whose own runner drives the core's functions."""

    drives_itself: bool = True

    @abstractmethod
    def lowering(self) -> Lowering:
        """Return the module that reads configs."""

    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any]) -> Tree:
        from etude.dialects.ownership import enter_checkout

        if not options.get("no_python_config"):  # which forbids code of the current folder
            enter_checkout()
        return self.lowering().read(path, overrides, options=options)

    def lower(self, tree: Tree) -> Plan:
        return replace(self.lowering().lower(tree), places=tree.places)

    def check(self, tree: Tree) -> list[Finding]:
        plan, findings = self.lowering().survey(tree)
        wrong = any(finding.severity == "error" for finding in findings)
        return [*findings, *(self.settle(plan)[1] if plan is not None and not wrong else ())]

    def settle(self, plan: Plan, tree: Tree | None = None) -> tuple[Plan, list[Finding]]:
        """Return the plan as it is and, with a tree on the first rank, the warnings that lowering does not give."""
        found: list[Finding] = []
        if tree is not None and os.environ.get("RANK", "0") == "0":
            found = [one for one in self.lowering().survey(tree)[1] if one.severity == "warning"]
        return plan, [*found, *(check_length(plan) if self.trains(plan) else ())]

    def trains(self, plan: Plan) -> bool:
        """Return whether a plan is one of a training, which needs a length."""
        return "train" in plan.data or not plan.data

    def shorten_plan(self, plan: Plan) -> Plan:
        return replace(plan, train=replace(plan.train, limit_batches=2, epochs=1, steps=None))

    def shorten_run(self, run: Run, steps: int = 2) -> None:
        """Nothing: the plan was shortened."""

    def check_run(self, run: Run, facts: Callable[[Run], Facts], folder: Callable[[], str | Path]) -> list[Finding]:
        return []

    def require_loadable(self, run: str) -> None:
        raise UserError(f"{run} is a run of a {self.name} config; `etude ckpt convert` reads its weights")

    def explain(self, error: BaseException, plan: Plan | None) -> EtudeError | None:
        from etude.dialects.config_errors import as_mistake

        return as_mistake(error, plan)

    def measure(self, plan: Plan, options: Options, checkpoint: str, split: str, measure: Measure) -> Mapping[str, Any]:
        raise UserError(f"`etude test` does not measure {self.name} configs")

    def folders_made(self, plan: Plan, options: Options) -> list[Path]:
        if options.folder is not None:
            return [options.folder]
        from pathlib import Path

        return [Path(plan.folder), *(Path("work_dirs", Path(file).stem) for file in plan.files[:1])]


def driven(run: Run) -> Run:
    """Return ``run``, whose loop trains from the first point to the last."""
    run.drive = run.loop
    return run
