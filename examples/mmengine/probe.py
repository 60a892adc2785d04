"""What pretraining is worth: the linear probe's accuracy with a random encoder and with a pretrained one.

    python examples/mmengine/probe.py examples/mmengine/simclr_lars.py --work-dir work_dirs/simclr_lars

Trains first where the folder holds no checkpoint yet. An ordinary script against MMEngine's own names.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import etude.compat

etude.compat.install()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from mmengine.config import Config, DictAction  # noqa: E402
from mmengine.runner import Runner, find_latest_checkpoint  # noqa: E402


def probe(cfg: Any, checkpoint: str | None) -> float:
    """The accuracy on top of the encoder in ``checkpoint``, or of one with random weights."""
    cfg = cfg.copy()
    cfg.load_from, cfg.log_level = checkpoint, "ERROR"
    cfg.default_hooks = {"checkpoint": None}
    return Runner.from_cfg(cfg).val()["probe/accuracy"]


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--work-dir")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction)
    args = parser.parse_args(arguments)
    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options or {})
    cfg.work_dir = args.work_dir or os.path.join("work_dirs", os.path.splitext(os.path.basename(args.config))[0])
    before = probe(cfg, None)
    if find_latest_checkpoint(cfg.work_dir) is None:
        Runner.from_cfg(cfg).train()
    after = probe(cfg, find_latest_checkpoint(cfg.work_dir))
    print(f"linear probe: {before:.1%} with a random encoder, {after:.1%} after pretraining")
    return before, after


if __name__ == "__main__":
    main()
