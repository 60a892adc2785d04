"""LiBai's ``DefaultTrainer``, which builds everything that a lazy config describes."""

from __future__ import annotations

import inspect
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from etude.errors import ConfigError
from etude_libai import sizes
from etude_libai.files import Checkpointer
from etude_libai.lazy.extra import is_list_config
from etude_libai.lazy.instantiate import instantiate
from etude_libai.lazy.load import try_get_key
from etude_libai.lazy.targets import locate
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.averaging import Averaging, average
from etude_libai.live.config_errors import explain, explained
from etude_libai.live.data import position
from etude_libai.live.data.loaders import as_list
from etude_libai.live.data.structures import to_device
from etude_libai.live.evaluation.run import flatten_results_dict, inference_on_dataset, print_csv_format
from etude_libai.live.events.writers import CommonMetricPrinter, EventWriter, JSONWriter, TensorboardXWriter
from etude_libai.live.hooks import hooks, hooks_save
from etude_libai.live.oneflow import tensors as tensors  # OneFlow's methods, for models that import only `nn`
from etude_libai.live.oneflow.graph import set_activation_checkpoint, shared
from etude_libai.live.optim import build as optim
from etude_libai.live.optim import schedule
from etude_libai.live.resume import resume
from etude_libai.live.resume.state import TrainerState, restore_hooks
from etude_libai.live.setup import place_input
from etude_libai.live.trainer import Amp, EagerTrainer, GraphTrainer, TrainerBase
from etude_libai.places import ORIGINS

logger = logging.getLogger("libai.engine.default")


