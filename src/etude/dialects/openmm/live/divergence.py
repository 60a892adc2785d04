"""The way back from a loss that is not finite: the newest checkpoint from before, for runs that train on regardless."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any


def lost_name(row: Mapping[str, Any]) -> str | None:
    """Return the first loss of a log line that is not finite."""
    lost = (name for name, value in row.items() if "loss" in name and _is_lost(value))
    return next(lost, None)


def _is_lost(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def way_back(folders: Collection[str], lengths: Mapping[str, int], *, began: int, most: int, flag: str) -> str:
    """Describe what to do about a loss that is lost since iteration ``began``.

    ``lengths`` are the iterations that a file's number counts, by the template of its name; all but the newest ``most``
    files are removed, none where that is not positive. ``flag`` resumes from one.
    """
    older = [(done, path) for done, path in _saved(folders, lengths) if done < began]
    if not older:
        return "There is no checkpoint from before. Ctrl-C stops the run"
    done, path = max(older)
    kept = f", which max_keep_ckpts={most} will remove" if most > 0 else ""
    return (
        f"The newest checkpoint from before is {path} (iteration {done}){kept}: stop the run with Ctrl-C, "
        f"and resume from there with {flag} {path}"
    )


def _saved(folders: Collection[str], lengths: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """Yield the periodic files that are there, by the iterations that were done when they were saved."""
    for folder in filter(os.path.isdir, set(folders)):
        for template, length in lengths.items():
            pattern = re.compile(re.escape(template).replace(r"\{\}", r"(\d+)"))
            for file in os.listdir(folder):
                if match := pattern.fullmatch(file):
                    yield int(match[1]) * length, os.path.join(folder, file)
