"""Builds an mmcv 1.x runner from a plan, as the train scripts of MMClassification and MMTracking do.

The training function of MMClassification, or of MMTracking for its configs, makes the runner from the config itself
(``plan.source``). Options of the command line are put into the config first, as the scripts do.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from etude.config.files import display
from etude.core.run import Run
from etude.data.torch_loader import passes
from etude.data.torch_loader.epoch_seeds import end_workers
from etude.data.torch_loader.passes import workers_of
from etude.dialects.config_errors import place_of
from etude.errors import ConfigError, DataError, EtudeError, NoCheckpoint, ResumeError, UserCodeError
from etude.errors.advice import release_hint
from etude.fast_dataclass import replace
from etude.hooks.signals import Signals, Stops
from etude.plan import Plan
from etude_openmm.mmcv1.live import checks, script
from etude_openmm.mmcv1.live.hooks.evaluation import EvalHook
from etude_openmm.mmcv1.live.originals import Original
from etude_openmm.mmcv1.live.runner import runners
from etude_openmm.mmcv1.live.runner.wiring import Wired, begin
from etude_openmm.mmcv1.live.utils import environment
from etude_openmm.mmcv1.live.utils.dist import get_dist_info, init_dist
from etude_openmm.mmcv1.projects import Project, project_of
from etude_openmm.shared.config.config_v1 import Config
from etude_openmm.shared.importing import import_modules_from_strings
from etude_openmm.shared.logging import FORMAT, quiet_console
from etude_openmm.shared.reading.source import is_missing, near_checkpoint

if TYPE_CHECKING:
    from etude.building.options import Options


#: Launcher → the environment variable that it sets, and its command.
_LAUNCHED = {
    "pytorch": ("RANK", "torchrun"), "slurm": ("SLURM_PROCID", "srun"), "mpi": ("OMPI_COMM_WORLD_RANK", "mpirun"),
}  # fmt: skip


#: Ending of a hook's class → the section of a config that it is made of.
_SECTIONS = {"LrUpdaterHook": "lr_config", "MomentumUpdaterHook": "momentum_config", "EvalHook": "evaluation"}


def build(plan: Plan, options: Options) -> Run:
    """Build the runner with its hooks, model, data and optimizer. Nothing is written or trained yet."""
    cfg = _config(plan, options)
    _require_files(cfg, plan)
    found = _found(cfg, plan)
    if found is not None and not found.is_known:
        return _by_script(found, plan, cfg, options)
    project = _project(found, cfg, plan)
    distributed = _join_group(cfg, options.extras)
    project.setup_multi_processes(cfg)
    torch.backends.cudnn.benchmark = bool(cfg.get("cudnn_benchmark", torch.backends.cudnn.benchmark))
    timestamp = environment.get_time_str()
    logger = project.root_logger(log_level=cfg.get("log_level", "INFO"))
    log = LogFile(logger, quiet=options.quiet)
    try:
        meta = project.open(logger, cfg, distributed, deterministic=bool(options.extras.get("deterministic")))
        # A runner makes its folder when it is made. Nothing is to be written before the run begins.
        folder, cfg["work_dir"] = os.path.abspath(cfg["work_dir"]), None
        validate = not options.extras.get("no_validate")
        wired = _wire_project(project, plan, cfg, distributed, timestamp, meta=meta, validate=validate)
        cfg["work_dir"] = wired.runner.work_dir = folder
        _limit(wired, plan)
        wired.runner.engine.plan = plan
        with _errors_with_place(plan, "resume_from"):
            begin(wired, cfg)
    except BaseException:
        log.close()
        raise
    return _as_run(wired, plan, cfg, log)


def _require_files(cfg: Any, plan: Plan) -> None:
    """Check that the files a run begins with exist, before anything is built."""
    for key in ("resume_from", "load_from"):
        file = cfg.get(key)
        if is_missing(file):
            near = near_checkpoint(file)
            said = plan.places.get((key,)) if plan.source.get(key) == file else "command line"
            place = said or (display(plan.files[0]) if plan.files else key)
            raise NoCheckpoint(f"{place}: {key}: there is no file {file!r}{f'; {near}' if near else ''}")


def _as_run(wired: Wired, plan: Plan, cfg: Any, log: LogFile | script.OwnLog) -> Run:
    """Return the runner's run. Its loop calls ``run`` of the runner."""
    runner, signals = wired.runner, Signals()
    run: Run = runner.engine
    run.plan, run.folder = plan, Path(runner.work_dir)
    runner._sync_hooks(force=True)
    run.hooks.add(Stops(signals, max_seconds=plan.train.max_seconds))
    _set_length(run, wired)
    run.train_fn = Training(wired, cfg, log, signals)
    return run