class DefaultTrainer(TrainerBase):
    """Builds and trains a lazy config. Override ``build_*`` methods or set ``self._trainer`` to change parts of it."""

    #: The checkpoint that the command line names, to resume from instead of the last one.
    _named = ""
    #: Whether a finished run can be resumed. Scripts get an error then, as in LiBai.
    _goes_on = False
    #: Averages gradients over processes if a user-defined step trains.
    _averaging: Averaging | None = None

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        with explained(cfg):
            self._build(cfg)

    def _build(self, cfg: Any) -> None:
        """Build everything, in LiBai's order: it decides which random numbers each part draws."""
        place_input(cfg, logger)
        self._device = cfg.train.input_placement_device
        self.tokenizer = self.build_tokenizer(cfg)
        self._resume = resume.find(cfg, self._named, longer=self._goes_on)
        self.start_iter = self.iter = self._resume.start if self._resume else 0
        self._build_data(cfg)
        self.auto_scale_hyperparams(cfg, self.train_loader)
        self.model = self.build_model(cfg)
        if not topology.splits():
            self.model = self.model.to(cfg.train.input_placement_device)
        self.optimizer = self.build_optimizer(cfg, self.model)
        self.lr_scheduler = self.build_lr_scheduler(cfg, self.optimizer)
        self._build_trainer(cfg)
        self.checkpointer = self._build_checkpointer(cfg)
        self.resume_or_load(try_get_key(cfg, "train.resume", default=False))
        cfg.train.start_iter = self.start_iter
        self.global_batch_size = self._samples_each
        self.max_iter = cfg.train.train_iter
        self.register_hooks(self.build_hooks())
        if self._left_off is not None:  # loaded above, before there were hooks
            restore_hooks(self, self._left_off["hooks"])

    # -- the constructor's steps -----------------------------------------------------------------------------------

    def _build_data(self, cfg: Any) -> None:
        steps = try_get_key(cfg, "train.num_accumulation_steps", default=1) or 1
        self._samples_each = cfg.train.global_batch_size // (1 if cfg.graph.enabled else steps)
        known = self._resume.data() if self._resume is not None else {}
        seen = {"batches": self.start_iter * (steps if cfg.graph.enabled else 1), **known}
        consumed = int(seen["batches"]) * cfg.train.train_micro_batch_size * topology.get_data_parallel_size()
        cfg.dataloader.consumed_samples = consumed
        loader = try_get_key(cfg, "dataloader.train")  # may be missing if build_train_loader is overridden
        seen["positioned"] = loader is not None and _accepts(loader, "consumed_samples")
        if seen["positioned"]:
            loader.consumed_samples = consumed
        self.train_loader, val, test = self.build_train_loader(cfg, self.tokenizer)
        self.test_loader = [loader for loader in (val, test) if loader is not None]
        asked_for = self.build_test_loader(cfg, self.tokenizer)
        if cfg.train.evaluation.enabled:
            _require_samples(asked_for)
        self.test_loader.extend(asked_for)
        if self._resume is not None:
            position.begin_at(self.train_loader, seen)

    def _build_trainer(self, cfg: Any) -> None:
        steps = cfg.train.num_accumulation_steps
        self.amp = Amp(
            enabled=bool(try_get_key(cfg, "train.amp.enabled", default=False)),
            device=cfg.train.input_placement_device,
            data_parallel_size=topology.get_data_parallel_size(),
        )
        self._trainer: Any
        if cfg.graph.enabled:
            self.graph_train = self.build_graph(cfg, self.model, self.optimizer, self.lr_scheduler, is_train=True)
            self.graph_eval = self.build_graph(cfg, self.model, is_train=False)
            self._trainer = GraphTrainer(self.graph_train, self.train_loader, steps)
        else:
            if try_get_key(cfg, "train.activation_checkpoint.enabled", default=False):
                set_activation_checkpoint(self.model)
            self._trainer = EagerTrainer(shared(self.model), self.train_loader, self.optimizer, steps, amp=self.amp)
        self._of_ours = self._trainer

    def _build_checkpointer(self, cfg: Any) -> Checkpointer:
        keeps: dict[str, Any] = {"graph": self.graph_train} if cfg.graph.enabled else {"optimizer": self.optimizer}
        keeps |= {"lr_scheduler": self.lr_scheduler, "trainer": TrainerState(self)}
        return Checkpointer(self.model, cfg.train.output_dir, **keeps)

    def resume_or_load(self, resume: bool = True) -> None:
        """Resume from the last checkpoint, or load only the weights of ``train.load_weight``."""
        weight_path = self.cfg.train.load_weight
        assert isinstance(weight_path, str), (
            f"cfg.train.load_weight:{weight_path} must be string, it should be your checkpoint dir"
        )
        if resume and self._resume is not None:
            self.checkpointer.load(self._resume.path)
            if topology.is_main_process():
                self.checkpointer.tag_last_checkpoint(os.path.basename(self._resume.path))
        elif weight_path:
            assert os.path.isdir(weight_path), f"cfg.train.load_weight:{weight_path} must be directory"
            self.checkpointer.load(weight_path, checkpointables=[])
        if topology.splits():
            from etude_libai.live.split import updates

            updates.loaded(self.optimizer)

    # -- training --------------------------------------------------------------------------------------------------

    def train(self) -> None:  # type: ignore[override]
        """Train from ``start_iter`` to ``max_iter``."""
        if type(self).run_step is not DefaultTrainer.run_step:
            self._averaging = average(self.model)
        elif self._trainer is not self._of_ours:
            own = getattr(self._trainer, "model", None)
            self._averaging = average(own if isinstance(own, torch.nn.Module) else self.model)
        try:
            super().train(self.start_iter, self.max_iter)
        except Exception as error:
            if self.iter <= self.start_iter:
                explain(error, self.cfg)
            raise
        finally:
            if self._averaging is not None:
                self._averaging.stop()
        resume.mark_ended(self)

    def before_step(self) -> None:
        super().before_step()
        if self._averaging is not None:
            self._averaging.share_buffers()

    def run_step(self) -> None:
        inner = self._trainer
        inner.iter = self.iter
        if _takes_device(type(inner).run_step):
            inner.run_step(self.get_batch, self._device)
        else:
            inner.run_step(self.get_batch)

    def build_hooks(self) -> list[Any]:
        """Return the hooks in order: timer, scheduler, checkpoints, evaluation, best checkpoint, writers."""
        train = self.cfg.train
        made: list[Any] = [
            hooks.IterationTimer(),
            hooks.LRScheduler(),
            hooks_save.PeriodicCheckpointer(
                self.checkpointer, train.checkpointer.period, max_to_keep=train.checkpointer.max_to_keep
            ),
        ]
        if train.evaluation.enabled:
            assert train.evaluation.eval_iter > 0, "run_iter must be positive number"
            made.append(hooks.EvalHook(train.evaluation.eval_period, self._evaluate))
            made.append(
                hooks_save.BestCheckpointer(
                    train.evaluation.eval_period,
                    self.checkpointer,
                    val_metric=try_get_key(self.cfg, "train.evaluation.eval_metric", default="Acc@1"),
                    mode=try_get_key(self.cfg, "train.evaluation.eval_mode", default="max"),
                )
            )
        if topology.is_main_process():
            made.append(hooks.PeriodicWriter(self.build_writers(), train.log_period))
        return made

    def _evaluate(self) -> Any:
        model = self.graph_eval if self.cfg.graph.enabled else self.model
        results = self.test(self.cfg, self.test_loader, model)
        self._last_eval_results = results
        self.engine.metrics = {name: float(value) for name, value in flatten_results_dict(results).items()}
        hooks_save.report_missing(self, list(self.engine.metrics))
        return results

    def build_writers(self) -> list[EventWriter]:
        folder = self.cfg.train.output_dir
        return [
            CommonMetricPrinter(self.global_batch_size, self.max_iter),
            JSONWriter(os.path.join(folder, "metrics.json")),
            TensorboardXWriter(folder),
        ]

    # -- parts -----------------------------------------------------------------------------------------------------

    @classmethod
    def build_tokenizer(cls, cfg: Any) -> Any:
        return build_tokenizer(cfg) if try_get_key(cfg, "tokenization") is not None else None

    @classmethod
    def build_model(cls, cfg: Any) -> torch.nn.Module:
        assert try_get_key(cfg, "model") is not None, "cfg must contain `model` namespace"
        # As in LiBai, only graph mode passes mixed precision on to the model.
        amp = bool(try_get_key(cfg, "train.amp.enabled", default=False)) and cfg.graph.enabled
        if try_get_key(cfg.model, "cfg.amp_enabled") is not None:
            cfg.model.cfg.amp_enabled = amp
        elif try_get_key(cfg.model, "amp_enabled") is not None:
            cfg.model.amp_enabled = amp
        if topology.splits():
            from etude_libai.live.split import random, updates

            random.align()
        model: torch.nn.Module = instantiate(cfg.model)
        logger.info(f"Model:\n{model}")
        if not topology.splits():
            return model.to(try_get_key(cfg, "train.input_placement_device", default="cpu"))
        dist.convert_to_distributed_default_setting(model)
        if topology.get_dist_util().zero > 2:
            updates.shard_layers(model)
        return model

    @classmethod
    def build_graph(
        cls, cfg: Any, model: Any, optimizer: Any = None, lr_scheduler: Any = None, is_train: bool = True
    ) -> Any:
        assert try_get_key(cfg, "graph") is not None, "cfg must contain `graph` namespace"
        graph = cfg.graph.train_graph if is_train else cfg.graph.eval_graph
        graph.model = model
        graph.fp16 = bool(try_get_key(cfg, "train.amp.enabled", default=False))
        graph.activation_checkpoint = bool(try_get_key(cfg, "train.activation_checkpoint.enabled", default=False))
        graph.zero_optim = bool(try_get_key(cfg, "train.zero_optimization.enabled", default=False))
        graph.zero_stage = try_get_key(cfg, "train.zero_optimization.stage", default=1)
        graph.grad_acc_steps = cfg.train.num_accumulation_steps
        if is_train:
            graph.optimizer, graph.lr_scheduler = optimizer, lr_scheduler
        return instantiate(graph)

    @classmethod
    def build_optimizer(cls, cfg: Any, model: torch.nn.Module) -> Any:
        assert try_get_key(cfg, "optim") is not None, "cfg must contain `optim` namespace"
        return optim.build_optimizer(cfg.optim, model)

    @classmethod
    def build_lr_scheduler(cls, cfg: Any, optimizer: Any) -> Any:
        assert try_get_key(cfg, "train.scheduler") is not None, "cfg.train must contain `scheduler` namespace"
        return schedule.build_lr_scheduler(cfg.train.scheduler, optimizer)

    @classmethod
    def build_train_loader(cls, cfg: Any, tokenizer: Any = None) -> Any:
        """Return loaders ``(train, val or None, test or None)``."""
        assert try_get_key(cfg, "dataloader.train") is not None, "cfg must contain `dataloader.train` namespace"
        logger.info("Prepare training, validating, testing set")
        loader, train = cfg.dataloader.train, cfg.train
        _set(loader, "train_batch_size", train.train_micro_batch_size)
        _set(loader, "test_batch_size", train.test_micro_batch_size)
        _set(loader, "seed", train.seed)
        for dataset in _datasets(loader):
            if "seed" in dataset:
                dataset.seed = train.seed
            if tokenizer is not None:
                dataset.tokenizer = tokenizer
        if "train_val_test_num_samples" in loader:
            loader.train_val_test_num_samples = _numbers_of_samples(train)
        return instantiate(loader, _recursive_=False)

    @classmethod
    def build_test_loader(cls, cfg: Any, tokenizer: Any = None) -> list[Any]:
        if try_get_key(cfg, "dataloader.test") is None:
            return []
        listed = is_list_config(cfg.dataloader.test) or isinstance(cfg.dataloader.test, list)
        assert listed, f"dataloader.test must be list but got type of {type(cfg.dataloader.test)}"
        for loader in cfg.dataloader.test:
            _set(loader, "test_batch_size", cfg.train.test_micro_batch_size)
            _set(loader, "seed", cfg.train.seed)
            if tokenizer is not None:
                for dataset in _datasets(loader):
                    dataset.tokenizer = tokenizer
        return [instantiate(loader, _recursive_=False) for loader in cfg.dataloader.test]

    @classmethod
    def build_evaluator(cls, cfg: Any) -> Any:
        return instantiate(cfg.train.evaluation.evaluator)

    @classmethod
    def get_batch(
        cls, data: Any, input_placement_device: str | None = None, mixup_func: Callable[..., Any] | None = None
    ) -> dict[str, Any]:
        """Return the arguments of the model's ``forward``: the fields of a batch, on the device."""
        return to_device(data, input_placement_device, mixup_func)

    @classmethod
    def auto_scale_hyperparams(cls, cfg: Any, data_loader: Any) -> None:
        sizes.auto_scale_hyperparams(cfg, len(data_loader.dataset))

    @classmethod
    def test(cls, cfg: Any, test_loaders: Sequence[Any], model: Any, evaluator: Any = None) -> Mapping[str, Any]:
        """Return the results by the class name of the dataset; for a single loader the results themselves.

        A second dataset of one class is called ``Name_2``.
        """
        evaluator = evaluator or cls.build_evaluator(cfg)
        results: OrderedDict[str, Any] = OrderedDict()
        kinds = {type(loader.dataset).__name__ for loader in test_loaders}
        for index, loader in enumerate(test_loaders):
            name = type(loader.dataset).__name__
            name = name if name not in results else f"{name}_{index + 1}"
            if index == 0:
                logger.info(f"Prepare testing set: {len(test_loaders)} loader(s)")
            results[name] = inference_on_dataset(
                model,
                loader,
                cfg.train.test_micro_batch_size * topology.get_data_parallel_size(),
                cfg.train.evaluation.eval_iter,
                cls.get_batch,
                cfg.train.input_placement_device,
                evaluator,
            )
            if topology.is_main_process():
                logger.info(f"Evaluation results for {name} in csv format:")
                print_csv_format(results[name])
        # If all datasets are of one class, the results of the last loader are also there without a prefix, as in LiBai.
        return {**results[name], **(results if len(results) > 1 else {})} if len(kinds) == 1 else results


