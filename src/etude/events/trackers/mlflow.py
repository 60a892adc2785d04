"""Sends records to MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.events.trackers.tracker import Job, Tracker


class Mlflow(Tracker):
    """A run of ``experiment`` at ``uri`` (default: ``MLFLOW_TRACKING_URI``, else a SQLite file beside the runs)."""

    package = name = "mlflow"

    def __init__(
        self,
        folder: str | Path,
        experiment: str = "etude",
        uri: str = "",
        tags: Mapping[str, str] | None = None,
        checkpoint: bool = False,
        system: bool = True,
    ) -> None:
        super().__init__(folder, checkpoint=checkpoint, system=system)
        self.experiment, self.uri, self.tags = experiment, uri, dict(tags or {})

    def open(self, job: Job) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag

        self._metric = Metric
        local = f"sqlite:///{job.folder.absolute().parent / 'mlflow.db'}"
        self._client = MlflowClient(self.uri or os.environ.get("MLFLOW_TRACKING_URI") or local)
        if job.known_as:
            self._id = job.known_as
            self._client.update_run(self._id, status="RUNNING")
            return self._id
        found = self._client.get_experiment_by_name(self.experiment)
        home = (job.folder.absolute().parent / "mlartifacts").as_uri()
        experiment = found.experiment_id if found else self._client.create_experiment(self.experiment, home)
        run = self._client.create_run(experiment, run_name=job.name)
        self._id = str(run.info.run_id)
        params = [Param(_key(key), str(value)[:500]) for key, value in job.plan.items()]
        tags = self.tags | ({"mlflow.source.git.commit": job.commit} if job.commit else {})
        for start in range(0, len(params), 100):
            self._client.log_batch(self._id, params=params[start : start + 100])
        self._client.log_batch(self._id, tags=[RunTag(key, str(value)) for key, value in tags.items()])
        return self._id

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[self._metric(_key(k), v, now, step) for k, v in values.items()])

    def image(self, name: str, value: Any, step: int) -> None:
        self._client.log_image(self._id, value, artifact_file=f"images/{_key(name)}-{step}.png")

    def text(self, name: str, value: str, step: int) -> None:
        self._client.log_text(self._id, value, f"texts/{_key(name)}-{step}.txt")

    def artifact(self, name: str, path: Path) -> None:
        log = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        log(self._id, str(path), name)

    def finish(self) -> None:
        self._client.set_terminated(self._id)


def _key(name: str) -> str:
    """Return ``name`` with the characters that MLflow takes.

    >>> _key("schedule.lr[0]: type#2")
    'schedule.lr_0_: type_2'
    """
    return "".join(c if c.isalnum() or c in "_-. :/" else "_" for c in name)[:250]
