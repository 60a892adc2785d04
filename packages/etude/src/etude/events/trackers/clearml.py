"""Sends records to ClearML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.events.trackers.service import Service
from etude.events.trackers.tracker import Job, Tracker

#: What ClearML would read by itself; "detect_repository" is the code with its git remote and uncommitted changes.
_FRAMEWORKS = [
    "catboost", "detect_repository", "fastai", "gradio", "hydra", "joblib", "lightgbm", "matplotlib", "megengine",
    "pytorch", "scikit", "tensorboard", "tensorflow", "tfdefines", "xgboost",
]  # fmt: skip


class ClearMLTask(Service):
    """Adapts ``clearml.Task`` to the methods of every tracker."""

    package = "clearml"
    sends_at_once = True

    def begin(self, *, offline: bool = False, **settings: Any) -> str:
        """Call ``Task.init(**settings)``; the command line, which may hold secrets, is not sent unless asked for."""
        from clearml import Task

        if offline:
            Task.set_offline(True)
        self.task: Any = Task.init(**{"auto_connect_arg_parser": False, **settings})
        self.log = self.task.get_logger()
        return str(self.task.id)

    def scalar(self, title: str, series: str, value: float, step: int) -> None:
        self.log.report_scalar(title=title, series=series, value=value, iteration=step)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            split, _, short = name.partition("/")
            self.scalar(short or name, split, value, step)

    def image(self, name: str, value: Any, step: int) -> None:
        self.log.report_image(title=name, series=name, iteration=step, image=value)

    def histogram(self, name: str, value: Any, step: int) -> None:
        self.log.report_histogram(title=name, series=name, iteration=step, values=value.reshape(-1))

    def text(self, name: str, value: str, step: int) -> None:
        self.log.report_text(f"{name} (step {step}): {value}", print_console=False)

    def artifact(self, name: str, path: Path) -> None:
        # What is not sent at once is lost when the process ends.
        self.task.upload_artifact(name, str(path), wait_on_upload=True)

    def finish(self) -> None:
        self.task.close()


@dataclass(eq=False)
class ClearML(ClearMLTask, Tracker):
    """A task of ``project``. ``offline: true`` writes a folder that ``Task.import_offline_session`` sends later."""

    package = name = "clearml"

    project: str = "etude"
    tags: Sequence[str] = ()
    offline: bool = False

    def open(self, job: Job) -> str:
        same: dict[str, Any] = {"continue_last_task": job.known_as} if job.known_as and not self.offline else {}
        known = self.begin(
            offline=self.offline,
            project_name=self.project,
            task_name=job.name,
            tags=list(self.tags),
            auto_connect_frameworks=dict.fromkeys(_FRAMEWORKS, False),
            auto_connect_streams=False,
            auto_resource_monitoring=False,
            reuse_last_task_id=False,
            **same,
        )
        plan = {key.replace(".", "/"): str(value) for key, value in job.plan.items()}
        self.task.connect({**plan, "git_commit": job.commit}, name="plan")
        return known
