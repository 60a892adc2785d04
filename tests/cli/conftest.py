from __future__ import annotations

import pytest

from tests.cli.commands import CONFIG, Commands
from tests.forget import forgotten_files

forgotten = pytest.fixture(autouse=True)(forgotten_files)


@pytest.fixture
def command(workdir, capfd):
    """The command line in an empty folder with a good config ``c.yaml``."""
    (workdir / "c.yaml").write_text(CONFIG)
    return Commands(capfd)
