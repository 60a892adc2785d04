"""Builds a run from a LiBai or detectron2 lazy config, as ``tools/train_net.py`` does. Training writes the files."""

from __future__ import annotations

import contextlib
import copy
import logging
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.core.run import Run
from etude.data.seeds import seed_everywhere
from etude.dist.world import World
from etude.errors import ConfigError, EtudeError, ResumeError, UserError, printable
from etude.hooks.signals import Signals, Stops
from etude.plan import Plan
from etude_libai import sizes
from etude_libai.files import LAST, Checkpointer
from etude_libai.lazy.extra import dict_config
from etude_libai.live import setup, topology
from etude_libai.live.config_errors import explained
from etude_libai.live.data.position import put_off
from etude_libai.live.default import DefaultTrainer
from etude_libai.live.evaluation.run import flatten_results_dict
from etude_libai.live.events.logger import Held
from etude_libai.live.hooks.hooks import PeriodicWriter
from etude_libai.live.resume.resume import has_ended, say_ended
from etude_libai.lower import is_detectron2

if TYPE_CHECKING:
    from etude.building.options import Options


def build(plan: Plan, options: Options) -> Run:
    """Return the default trainer of the config as a run. ``run.train_fn`` sets up and trains, or only evaluates."""
    cfg = dict_config(dict(plan.source))
    extras: Mapping[str, Any] = options.extras or {}
    arguments = Namespace(
        config_file=next((file for file in plan.files if file.endswith((".py", ".yaml", ".yml"))), ""),
        resume=options.resume is not None,
        eval_only=bool(extras.get("eval_only")),
        fast_dev_run=bool(extras.get("fast_dev_run")),
        named="",
        opts=[],
    )
    if not arguments.fast_dev_run:
        _refuse_shortening(plan)
    _adjust(cfg, options, extras, arguments)
    asked_for = arguments.eval_only and arguments.resume and not arguments.named
    if asked_for and not (Path(cfg.train.output_dir) / LAST).exists():
        raise ResumeError(f"{printable(str(cfg.train.output_dir))}: there is no checkpoint to evaluate")
    with _raising_reported(), explained(cfg):
        if is_detectron2(plan.source):
            # Needs fvcore, which users of LiBai do not have.
            from etude_libai.live.detectron.lazy_train import build_detectron2

            run = build_detectron2(cfg, arguments)
        else:
            run = build_libai(cfg, arguments)
    run.plan, run.world = plan, World.from_environment()
    signals = Signals()
    run.hooks.add(Stops(signals, max_seconds=plan.train.max_seconds))
    run.train_fn = _guarded(run.train_fn, signals, temporary=run.folder if arguments.fast_dev_run else None)
    if arguments.fast_dev_run:
        run.folder = None
    return run


def _refuse_shortening(plan: Plan) -> None:
    """Raise an error for flags that count batches of an epoch: there are no epochs, so they would have no effect."""
    length = "max_iter" if is_detectron2(plan.source) else "train_iter"
    for flag, given in (("--limit-batches", plan.train.limit_batches), ("--overfit", plan.train.overfit)):
        if given is not None:
            raise UserError(
                f"{flag} does nothing in a libai config: it trains by iterations; write train.{length}={given}"
            )


@contextlib.contextmanager
def _raising_reported() -> Iterator[None]:
    """Raise the error that is meant for the user (``etude_reported``) in place of LiBai's exception."""
    try:
        yield
    except Exception as error:
        instead: EtudeError | None = getattr(error, "etude_reported", None)
        if instead is None:
            raise
        raise instead from instead.__cause__


def _adjust(cfg: Any, options: Options, extras: Mapping[str, Any], arguments: Namespace) -> None:
    """Apply the options of the command line to the config."""
    if options.folder is not None:
        cfg.train.output_dir = str(options.folder)
    if options.resume:
        folder, arguments.named = _folder_and_checkpoint(options.resume)
        cfg.train.output_dir = folder
    if arguments.fast_dev_run:
        cfg.train.output_dir = tempfile.mkdtemp(prefix="etude-fast-dev-run-")
    if extras.get("seed") is not None:
        cfg.train.seed = extras["seed"]
    if extras.get("device"):
        key = "device" if "max_iter" in cfg.train else "input_placement_device"
        cfg.train[key] = extras["device"]
    if extras.get("load_from"):
        cfg.train.load_weight = extras["load_from"]


def _folder_and_checkpoint(path: str) -> tuple[str, str]:
    """Return the run's folder, and the checkpoint if ``path`` is one: a folder (LiBai) or a file (detectron2)."""
    if (Path(path) / LAST).exists():
        return path, ""
    if (Path(path) / "model").is_file() or Path(path).is_file():
        return str(Path(path).parent), path
    raise ResumeError(f"{printable(path)}: neither the folder of a run nor a checkpoint")


