from __future__ import annotations

import json

import pytest

from tests.cli.commands import CONFIG, Commands


@pytest.fixture
def command(workdir, capfd):
    (workdir / "c.yaml").write_text(CONFIG)
    return Commands(capfd)


@pytest.fixture
def make_run(tmp_path):
    """A run folder with these records."""

    def make(name="a", rows=(), *, file="metrics.jsonl", status=None, text=None):
        folder = tmp_path / "runs" / name
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(json.dumps(row) + "\n" for row in rows) if text is None else text)
        if status is not None:
            (folder / "status.json").write_text(json.dumps(status))
        return folder

    return make