# -- helpers -----------------------------------------------------------------------------------------------------------


def build_tokenizer(cfg: Any) -> Any:
    """Return the tokenizer of ``cfg.tokenization``, and set the padded vocabulary size of the model."""
    tokenization = cfg.tokenization
    tokenizer = instantiate(tokenization.tokenizer)
    if try_get_key(tokenization, "append_eod") and tokenizer.eod_token is None:
        tokenizer.eod_token = tokenizer.eos_token if tokenizer.eos_token is not None else tokenizer.pad_token
    if try_get_key(cfg, "model.cfg.vocab_size") is not None and hasattr(tokenizer, "padded_vocab_size"):
        multiple = tokenization.make_vocab_size_divisible_by * topology.get_tensor_parallel_size()
        cfg.model.cfg.vocab_size = tokenizer.padded_vocab_size(multiple)
    return tokenizer


def _require_samples(loaders: Sequence[Any]) -> None:
    """Raise an error for empty evaluation data now, not after training."""
    for index, loader in enumerate(loaders):
        if hasattr(loader.dataset, "__len__") and len(loader.dataset) == 0:
            raise ConfigError(
                f"dataloader.test.{index}: {type(loader.dataset).__name__} has no sample to evaluate on",
                at=str(ORIGINS.place(("dataloader", "test", index))),
                hint="or set train.evaluation.enabled=False",
            )