def build_libai(cfg: Any, arguments: Namespace) -> Run:
    cfg.train.resume = arguments.resume and not arguments.eval_only
    setup.set_up_processes(cfg)
    sizes.check_batch_size(cfg, topology.get_data_parallel_size())
    seed_everywhere(cfg.train.seed + topology.get_rank())
    if arguments.fast_dev_run:
        setup.fast_dev_run(cfg)
    written = copy.deepcopy(cfg)  # config.yaml is written from this, as building puts models and data into cfg
    with Held("libai") as said:
        trainer = PutOff(cfg, arguments.named)
    trainer.said = said
    run = trainer.engine
    run.folder = Path(cfg.train.output_dir)
    run.step, run.total_steps = trainer.start_iter, trainer.max_iter
    run.optimizers, run.data = {"": trainer.optimizer}, {"train": trainer.train_loader}
    folder = str(cfg.train.output_dir)
    if arguments.eval_only:
        run.train_fn = lambda run: evaluate(trainer, arguments, written)
    elif cfg.train.resume and trainer.start_iter >= trainer.max_iter and not arguments.named and has_ended(folder):
        run.train_fn = lambda run: say_ended(folder, trainer.start_iter, "train.train_iter")
    else:
        run.train_fn = lambda run: train(trainer, arguments, written)
    return run


class PutOff(DefaultTrainer):
    """A default trainer that opens files and data only when training begins, so that ``etude plan`` writes nothing."""

    writes = False
    _goes_on = True
    said: Held

    def __init__(self, cfg: Any, named: str = "") -> None:
        self._named = named
        with put_off():
            super().__init__(cfg)

    def build_writers(self) -> list[Any]:
        return super().build_writers() if self.writes else []


def train(trainer: PutOff, arguments: Namespace, written: Any) -> None:
    """Make the folder, open the log, write ``config.yaml`` (``written``), and train."""
    setup.announce(written, arguments)
    trainer.said.say()
    trainer.writes = True
    for hook in trainer._hooks:
        if isinstance(hook, PeriodicWriter):
            hook.write_to(trainer.build_writers())
    with _raising_reported():
        trainer.train()


def evaluate(trainer: PutOff, arguments: Namespace, written: Any) -> None:
    """Evaluate the last checkpoint or ``train.load_weight`` once on the test data, for ``--eval-only``."""
    setup.announce(written, arguments)
    trainer.said.say()
    cfg = trainer.cfg
    checkpointer = Checkpointer(trainer.model, save_dir=cfg.train.output_dir)
    if arguments.named:
        checkpointer.load(arguments.named, checkpointables=[])
    else:
        checkpointer.resume_or_load(cfg.train.load_weight, resume=arguments.resume)
    trainer._evaluate()


def _guarded(loop: Callable[[Run], None], signals: Signals, temporary: Path | None) -> Callable[[Run], None]:
    """Wrap ``loop``, so that the first signal ends it after the current iteration. A temporary folder is removed."""

    def guarded(run: Run) -> None:
        signals.install()
        try:
            loop(run)
        finally:
            signals.restore()
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    return guarded


# -- etude test --------------------------------------------------------------------------------------------------------


def measure(plan: Plan, options: Options, checkpoint: str, split: str) -> dict[str, float]:
    """Return the results of the config's evaluator for a checkpoint. No training data is opened."""
    cfg = dict_config(dict(plan.source))
    with contextlib.redirect_stdout(sys.stderr), explained(cfg):  # datasets and evaluators may print
        found = (_measure_detectron2 if is_detectron2(plan.source) else _measure_libai)(cfg, checkpoint)
    if found is None:
        raise ConfigError("the config has no `dataloader.evaluator`, which says what to measure", at=plan.files[0])
    return {name: float(value) for name, value in flatten_results_dict(found).items()}


def _measure_libai(cfg: Any, checkpoint: str) -> Mapping[str, Any]:
    """Do what ``tools/train_net.py --eval-only`` does."""
    setup.set_up_processes(cfg)
    seed_everywhere(cfg.train.seed + topology.get_rank())
    setup.place_input(cfg, logging.getLogger("libai.engine.default"))
    tokenizer = DefaultTrainer.build_tokenizer(cfg)
    model: Any = DefaultTrainer.build_model(cfg)
    Checkpointer(model).load(checkpoint, checkpointables=[])
    if cfg.graph.enabled:
        model = DefaultTrainer.build_graph(cfg, model, is_train=False)
    return DefaultTrainer.test(cfg, DefaultTrainer.build_test_loader(cfg, tokenizer), model)


def _measure_detectron2(cfg: Any, checkpoint: str) -> Any:
    # Both need fvcore, which users of LiBai do not have.
    from etude_libai.live.detectron import lazy_train
    from etude_libai.live.detectron.checkpoint import DetectionCheckpointer

    lazy_train.prepare(cfg)
    model = lazy_train.build_model(cfg)
    DetectionCheckpointer(model).load(checkpoint, checkpointables=[])
    return lazy_train.do_test(cfg, model, lazy_train.test_data(cfg))
