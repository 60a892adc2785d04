from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_job_killed_at_random_moments_ends_in_the_same_bits() -> None:
    """All variants: epochs, steps, workflow, workers (also changed between lives), accumulation, bf16, streams."""
    command = [sys.executable, "-m", "tests.faults.lives", "--kills", "48", "--seed", "11"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["wrong"] == [], done.stderr[-3000:]
    assert summary["kills"] >= 48 and len(summary["by kind"]) == 6