def _numbers_of_samples(train: Any) -> list[int]:
    """Return the numbers of samples for training, validation and test."""
    evaluation = train.evaluation
    rounds = train.train_iter // evaluation.eval_period + 1 if evaluation.enabled else 1
    each = int(evaluation.eval_iter if evaluation.enabled else 1) * train.test_micro_batch_size
    each *= topology.get_data_parallel_size()
    return [int(train.samples), int(rounds * each), int(each)]


def _datasets(loader: Any) -> list[Any]:
    """Return the lazy datasets in the config of a loader."""
    return [item for item in as_list(try_get_key(loader, "dataset")) if hasattr(item, "keys")]


def _set(loader: Any, key: str, value: Any) -> None:
    """Set ``key`` if the loader's builder takes it; a user-defined builder may not."""
    if _accepts(loader, key):
        loader[key] = value


def _accepts(loader: Any, key: str) -> bool:
    target = loader.get("_target_")
    try:
        found = locate(target) if isinstance(target, str) else target
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError, ImportError):
        return True
    return key in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@cache
def _takes_device(run_step: Callable[..., Any]) -> bool:
    """Return whether ``run_step`` takes the device, too. In LiBai's tutorial it takes only ``get_batch``."""
    parameters = list(inspect.signature(run_step).parameters.values())
    return len(parameters) > 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
