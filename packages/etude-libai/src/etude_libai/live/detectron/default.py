"""detectron2's ``default_setup``, ``default_writers`` and ``DefaultTrainer``."""

from __future__ import annotations

import importlib
import logging
import os
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import torch

from etude.data.seeds import seed_everywhere
from etude.dialects import ownership
from etude.errors import OutOfScope
from etude_libai.lazy.load import DetectronLazyConfig, try_get_key
from etude_libai.live import topology
from etude_libai.live.config_errors import explained, require_sound
from etude_libai.live.detectron import optim
from etude_libai.live.detectron.checkpoint import DetectionCheckpointer
from etude_libai.live.detectron.evaluation import inference_on_dataset, print_csv_format, verify_results
from etude_libai.live.detectron.hooks import hooks
from etude_libai.live.detectron.hooks.writers import CommonMetricPrinter, JSONWriter, TensorboardXWriter
from etude_libai.live.detectron.trainer import ETUDE, AMPTrainer, SimpleTrainer, TrainerBase
from etude_libai.live.events import logger as shared
from etude_libai.live.events.logger import Held
from etude_libai.live.setup import report_earlier_run
from etude_libai.places import CONFIGS
from etude_libai.sizes import auto_scale_workers

logger = logging.getLogger("detectron2.engine.defaults")
#: LiBai's function with detectron2's name for the logger.
setup_logger = partial(shared.setup_logger, name="detectron2")


def _try_get_key(cfg: Any, *keys: str, default: Any = None) -> Any:
    """Return the value of the first dotted key that exists in a lazy or yacs config."""
    if type(cfg).__name__ != "CfgNode":
        return try_get_key(cfg, *keys, default=default)
    for key in keys:
        node = cfg
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        if node is not None:
            return node
    return default


def default_setup(cfg: Any, args: Any) -> None:
    """Make the folder and the logger, write the config, and set the seeds."""
    with explained(cfg), Held("detectron2") as said:  # errors come before a folder is made
        require_sound(cfg, args, logging.getLogger("detectron2"))
    announce(cfg, args)
    said.say()
    seed_from(cfg)


def seed_from(cfg: Any) -> None:
    """Seed the generators of this process by the config's seed, or randomly if there is none (-1)."""
    seed = _try_get_key(cfg, "SEED", "train.seed", default=-1)
    seed_all_rng(None if seed < 0 else seed + topology.get_rank())


def announce(cfg: Any, args: Any) -> None:
    """Do what :func:`default_setup` does, without checks and seeds."""
    folder = _try_get_key(cfg, "OUTPUT_DIR", "output_dir", "train.output_dir")
    if topology.is_main_process() and folder:
        os.makedirs(folder, exist_ok=True)
    rank = topology.get_rank()
    setup_logger(folder, distributed_rank=rank, name="fvcore")
    log = setup_logger(folder, distributed_rank=rank)
    log.info(f"Rank of current process: {rank}. World size: {topology.get_world_size()}")
    log.info(f"Environment info: torch {torch.__version__}, numpy {np.__version__}")
    log.info(f"Command line arguments: {args}")
    if topology.is_main_process() and folder:
        report_earlier_run(folder, args, log)
        path = os.path.join(folder, "config.yaml")
        if type(cfg).__name__ == "CfgNode":
            with open(path, "w", encoding="utf-8") as file:
                file.write(cfg.dump())
        else:
            DetectronLazyConfig.save(cfg, path)
        log.info(f"Full config saved to {path}")
    if not getattr(args, "eval_only", False):
        torch.backends.cudnn.benchmark = _try_get_key(cfg, "CUDNN_BENCHMARK", "train.cudnn_benchmark", default=False)


#: The version that user code compares with.
TORCH_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def seed_all_rng(seed: int | None = None) -> None:
    """Seed every random generator; without a seed, from process id, time and the system's randomness."""
    if seed is None:
        seed = os.getpid() + int(datetime.now().strftime("%S%f")) + int.from_bytes(os.urandom(2), "big")
        logger.info(f"Using a generated random seed {seed}")
    seed_everywhere(seed)
    # As in detectron2, for processes that start later.
    os.environ["PYTHONHASHSEED"] = str(seed)


def default_writers(output_dir: str, max_iter: int | None = None) -> list[Any]:
    """Return the writers for console, ``metrics.json`` and TensorBoard."""
    os.makedirs(output_dir, exist_ok=True)
    return [
        CommonMetricPrinter(max_iter),
        JSONWriter(os.path.join(output_dir, "metrics.json")),
        TensorboardXWriter(output_dir),
    ]