class Training:
    """The loop of a run: calls ``run`` of the runner, with signals handled and the log file open."""

    def __init__(self, wired: Wired, cfg: Any, log: LogFile | script.OwnLog, signals: Signals) -> None:
        self.wired, self.cfg, self.log, self.signals = wired, cfg, log, signals

    def __call__(self, run: Run) -> None:
        runner = self.wired.runner
        run.steps_per_epoch = run.total_steps = None  # from here on the runner counts
        os.makedirs(runner.work_dir, exist_ok=True)
        if run.plan is not None:
            _dump(self.cfg, run.plan)
        self.log.open(os.path.join(runner.work_dir, f"{runner.timestamp}.log"))
        self.signals.install()
        try:
            runner.run(self.wired.loaders, self.wired.workflow, **self.wired.args)
        except Exception as error:
            self.log.note_end(error, f"ended by {type(error).__name__} at iteration {runner.iter}: {error}")
            if hasattr(error, "etude_reported"):
                raise error.etude_reported from error
            raise
        finally:
            evaluated = [hook.dataloader for hook in runner.hooks if hasattr(hook, "dataloader")]
            end_workers(
                [getattr(one, "loader", one) for one in [*self.wired.loaders, *evaluated]], runner._open_passes()
            )
            self.signals.restore()
            self.log.close()


def _set_length(run: Run, wired: Wired) -> None:
    """Set the length of the run, for code that reads it before the run starts."""
    runner = wired.runner
    run.max_epochs = wired.args.get("max_epochs", runner.max_epochs)
    run.data = {mode: loader for (mode, _), loader in zip(wired.workflow, wired.loaders, strict=False)}
    run.steps_per_epoch = len(run.data["train"]) if "train" in run.data else None  # type: ignore[arg-type]
    if run.max_epochs is not None and run.steps_per_epoch is not None:
        run.total_steps = run.max_epochs * run.steps_per_epoch
    else:
        run.total_steps = runner.max_iters


def _imported(cfg: Any) -> Any:
    named = (cfg.get("custom_imports") or {}).get("imports") or []
    return [named] if isinstance(named, str) else named


def _found(cfg: Any, plan: Plan) -> Project | None:
    """Return the installed project that the config is for."""
    return project_of(cfg, plan.files, _imported(cfg))


def _by_script(project: Project, plan: Plan, cfg: Any, options: Options) -> Run:
    """Build the run by the script of the project, which says how its configs train."""
    config = os.path.abspath(plan.files[0])
    if "gpu_ids" not in cfg and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        cfg["gpu_ids"] = [*(options.extras.get("gpu_ids") or [options.extras.get("gpu_id") or 0])][:1]
    # The script is told the seed by its flag, and reads what the short run of --fast-dev-run is to leave out.
    for key in ("seed", "checkpoint_config"):
        cfg.pop(key, None)
        cfg.update({key: copy.deepcopy(plan.source[key])} if key in plan.source else {})
    with _errors_with_place(plan, f"tools/train.py of {project.title}"), quiet_console(options.quiet):
        wired = script.wire(project, cfg, config, options.extras, lambda: _import_user_modules(cfg, plan))
    wired.runner.work_dir = os.path.abspath(cfg["work_dir"])
    _limit(wired, plan)
    wired.runner.engine.plan = plan
    log = script.OwnLog(wired.runner.logger)
    try:
        with _errors_with_place(plan, "resume_from"):
            begin(wired, cfg)
    except BaseException:
        log.close()
        raise
    return _as_run(wired, plan, cfg, log)


