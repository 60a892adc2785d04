"""Sends records to Neptune, whose hosted service has closed: for configs that name it, in offline mode or with a server
of your own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.events.trackers.service import Service, files_in, finite


class NeptuneRun(Service):
    """Adapts a Neptune run to the methods of every tracker."""

    package = "neptune"

    def begin(self, **settings: Any) -> str:
        """Call ``neptune.init_run(**settings)``. The code's git remote, which may hold secrets, is not sent."""
        import neptune

        self.run: Any = neptune.init_run(**{"git_ref": False, **settings})
        return str(self.run["sys/id"].fetch()) if settings.get("mode") not in ("offline", "debug") else ""

    def scalars(self, values: Mapping[str, float], step: int | None) -> None:
        for name, value in finite(values).items():
            self.run[name].append(value, step=step)

    def image(self, name: str, value: Any, step: int, title: str | None = None) -> None:
        from neptune.types import File

        # Neptune takes numbers from 0 to 1.
        self.run[name].append(File.as_image(value / 255), name=title, step=step)

    def text(self, name: str, value: str, step: int) -> None:
        self.run[name].append(value, step=step)

    def content(self, name: str, text: str) -> None:
        """Keep a text as a file."""
        from neptune.types import File

        self.run[name].upload(File.from_content(text))

    def artifact(self, name: str, path: Path) -> None:
        for inside, file in files_in(path):
            self.run[f"{name}/{inside}"].upload(str(file))

    def finish(self) -> None:
        self.run.stop()
