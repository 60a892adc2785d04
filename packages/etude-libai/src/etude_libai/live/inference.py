"""From a run of LiBai to its model, its predictions, and a program."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from etude.errors import UserError
from etude.plan import Plan
from etude_libai.files import Checkpointer
from etude_libai.lazy.extra import dict_config
from etude_libai.live import setup
from etude_libai.live.config_errors import explained
from etude_libai.live.default import DefaultTrainer
from etude_libai.live.evaluation.run import DatasetEvaluator
from etude_libai.lower import is_detectron2

if TYPE_CHECKING:
    from etude.building.options import Options
    from etude.dialects.base import Answers, Inputs


def _config(plan: Plan) -> Any:
    if is_detectron2(plan.source):
        raise UserError(
            "models of detectron2's own trainer are tested by its script; `etude ckpt convert` reads weights"
        )
    cfg = dict_config(copy.deepcopy(dict(plan.source)))
    cfg.graph.enabled = False
    setup.set_up_processes(cfg)
    setup.place_input(cfg, logging.getLogger("libai.engine.default"))
    return cfg


def build_model(plan: Plan) -> nn.Module:
    """Return the model as the trainer builds it, in eager mode."""
    cfg = _config(plan)
    with explained(cfg):
        DefaultTrainer.build_tokenizer(cfg)
        return DefaultTrainer.build_model(cfg)


class _Kept(DatasetEvaluator):
    """Keeps the outputs of every sample."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def process(self, inputs: Any, outputs: Any) -> None:
        count = len(next(iter(inputs.values())))
        for index in range(count):
            self.rows.append({name: _of(value, index, count) for name, value in outputs.items()})

    def evaluate(self) -> Any:
        return {}


def _of(value: Any, index: int, count: int) -> Any:
    """Return the part of an output that is a sample's; what is not one for each sample is of the whole batch."""
    of_batch = isinstance(value, Tensor | list | tuple) and not (isinstance(value, Tensor) and value.ndim == 0)
    found = value[index] if of_batch and len(value) == count else value
    return found.detach().cpu().clone() if isinstance(found, Tensor) else found


def predict(plan: Plan, options: Options, checkpoint: str, split: str, data: Path | None) -> Answers:
    """Return the model's outputs for the samples of ``dataloader.test``."""
    if data is not None or split != "test":
        raise UserError("a LiBai config says by dataloader.test what is predicted; override that for other data")
    cfg, kept = _config(plan), _Kept()
    cfg.train.evaluation.eval_iter = math.inf
    with explained(cfg):
        tokenizer = DefaultTrainer.build_tokenizer(cfg)
        model = DefaultTrainer.build_model(cfg)
        Checkpointer(model).load(checkpoint, checkpointables=[])
        DefaultTrainer.test(cfg, DefaultTrainer.build_test_loader(cfg, tokenizer), model, kept)
    return range(len(kept.rows)), kept.rows, kept.rows


def program(plan: Plan, model: nn.Module, shape: Sequence[int] | None) -> tuple[nn.Module, Inputs]:
    """Return the model with the inputs of the first test batch, by the names of its arguments."""
    if shape is not None:
        raise UserError("the inputs of a LiBai model have names; they come from dataloader.test, not from --shape")
    cfg = _config(plan)
    with explained(cfg), torch.no_grad():
        loaders = DefaultTrainer.build_test_loader(cfg, DefaultTrainer.build_tokenizer(cfg))
        if not loaders:
            raise UserError("the config has no dataloader.test to take an example of the inputs from")
        batch = DefaultTrainer.get_batch(next(iter(loaders[0])), cfg.train.input_placement_device)
    return model, ((), {name: value[:4] for name, value in batch.items()})
