"""Sends records to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.events.trackers.tracker import Job, Tracker


class Wandb(Tracker):
    """A run in ``project``. ``mode: offline`` writes below the run's folder; ``wandb sync`` sends it later.

    W&B gets the plan, the git commit and the values, but not the command line, which may hold secrets.
    """

    package = name = "wandb"

    def __init__(
        self,
        folder: str | Path,
        project: str = "etude",
        entity: str | None = None,
        tags: Sequence[str] = (),
        mode: str | None = None,
        checkpoint: bool = False,
        system: bool = True,
    ) -> None:
        super().__init__(folder, checkpoint=checkpoint, system=system)
        self.project, self.entity, self.tags, self.mode = project, entity, list(tags), mode

    def open(self, job: Job) -> str:
        import wandb

        self._wandb = wandb
        mode: Any = self.mode
        self._run = wandb.init(
            project=self.project,
            entity=self.entity,
            name=job.name,
            id=job.known_as or None,
            resume="allow" if job.known_as else None,
            tags=self.tags,
            mode=mode,
            dir=str(job.folder),
            config={**job.plan, "git_commit": job.commit},
            reinit="create_new",
            settings=wandb.Settings(console="off", x_disable_meta=True, x_disable_stats=True, silent=True),
        )
        self._run.define_metric("*", step_metric="step")
        return str(self._run.id)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, "step": step})

    def image(self, name: str, value: Any, step: int) -> None:
        self._run.log({name: self._wandb.Image(value), "step": step})

    def histogram(self, name: str, value: Any, step: int) -> None:
        self._run.log({name: self._wandb.Histogram(value.reshape(-1)), "step": step})

    def text(self, name: str, value: str, step: int) -> None:
        self._run.log({name: self._wandb.Table(columns=["text"], data=[[value]]), "step": step})

    def artifact(self, name: str, path: Path) -> None:
        artifact = self._wandb.Artifact(f"{name}-{self._run.id}", type="model")
        artifact.add_dir(str(path)) if path.is_dir() else artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def finish(self) -> None:
        self._run.finish()
