"""Builds MMEngine's Runner from a plan, in the way of MMSelfSup's and MMPretrain's train scripts."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from io import TextIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.core.run import Run
from etude.dialects import imports
from etude.dist.world import World
from etude.errors import ConfigError, ResumeError, Stopped
from etude.hooks.signals import SIGNALS, Signals, Stops
from etude.plan import Plan
from etude_openmm.mmengine.projects import add_defaults
from etude_openmm.shared.config.config_base import import_custom
from etude_openmm.shared.config.config_v2 import Config
from etude_openmm.shared.reading.source import is_missing, near_checkpoint
from etude_openmm.shared.registries.root import RUNNERS

if TYPE_CHECKING:
    from etude.building.options import Options


_TORCHRUN = "torchrun --nproc-per-node 2 -m etude train CONFIG --launcher pytorch"


def build(plan: Plan, options: Options) -> Run:
    """Return the run of the runner that config and command line describe; its ``loop`` trains."""
    imports.install()
    _require_checkpoint(options.resume)
    file = plan.files[0] if plan.files else None
    cfg = Config(dict(plan.source), filename=file)
    _import_user_modules(plan, file)
    apply_options(cfg, options, file)
    add_defaults(cfg)
    _shorten(cfg, plan, options.extras)
    # The logger, which is made here, keeps the standard output that it finds.
    with redirect_stdout(_Discard()) if options.quiet else nullcontext():
        runner = RUNNERS.build(cfg)
    return _as_run(runner, plan, grace=options.grace)


def _require_checkpoint(resume: str | None) -> None:
    """Report a missing checkpoint before anything is built."""
    if resume not in (None, "", "auto") and is_missing(resume):
        hint = near_checkpoint(str(resume))
        raise ResumeError(f"{resume} can not be found{f'; {hint}' if hint else ''}")


def _import_user_modules(plan: Plan, file: str | None) -> None:
    """Import ``custom_imports``, looked up in the current folder and in those of the config files."""
    for folder in (os.getcwd(), *(os.path.dirname(os.path.abspath(name)) for name in plan.files)):
        if folder not in sys.path:
            sys.path.append(folder)
    import_custom(dict(plan.source), file or "")


def _as_run(runner: Any, plan: Plan, *, grace: float) -> Run:
    """Return the runner's run. As the command line promises, it handles signals and a time limit."""
    run: Run = runner.engine
    run.plan, run.folder = plan, Path(runner.work_dir)
    run.world = World(rank=runner.rank, size=runner.world_size, local_rank=int(os.environ.get("LOCAL_RANK", 0)))
    signals = Signals(grace=grace)
    run.hooks.add(_Stops(signals, max_seconds=plan.train.max_seconds))

    def train(_: Run) -> None:
        signals.install()
        try:
            runner.train()
        finally:
            signals.restore()

    run.train_fn = train
    return run


class _Stops(Stops):
    """Ends a validation of the train loop at once when a signal comes: the weights are saved, and a resume repeats it.

    With several processes a validation is finished, because its end is a collective that all of them must reach.
    """

    def before_eval_step(self, run: Run) -> None:
        validates = getattr(run.runner._train_loop, "generators", None) is not None
        if self.signals.received is not None and validates and run.world.size == 1:
            reason, code = SIGNALS[self.signals.received]
            raise Stopped(f"{reason} in the validation after step {run.done}", code)


class _Discard(TextIOBase):
    """A stream that discards what is written. The logger holds on to it for the whole run."""

    def write(self, text: str) -> int:
        return len(text)


def apply_options(cfg: Any, options: Options, file: str | None) -> None:
    """Apply ``--work-dir``, ``--resume``, ``--amp``, ``--no-validate`` and so on, as the train scripts read them."""
    extras = options.extras
    _set_folder(cfg, options, file)
    if options.resume is not None:
        cfg.resume = True
        cfg.load_from = None if options.resume in ("", "auto") else options.resume
    if extras.get("load_from"):
        cfg.load_from = extras["load_from"]
    _set_launcher(cfg, extras)
    if extras.get("seed") is not None:
        cfg.randomness = {**(cfg.get("randomness") or {}), "seed": extras["seed"]}
    if extras.get("amp"):
        _turn_on_amp(cfg)
    if extras.get("auto_scale_lr"):
        _turn_on_scaling(cfg)
    if extras.get("no_validate"):
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None


