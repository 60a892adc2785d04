"""Sends records to trackers that keep their data on this machine unless asked otherwise: Aim, DVCLive, SwanLab,
trackio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.events.trackers.service import Service, files_in, finite
from etude.events.trackers.tracker import Job, Tracker


class AimRun(Service):
    """Adapts ``aim.Run`` to the methods of every tracker."""

    package = "aim"
    sends_at_once = True

    def begin(self, **settings: Any) -> str:
        """Call ``aim.Run(**settings)``. The environment, which may hold secrets, is not kept unless asked for."""
        import aim

        self.module = aim
        self.run: Any = aim.Run(**settings)
        return str(self.run.hash)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.run.track(value, name=name, step=step)

    def image(self, name: str, value: Any, step: int) -> None:
        self.run.track(self.module.Image(value), name=name, step=step)

    def histogram(self, name: str, value: Any, step: int) -> None:
        self.run.track(self.module.Distribution(value), name=name, step=step)

    def text(self, name: str, value: str, step: int) -> None:
        self.run.track(self.module.Text(value), name=name, step=step)

    def artifact(self, name: str, path: Path) -> None:
        for inside, file in files_in(path):
            self.run.log_artifact(str(file), name=f"{name}/{inside}", block=True)

    def finish(self) -> None:
        self.run.close()


@dataclass(eq=False)
class Aim(AimRun, Tracker):
    """A run in the Aim repository ``repo`` (default: next to the runs); artifacts go to ``aim-artifacts`` there."""

    package = name = "aim"

    repo: str = ""
    experiment: str = "etude"
    tags: Sequence[str] = ()

    def open(self, job: Job) -> str:
        parent = job.folder.absolute().parent
        known = self.begin(
            run_hash=job.known_as or None,
            repo=self.repo or str(parent),
            experiment=self.experiment,
            system_tracking_interval=None,
            log_system_params=False,
            capture_terminal_logs=False,
        )
        if not job.known_as:
            self.run.set_artifacts_uri((parent / "aim-artifacts").as_uri())
            self.run["plan"] = dict(job.plan)
            self.run["git_commit"] = job.commit
            for tag in self.tags:
                self.run.add_tag(tag)
        return known


class DvcLiveRun(Service):
    """Adapts ``dvclive.Live`` to the methods of every tracker."""

    package = "dvclive"

    def begin(self, live: Any = None, **settings: Any) -> str:
        """Make ``Live(**settings)``, or use the given ``live``."""
        if live is None:
            from dvclive import Live

            live = Live(**settings)
        self.live: Any = live
        return str(getattr(live, "dir", ""))

    def params(self, values: Mapping[str, Any]) -> None:
        self.live.log_params(values)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self.live.step = step
        for name, value in values.items():
            self.live.log_metric(name, value)
        self.live.make_summary()

    def image(self, name: str, value: Any, step: int) -> None:
        self.picture(f"{name.replace('/', '-')}-{step}.png", value)

    def picture(self, file: str, value: Any) -> None:
        self.live.log_image(file, value)

    def artifact(self, name: str, path: Path) -> None:
        self.live.log_artifact(str(path), copy=True)  # DVCLive warns where there is no DVC repository

    def finish(self) -> None:
        self.live.end()


class DvcLive(DvcLiveRun, Tracker):
    """DVCLive files in ``dvclive`` below the run's folder; no git commit is made. Artifacts need a DVC repository."""

    package = name = "dvclive"

    def open(self, job: Job) -> str:
        home = job.folder / "dvclive"
        self.begin(
            dir=str(home), resume=bool(job.known_as), save_dvc_exp=False, dvcyaml=None, report=None, cache_images=False
        )
        if not job.known_as:
            self.params({**{key: str(value) for key, value in job.plan.items()}, "git_commit": job.commit})
        return str(home)


@dataclass(eq=False)
class SwanLab(Tracker):
    """A run of ``project``. ``mode: offline`` or ``local`` writes below the run's folder."""

    package = name = "swanlab"

    project: str = "etude"
    mode: str = "offline"
    tags: Sequence[str] = ()

    def open(self, job: Job) -> str:
        import swanlab

        self._swanlab = swanlab
        same: dict[str, Any] = {"id": job.known_as, "resume": "allow"} if job.known_as else {}
        run = swanlab.init(
            project=self.project,
            name=job.name,
            config={**job.plan, "git_commit": job.commit},
            mode=self.mode,
            tags=list(self.tags),
            log_dir=str(job.folder / "swanlog"),
            settings=swanlab.Settings(  # the command line, the git remote and the terminal may hold secrets
                probe={"runtime": False, "git": False, "monitor": False}, terminal={"proxy_type": "none"}
            ),
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

    def artifact(self, name: str, path: Path) -> None:
        for _, file in files_in(path):
            self._swanlab.save(str(file), base_path=str(path.parent), policy="now")

    def finish(self) -> None:
        self._swanlab.finish()


@dataclass(eq=False)
class Trackio(Tracker):
    """A run of ``project`` in trackio's local database."""

    package = name = "trackio"

    project: str = "etude"

    def open(self, job: Job) -> str:
        import trackio

        name = self._known = job.known_as or job.name
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

    def artifact(self, name: str, path: Path) -> None:
        self._trackio.log_artifact(path, name=f"{self._known}-{name}", type="model")

    def finish(self) -> None:
        self._trackio.finish()