def create_ddp_model(model: torch.nn.Module, *, fp16_compression: bool = False, **kwargs: Any) -> torch.nn.Module:
    """Return the model, wrapped in DDP if there are several processes."""
    if topology.get_world_size() == 1:
        return model
    if "device_ids" not in kwargs and torch.cuda.is_available():
        kwargs["device_ids"] = [topology.get_local_rank()]
    ddp = torch.nn.parallel.DistributedDataParallel(model, **kwargs)
    if fp16_compression:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        ddp.register_comm_hook(state=None, hook=default_hooks.fp16_compress_hook)
    return ddp


def get_config_file(config_path: str) -> str:
    """Return the path of a common config. Those of detection models are not included."""
    path = os.path.join(CONFIGS, "detectron2", config_path)
    if not os.path.isfile(path):
        raise RuntimeError(f"{config_path} not available in Model Zoo!")
    return path


def get_config(config_path: str, trained: bool = False) -> Any:
    """Return a common lazy config: ``get_config("common/train.py").train``."""
    return DetectronLazyConfig.load(get_config_file(config_path))


def get_checkpoint_url(config_path: str) -> str:
    """Raise an error: trained detection models are not included."""
    raise RuntimeError(f"{config_path} not available in Model Zoo!")


def get(config_path: str, trained: bool = False, device: str | None = None) -> Any:
    """Raise an error, see :func:`get_checkpoint_url`."""
    return get_checkpoint_url(config_path)


def _data(name: str, instead: str) -> Any:
    """Return a function of ``detectron2.data``. Raises an error that says what to do if it is not installed."""
    if ownership.original("detectron2") is None:
        raise NotImplementedError(f"detection data comes from detectron2, which is not installed: {instead}")
    return getattr(importlib.import_module("detectron2.data"), name)


def _of_inner(name: str) -> Any:
    """Return a property for an attribute of the inner trainer, which makes the steps."""
    return property(lambda self: getattr(self._trainer, name), lambda self, value: setattr(self._trainer, name, value))


