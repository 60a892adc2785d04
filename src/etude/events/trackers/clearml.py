"""Sends records to ClearML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.events.trackers.tracker import Job, Tracker


class ClearML(Tracker):
    """A task of ``project``. ``offline: true`` writes a folder that ``Task.import_offline_session`` sends later."""

    package = name = "clearml"

    def __init__(
        self,
        folder: str | Path,
        project: str = "etude",
        tags: Sequence[str] = (),
        offline: bool = False,
        checkpoint: bool = False,
        system: bool = True,
    ) -> None:
        super().__init__(folder, checkpoint=checkpoint, system=system)
        self.project, self.tags, self.offline = project, list(tags), offline

    def open(self, job: Job) -> str:
        from clearml import Task

        if self.offline:
            Task.set_offline(True)
        same: dict[str, Any] = {"continue_last_task": job.known_as} if job.known_as and not self.offline else {}
        self._task = Task.init(
            project_name=self.project,
            task_name=job.name,
            tags=self.tags,
            auto_connect_arg_parser=False,  # the command line may hold secrets
            auto_connect_frameworks=False,
            auto_connect_streams=False,
            auto_resource_monitoring=False,
            reuse_last_task_id=False,
            **same,
        )
        self._task.connect({key.replace(".", "/"): str(value) for key, value in job.plan.items()}, name="plan")
        self._log = self._task.get_logger()
        return str(self._task.id)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            split, _, short = name.partition("/")
            self._log.report_scalar(title=short or name, series=split, value=value, iteration=step)

    def image(self, name: str, value: Any, step: int) -> None:
        self._log.report_image(title=name, series=name, iteration=step, image=value)

    def histogram(self, name: str, value: Any, step: int) -> None:
        self._log.report_histogram(title=name, series=name, iteration=step, values=value.reshape(-1))

    def text(self, name: str, value: str, step: int) -> None:
        self._log.report_text(f"{name} (step {step}): {value}", print_console=False)

    def artifact(self, name: str, path: Path) -> None:
        self._task.upload_artifact(name, str(path))

    def finish(self) -> None:
        self._task.close()
