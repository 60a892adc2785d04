"""Compares the code of two runs: the commit, the files that ``code.json`` keeps, and other uncommitted changes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.report.status import read_json

#: A key with what A and B have; a change of a file's text stands with B, and A is None.
Found = tuple[str, Any, Any]


def has_code(folder: Path, env: Mapping[str, Any]) -> bool:
    """Return whether a run has recorded anything of its code."""
    return isinstance(env.get("git"), dict) or (folder / "code.json").is_file()


def code_differences(a: Path, b: Path, one: Mapping[str, Any], two: Mapping[str, Any]) -> list[Found]:
    """Return what differs in the code; ``one`` and ``two`` are the contents of ``env.json``."""
    first, second = _commit(one), _commit(two)
    found: list[Found] = [("commit", first, second)] if first != second else []
    before, after = _kept(a), _kept(b)
    for name in sorted({**before, **after}):
        found += _file(name, before.get(name), after.get(name))
    mine, theirs = _changes(a), _changes(b)
    for name in sorted({**mine, **theirs}):
        if not any(f"/{name}".endswith(f"/{kept}") for kept in {**before, **after}):
            found += _uncommitted(name, mine.get(name, ""), theirs.get(name, ""))
    return found


def _commit(env: Mapping[str, Any]) -> Any:
    git = env.get("git")
    return git.get("commit") if isinstance(git, dict) else None


def _kept(folder: Path) -> dict[str, str]:
    """Return the texts of the imported files by their path in the project."""
    return {name: text for name, text in read_json(folder / "code.json").items() if isinstance(text, str)}


def _file(name: str, before: str | None, after: str | None) -> list[Found]:
    if before is None or after is None:
        return [(name, _length(before), _length(after))]
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
    return [(name, None, "\n".join(lines))] if lines else []


def _length(text: str | None) -> str:
    return "not kept" if text is None else f"{len(text.splitlines())} lines"


def _changes(folder: Path) -> dict[str, str]:
    """Return the changes of ``code.diff`` by file, without their headings."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    heading = False
    for line in _text(folder / "code.diff").splitlines():
        if line.startswith("diff --git "):
            lines = found.setdefault(line.rpartition(" b/")[2], [])
            heading = True
        elif line.startswith(("@@", "Binary")) or not heading:
            heading = False
            lines.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def _uncommitted(name: str, before: str, after: str) -> list[Found]:
    if before == after:
        return []
    if not before:
        return [(f"{name}, changed in B and not committed", None, f"{after}\n")]
    if not after:
        return [(f"{name}, changed in A and not committed", None, f"{before}\n")]
    return [(f"{name}, uncommitted changes", _count(before), _count(after))]


def _count(change: str) -> str:
    """Return ``+3 −1 lines`` and a mark of the text, since two changes may be as long."""
    import hashlib

    signs = [line[:1] for line in change.splitlines()]
    mark = hashlib.sha256(change.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"+{signs.count('+')} −{signs.count('-')} lines ({mark})"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
