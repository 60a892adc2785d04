"""``default_setup`` of LiBai: makes the folder and the logger, computes batch sizes, writes ``config.yaml``."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

from etude.errors import printable
from etude_libai import sizes as compute
from etude_libai.files import last_name
from etude_libai.lazy.load import LazyConfig, try_get_key
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.config_errors import explained, require_sound
from etude_libai.live.events.logger import Held, setup_logger


def default_setup(cfg: Any, args: Any) -> None:
    """Make the output folder, log the arguments, compute batch sizes and write ``config.yaml``. Seeds nothing."""
    cfg.train.resume = args.resume
    with explained(cfg), Held("libai") as said:  # errors come before a folder is made
        require_sound(cfg, args, logging.getLogger("libai"))
        set_up_processes(cfg)
        check_batch_size(cfg)
    logger = announce(cfg, args)
    said.say()
    place_input(cfg, logger)


def set_up_processes(cfg: Any) -> None:
    """Set up the parallel sizes. Warn if there is nothing that ZeRO could share."""
    dist.setup_dist_util(cfg.train.dist)
    if try_get_key(cfg, "train.zero_optimization.enabled", default=False) and not topology.get_dist_util().zero:
        logging.getLogger("libai.engine.default").warning(
            "train.zero_optimization.enabled has no effect: there are no data-parallel processes to share with"
        )


def announce(cfg: Any, args: Any) -> logging.Logger:
    """Make the folder and the logger, log the command, and save the config as it is."""
    folder = try_get_key(cfg, "train.output_dir")
    if topology.is_main_process() and folder:
        os.makedirs(folder, exist_ok=True)
    logger = setup_logger(folder, distributed_rank=topology.get_rank())
    logger.info(f"Rank of current process: {topology.get_rank()}. World size: {topology.get_world_size()}")
    logger.info(f"Command line arguments: {args}")
    if getattr(args, "config_file", ""):
        with open(args.config_file, encoding="utf-8") as file:
            logger.info(f"Contents of args.config_file={args.config_file}:\n{file.read()}")
    if getattr(args, "eval_only", False) and not args.resume and not try_get_key(cfg, "train.load_weight"):
        logger.warning(
            "--eval-only without --resume and without train.load_weight looks at weights that were never trained; "
            f"--resume takes the last checkpoint of {folder}"
        )
    if topology.is_main_process() and folder:
        report_earlier_run(folder, args, logger)
        path = os.path.join(folder, "config.yaml")
        LazyConfig.save(cfg, path)
        logger.info(f"Full config saved to {path}")
    return logger


def report_earlier_run(folder: str, args: Any, logger: logging.Logger) -> None:
    """Warn that the folder has checkpoints of an earlier run, which will be replaced."""
    newest = last_name(folder)
    if getattr(args, "resume", False) or getattr(args, "eval_only", False) or not newest:
        return
    logger.warning(
        f"{folder} holds an earlier run, up to {printable(newest)}: this one begins anew, replaces its checkpoints and "
        "writes behind its lines in metrics.json; --resume would continue it"
    )


def check_batch_size(cfg: Any) -> None:
    """Compute the batch sizes, see :func:`etude_libai.sizes.check_batch_size`."""
    compute.check_batch_size(cfg, topology.get_data_parallel_size())


def place_input(cfg: Any, logger: logging.Logger) -> None:
    """Change ``input_placement_device="cuda"``, the default, to the CPU if there is no CUDA, and log it."""
    wanted = try_get_key(cfg, "train.input_placement_device", default="cuda")
    if str(wanted).startswith("cuda") and not torch.cuda.is_available():
        cfg.train.input_placement_device = "cpu"
        logger.info("there is no CUDA device here: training runs on the CPU")


def fast_dev_run(cfg: Any) -> None:
    """Apply ``--fast-dev-run``: 20 iterations, an evaluation after 10, a line for each."""
    cfg.train.train_epoch = 0
    cfg.train.train_iter = 20
    cfg.train.evaluation.eval_period = 10
    cfg.train.log_period = 1
