"""Finding what a config imports, without importing it."""

from __future__ import annotations

import os
import sys

from etude.config.imports import find_imports
from etude.plan import Place

from .conftest import Write


def test_files_lie_beside_the_config_and_modules_there_or_on_the_path(write: Write) -> None:
    config = write("configs/a.yaml", "")
    write("configs/nets.py", "raise SystemExit")
    write("configs/pkg/__init__.py", "")
    write("beside.py", "")
    entries = ["nets.py", "nets", "pkg", "beside", "json.decoder", "sys"]
    found, findings = find_imports(entries, [str(config)])
    assert findings == []
    assert [(entry.module, os.path.basename(entry.file or "")) for entry in found] == [
        ("nets", "nets.py"), ("nets", "nets.py"), ("pkg", "__init__.py"), ("beside", "beside.py"),
        ("json.decoder", "decoder.py"), ("sys", ""),
    ]  # fmt: skip
    assert "nets" not in sys.modules


def test_an_import_that_leads_nowhere_is_told_with_its_place(write: Write) -> None:
    config = write("a.yaml", "")
    write("misting.py", "")
    entries = ["missing.py", "no_such_module_here", "json.nothing", "parts/nets"]
    _, findings = find_imports(entries, [str(config)], [Place("a.yaml", line) for line in (1, 2, 3, 4)])
    assert [str(finding) for finding in findings] == [
        "a.yaml:1: imports: no module or file 'missing.py' can be found; did you mean 'misting.py'?",
        "a.yaml:2: imports: no module or file 'no_such_module_here' can be found",
        "a.yaml:3: imports: no module or file 'json.nothing' can be found",
        "a.yaml:4: imports: no module or file 'parts/nets' can be found; a file is written with its ending: parts/nets.py",
    ]
