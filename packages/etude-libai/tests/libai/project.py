"""A small LiBai project on disk: a model, data, a config and the train scripts that users have."""

from __future__ import annotations

import logging
from pathlib import Path

from etude.dialects import imports
from etude_libai.live.events import logger

imports.install()

PARTS = '''
import torch
from torch import nn
from libai.data import DistTensorData, Instance
from libai.evaluation import DatasetEvaluator


class Points(torch.utils.data.Dataset):
    """Points on a line; ``noisy`` draws from torch's generator, as an augmentation would."""

    def __init__(self, n, noisy=False):
        self.n, self.noisy = n, noisy

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        x = torch.tensor([index % 7 / 7.0])
        if self.noisy:
            x = x + 0.01 * torch.randn(1)
        return Instance(x=DistTensorData(x), labels=DistTensorData(2.0 * x))


class Line(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.hidden, self.drop, self.out = nn.Linear(1, 4), nn.Dropout(dropout), nn.Linear(4, 1)

    def forward(self, x, labels):
        predicted = self.out(self.drop(torch.tanh(self.hidden(x))))
        if not self.training:
            return {"prediction_scores": predicted}
        return {"mse_loss": ((predicted - labels) ** 2).mean(), "l1_loss": 0.1 * (predicted - labels).abs().mean()}


class Error(DatasetEvaluator):
    def reset(self):
        self.total, self.count = 0.0, 0

    def process(self, inputs, outputs):
        self.total += float(((outputs["prediction_scores"] - inputs["labels"]) ** 2).sum())
        self.count += len(inputs["labels"])

    def evaluate(self):
        return {"mse": self.total / self.count}
'''

CONFIG = """
from libai.config import LazyCall, get_config
from libai.data.build import build_image_test_loader, build_image_train_loader
from libai.data.samplers import CyclicSampler, SingleRoundSampler
from line_parts import Error, Line, Points

train = get_config("common/train.py").train
optim = get_config("common/optim.py").optim
graph = get_config("common/models/graph.py").graph
graph.enabled = False
model = LazyCall(Line)(dropout=0.0)
dataloader = dict(
    train=LazyCall(build_image_train_loader)(
        dataset=[LazyCall(Points)(n=40)], num_workers=0, sampler=LazyCall(CyclicSampler)(shuffle=True)
    ),
    test=[
        LazyCall(build_image_test_loader)(
            dataset=LazyCall(Points)(n=10),
            num_workers=0,
            sampler=LazyCall(SingleRoundSampler)(shuffle=False, drop_last=False),
        )
    ],
)
optim.lr = 0.05
train.output_dir = "out"
train.train_micro_batch_size = 4
train.test_micro_batch_size = 4
train.train_iter = 12
train.warmup_ratio = 0.25
train.log_period = 4
train.checkpointer.period = 5
train.evaluation.evaluator = LazyCall(Error)()
train.evaluation.eval_period = 4
train.evaluation.eval_metric = "mse"
train.evaluation.eval_mode = "min"
train.input_placement_device = "cpu"
"""

TRAIN_NET = """
import logging
import random

import numpy as np
import oneflow as flow

import libai.utils.distributed as dist
from libai.config import LazyConfig, default_argument_parser, try_get_key
from libai.engine import DefaultTrainer, default_setup
from libai.utils.checkpoint import Checkpointer

logger = logging.getLogger("libai." + __name__)


def main(args):
    cfg = LazyConfig.load(args.config_file)
    cfg = LazyConfig.apply_overrides(cfg, args.opts)
    default_setup(cfg, args)

    seed_for_rank = cfg.train.seed + flow.env.get_rank()
    flow.manual_seed(seed_for_rank)
    flow.cuda.manual_seed(seed_for_rank)
    np.random.seed(seed_for_rank)
    random.seed(seed_for_rank)

    if args.fast_dev_run:
        cfg.train.train_epoch = 0
        cfg.train.train_iter = 20
        cfg.train.evaluation.eval_period = 10
        cfg.train.log_period = 1

    if args.eval_only:
        tokenizer = None
        if try_get_key(cfg, "tokenization") is not None:
            tokenizer = DefaultTrainer.build_tokenizer(cfg)
        model = DefaultTrainer.build_model(cfg)
        Checkpointer(model, save_dir=cfg.train.output_dir).resume_or_load(cfg.train.load_weight, resume=args.resume)
        if cfg.graph.enabled:
            model = DefaultTrainer.build_graph(cfg, model, is_train=False)
        test_loader = DefaultTrainer.build_test_loader(cfg, tokenizer)
        print("results", dict(DefaultTrainer.test(cfg, test_loader, model)))
        return

    trainer = DefaultTrainer(cfg)
    return trainer.train()


if __name__ == "__main__":
    args = default_argument_parser().parse_args()
    main(args)
"""


def write(folder: Path) -> Path:
    """The project in ``folder``; the path of its config."""
    (folder / "tools").mkdir(parents=True, exist_ok=True)
    (folder / "line_parts.py").write_text(PARTS)
    (folder / "config.py").write_text(CONFIG)
    (folder / "tools" / "train_net.py").write_text(TRAIN_NET)
    return folder / "config.py"


def forget_loggers() -> None:
    """Take back what a run's setup did to the loggers of this process."""
    logger.setup_logger.cache_clear()
    for name in ("libai", "detectron2", "fvcore"):
        logging.getLogger(name).propagate = True
        for handler in list(logging.getLogger(name).handlers):
            logging.getLogger(name).removeHandler(handler)
            handler.close()
