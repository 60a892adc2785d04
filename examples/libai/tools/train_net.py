"""LiBai's train script, as users have it; ``etude exec tools/train_net.py …`` runs it on Étude."""

import random

import libai.utils.distributed as dist
import numpy as np
import oneflow as flow
from libai.config import LazyConfig, default_argument_parser
from libai.engine import DefaultTrainer, default_setup
from libai.utils.checkpoint import Checkpointer


def main(args):
    cfg = LazyConfig.load(args.config_file)
    cfg = LazyConfig.apply_overrides(cfg, args.opts)
    default_setup(cfg, args)

    seed = cfg.train.seed + dist.get_rank()
    flow.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)

    if args.fast_dev_run:
        cfg.train.train_epoch = 0
        cfg.train.train_iter = 20
        cfg.train.evaluation.eval_period = 10
        cfg.train.log_period = 1

    if args.eval_only:
        model = DefaultTrainer.build_model(cfg)
        Checkpointer(model, save_dir=cfg.train.output_dir).resume_or_load(cfg.train.load_weight, resume=args.resume)
        if cfg.graph.enabled:
            model = DefaultTrainer.build_graph(cfg, model, is_train=False)
        return DefaultTrainer.test(cfg, DefaultTrainer.build_test_loader(cfg), model)

    return DefaultTrainer(cfg).train()


if __name__ == "__main__":
    main(default_argument_parser().parse_args())