def _project(found: Project | None, cfg: Any, plan: Plan) -> Any:
    """Return what builds and trains: the functions of the installed project, else Étude's stand-in.

    A project's package is imported before the modules of the config, as its train script does.
    """
    original = Original(found) if found is not None else None
    _import_user_modules(cfg, plan)
    if original is not None:
        return original
    from etude_openmm.mmcv1.live.projects import stand_ins  # registers names that an original would register again

    return stand_ins.project_for(cfg, _imported(cfg))


def _wire_project(
    project: Any, plan: Plan, cfg: Any, distributed: bool, timestamp: str, *, meta: dict[str, Any], validate: bool
) -> Wired:
    with _errors_with_place(plan, "model", str(plan.model.at)):
        model = project.model(cfg)
        if hasattr(model, "init_weights"):
            model.init_weights()
    with _errors_with_place(plan, "data"):
        datasets = project.datasets(cfg)
    _refuse_empty(datasets[0], plan)
    meta["CLASSES"] = getattr(datasets[0], "CLASSES", None)
    project.label(model, cfg, meta, datasets[0])
    with _errors_with_place(plan, "the run"):
        found: Wired = project.wire(
            model, datasets, cfg, distributed=distributed, validate=validate, timestamp=timestamp, meta=meta
        )
        return found


def _refuse_empty(dataset: Any, plan: Plan) -> None:
    """Raise an error for an empty dataset: the run would end at once, without an error and without training."""
    with suppress(TypeError):  # an iterable dataset has no length
        if len(dataset) == 0:
            at = plan.data["train"].at if "train" in plan.data else None
            raise DataError(f"data.train{f' ({at})' if at else ''} has no samples: {type(dataset).__name__} is empty")


def _config(plan: Plan, options: Options) -> Any:
    """Return the config with the options of the command line."""
    cfg = Config(copy.deepcopy(dict(plan.source)), filename=plan.files[0] if plan.files else None)
    extras = options.extras
    name = Path(plan.files[0]).stem if plan.files else plan.name
    if extras.get("fast_dev_run"):
        cfg["work_dir"], cfg["checkpoint_config"] = tempfile.mkdtemp(prefix="etude-"), None
    elif options.folder is not None:
        cfg["work_dir"] = str(options.folder)
    elif cfg.get("work_dir") is None:
        cfg["work_dir"] = os.path.join("work_dirs", name)
    if extras.get("seed") is not None:
        cfg["seed"] = extras["seed"]
    for key in ("resume_from", "load_from", "auto_resume", "device", "diff_seed"):
        if extras.get(key):
            cfg[key] = extras[key]
    if options.resume is not None:
        # ``--resume`` without a path is an empty string: the runner looks for the newest file.
        cfg["resume_from" if options.resume else "auto_resume"] = options.resume or True
    return cfg


def _import_user_modules(cfg: Any, plan: Plan) -> None:
    """Import ``custom_imports``, looked up in the current folder and in those of the config files."""
    for folder in (os.getcwd(), *(os.path.dirname(file) for file in plan.files)):
        if folder not in sys.path:
            sys.path.append(folder)
    if cfg.get("custom_imports"):
        with _errors_with_place(plan, "custom_imports"):
            import_modules_from_strings(**cfg["custom_imports"])


def _join_group(cfg: Any, extras: Mapping[str, Any]) -> bool:
    launcher = extras.get("launcher") or "none"
    if launcher == "none" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        launcher = "pytorch"
    if launcher == "none":
        # One process trains on one device, whatever the config lists, as with --gpu-id of the scripts.
        cfg["gpu_ids"] = [*(extras.get("gpu_ids") or [extras.get("gpu_id") or 0])][:1]
        return False
    if not torch.distributed.is_initialized():
        _require_launched(launcher)
        init_dist(launcher, **dict(cfg.get("dist_params") or {"backend": "nccl"}))
    cfg["gpu_ids"] = list(range(get_dist_info()[1]))
    return True


