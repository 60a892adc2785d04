"""``etude train`` for a McQuic config: registries, external libraries, trainer, data, hooks, in this order."""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from etude.core.run import Run
from etude.data.loader import Loader
from etude.dialects.mcquic.config import Config
from etude.dialects.mcquic.files import Saver
from etude.dialects.mcquic.live import blocks, builtin
from etude.dialects.mcquic.live.compressor import Composition, Compressor
from etude.dialects.mcquic.live.external import import_external
from etude.dialects.mcquic.live.hooks import getAllHooks
from etude.dialects.mcquic.live.images import open_images
from etude.dialects.mcquic.live.registry import LossRegistry, LrSchedulerRegistry, OptimizerRegistry
from etude.dialects.mcquic.live.trainer import MainTrainer
from etude.dialects.mcquic.live.validate import Validator
from etude.errors import ConfigError, ResumeError, UserCodeError
from etude.hooks.stops import Signals, Stops
from etude.plan import Plan
from etude.registry import MODELS

if TYPE_CHECKING:
    from etude.build import Options

SEED = 3407
#: What a run can be taken up from.
CHECKPOINTS = ("last.ckpt", "saved.ckpt", "best.ckpt")
#: Side of the squares that training cuts out of images.
CROP = 64
__all__ = ["blocks", "build"]


def build(plan: Plan, options: Options) -> Run:
    """The trainer with everything it needs, as a run; only the folder of the run is made."""
    config = Config.deserialize(dict(plan.source))
    level = logging.CRITICAL if options.quiet else logging.DEBUG if options.extras.get("debug") else logging.INFO
    builtin.registerBuiltinFunctions()
    _import(config)
    if options.extras.get("debug"):
        print(builtin.summaries())
    seed = plan.train.seed
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    train = config.Train
    if options.folder is not None:
        train.saveDir = str(options.folder)
    images = _images(train.TrainSet, train.BatchSize, plan.train.limit_batches)
    checkpoints = _found(options.resume, Path(train.SaveDir))
    latest = Path(train.SaveDir, "latest").resolve()
    saver = Saver(
        train.SaveDir,
        config=config,
        loggingLevel=level,
        reserve=any(latest in path.resolve().parents for path in checkpoints),
    )
    saver.speak(level)
    _tell_devices(saver, train.GPU.GPUs)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = MainTrainer(
        config,
        lambda: Composition(_model(config), LossRegistry.get(train.Target)()).to(device),
        OptimizerRegistry.get(train.Optim.Key, saver),
        LrSchedulerRegistry.get(train.Schdr.Key, saver),
        saver,
        validator=Validator(open_images(train.ValSet), Path(saver.SaveDir)),
        transform=lambda images: images.to(device, non_blocking=True),
        trust=options.trust,
    )
    trainer.keepLast = True
    _go_on(trainer, checkpoints)
    loader = Loader(images, batch_size=train.BatchSize, shuffle=True, seed=seed)
    run = trainer.prepare(loader, loader, **getAllHooks(train.Hooks))
    run.plan, run.folder = plan, Path(saver.SaveDir)
    _guard(run, plan, options, trainer, saver)
    return run


def _guard(run: Run, plan: Plan, options: Options, trainer: MainTrainer, saver: Saver) -> None:
    """Signals and a time limit; after a signal ``last.ckpt`` holds the state of the last step."""
    signals = Signals()
    run.hooks.add(Stops(signals, max_seconds=plan.train.max_seconds))

    def loop(run: Run) -> None:
        signals.install()
        try:
            trainer.go()
        finally:
            signals.restore()
            saver.close()

    run.loop = loop


def _found(resume: str | None, root: Path) -> list[Path]:
    """The checkpoints to try, the best first: the one that was named, or those of the last run, newest first."""
    if resume:
        if not Path(resume).is_file():
            raise ConfigError(f"there is no checkpoint {resume}")
        return [Path(resume)]
    if resume is None:
        return []
    there = [root / "latest" / name for name in CHECKPOINTS if (root / "latest" / name).is_file()]
    if not there:
        print(f"no checkpoint in {root / 'latest'} yet, starting at step 0", file=sys.stderr)
    return sorted(there, key=lambda path: (path.name != "best.ckpt", path.stat().st_mtime), reverse=True)


def _go_on(trainer: MainTrainer, checkpoints: list[Path]) -> None:
    """From the first that is whole; a damaged one is named, and refused when it is the only one."""
    for position, path in enumerate(checkpoints):
        try:
            trainer.restoreStates(path)
            break
        except ResumeError as error:
            if position == len(checkpoints) - 1:
                raise
            print(f"etude: warning: {error}; trying {checkpoints[position + 1].name}", file=sys.stderr)


def _model(config: Config) -> torch.nn.Module:
    """``Compressor`` is the one of this folder; any other key is a registered name or a dotted path."""
    key, params = config.Model.Key, config.Model.Params
    if key == "Compressor":
        return Compressor(**params)
    return MODELS.build({"type": key, **params})  # type: ignore[no-any-return]


def _import(config: Config) -> None:
    try:
        import_external(config.Train.ExternalLib)
    except FileNotFoundError as error:
        raise ConfigError(f"train.externalLib: {error}") from error
    except Exception as error:
        raise UserCodeError(f"an external library raised {type(error).__name__}: {error}") from error


def _images(path: str, batch_size: int, limit: int | None) -> Any:
    """Crops of the training images; few images are gone through several times an epoch."""
    images = open_images(path, crop=CROP)
    wanted = batch_size * (limit or 1)
    if len(images) < wanted:
        images.repeat = -(-wanted // len(images))
    return images


def _tell_devices(saver: Saver, wanted: int) -> None:
    found = torch.cuda.device_count()
    if found < wanted:
        what = f"{found} of them" if found else "none; training runs on the CPU"
        saver.info(
            "%d GPU%s asked for, there %s %s", wanted, "" if wanted == 1 else "s", "are" if found else "is", what
        )
