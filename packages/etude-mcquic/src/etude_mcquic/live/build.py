"""Builds a run from a McQuic config: registries, external libraries, trainer, data, hooks, in this order.

``etude test`` builds only the model and the validation (:func:`measure`).
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from etude.checkpoint.state import check_weights
from etude.checkpoint.storage.lock import Lock
from etude.config.files import display
from etude.core.run import Run
from etude.data.loader import Loader
from etude.data.seeds import seed_everywhere
from etude.dialects import imports
from etude.dist import group
from etude.dist.jobs import reports
from etude.dist.world import ALONE, World
from etude.errors import ConfigError, ResumeError, UserCodeError
from etude.events.jsonl import Jsonl
from etude.hooks.signals import SIGNALS, Signals, Stops
from etude.plan import Plan, Spec
from etude_mcquic.config import Config
from etude_mcquic.files import Saver, SilentSaver, latest_of
from etude_mcquic.live import builtin
from etude_mcquic.live import resume as resuming
from etude_mcquic.live.builtin import import_external
from etude_mcquic.live.data.images import open_images
from etude_mcquic.live.data.transforms import getEvalTransform, getTrainingPreprocess, getTrainingTransform
from etude_mcquic.live.hooks import KINDS, ChainHook, splitHooks
from etude_mcquic.live.model.compound import Compound
from etude_mcquic.live.model.models import crop_of, find_model, join_alone
from etude_mcquic.live.registry import (
    HookRegistry,
    LossRegistry,
    LrSchedulerRegistry,
    OptimizerRegistry,
    find,
)
from etude_mcquic.live.trainer import MainTrainer
from etude_mcquic.live.validate import Validator

if TYPE_CHECKING:
    from etude.building.options import Options


def build(plan: Plan, options: Options) -> Run:
    """Return the trainer with all its parts as a run. Only the run folder is made; it is removed if a part fails."""
    world = World.from_environment()
    if world.is_many:
        group.join(
            world, backend="cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=reports.timeout()
        )
    config = _config(plan, options)
    train = config.Train
    level = logging.CRITICAL if options.quiet else logging.DEBUG if options.extras.get("debug") else logging.INFO
    import_parts(plan, config)
    if options.extras.get("debug"):
        print(builtin.summaries())
    seed_everywhere(plan.train.seed)
    paths = group.first(lambda: resuming.checkpoints(options.resume, Path(train.SaveDir)))
    saver = group.together(lambda: _saver(plan, config, paths, world, level), "train.saveDir")
    try:
        saver.speak(level)
        return _assemble(plan, options, config, saver, paths, world)
    except BaseException:
        saver.undo()
        raise


def _saver(plan: Plan, config: Config, paths: list[Path], world: World, level: int) -> Saver:
    """Return the saver, which makes the run's folder and log on rank 0."""
    train = config.Train
    if not world.is_main:
        return SilentSaver(train.SaveDir)
    latest = latest_of(train.SaveDir)
    if latest.is_dir():
        Lock(latest).release()
    # A run that resumes from its own checkpoint stays in its folder.
    inside = any(latest.resolve() in path.resolve().parents for path in paths)
    try:
        return Saver(train.SaveDir, config=config, loggingLevel=level, reserve=inside)
    except OSError as error:
        raise ConfigError(f"train.saveDir: {error.strerror}: {error.filename}", at=_config_file(plan)) from error


def _config(plan: Plan, options: Options) -> Config:
    """Read the file, with the changes from the command line."""
    config = Config.deserialize(dict(plan.source))
    if options.extras.get("fast_dev_run"):
        config.train.saveDir = group.first(lambda: tempfile.mkdtemp(prefix="etude-try-"))
    elif options.folder is not None:
        config.train.saveDir = str(options.folder)
    config.train.epoch = plan.train.epochs or config.train.epoch
    return config


def _assemble(plan: Plan, options: Options, config: Config, saver: Saver, paths: list[Path], world: World) -> Run:
    train, limit = config.Train, plan.train.overfit or plan.train.limit_batches
    _log_devices(saver, train.GPU.GPUs)
    device = device_of(world)
    batch = train.BatchSize * world.size  # in McQuic, the batch size of one process
    make = find_model(config.Model.Key, at=str(plan.model.at))
    alone = join_alone(make)
    images = _images(plan, train.TrainSet, batch, saver, crop=crop_of(make))
    optimizer, schedule = plan.optimizers[""].spec, plan.schedules[0].phases[0].curve
    augment = getTrainingTransform().to(device)
    trainer = MainTrainer(
        config,
        lambda: compound(plan, config, make).to(device),
        _with_place(find(OptimizerRegistry, optimizer.name, at=optimizer.at, logger=saver), optimizer),
        _with_place(find(LrSchedulerRegistry, schedule.name, at=schedule.at, logger=saver), schedule),
        saver,
        validator=validator(plan, "val", train.ValSet, limit=limit),
        transform=lambda images: augment(images.to(device, non_blocking=True)),
        trust=options.trust,
        world=world,
    )
    trainer.keepLast, trainer.seed = True, plan.train.seed
    trainer.records = Jsonl(saver.folder / "metrics.jsonl") if world.is_main else None
    resuming.take_up(trainer, paths, allow=options.allow_change, trust=options.trust)
    shuffle = plan.train.overfit is None
    loader = Loader(
        images, batch_size=batch, shuffle=shuffle, seed=plan.train.seed, limit=limit, shard=(world.rank, world.size)
    )
    loader.allow_change = bool(options.allow_change)
    run = trainer.prepare(loader, loader, **_hooks(plan, train.Hooks))
    run.plan, run.folder, run.world = plan, Path(saver.SaveDir), world
    _guard(run, plan, options, trainer, saver, leave=alone)
    return run


