"""Evaluates a checkpoint on the test data of a LiBai or detectron2 config, for ``etude test``."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping
from typing import Any

from etude.dialects.libai.files import Checkpointer
from etude.dialects.libai.lazy.extra import dict_config
from etude.dialects.libai.live import distributed as dist
from etude.dialects.libai.live import setup
from etude.dialects.libai.live.config_errors import explained
from etude.dialects.libai.live.default import DefaultTrainer
from etude.dialects.libai.live.evaluation.run import flatten_results_dict
from etude.dialects.libai.lower import is_detectron2
from etude.errors import ConfigError
from etude.plan import Plan

logger = logging.getLogger("libai.engine.default")


def measure(plan: Plan, checkpoint: str) -> dict[str, float]:
    """Return the results of the config's evaluator. No training data is opened."""
    cfg = dict_config(dict(plan.source))
    with contextlib.redirect_stdout(sys.stderr), explained(cfg):  # datasets and evaluators may print
        found = (_of_detectron2 if is_detectron2(plan.source) else _of_libai)(cfg, checkpoint)
    if found is None:
        raise ConfigError("the config has no `dataloader.evaluator`, which says what to measure", at=plan.files[0])
    return {name: float(value) for name, value in flatten_results_dict(found).items()}


def _of_libai(cfg: Any, checkpoint: str) -> Mapping[str, Any]:
    """Do what ``tools/train_net.py --eval-only`` does."""
    dist.setup_dist_util(cfg.train.dist)
    setup.seed_all(cfg.train.seed + dist.get_rank())
    setup.place_input(cfg, logger)
    tokenizer = DefaultTrainer.build_tokenizer(cfg)
    model: Any = DefaultTrainer.build_model(cfg)
    Checkpointer(model).load(checkpoint, checkpointables=[])
    if cfg.graph.enabled:
        model = DefaultTrainer.build_graph(cfg, model, is_train=False)
    return DefaultTrainer.test(cfg, DefaultTrainer.build_test_loader(cfg, tokenizer), model)


def _of_detectron2(cfg: Any, checkpoint: str) -> Any:
    # Both need fvcore, which users of LiBai do not have.
    from etude.dialects.libai.live.detectron import lazy_train
    from etude.dialects.libai.live.detectron.checkpoint import DetectionCheckpointer

    lazy_train.prepare(cfg)
    model = lazy_train.build_model(cfg)
    DetectionCheckpointer(model).load(checkpoint, checkpointables=[])
    return lazy_train.do_test(cfg, model, lazy_train.test_data(cfg))
