"""``etude test`` on an mmcv 1.x config: what the evaluation of a run finds, of a file's weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli import main
from tests.mmcv1.test_build import CONFIG, PARTS

CALM = """
@DATASETS.register_module(force=True)
class CalmData(ToyData):
    def __getitem__(self, index):
        return {'x': torch.arange(4) / 4 + index / self.size, 'y': torch.tensor([index % 3 - 1.0])}

    def evaluate(self, results, logger=None, **kwargs):
        return {'mean': float(torch.cat(results).mean()), 'count': len(results)}
"""
NAMED = CONFIG.replace("'ToyData'", "'CalmData'").replace("size=6)", "size=6), test=dict(type='CalmData', size=9)")


def test_a_checkpoint_gives_what_the_run_had_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "toy_parts_of_build.py").write_text(PARTS + CALM)
    (tmp_path / "toy.py").write_text(NAMED)
    assert main(["train", "toy.py", "--work-dir", "out", "-q"]) == 0
    log = next(Path("out").glob("*.log.json"))
    seen = [json.loads(line) for line in log.read_text().splitlines()][-1]
    assert (
        main(["test", "toy.py", "out/latest.pth", "--work-dir", "out", "-q", "--split", "val", "--out", "r.json"]) == 0
    )
    found = json.loads(Path("r.json").read_text())
    assert found == {"mean": pytest.approx(seen["mean"], abs=1e-4), "count": 6}
    assert main(["test", "toy.py", "out", "--work-dir", "out", "-q"]) == 0
    assert "count  9\n" in capsys.readouterr().out
