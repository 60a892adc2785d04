"""Sends records to trackers that keep their data on this machine unless asked otherwise: Aim, DVCLive, SwanLab,
trackio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.events.trackers.tracker import Job, Tracker, finite


class Aim(Tracker):
    """A run in the Aim repository ``repo`` (default: beside the runs)."""

    package = name = "aim"

    def __init__(
        self,
        folder: str | Path,
        repo: str = "",
        experiment: str = "etude",
        tags: Sequence[str] = (),
        checkpoint: bool = False,
        system: bool = True,
    ) -> None:
        super().__init__(folder, checkpoint=checkpoint, system=system)
        self.repo, self.experiment, self.tags = repo, experiment, list(tags)

    def open(self, job: Job) -> str:
        import aim

        home = self.repo or str(job.folder.absolute().parent)
        self._aim = aim
        self._run = aim.Run(
            run_hash=job.known_as or None,
            repo=home,
            experiment=self.experiment,
            system_tracking_interval=None,
            log_system_params=False,
            capture_terminal_logs=False,
        )
        if not job.known_as:
            self._run["plan"] = dict(job.plan)
            self._run["git_commit"] = job.commit
            for tag in self.tags:
                self._run.add_tag(tag)
        return str(self._run.hash)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._run.track(value, name=name, step=step)

    def image(self, name: str, value: Any, step: int) -> None:
        self._run.track(self._aim.Image(value), name=name, step=step)

    def histogram(self, name: str, value: Any, step: int) -> None:
        self._run.track(self._aim.Distribution(value), name=name, step=step)

    def text(self, name: str, value: str, step: int) -> None:
        self._run.track(self._aim.Text(value), name=name, step=step)

    def artifact(self, name: str, path: Path) -> None:
        self._run[f"artifact_{name}"] = str(path.absolute())  # Aim keeps files in a store of its own; this needs none

    def finish(self) -> None:
        self._run.close()


class DvcLive(Tracker):
    """DVCLive files in ``dvclive`` below the run's folder; no git commit is made."""

    package = name = "dvclive"

    def open(self, job: Job) -> str:
        from dvclive import Live

        home = job.folder / "dvclive"
        self._live = Live(
            dir=str(home), resume=bool(job.known_as), save_dvc_exp=False, dvcyaml=None, report=None, cache_images=False
        )
        if not job.known_as:
            self._live.log_params({**{key: str(value) for key, value in job.plan.items()}, "git_commit": job.commit})
        return str(home)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._live.step = step
        for name, value in values.items():
            self._live.log_metric(name, value)
        self._live.make_summary()

    def image(self, name: str, value: Any, step: int) -> None:
        self._live.log_image(f"{name.replace('/', '-')}-{step}.png", value)

    def finish(self) -> None:
        self._live.end()


class SwanLab(Tracker):
    """A run of ``project``. ``mode: offline`` or ``local`` writes below the run's folder."""

    package = name = "swanlab"

    def __init__(
        self,
        folder: str | Path,
        project: str = "etude",
        mode: str = "offline",
        tags: Sequence[str] = (),
        checkpoint: bool = False,
        system: bool = True,
    ) -> None:
        super().__init__(folder, checkpoint=checkpoint, system=system)
        self.project, self.mode, self.tags = project, mode, list(tags)

    def open(self, job: Job) -> str:
        import swanlab

        self._swanlab = swanlab
        same: dict[str, Any] = {"id": job.known_as, "resume": "allow"} if job.known_as else {}
        run = swanlab.init(
            project=self.project,
            experiment_name=job.name,
            config={**job.plan, "git_commit": job.commit},
            mode=self.mode,
            tags=self.tags,
            logdir=str(job.folder / "swanlog"),
            **same,
        )
        public = getattr(run, "public", None)
        return str(getattr(run, "id", None) or getattr(public, "run_id", "") or "")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._swanlab.log(finite(values), step=step)

    def image(self, name: str, value: Any, step: int) -> None:
        self._swanlab.log({name: self._swanlab.Image(value)}, step=step)

    def text(self, name: str, value: str, step: int) -> None:
        self._swanlab.log({name: self._swanlab.Text(value)}, step=step)

    def finish(self) -> None:
        self._swanlab.finish()


class Trackio(Tracker):
    """A run of ``project`` in trackio's local database."""

    package = name = "trackio"

    def __init__(
        self, folder: str | Path, project: str = "etude", checkpoint: bool = False, system: bool = True
    ) -> None:
        super().__init__(folder, checkpoint=checkpoint, system=system)
        self.project = project

    def open(self, job: Job) -> str:
        import trackio

        name = job.known_as or job.name
        self._trackio = trackio
        trackio.init(
            project=self.project,
            name=name,
            config={**job.plan, "git_commit": job.commit},
            resume="must" if job.known_as else "never",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )
        return name

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._trackio.log(finite(values), step=step)

    def image(self, name: str, value: Any, step: int) -> None:
        self._trackio.log({name: self._trackio.Image(value)}, step=step)

    def text(self, name: str, value: str, step: int) -> None:
        self._trackio.log({name: self._trackio.Markdown(value)}, step=step)

    def histogram(self, name: str, value: Any, step: int) -> None:
        self._trackio.log({name: self._trackio.Histogram(value.reshape(-1))}, step=step)

    def finish(self) -> None:
        self._trackio.finish()
