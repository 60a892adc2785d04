"""Computes batch sizes, iterations and periods that a LiBai config leaves open."""

from __future__ import annotations

import copy
import logging
import math
from typing import Any

from etude_libai.lazy.load import try_get_key

logger = logging.getLogger("libai.engine.default")


def check_batch_size(cfg: Any, data_parallel_size: int) -> None:
    """Check that micro batch, global batch and accumulation steps agree, and fill in what is missing."""
    train = cfg.train
    micro, total = try_get_key(cfg, "train.train_micro_batch_size"), try_get_key(cfg, "train.global_batch_size")
    steps = try_get_key(cfg, "train.num_accumulation_steps")
    if micro is not None and total is not None:
        steps = _accumulation(micro, total, steps, data_parallel_size)
    elif micro is not None:
        steps = 1 if steps is None else steps
        total = micro * data_parallel_size * steps
    elif total is not None:
        steps = 1 if steps is None else steps
        if total % (data_parallel_size * steps) != 0:
            raise ValueError(
                f"global_batch_size {total} must be divisible by "
                f"data_parallel_size * num_accumulation_steps ({data_parallel_size} * {steps})"
            )
        micro = total // (data_parallel_size * steps)
    else:
        raise ValueError("train_micro_batch_size and global_batch_size must be set either")
    train.train_micro_batch_size, train.global_batch_size, train.num_accumulation_steps = micro, total, steps
    train.samples = train.train_iter * total


def _accumulation(micro: int, total: int, steps: int | None, data_parallel_size: int) -> int:
    if steps is None:
        if total % (micro * data_parallel_size) != 0:
            raise ValueError(
                f"global_batch_size {total} must be divisible by "
                f"train_micro_batch_size * data_parallel_size ({micro} * {data_parallel_size})"
            )
        return total // (micro * data_parallel_size)
    if total != micro * data_parallel_size * steps:
        raise ValueError(
            f"global_batch_size {total} must equal to train_micro_batch_size * data_parallel_size * "
            f"num_accumulation_steps ({micro} * {data_parallel_size} * {steps})"
        )
    return steps


def auto_scale_hyperparams(cfg: Any, samples: int) -> None:
    """Convert epochs to iterations and ratios to steps, for a dataset of ``samples``.

    In eager mode an iteration is one micro-batch, so all counts are multiplied by the accumulation steps.
    """
    train = cfg.train
    assert 0 <= train.warmup_ratio < 1, (
        "warmup_ratio must be in [0, 1) that presents the ratio of warmup iter to the train iter"
    )
    batch = train.global_batch_size
    iterations = max(math.ceil(samples * try_get_key(cfg, "train.train_epoch", default=0) / batch), train.train_iter)
    warmup = math.ceil(iterations * train.warmup_ratio)
    if not cfg.graph.enabled:
        iterations *= train.num_accumulation_steps
        warmup *= train.num_accumulation_steps
    train.train_iter, train.warmup_iter = iterations, warmup
    message = f"Auto-scaling the config to train.train_iter={iterations}, train.warmup_iter={warmup}"
    milestones = try_get_key(cfg, "train.scheduler.milestones")
    if milestones:
        train.scheduler.milestones = _milestones(milestones, iterations)
        message += f", scheduler milestones={train.scheduler.milestones}"
    train.scheduler.warmup_iter, train.scheduler.max_iter = warmup, iterations
    logger.info(message)
    _scale_periods(train, samples // batch)


def _milestones(ratios: Any, iterations: int) -> list[int]:
    if any(ratio < 0 or ratio >= 1 for ratio in ratios):
        raise ValueError(f"milestones should be a list of increasing ratio in [0, 1), but got {ratios}")
    return [int(ratio * iterations) for ratio in ratios]


def _scale_periods(train: Any, per_epoch: int) -> None:
    for section, epochs_key, period_key in (
        ("evaluation", "eval_after_n_epoch", "eval_period"),
        ("checkpointer", "save_model_after_n_epoch", "period"),
    ):
        epochs = try_get_key(train, f"{section}.{epochs_key}")
        if not epochs:
            continue
        # An epoch may be shorter than a batch. A period of 0 would never come, or divide by zero.
        period = max(per_epoch * epochs, 1)
        train[section][period_key] = period
        logger.info(
            f"Auto-scaling the config train.{section}.{epochs_key}={epochs} to train.{section}.{period_key}={period}"
        )


def auto_scale_workers(cfg: Any, num_workers: int) -> Any:
    """Scale batch size, lr and lengths to the number of processes by detectron2's rule; return a new config then."""
    reference = cfg.SOLVER.REFERENCE_WORLD_SIZE
    if reference == 0 or reference == num_workers:
        return cfg
    cfg = cfg.clone() if hasattr(cfg, "clone") else copy.deepcopy(cfg)
    frozen = cfg.is_frozen() if hasattr(cfg, "is_frozen") else False
    if frozen:
        cfg.defrost()
    solver = cfg.SOLVER
    assert solver.IMS_PER_BATCH % reference == 0, "Invalid REFERENCE_WORLD_SIZE in config!"
    scale = num_workers / reference
    solver.IMS_PER_BATCH = round(solver.IMS_PER_BATCH * scale)
    solver.BASE_LR = solver.BASE_LR * scale
    solver.MAX_ITER = round(solver.MAX_ITER / scale)
    solver.WARMUP_ITERS = round(solver.WARMUP_ITERS / scale)
    solver.STEPS = tuple(round(step / scale) for step in solver.STEPS)
    cfg.TEST.EVAL_PERIOD = round(cfg.TEST.EVAL_PERIOD / scale)
    solver.CHECKPOINT_PERIOD = round(solver.CHECKPOINT_PERIOD / scale)
    solver.REFERENCE_WORLD_SIZE = num_workers
    logging.getLogger("detectron2.engine.defaults").info(
        f"Auto-scaling the config to batch_size={solver.IMS_PER_BATCH}, learning_rate={solver.BASE_LR}, "
        f"max_iter={solver.MAX_ITER}, warmup={solver.WARMUP_ITERS}."
    )
    if frozen:
        cfg.freeze()
    return cfg