class DefaultTrainer(TrainerBase):
    """Trains a yacs config. Subclasses build model, data and evaluators; the config gives all other parts."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        if not logging.getLogger("detectron2").isEnabledFor(logging.INFO):  # a script may not have called default_setup
            setup_logger()
        cfg = DefaultTrainer.auto_scale_workers(cfg, topology.get_world_size())
        model = self.build_model(cfg)
        optimizer = self.build_optimizer(cfg, model)
        data_loader = self.build_train_loader(cfg)
        model = create_ddp_model(model, broadcast_buffers=False)
        kind = AMPTrainer if _try_get_key(cfg, "SOLVER.AMP.ENABLED", default=False) else SimpleTrainer
        self._trainer = kind(model, data_loader, optimizer)
        self._trainer.surround(self)
        self.scheduler = self.build_lr_scheduler(cfg, optimizer)
        self.checkpointer = DetectionCheckpointer(model, cfg.OUTPUT_DIR, trainer=weakref.proxy(self))
        self.start_iter = 0
        self.max_iter = cfg.SOLVER.MAX_ITER
        self.cfg = cfg
        self._require_test_data()
        self.register_hooks(self.build_hooks())

    def _require_test_data(self) -> None:
        """Raise an error now, not at the first evaluation, if there is an evaluator and no loader for it."""
        own, base = type(self), DefaultTrainer
        names = _try_get_key(self.cfg, "DATASETS.TEST", default=())
        asks = own.build_evaluator.__func__ is not base.build_evaluator.__func__  # type: ignore[attr-defined]
        has = own.build_test_loader.__func__ is not base.build_test_loader.__func__  # type: ignore[attr-defined]
        has = has or ownership.original("detectron2") is not None
        if names and asks and not has and own.test.__func__ is base.test.__func__:  # type: ignore[attr-defined]
            raise OutOfScope(
                f"DATASETS.TEST {tuple(names)}: detection data is not part of the engine; override "
                f"`build_test_loader(cls, cfg, dataset_name)` in {own.__name__}"
            )

    model, data_loader, optimizer = (_of_inner(name) for name in ("model", "data_loader", "optimizer"))

    def resume_or_load(self, resume: bool = True) -> None:
        """Resume from the last checkpoint if ``resume`` and there is one, else load ``MODEL.WEIGHTS``."""
        weights = _try_get_key(self.cfg, "MODEL.WEIGHTS", default="")
        self.checkpointer.resume_or_load(weights, resume=resume)
        if resume and self.checkpointer.has_checkpoint():
            self.start_iter = self.iter + 1

    def build_hooks(self) -> list[Any]:
        """Return the hooks in order: timer, scheduler, precise BN, checkpoints, evaluation, writers."""
        cfg = self.cfg
        made: list[Any] = [hooks.IterationTimer(), hooks.LRScheduler()]
        if _try_get_key(cfg, "TEST.PRECISE_BN.ENABLED", default=False) and hooks.precise_bn().get_bn_modules(
            self.model
        ):
            loader = self.build_train_loader(cfg)
            made.append(hooks.PreciseBN(cfg.TEST.EVAL_PERIOD, self.model, loader, cfg.TEST.PRECISE_BN.NUM_ITER))
        saver = hooks.together(self, self.checkpointer)
        if topology.get_world_size() > 1 or topology.is_main_process():
            made.append(hooks.PeriodicCheckpointer(saver, cfg.SOLVER.CHECKPOINT_PERIOD))
        made.append(hooks.EvalHook(cfg.TEST.EVAL_PERIOD, self._evaluate))
        if topology.is_main_process():
            made.append(hooks.PeriodicWriter(self.build_writers(), period=20))
        return made

    def _evaluate(self) -> Any:
        self._last_eval_results = self.test(self.cfg, self.model)
        return self._last_eval_results

    def build_writers(self) -> list[Any]:
        return default_writers(self.cfg.OUTPUT_DIR, self.max_iter)

    def train(self) -> Any:  # type: ignore[override]
        """Train from ``start_iter`` to ``max_iter``, and verify expected results."""
        super().train(self.start_iter, self.max_iter)
        if len(_try_get_key(self.cfg, "TEST.EXPECTED_RESULTS", default=[])) and topology.is_main_process():
            assert hasattr(self, "_last_eval_results"), "No evaluation results obtained during training!"
            verify_results(self.cfg, self._last_eval_results)
            return self._last_eval_results
        return None

    def run_step(self) -> None:
        self._trainer.iter = self.iter
        self._trainer.storage = self.storage
        self._trainer.run_step()

    def state_dict(self) -> dict[str, Any]:
        inner = self._trainer.state_dict()
        inner.pop(ETUDE, None)  # the outer trainer's entry holds the inner one's data, too
        return {**super().state_dict(), "_trainer": inner}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._trainer.load_state_dict(state_dict["_trainer"])

    # -- parts -----------------------------------------------------------------------------------------------------

    @classmethod
    def build_model(cls, cfg: Any) -> torch.nn.Module:
        """Return the registered model ``cfg.MODEL.META_ARCHITECTURE``; override it for one that is not registered."""
        # By its import name, so that an installed detectron2 provides its own models.
        model: torch.nn.Module = importlib.import_module("detectron2.modeling").build_model(cfg)
        logger.info(f"Model:\n{model}")
        return model

    @classmethod
    def build_train_loader(cls, cfg: Any) -> Any:
        return _data("build_detection_train_loader", "override `build_train_loader(cls, cfg)`")(cfg)

    @classmethod
    def build_test_loader(cls, cfg: Any, dataset_name: str) -> Any:
        instead = "override `build_test_loader(cls, cfg, dataset_name)` to evaluate"
        return _data("build_detection_test_loader", instead)(cfg, dataset_name)

    @classmethod
    def build_evaluator(cls, cfg: Any, dataset_name: str) -> Any:
        raise NotImplementedError("override `build_evaluator(cls, cfg, dataset_name)` to evaluate")

    @classmethod
    def build_optimizer(cls, cfg: Any, model: torch.nn.Module) -> Any:
        return optim.build_optimizer(cfg, model)

    @classmethod
    def build_lr_scheduler(cls, cfg: Any, optimizer: Any) -> Any:
        return optim.build_lr_scheduler(cfg, optimizer)

    @classmethod
    def test(cls, cfg: Any, model: Any, evaluators: Any = None) -> Any:
        """Return the results by dataset; for a single one the results themselves."""
        names = cfg.DATASETS.TEST
        given_evaluators = evaluators if isinstance(evaluators, list | tuple) else [evaluators] * len(names)
        assert len(given_evaluators) == len(names), f"{len(names)} != {len(given_evaluators)}"
        results: OrderedDict[str, Any] = OrderedDict()
        for name, given in zip(names, given_evaluators, strict=True):
            looked = cls._loader_and_evaluator(cfg, name, given)
            if looked is None:
                results[name] = {}
                continue
            results[name] = inference_on_dataset(model, *looked)
            if topology.is_main_process():
                logger.info(f"Evaluation results for {name} in csv format:")
                print_csv_format(results[name])
        return next(iter(results.values())) if len(results) == 1 else results

    @classmethod
    def _loader_and_evaluator(cls, cfg: Any, name: str, given: Any) -> tuple[Any, Any] | None:
        """Return the loader and the evaluator of a dataset; None, with a warning, if there is no evaluator."""
        try:
            loader = cls.build_test_loader(cfg, name)
            return loader, given or cls.build_evaluator(cfg, name)
        except NotImplementedError:
            if given is not None:
                raise
            logger.warning(
                "No evaluator found. Use `DefaultTrainer.test(evaluators=)`, or implement its `build_evaluator` method."
            )
            return None

    auto_scale_workers = staticmethod(auto_scale_workers)
