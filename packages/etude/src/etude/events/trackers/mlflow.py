"""Sends records to MLflow."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.events.trackers.outbox import put_time
from etude.events.trackers.service import Service
from etude.events.trackers.tracker import Job, Tracker

#: Metrics that MLflow takes in one call.
_MOST = 1000


class MlflowRun(Service):
    """A run of an MLflow experiment, written by its id: MLflow's active run belongs to a thread."""

    package, extra = "mlflow", "tracking"
    sends_at_once = True
    uri: str | None = None
    id = ""
    _activated = False

    def begin(
        self, run_id: str = "", *, uri: str | None = None, experiment: str = "", location: str | None = None,
        name: str | None = None,
    ) -> str:  # fmt: skip
        """Begin a run of ``experiment`` at ``uri``, or continue ``run_id``."""
        from mlflow import MlflowClient

        self.uri, self.client = uri, MlflowClient(uri)
        self._metrics: list[Any] = []
        if run_id:
            self.client.update_run(run_id, status="RUNNING")
            self.id = run_id
            return self.id
        found = self.client.get_experiment_by_name(experiment or "Default")
        where = found.experiment_id if found else self.client.create_experiment(experiment, location)
        self.id = str(self.client.create_run(where, run_name=name).info.run_id)
        return self.id

    def activate(self) -> None:
        """Make this run the active one of the calling thread, for ``mlflow.log_metric(...)`` in user code."""
        import mlflow

        if not self.id:  # it could not be opened
            return
        if self.uri is not None:
            mlflow.set_tracking_uri(self.uri)
        if mlflow.active_run() is None:
            mlflow.start_run(run_id=self.id)
            self._activated = True

    def deactivate(self) -> None:
        """Undo :meth:`activate`, in the same thread."""
        if self._activated:
            import mlflow

            mlflow.end_run()
            self._activated = False

    def params(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        found = [Param(_key(key), str(value)[:500]) for key, value in values.items()]
        for start in range(0, len(found), 100):  # as many as MLflow takes in one call
            self.client.log_batch(self.id, params=found[start : start + 100])

    def tags(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import RunTag

        self.client.log_batch(self.id, tags=[RunTag(key, str(value)) for key, value in values.items()])

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(put_time() * 1000)
        self._metrics += [Metric(_key(key), float(value), now, step) for key, value in values.items()]

    def flush(self) -> None:
        """Send the metrics in one call: a call costs 10 ms of Python, which training would wait for."""
        waiting, self._metrics = self._metrics, []
        for start in range(0, len(waiting), _MOST):
            self.client.log_batch(self.id, metrics=waiting[start : start + _MOST])

    def image(self, name: str, value: Any, step: int) -> None:
        self.picture(f"images/{_key(name)}-{step}.png", value)

    def picture(self, file: str, value: Any) -> None:
        self.client.log_image(self.id, value, artifact_file=file)

    def text(self, name: str, value: str, step: int) -> None:
        self.file(f"texts/{_key(name)}-{step}.txt", value)

    def file(self, name: str, text: str) -> None:
        self.client.log_text(self.id, text, name)

    def artifact(self, name: str, path: Path) -> None:
        log = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
        log(self.id, str(path), name or None)

    def model(self, model: Any, name: str) -> None:
        """Log a torch model, as ``mlflow.pytorch.log_model`` does."""
        import mlflow.pytorch
        import torch

        settings: dict[str, Any] = {"pip_requirements": [f"torch=={torch.__version__}"]}
        if "serialization_format" in inspect.signature(mlflow.pytorch.log_model).parameters:
            settings["serialization_format"] = "pickle"  # a traced graph would need an example of the input
        with mlflow.start_run(run_id=self.id):
            mlflow.pytorch.log_model(model, name, **settings)

    def finish(self) -> None:
        self.flush()
        self.client.set_terminated(self.id)


class Mlflow(MlflowRun, Tracker):
    """A run of ``experiment`` at ``uri`` (default: ``MLFLOW_TRACKING_URI``, else a SQLite file next to the runs)."""

    package = name = "mlflow"

    def __init__(
        self,
        folder: Path,
        experiment: str = "etude",
        uri: str = "",
        tags: Mapping[str, str] | None = None,
        checkpoint: bool = False,
        system: bool = True,
    ) -> None:
        super().__init__(folder, checkpoint=checkpoint, system=system)
        self.experiment, self.address, self.own_tags = experiment, uri, dict(tags or {})

    def open(self, job: Job) -> str:
        parent = job.folder.absolute().parent
        self.begin(
            job.known_as,
            uri=self.address or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{parent / 'mlflow.db'}",
            experiment=self.experiment,
            location=(parent / "mlartifacts").as_uri(),
            name=job.name,
        )
        if not job.known_as:
            self.params(job.plan)
            self.tags(self.own_tags | ({"mlflow.source.git.commit": job.commit} if job.commit else {}))
        return self.id


def _key(name: str) -> str:
    """Return ``name`` with the characters that MLflow takes.

    >>> _key("schedule.lr[0]: type#2")
    'schedule.lr_0_: type_2'
    """
    return "".join(c if c.isalnum() or c in "_-. :/" else "_" for c in name)[:250]