def _require_launched(launcher: str) -> None:
    """Check that a launcher has set the variables by which the processes find each other."""
    variable, started = _LAUNCHED.get(launcher, ("", ""))
    if variable and variable not in os.environ:
        raise ConfigError(
            f"--launcher {launcher} needs a run that {started} has started: {variable} is not set",
            hint=f"{started} … -m etude train CONFIG --launcher {launcher}; without --launcher one process trains",
        )


def _dump(cfg: Any, plan: Plan) -> None:
    """Write the whole config to one file of the run's folder, as the train scripts do."""
    if get_dist_info()[0] == 0 and plan.files:
        environment.public(cfg).dump(os.path.join(cfg["work_dir"], os.path.basename(plan.files[0])))


def _limit(wired: Wired, plan: Plan) -> None:
    """Apply ``--limit-batches``, ``--overfit`` and ``--fast-dev-run``: fewer batches, fewer epochs."""
    count = plan.train.overfit or plan.train.limit_batches
    if count:
        wired.loaders = [_limit_loader(loader, count, same=bool(plan.train.overfit)) for loader in wired.loaders]
    runner, epochs = wired.runner, plan.train.epochs
    if count and epochs is not None and isinstance(runner, runners.EpochBasedRunner):
        if "max_epochs" in wired.args:
            wired.args["max_epochs"] = epochs
        else:
            runner._max_epochs = epochs


def _limit_loader(loader: Any, count: int, *, same: bool) -> Any:
    """Return a loader whose passes end after ``count`` batches.

    Data workers prefetch. If checkpoints save their states, they must not load a batch that the run does
    not use: their random generators would be ahead of what a checkpoint records.
    """
    if same or workers_of(loader) is None:
        return FewBatches(loader, count, same=same)
    # DataLoader forbids setting its batch sampler. It is safe here, because the loader has not been iterated yet.
    object.__setattr__(loader, "batch_sampler", FewBatches(loader.batch_sampler, count, same=False))
    return loader


class FewBatches:
    """The first batches of a loader or batch sampler. With ``same``, every pass repeats those of the first pass."""

    def __init__(self, loader: Any, count: int, *, same: bool) -> None:
        self.loader, self.count, self.same = loader, count, same
        self._kept: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        if self._kept:
            yield from self._kept
            return
        # Batches of the first pass that come again have no indices of their own.
        for number, batch in enumerate(self.loader if self.same else passes.begin(self.loader), 1):
            if self.same:
                self._kept.append(batch)
            yield batch
            if number == self.count:
                break

    def __len__(self) -> int:
        return min(self.count, len(self.loader))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


class _PendingLogFile(MemoryHandler):
    """Keeps log records until the log file is opened. :meth:`note_text` writes to the file only."""

    def note_text(self, text: str) -> None:
        record = logging.LogRecord("", logging.INFO, "", 0, text, None, None)
        record.is_text = True
        self.handle(record)


class _Lines(logging.Formatter):
    """Formats records as lines with their time, and texts as they are."""

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage() if hasattr(record, "is_text") else super().format(record)


class LogFile:
    """Writes log lines to a file, including those from before it was opened. With ``quiet``, none go to the console."""

    def __init__(self, logger: logging.Logger, *, quiet: bool) -> None:
        self.logger = logger
        self._levels = [(handler, handler.level) for handler in logger.handlers]
        for handler, _ in self._levels if quiet else []:
            handler.setLevel(logging.ERROR)
        # No level is that high: records are only written when the file is open.
        self._memory = _PendingLogFile(10_000, flushLevel=logging.CRITICAL + 1)
        logger.addHandler(self._memory)

    def open(self, path: str) -> None:
        if get_dist_info()[0] == 0:
            file = logging.FileHandler(path, "a", encoding="utf-8")
            file.setFormatter(_Lines(FORMAT))
            self._memory.setTarget(file)
            self._memory.flushLevel = logging.NOTSET
            self._memory.flush()

    def note_end(self, error: Exception, text: str) -> None:
        """Write the error that ends the run, with its traceback, to the file; the command prints it to the console."""
        exc_info = (type(error), error, error.__traceback__)
        self._memory.handle(logging.LogRecord(self.logger.name, logging.ERROR, "", 0, text, None, exc_info))

    def close(self) -> None:
        for handler, level in self._levels:
            handler.setLevel(level)
        self.logger.removeHandler(self._memory)
        target = self._memory.target
        self._memory.close()
        if target is not None:
            target.close()