def _guard(run: Run, plan: Plan, options: Options, trainer: MainTrainer, saver: Saver, *, leave: bool = False) -> None:
    """Handle signals and a time limit. After a signal, ``last.ckpt`` holds the state of the last step."""
    signals = Signals(grace=options.grace)
    run.hooks.add(Stops(signals, max_seconds=plan.train.max_seconds))
    trainer.asked_to_stop = lambda: SIGNALS.get(signals.received or "")

    def loop(run: Run) -> None:
        signals.install()
        try:
            trainer.go()
        finally:
            signals.restore()
            saver.close()
            if trainer.records is not None:
                trainer.records.close()
            if leave:
                torch.distributed.destroy_process_group()
            if options.extras.get("fast_dev_run") and run.world.is_main:
                shutil.rmtree(saver.folder.parent, ignore_errors=True)

    run.train_fn = loop


def _with_place(make: Any, spec: Spec) -> Any:
    """Wrap ``make``, so that its errors name the place in the config."""

    def made(*args: Any, **kwds: Any) -> Any:
        try:
            return make(*args, **kwds)
        except Exception as error:
            raise ConfigError(f"{spec.name} cannot be made: {error}", at=str(spec.at)) from error

    return made


def _hooks(plan: Plan, entries: list[Any]) -> dict[str, ChainHook]:
    """Return the chains of hooks. The plan's first hook is the trainer's own validation, which is skipped here."""
    specs = [hook.spec for hook in plan.hooks[1:]]
    made = []
    for entry, spec in zip(entries, specs, strict=True):
        found = find(HookRegistry, entry.Key, at=spec.at)
        hook = found if hasattr(found, "hookType") else _with_place(found, spec)(**entry.Params)
        if not hasattr(hook, "hookType") and not isinstance(hook, tuple(base for base, _ in KINDS.values())):
            kinds = ", ".join(name for _, name in KINDS.values())
            raise ConfigError(f"{spec.name} is a hook of no kind", at=str(spec.at), hint=f"the kinds are {kinds}")
        made.append(hook)
    return splitHooks(*made)


def device_of(world: World = ALONE) -> torch.device:
    return torch.device("cuda", world.local_rank) if torch.cuda.is_available() else torch.device("cpu")


def compound(plan: Plan, config: Config, make: Any) -> Compound:
    """Build the model of the config together with its loss."""
    loss = find(LossRegistry, config.Train.Target, at=plan.losses[0].at)
    return Compound(_with_place(make, plan.model)(**config.Model.Params), loss())


def validator(plan: Plan, split: str, path: str, *, limit: int | None = None) -> Validator:
    return Validator(_open_split(plan, split, path, getEvalTransform()), limit=limit)


def import_parts(plan: Plan, config: Config) -> None:
    """Register McQuic's own entries, add the config's folder to ``sys.path``, and import the external libraries."""
    imports.install()
    builtin.registerBuiltinFunctions()
    for folder in dict.fromkeys([*(str(Path(file).absolute().parent) for file in plan.files), str(Path.cwd())]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    for path in config.Train.ExternalLib:
        try:
            import_external([path])
        except FileNotFoundError as error:
            raise ConfigError(f"train.externalLib: {error}", at=_config_file(plan)) from error
        except Exception as error:
            raise UserCodeError(f"{path} (train.externalLib) raised {type(error).__name__}: {error}") from error


def _images(plan: Plan, path: str, batch_size: int, saver: Saver, *, crop: int) -> Any:
    """Return crops of the training images. If there are fewer than a batch, each comes several times an epoch."""
    images = _open_split(plan, "train", path, getTrainingPreprocess(crop))
    if len(images) < batch_size:
        images.repeat = -(-batch_size // len(images))
        saver.info(
            "%d images are fewer than a batch of %d: each comes %d times an epoch",
            len(images) // images.repeat, batch_size, images.repeat,
        )  # fmt: skip
    return images


def _open_split(plan: Plan, split: str, path: str, transform: Any) -> Any:
    try:
        return open_images(path, transform=transform)
    except ConfigError as error:
        raise ConfigError(f"train.{split}Set: {error}", at=str(plan.data[split].at)) from error


def _config_file(plan: Plan) -> str:
    return display(plan.files[0]) if plan.files else ""


def _log_devices(saver: Saver, wanted: int) -> None:
    found = torch.cuda.device_count()
    if found < wanted:
        what = f"{found} of them" if found else "none; training runs on the CPU"
        saver.info(
            "%d GPU%s asked for, there %s %s", wanted, "" if wanted == 1 else "s", "are" if found else "is", what
        )


def measure(plan: Plan, options: Options, checkpoint: str, split: str) -> dict[str, float]:
    """Return the means over all images: PSNR and MS-SSIM in decibel, bits per pixel, and a user-defined target."""
    config = Config.deserialize(dict(plan.source))
    import_parts(plan, config)
    state = Saver.load(checkpoint, trust=options.trust).get("trainer", {}).get("_model")
    if state is None:
        raise ResumeError(f"{checkpoint} is no checkpoint of McQuic: it has no trainer with a _model")
    make = find_model(config.Model.Key, at=str(plan.model.at))
    alone = join_alone(make)
    try:
        model = compound(plan, config, make).to(device_of()).eval()
        check_weights(model, state)
        model.load_state_dict(state)
        train = config.Train
        images = validator(plan, split, train.ValSet if split == "val" else train.TrainSet)
        return images.means(model, train.Target)[0]
    finally:
        if alone:
            torch.distributed.destroy_process_group()
