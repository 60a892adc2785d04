from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_two_processes_share_the_data_and_end_with_the_same_weights(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.dialects.mmengine.two_processes", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    one, other = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert (one["world"], other["world"]) == (2, 2)
    assert sorted(one["seen"] + other["seen"]) == list(range(8))
    assert one["iter"] == other["iter"] == 6
    assert one["weights"] == other["weights"]
    assert {path.name for path in tmp_path.glob("*.pth")} == {"epoch_1.pth", "epoch_2.pth", "epoch_3.pth"}