@contextmanager
def _errors_with_place(plan: Plan, what: str, at: str = "") -> Iterator[None]:
    """Turn exceptions raised while something is built into errors that name the place in the config."""
    place = at or (display(plan.files[0]) if plan.files else "")
    try:
        yield
    except ConfigError as error:
        found = _place_of(error, plan) or place
        raise ConfigError([one if one.at else replace(one, at=found) for one in error.findings]) from error
    except EtudeError:
        raise
    except FileNotFoundError as error:
        raise (DataError if what == "data" else ResumeError)(f"{place}: {error}") from error
    except Exception as error:
        raise _as_mistake(error, plan, what, at) from error


def _as_mistake(error: Exception, plan: Plan, what: str, at: str) -> EtudeError:
    """Return the error to report: one of the user's code if that raised it, else one of the config."""
    place = at or (display(plan.files[0]) if plan.files else "")
    raised = checks.raised_by_user(error)
    # str() of a KeyError is the repr of its argument, with quotes.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    text += release_hint(text)
    if raised is not None or not isinstance(error, TypeError | ValueError | KeyError | AssertionError):
        line = f" at {raised}" if raised is not None else ""
        return UserCodeError(f"{place}: {what} raised {type(error).__name__}{line}: {text}")
    made = "" if at else _place_of(error, plan)
    return ConfigError(text if made else f"{what}: {text}", at=made or place)


def _place_of(error: BaseException, plan: Plan) -> str:
    """Return the place of the part that could not be made; of a policy or an evaluation that of its section."""
    if found := place_of(error, plan):
        return found
    for frame, _ in traceback.walk_tb(error.__traceback__):
        kind = type(frame.f_locals.get("self")).__name__
        key = next((key for ending, key in _SECTIONS.items() if kind.endswith(ending)), "")
        if key in plan.source:
            words = re.findall(r"\w+", str(error))
            return str(
                next(filter(None, (plan.places.get((key, word)) for word in words)), plan.places.get((key,), ""))
            )
    return ""


def measure(plan: Plan, options: Options, checkpoint: str, split: str) -> Mapping[str, Any]:
    """Evaluate a checkpoint on ``split`` in place of the validation data."""
    with evaluating(plan, options, checkpoint, split) as (runner, hook):
        found: dict[str, Any] = {}

        def evaluate(runner: Any, results: Any) -> None:
            found.update(hook.dataloader.dataset.evaluate(results, logger=runner.logger, **hook.eval_kwargs))

        hook.evaluate = evaluate
        hook._do_evaluate(runner)
        return found


@contextmanager
def evaluating(plan: Plan, options: Options, checkpoint: str, split: str) -> Iterator[tuple[Any, Any]]:
    """Give a runner with the weights of ``checkpoint``, and its hook that evaluates ``split`` and saves nothing."""
    source: dict[str, Any] = copy.deepcopy(dict(plan.source))
    data = source["data"]
    data["val"] = data[split]
    if f"{split}_dataloader" in data:
        data["val_dataloader"] = data[f"{split}_dataloader"]
    source |= {"load_from": checkpoint, "resume_from": None}
    with (
        contextlib.redirect_stdout(sys.stderr),  # datasets and progress bars print to stdout, which is for results
        tempfile.TemporaryDirectory(prefix="etude-test-") as folder,  # where scripts of projects write their log
    ):
        runner: Any = build(replace(plan, source=source), replace(options, folder=Path(folder))).runner
        hook: Any = next((hook for hook in runner.hooks if isinstance(hook, EvalHook)), None)
        if hook is None:
            raise ConfigError("the config has no `evaluation`, which says what to measure", at=str(plan.model.at))
        hook.start, hook.interval, hook.save_best = None, 1, None
        yield runner, hook
