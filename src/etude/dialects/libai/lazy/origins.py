"""Remembers which config this process has read and how it was changed, so that a later error can point at the line.

A script reads its config, changes it and makes things of it in calls that know nothing of each other; only the file
that was read last, and the overrides since, are remembered, and they are looked into when something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from etude.config.tree import Path
from etude.dialects.libai.places import survey_files
from etude.plan import NOWHERE, Place


@dataclass
class Origins:
    """The config that was read last, and what was changed in it."""

    file: str = ""
    overrides: list[str] = field(default_factory=list)
    #: Of those whose key was not there before: the first part of it that was not.
    new: dict[str, Path] = field(default_factory=dict)

    def read(self, file: str) -> None:
        self.file, self.overrides, self.new = file, [], {}

    def changed(self, text: str, new: Path) -> None:
        self.overrides.append(text)
        if new:
            self.new[text] = new

    def places(self) -> dict[Path, Place]:
        """The place of every key, that of an override where one changed it."""
        found = survey_files(self.file)[0] if self.file else {}
        for text in self.overrides:
            found[way_of(key_of(text))] = Place(f"override '{text}'", 0, key_of(text))
        return found

    def place(self, way: Path) -> Place:
        """Return where the value at ``way`` was written, or the nearest one above it."""
        places = self.places()
        return next((places[way[:n]] for n in range(len(way), 0, -1) if way[:n] in places), NOWHERE)


#: Of this process.
ORIGINS = Origins()


def key_of(text: str) -> str:
    """The key of an override, without its marks."""
    return text.lstrip("+~").partition("=")[0]


def way_of(key: str) -> Path:
    """``dataloader.test[0].dataset`` and ``dataloader.test.0.dataset`` as a path."""
    parts: Iterable[str] = key.replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts if part)
