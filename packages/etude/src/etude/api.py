"""Trains, evaluates and loads from a config: what the command line calls, and what a script may call instead."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude import dialects, registry
from etude.config import no_code, run_files
from etude.config.tree import Tree
from etude.config.tuples import with_tuples
from etude.dialects.config_lines import point_out
from etude.dist.world import World
from etude.errors import ConfigError, Finding, UserError, place_of, printable
from etude.fast_dataclass import replace
from etude.inspection.paths import missing_data
from etude.inspection.user_code import refuse_code
from etude.plan import Parallel, Plan
from etude.session import folder

if TYPE_CHECKING:
    from etude.building.options import Options
    from etude.core.run import Run
    from etude.session.session import Session
from etude.debug_options import DebugOptions, flags_of, leaves_nothing, with_debug_options


def load_plan(
    config: str | Path, overrides: Sequence[str] = (), *, dialect: str = "", options: dict[str, Any] | None = None
) -> tuple[Plan, Tree]:
    """Return the plan of a config file, and the tree it was lowered from. Imports and builds nothing.

    >>> from pathlib import Path
    >>> import etude
    >>> path = Path("tiny.json")
    >>> _ = path.write_text('''{
    ...   "model": {"type": "MLP", "sizes": [64, 10]}, "loss": "CrossEntropyLoss",
    ...   "data": {"train": {"dataset": {"type": "Digits", "split": "train"}, "batch_size": 64}},
    ...   "optim": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 2}
    ... }''')
    >>> plan, tree = etude.load_plan(path, ["optim.lr=0.05"])
    >>> plan.optimizers[""].spec.args["lr"], plan.train.epochs
    (0.05, 2)
    """
    if isinstance(overrides, str | Mapping):
        raise UserError('overrides is a list: ["train.epochs=3", "optim.lr=0.1"]')
    if not isinstance(config, str | Path):
        raise UserError(f"config is the path of a file or of a run, not a {type(config).__name__}")
    registry.load_builtins()
    if Path(config).name == "plan.yaml" and _is_of_script(Path(config)):
        raise made_in_python(Path(config).parent)
    if Path(config).is_dir() and (Path(config) / "plan.yaml").is_file():
        return _plan_of_run(Path(config), overrides, dialect, options)
    with no_code.data("the plan of a run" if Path(config).name == "plan.yaml" else ""):
        found, tree = dialects.read(str(config), overrides, dialect=dialect, options=options)
    if Path(config).name == "plan.yaml":
        with_tuples(tree.values, run_files.environment(Path(config).parent).get("tuples"))
    try:
        # A dialect may have its native config lowered by the native dialect; the run still belongs to that dialect.
        lowered = found.lower_unchecked(tree) if (options or {}).get("no_check") else found.lower(tree)
        plan = replace(lowered, dialect=found.name)
    except ConfigError as error:
        # Lowering stops at what it cannot read; `check` goes on, so that one look shows all mistakes.
        wrong = sorted((one for one in found.check(tree) if one.severity == "error"), key=place_of)
        raise ConfigError(wrong or error.findings) from None
    if no_code.is_forbidden():
        refuse_code(plan, tree)
    return plan, tree


def _plan_of_run(
    run: Path, overrides: Sequence[str], dialect: str, options: dict[str, Any] | None
) -> tuple[Plan, Tree]:
    """Return the plan that a run was started with. Imports and data are looked for where its config was."""
    config = folder.config_of(run)
    beside = str(config.parent.absolute())
    if beside not in sys.path:
        sys.path.append(beside)
    plan, tree = load_plan(run / "plan.yaml", overrides, dialect=dialect, options=options)
    return replace(plan, files=(str(config), *plan.files)), tree


def _is_of_script(plan: Path) -> bool:
    """Return whether a :class:`~etude.Trainer` has left the plan."""
    try:
        text = plan.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.startswith(folder.HEADER) or text.strip() in ("", "{}")  # as earlier releases left it


def made_in_python(run: Path) -> UserError:
    """Return the error for a run of :class:`~etude.Trainer`, where a config is needed."""
    hint = "etude.load(folder, model=…) puts the weights into a model that you make"
    return UserError(f"{printable(str(run))} was not trained from a config; {hint}")


def train(
    config: str | Path | Plan,
    overrides: Sequence[str] = (),
    *,
    dialect: str = "",
    options: Options | None = None,
    trial: DebugOptions | None = None,
) -> Run:
    """Train what ``config`` says and return the finished run.

    Ctrl-C and SIGTERM end the script too, after the step and a save: they raise ``KeyboardInterrupt`` and
    ``SystemExit(143)``. A run that its time limit has ended is returned, with ``run.exit_code`` 75.

    >>> from pathlib import Path
    >>> import etude
    >>> path = Path("digits.yaml")
    >>> _ = path.write_text('''
    ... model: {type: MLP, sizes: [64, 32, 10]}
    ... loss: CrossEntropyLoss
    ... data:
    ...   train: {dataset: {type: Digits, split: train}, batch_size: 64}
    ...   val: {dataset: {type: Digits, split: val}, batch_size: 256}
    ... optim: {type: AdamW, lr: 1e-2}
    ... train: {epochs: 5}
    ... metrics: [Accuracy]
    ... ''')
    >>> run = etude.train(path, ["train.epochs=2"], options=etude.Options(folder=Path("run"), quiet=True))
    >>> run.step, run.metrics["accuracy"] > 0.8
    (46, True)
    """
    from etude.session.opening import end_script

    run = train_config(config, overrides, dialect=dialect, options=options, trial=trial)
    end_script(run)
    return run


def train_config(
    config: str | Path | Plan,
    overrides: Sequence[str] = (),
    *,
    dialect: str = "",
    options: Options | None = None,
    trial: DebugOptions | None = None,
) -> Run:
    """Train and return the run, also one that a signal has stopped: ``run.exit_code`` is that of the command."""
    from etude.core.loop import train as train_run

    run, session = build_session(config, options, overrides, dialect=dialect, trial=trial)
    with session:
        train_run(run)
    return run


def build_session(
    config: str | Path | Plan,
    options: Options | None = None,
    overrides: Sequence[str] = (),
    *,
    dialect: str = "",
    trial: DebugOptions | None = None,
) -> tuple[Run, Session]:
    """Read, check and build a run; return it and the session to train it in."""
    from etude.building.options import Options, options_for_attempt
    from etude.session.first_step.unsaved import warn_of_unsaved_state
    from etude.session.last_words import quoted
    from etude.session.opening import open_session

    options = options or Options()
    tree: Tree | None = None
    plan = config if isinstance(config, Plan) else None
    if plan is None:
        plan, tree = load_plan(config, overrides, dialect=dialect, options=dict(options.extras))  # type: ignore[arg-type]
    flags = flags_of(options, trial)
    if trial is not None:
        if tree is not None:
            tree, flags = dialects.of(plan).with_flags(tree, flags)
        plan = with_debug_options(plan, trial)
    options = options_for_attempt(options)
    quiet = (trial is not None and trial.fast_dev_run) or not World.from_environment().is_main
    spoken = dialects.of(plan)
    plan = require_sound(plan, tree, quiet=quiet, here=True, sure=not options.extras.get("no_check"))
    # Noted before building, because building may make folders: those alone are removed if the run never begins.
    began, fresh = time.monotonic(), _absent(spoken.folders_made(plan, options))
    run = _built(plan, options, fresh)
    if trial is not None and trial.fast_dev_run:
        spoken.shorten_run(run)
    require_real(run, options, quiet=quiet)
    if any(hook.spec.name == "Checkpoint" for hook in plan.hooks):
        warn_of_unsaved_state(run)
    lasting = not leaves_nothing(trial, options)
    given = ("plan" if isinstance(config, Plan) else quoted(str(config)), *overrides)
    around: dict[str, Any] = {"tree": tree, "lasting": lasting, "began": began, "fresh": fresh, "given": given}
    return run, open_session(run, options, flags=flags, **around)


def _built(plan: Plan, options: Options, fresh: Collection[Path]) -> Run:
    """Build a run; when that fails, explain why and remove the ``fresh`` folders that it has made."""
    from etude.build import build

    try:
        with explained(plan):
            return build(plan, options)
    except BaseException:  # Ctrl-C too, while a dataset is read
        for made in [path for path in fresh if path.is_dir()]:
            shutil.rmtree(made, ignore_errors=True)
        raise


@contextmanager
def explained(plan: Plan) -> Iterator[None]:
    """Raise what the plan's dialect makes of an exception, where the config is to blame for it."""
    try:
        yield
    except BaseException as error:
        mistake = dialects.of(plan).explain(error, plan)
        point_out(mistake or error, plan)
        if mistake is None:
            raise
        raise mistake from error