def _set_folder(cfg: Any, options: Options, file: str | None) -> None:
    if options.folder is not None:
        cfg.work_dir = str(options.folder)
    elif cfg.get("work_dir") is None:
        cfg.work_dir = os.path.join("work_dirs", Path(file).stem if file else "run")


def _set_launcher(cfg: Any, extras: Mapping[str, Any]) -> None:
    """Set the launcher: from the command line, else from the config, else ``pytorch`` for several processes."""
    launcher = extras.get("launcher") or "none"
    if launcher == "none" and cfg.get("launcher", "none") == "none" and World.from_environment().is_many:
        launcher = "pytorch"
    if launcher != "none":
        cfg.launcher = launcher
        os.environ.setdefault("LOCAL_RANK", str(extras.get("local_rank") or 0))
    if cfg.get("launcher") == "pytorch" and "RANK" not in os.environ:
        raise ConfigError("launcher 'pytorch' needs torchrun: RANK and WORLD_SIZE are not set", hint=_TORCHRUN)


def _turn_on_amp(cfg: Any) -> None:
    wrapper = cfg.get("optim_wrapper") or {}
    kind = wrapper.get("type", "OptimWrapper")
    name = kind if isinstance(kind, str) else kind.__name__
    if name.rpartition(".")[2] == "AmpOptimWrapper":
        return
    if name.rpartition(".")[2] != "OptimWrapper":
        raise ConfigError(f"--amp works with optim_wrapper.type OptimWrapper, the config says {name}")
    wrapper.update(type="AmpOptimWrapper")
    wrapper.setdefault("loss_scale", "dynamic")


def _turn_on_scaling(cfg: Any) -> None:
    scaling = cfg.get("auto_scale_lr") or {}
    if "base_batch_size" not in scaling:
        raise ConfigError("--auto-scale-lr needs auto_scale_lr.base_batch_size in the config")
    cfg.auto_scale_lr = {**scaling, "enable": True}


def _shorten(cfg: Any, plan: Plan, extras: Mapping[str, Any]) -> None:
    """Apply ``--limit-batches`` and ``--fast-dev-run``. The latter writes to a temporary folder and saves nothing."""
    limit = plan.train.limit_batches
    if limit is not None:
        for name in ("train_dataloader", "val_dataloader", "test_dataloader"):
            if isinstance(cfg.get(name), dict):
                cfg[name]["num_batch_per_epoch"] = limit
    if not extras.get("fast_dev_run"):
        return
    cfg.work_dir = tempfile.mkdtemp(prefix="etude-")
    length = {"max_iters": limit or 2} if "max_iters" in (cfg.get("train_cfg") or {}) else {"max_epochs": 1}
    cfg.train_cfg.update(length)
    cfg.default_hooks = {**(cfg.get("default_hooks") or {}), "checkpoint": None}


def measure(plan: Plan, options: Options, checkpoint: str, split: str) -> Mapping[str, Any]:
    """Return the metrics on the test data, or on the validation data in its place.

    Both go through ``runner.test()``, so that no hook saves a best checkpoint.
    """
    run = build(dataclasses.replace(plan, source=of_split(plan, checkpoint, split)), options)
    runner: Any = run.runner
    return runner.test()  # type: ignore[no-any-return]


def of_split(plan: Plan, checkpoint: str, split: str) -> dict[str, Any]:
    """Return the config that tests ``checkpoint`` on the data of ``split``."""
    source = dict(plan.source)
    if split != "test":
        fp16 = bool((source.get("val_cfg") or {}).get("fp16", False))
        source |= {
            "test_dataloader": source[f"{split}_dataloader"],
            "test_evaluator": source.get("val_evaluator"),
            "test_cfg": {"fp16": fp16},
        }
    return source | {"load_from": checkpoint, "resume": False}
