from __future__ import annotations

import json

from tests import sampling, zygote
from tests.places import REPOSITORY

ROOT = REPOSITORY


def test_a_job_killed_at_random_moments_ends_in_the_same_bits() -> None:
    """All variants: epochs, steps, workflow, workers (also changed between lives), accumulation, bf16, streams."""
    kills, most = (48, 6) if sampling.ALL else (12, 2)
    words = ["--kills", str(kills), "--most", str(most), "--seed", "11"]
    done = zygote.run("-m", "tests.faults.lives", *words, cwd=ROOT)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["wrong"] == [], done.stderr[-3000:]
    assert summary["kills"] >= kills and len(summary["by kind"]) == 6