def measure(
    config: str | Path,
    checkpoint: str | Path,
    overrides: Sequence[str] = (),
    *,
    split: str = "",
    best: bool | str = False,
    dialect: str = "",
    options: Options | None = None,
) -> dict[str, float]:
    """Evaluate the weights of ``checkpoint`` on the config's test data, or its validation data where there is no
    other: the results of one evaluation. Nothing is trained."""
    from etude.building.options import Options
    from etude.dist.world import World
    from etude.session.measure import measure

    options = options or Options()
    plan, _ = load_plan(config, overrides, dialect=dialect, options=dict(options.extras))
    plan = require_sound(plan, sure=not options.extras.get("no_check"))
    if not World.from_environment().is_many:  # a run of several processes is measured whole in one
        plan = replace(plan, parallel=Parallel(at=plan.parallel.at))
    return measure(plan, options, str(checkpoint), split, best=best)


def _absent(folders: Sequence[Path]) -> set[Path]:
    """Return the folders, and their parents, that do not exist yet."""
    every = {above for path in folders for above in (path.absolute(), *path.absolute().parents)}
    return {path for path in every if not path.exists()}


def require_sound(
    plan: Plan, tree: Tree | None = None, *, quiet: bool = True, here: bool = False, sure: bool = True
) -> Plan:
    """Return the plan with its arguments converted as their components declare them. Raise everything that ``etude
    check`` reports as an error, and print the warnings unless ``quiet``.

    ``here``: the run is built next, by this process. Then a dataset without its file is an error, which needs no
    warning before it. Unless ``sure``, mistakes are only printed.
    """
    bound, findings = dialects.of(plan).bind_arguments(plan, tree)
    if not sure:
        findings = [*findings, *(dialects.of(plan).check(tree) if tree is not None else ())]
        findings = [replace(one, severity="warning") for one in dict.fromkeys(findings)]
    gone = list(missing_data(bound)) if here else []
    _raise_or_say([finding for finding in findings if finding not in gone], quiet)
    return bound


def require_real(run: Run, options: Options, *, quiet: bool = True) -> None:
    """Check what only data, model and disk can show about a plan, right before the first step."""
    from etude.session.lengths import facts_of

    plan = run.plan
    if plan is not None:
        # A fresh run has no folder yet: its disk is that of the folder of all runs.
        goal = plan.folder if options.resume is None and options.folder is None else None
        found = dialects.of(plan).check_run(run, facts_of, lambda: goal or folder.choose_folder(plan, options))
        _raise_or_say(found, quiet)


def _raise_or_say(findings: Sequence[Finding], quiet: bool) -> None:
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise ConfigError(errors)
    for finding in findings if not quiet else ():
        print(f"etude: {printable(str(finding))}", file=sys.stderr)
