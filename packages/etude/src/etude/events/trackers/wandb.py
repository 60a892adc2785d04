"""Sends records to Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.events.trackers.outbox import put_time
from etude.events.trackers.service import Service
from etude.events.trackers.tracker import Job, Tracker

#: W&B would send the command line and the address of the git remote; both may hold secrets.
_PRIVATE = {"x_disable_meta": True, "disable_git": True}


class WandbRun(Service):
    """Adapts a W&B run to the methods of every tracker."""

    package, extra = "wandb", "tracking"

    def begin(self, metrics: Sequence[Mapping[str, Any]] = (), **settings: Any) -> str:
        """Call ``wandb.init(**settings)`` and define ``metrics``."""
        import wandb

        own = settings.pop("settings", None) or {}
        if settings.get("dir"):  # W&B's own process has the working directory that it was started in
            settings["dir"] = os.path.abspath(settings["dir"])
        self.module = wandb
        self.run: Any = wandb.init(settings={**_PRIVATE, **own} if isinstance(own, dict) else own, **settings)
        for metric in metrics:
            self.run.define_metric(**metric)
        return str(self.run.id)

    def row(self, values: Mapping[str, Any], **options: Any) -> None:
        self.run.log({"_timestamp": put_time(), **values}, **options)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self.row({**values, "step": step})

    def image(self, name: str, value: Any, step: int) -> None:
        self.row({name: self.module.Image(value), "step": step})

    def histogram(self, name: str, value: Any, step: int) -> None:
        self.row({name: self.module.Histogram(value.reshape(-1)), "step": step})

    def text(self, name: str, value: str, step: int) -> None:
        self.row({name: self.module.Table(columns=["text"], data=[[value]]), "step": step})

    def files(self, name: str, paths: Sequence[Path], *, aliases: Sequence[str] = (), **settings: Any) -> None:
        """Send files and folders as one artifact of the type ``model``."""
        artifact = self.module.Artifact(name, type="model", **settings)
        for path in paths:
            artifact.add_dir(str(path)) if path.is_dir() else artifact.add_file(str(path))
        self.run.log_artifact(artifact, aliases=list(aliases) or None)

    def artifact(self, name: str, path: Path) -> None:
        self.files(f"{name}-{self.run.id}", [path])

    def finish(self) -> None:
        self.run.finish()


@dataclass(eq=False)
class Wandb(WandbRun, Tracker):
    """A run in ``project``. ``mode: offline`` writes below the run's folder; ``wandb sync`` sends it later.

    W&B gets the plan, the git commit and the values, but not the command line, which may hold secrets.
    """

    package = name = "wandb"

    project: str = "etude"
    entity: str | None = None
    tags: Sequence[str] = ()
    mode: str | None = None

    def open(self, job: Job) -> str:
        return self.begin(
            metrics=[{"name": "*", "step_metric": "step"}],
            project=self.project,
            entity=self.entity,
            name=job.name,
            id=job.known_as or None,
            resume="allow" if job.known_as else None,
            tags=list(self.tags),
            mode=self.mode,
            dir=str(job.folder),
            config={**job.plan, "git_commit": job.commit},
            reinit="create_new",
            settings={"console": "off", "x_disable_stats": True, "silent": True},
        )
