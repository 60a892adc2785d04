from __future__ import annotations

import pytest

from tests.cli.commands import CONFIG, Commands


@pytest.fixture
def command(workdir, capfd):
    """The command line in an empty folder with a good config ``c.yaml``."""
    (workdir / "c.yaml").write_text(CONFIG)
    return Commands(capfd)
