"""Run in each of two processes by ``test_processes.py``: trains, validates, resumes, and prints what every process saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from tests.mmengine import toy


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    given = {"launcher": "pytorch", "train_dataloader": toy.loader(shuffle=True)}
    hooks = [{"type": "SyncBuffersHook"}, {"type": "EMAHook"}]
    first = toy.make(folder, val=True, custom_hooks=hooks, **given)
    first.train()
    longer = {"by_epoch": True, "max_epochs": 3}
    second = toy.make(folder, train_cfg=longer, custom_hooks=hooks, resume=True, **given)
    second.train()
    seen = [sample for batch in first.model.module.batches[:2] for sample in batch]
    weights = second.model.module.fc.weight.flatten().tolist()
    facts = {"rank": first.rank, "world": first.world_size, "seen": seen, "iter": second.iter, "weights": weights}
    (folder / f"rank{first.rank}.json").write_text(json.dumps(facts))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
