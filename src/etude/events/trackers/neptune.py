"""Sends records to Neptune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.events.trackers.tracker import Job, Tracker, finite


class Neptune(Tracker):
    """A run of ``project``. ``mode: offline`` writes a folder that ``neptune sync`` sends later."""

    package = name = "neptune"

    def __init__(
        self,
        folder: str | Path,
        project: str | None = None,
        mode: str = "async",
        tags: Sequence[str] = (),
        checkpoint: bool = False,
        system: bool = True,
    ) -> None:
        super().__init__(folder, checkpoint=checkpoint, system=system)
        self.project, self.mode, self.tags = project, mode, list(tags)

    def open(self, job: Job) -> str:
        import neptune

        same: dict[str, Any] = {"with_id": job.known_as} if job.known_as and self.mode != "offline" else {}
        self._run = neptune.init_run(
            project=self.project,
            mode=self.mode,
            name=job.name,
            tags=self.tags,
            source_files=[],
            capture_stdout=False,
            capture_stderr=False,
            capture_hardware_metrics=False,
            capture_traceback=False,
            git_ref=False,
            **same,
        )
        self._run["plan"] = {key: str(value) for key, value in job.plan.items()}
        self._run["git_commit"] = job.commit
        return str(self._run["sys/id"].fetch()) if self.mode not in ("offline", "debug") else ""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in finite(values).items():
            self._run[name].append(value, step=step)

    def image(self, name: str, value: Any, step: int) -> None:
        from neptune.types import File

        self._run[name].append(File.as_image(value / 255), step=step)

    def text(self, name: str, value: str, step: int) -> None:
        self._run[name].append(value, step=step)

    def artifact(self, name: str, path: Path) -> None:
        self._run[name].upload_files(f"{path}/*") if path.is_dir() else self._run[name].upload(str(path))

    def finish(self) -> None:
        self._run.stop()
