"""Finds the newest checkpoint from before a loss became NaN or infinite, for the warning about it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from etude.checkpoint.formats import background


def lost_name(row: Mapping[str, Any]) -> str | None:
    """Return the name of the first loss in a log line that is not finite, or None."""
    lost = (name for name, value in row.items() if "loss" in name and _is_lost(value))
    return next(lost, None)


def _is_lost(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def way_back(folders: Collection[str], lengths: Mapping[str, int], *, began: int, most: int, flag: str) -> str:
    """Return what to do about a loss that is not finite since iteration ``began``.

    ``lengths`` maps file name templates to the iterations that their number counts. All but the newest ``most``
    files are removed, or none if it is not positive. ``flag`` is the option that resumes from a file.
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
    """Yield the periodic checkpoints with the number of iterations done when they were saved."""
    background.wait()
    for folder in filter(os.path.isdir, set(folders)):
        for template, length in lengths.items():
            pattern = re.compile(re.escape(template).replace(r"\{\}", r"(\d+)"))
            for file in os.listdir(folder):
                if match := pattern.fullmatch(file):
                    yield int(match[1]) * length, os.path.join(folder, file)
