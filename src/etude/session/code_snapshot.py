"""Records the code of a run: uncommitted changes, and the imported files of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import etude
from etude.config.dump import is_secret_key, public_line

#: ``api_key = …``, ``"token": …``, ``--password=…`` at the beginning of a line of code: all of it goes.
_ASSIGNED = re.compile(r"""(.*?([\w-]+)["']?\s*[:=]\s*)\S""")
#: No other line can hold a secret. Most lines of code are done with one search.
_SUSPECT = re.compile(r"token|secret|passw|api_?key|_key\b|://", re.IGNORECASE)
_MOST_CHANGES = 1 << 20
_LARGEST_FILE, _MOST_FILES = 256 << 10, 200


def code_changes() -> str:
    """Return the uncommitted changes of tracked files as a diff; lines that look like secrets are redacted."""
    try:
        done = subprocess.run(
            ["git", "diff", "HEAD", "--no-color", "--no-ext-diff"], capture_output=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    text = done.stdout[:_MOST_CHANGES].decode("utf-8", "replace")
    cut = "\n(cut: the changes are longer)\n" if len(done.stdout) > _MOST_CHANGES else ""
    return _public(text) + cut if text else ""


def imported_files(roots: Iterable[Path]) -> dict[str, str]:
    """Return the texts of the imported Python files below ``roots`` by their path there, tracked by git or not.

    Installed packages and files that are large are left out; lines that look like secrets are redacted.
    """
    tops = list(dict.fromkeys(root.resolve() for root in roots))
    found: dict[str, str] = {}
    for path in sorted({Path(name).resolve() for name in _module_files()}):
        top = next((top for top in tops if path.is_relative_to(top)), None)
        if top is None or any(part.startswith(".") for part in path.relative_to(top).parts):
            continue
        try:
            if path.stat().st_size <= _LARGEST_FILE and len(found) < _MOST_FILES:
                found[path.relative_to(top).as_posix()] = _public(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def _module_files() -> list[str]:
    """Return the files of the modules that are not Python's, of Étude or installed."""
    others = (os.path.dirname(os.__file__), os.path.dirname(etude.__file__))
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [
        file
        for file in files
        if isinstance(file, str)
        and file.endswith(".py")
        and "site-packages" not in file
        and not file.startswith(others)
    ]


def _public(text: str) -> str:
    return "\n".join(_without_secrets(line) if _SUSPECT.search(line) else line for line in text.split("\n"))


def _without_secrets(line: str) -> str:
    found = _ASSIGNED.match(line)
    return f"{found[1]}REDACTED" if found and is_secret_key(found[2]) else public_line(line)
