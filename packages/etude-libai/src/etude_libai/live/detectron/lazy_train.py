"""detectron2's ``lazyconfig_train_net.py``: builds and trains a lazy config."""

from __future__ import annotations

import copy
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from etude.checkpoint.formats import foreign
from etude.checkpoint.formats.folders import damage
from etude.core.run import Run
from etude.data.seeds import kept_generators
from etude.dist.world import World
from etude.errors import ConfigError
from etude_libai.lazy.instantiate import instantiate_detectron2 as instantiate
from etude_libai.lazy.load import try_get_key
from etude_libai.lazy.reading.errors import put_on
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.detectron.checkpoint import DetectionCheckpointer
from etude_libai.live.detectron.default import announce, create_ddp_model, default_writers, seed_from
from etude_libai.live.detectron.evaluation import inference_on_dataset, print_csv_format
from etude_libai.live.detectron.hooks import hooks
from etude_libai.live.detectron.trainer import AMPTrainer, SimpleTrainer
from etude_libai.live.resume.resume import FINAL, has_ended, say_ended
from etude_libai.places import ORIGINS


def build_detectron2(cfg: Any, arguments: Namespace) -> Run:
    """Build model, optimizer, loader, trainer and hooks. Files are opened when training begins."""
    if arguments.fast_dev_run:
        cfg.train.max_iter, cfg.train.eval_period, cfg.train.log_period = 20, 10, 1
    written = prepare(cfg)
    model = build_model(cfg)
    cfg.optimizer.params.model = model
    optimizer = instantiate(cfg.optimizer)
    amp = try_get_key(cfg, "train.amp.enabled", default=False)
    trainer = (AMPTrainer if amp else SimpleTrainer)(model, instantiate(cfg.dataloader.train), optimizer)
    run = trainer.engine
    run.folder, run.total_steps = Path(cfg.train.output_dir), cfg.train.max_iter
    run.optimizers = {"": optimizer}
    checkpointer = DetectionCheckpointer(trainer.model, cfg.train.output_dir, trainer=trainer)
    if not arguments.eval_only:
        trainer.register_hooks(_hooks(cfg, trainer, checkpointer))
    run.train_fn = lambda run: do_train(cfg, arguments, trainer, checkpointer, written)
    done = _iterations_done(cfg, arguments)
    if done >= cfg.train.max_iter:
        run.train_fn = lambda run: say_ended(str(cfg.train.output_dir), done, "train.max_iter")
    return run


def prepare(cfg: Any) -> Any:
    """Choose an available device, join the process group and seed. Return the config to write to ``config.yaml``."""
    if str(cfg.train.device).startswith("cuda") and not torch.cuda.is_available():
        cfg.train.device = "cpu"
    written = copy.deepcopy(cfg)  # building puts models into cfg
    dist.join(World.from_environment())
    seed_from(cfg)
    return written


def build_model(cfg: Any) -> torch.nn.Module:
    options = try_get_key(cfg, "train.ddp", default={})
    return create_ddp_model(instantiate(cfg.model).to(cfg.train.device), **options)


def _iterations_done(cfg: Any, arguments: Namespace) -> int:
    """Return the iterations of the run to resume, if it is finished; else 0."""
    folder = str(cfg.train.output_dir)
    resumed = arguments.resume and not arguments.named and not arguments.eval_only
    if not resumed or not has_ended(folder):
        return 0
    final = os.path.join(folder, f"{FINAL}.pth")
    return 0 if damage(final) else int(foreign.read(final).get("iteration", -1)) + 1


def _hooks(cfg: Any, trainer: SimpleTrainer, checkpointer: DetectionCheckpointer) -> list[Any]:
    """Return the hooks in the order of detectron2's script. Writers are added when training begins."""
    saver, looked_at = hooks.together(trainer, checkpointer), test_data(cfg)
    return [
        hooks.IterationTimer(),
        hooks.LRScheduler(scheduler=instantiate(cfg.lr_multiplier), optimizer=trainer.optimizer),
        hooks.PeriodicCheckpointer(saver, **cfg.train.checkpointer),
        hooks.EvalHook(cfg.train.eval_period, lambda: do_test(cfg, trainer.model, looked_at)),
        hooks.PeriodicWriter([], period=cfg.train.log_period) if topology.is_main_process() else None,
    ]


def do_train(
    cfg: Any, arguments: Namespace, trainer: SimpleTrainer, checkpointer: DetectionCheckpointer, written: Any
) -> None:
    """Write the config (``written``), resume or load the initial weights, and train."""
    if _evaluates(cfg):
        with kept_generators():
            instantiate(cfg.dataloader.evaluator)  # errors come now, not after training
    announce(written, arguments)
    if arguments.eval_only:
        _load(cfg, arguments, checkpointer)
        do_test(cfg, trainer.model, test_data(cfg))
        return
    for hook in trainer._hooks:
        if isinstance(hook, hooks.PeriodicWriter):
            hook.write_to(default_writers(cfg.train.output_dir, cfg.train.max_iter))
    resumed = _load(cfg, arguments, checkpointer)
    trainer.train(trainer.iter + 1 if resumed else 0, cfg.train.max_iter)


def _load(cfg: Any, arguments: Namespace, checkpointer: DetectionCheckpointer) -> bool:
    """Load the named checkpoint, the last one or the initial weights. Return whether the run resumes."""
    if arguments.named:
        checkpointer.load(arguments.named)
        return True
    try:
        checkpointer.resume_or_load(cfg.train.init_checkpoint, resume=arguments.resume)
    except AssertionError as error:
        put_on(error, ConfigError(str(error), at=str(ORIGINS.place(("train", "init_checkpoint")))))
        raise
    return bool(arguments.resume and checkpointer.has_checkpoint())


def _evaluates(cfg: Any) -> bool:
    return try_get_key(cfg, "dataloader.evaluator") is not None


def test_data(cfg: Any) -> Any:
    """Build the evaluation data, if any, before training, so that errors in it do not come afterwards."""
    with kept_generators():
        return instantiate(cfg.dataloader.test) if _evaluates(cfg) else None


def do_test(cfg: Any, model: torch.nn.Module, data: Any) -> Any:
    """Run the evaluator of ``cfg.dataloader``, if there is one, on ``data``."""
    if not _evaluates(cfg):
        return None
    results = inference_on_dataset(model, data, instantiate(cfg.dataloader.evaluator))
    print_csv_format(results)
    return results
