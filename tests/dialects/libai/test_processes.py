"""Two data-parallel processes train one model together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_two_processes_share_the_data_and_agree(config: Path) -> None:
    code = "import sys; from etude.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["exec", "tools/train_net.py", "--config-file", "config.py", "train.train_iter=6"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", "--no-python"]
    subprocess.run(
        [*launcher, sys.executable, "-c", code, *words],
        check=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
    )
    out = config.parent / "out"
    assert (out / "last_checkpoint").read_text() == "model_final"
    assert (out / "log.txt.rank1").exists()
    log = (out / "log.txt").read_text()
    assert "World size: 2" in log
    assert "Total valid samples: 10" in log
    assert "consumed_samples: 48" in log
    assert [json.loads(line)["iteration"] for line in (out / "metrics.json").read_text().splitlines()] == [3, 5]
