"""Runs a sweep on Optuna: draws values, starts trials, prunes bad ones, and resumes after a kill.

The folder of a sweep holds Optuna's journal, one run folder per trial, and ``sweep.json`` with the settings. Every
trial is an ordinary run: resume it, test it or look at it like any other.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from etude.checkpoint.storage.lock import Lock
from etude.config.files import replace_text
from etude.errors import ConfigError, UserCodeError, optional
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.report.records import Records
from etude.report.runs import find_runs
from etude.sweep.space import Choices, Range, Space, draw, written
from etude.units import counted

#: What the folder of a sweep holds: what it was asked for, and what `etude report` draws.
SETTINGS, RESULTS = "sweep.json", "results.json"
#: Trials that fail one after the other, from the first on, before the sweep gives up.
_HOPELESS = 3
#: Seconds between two looks at a run's metrics.
_PERIOD = 0.2
#: Seconds that a trial has to save and end after SIGTERM.
_GRACE = 60


@record
class Settings:
    """What a sweep was asked for. A sweep that goes on must be asked for the same, but for more trials."""

    config: str
    space: tuple[str, ...]
    fixed: tuple[str, ...]
    metric: str
    lower: bool
    sampler: str
    seed: int


@record
class Result:
    """One trial as the table shows it."""

    number: int
    state: str
    value: float | None
    overrides: tuple[str, ...]
    folder: str


class Sweep:
    """A search over a space; :meth:`run` trains until ``trials`` are done."""

    def __init__(
        self,
        settings: Settings,
        space: Space,
        folder: Path,
        *,
        prune: bool = True,
        patience: int | None = None,
        say: Callable[[str], Any] = print,
    ) -> None:
        self.settings, self.space, self.folder, self.say = settings, space, folder, say
        self._patience, self._said_stable = patience, False
        self._optuna = optional("optuna", "sweep", "etude sweep")
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failed: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._remember()
        self.study = self._study(prune)
        if settings.sampler == "grid":
            self._enqueue_grid()

    def stop(self) -> None:
        """End the trials that run; the next start goes on with them."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def run(self, trials: int, jobs: int = 1) -> list[Result]:
        """Train until ``trials`` are finished, ``jobs`` at a time, and return all results, best first."""
        with Lock(self.folder):
            waiting = [self._optuna.trial.Trial(self.study, one._trial_id) for one in self._running()]
            if waiting:
                were = "was" if len(waiting) == 1 else "were"
                self.say(f"resuming {counted(len(waiting), 'trial')} that {were} cut off")
            with ThreadPoolExecutor(jobs) as pool:
                for job in [pool.submit(self._work, waiting, trials) for _ in range(jobs)]:
                    job.result()
            return self.results()

    def _work(self, waiting: list[Any], trials: int) -> None:
        """Take trials until there are enough: those that a kill left, then new ones."""
        while not self.stopped:
            with self._lock:
                if waiting:
                    trial = waiting.pop(0)
                elif len(self._started()) < trials and not self._is_exhausted() and not self._is_settled():
                    trial = self._ask()
                else:
                    return
                overrides = draw(self.space, trial)
            self._train(trial, overrides)

    def _train(self, trial: Any, overrides: list[str]) -> None:
        states = self._optuna.trial.TrialState
        folder = self.folder / f"trial-{trial.number:03d}"
        known = set(self.study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        process = TrialProcess(self.settings.config, [*self.settings.fixed, *overrides], folder, self.settings.metric)

        def report(step: int, value: float) -> bool:
            if step in known:  # an earlier life has reported it
                return False
            trial.report(value, step)
            return bool(trial.should_prune())

        code = process.wait(report, lambda: self.stopped)
        before = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        values = [one for one in (*before.values(), *(v for _, v in process.values())) if not math.isnan(one)]
        best = (min(values) if self.settings.lower else max(values)) if values else None
        with self._lock:
            if code is None:
                self.study.tell(trial, state=states.PRUNED)
                self._note(trial, overrides, f"pruned at {_text(best)}")
            elif code == 0 and best is not None:
                self.study.tell(trial, best)
                self._note(trial, overrides, f"{self.settings.metric} {_text(best)}")
            elif not self.stopped:
                self.study.tell(trial, state=states.FAIL)
                self._note(trial, overrides, f"failed with exit code {code}; see {process.log}")
                self._judge(code, process, best)
            self._write_results()

    def _write_results(self) -> None:
        """Write down what ``etude report`` draws; it needs no Optuna."""
        log = [one.key for one in self.space.dimensions if isinstance(one, Range) and one.log]
        trials = [
            {
                "number": one.number,
                "state": one.state,
                "value": one.value,
                "values": {key: _number(text) for key, _, text in (word.partition("=") for word in one.overrides)},
                "log": log,
                "folder": one.folder,
            }
            for one in self.results()
        ]
        content = {"metric": self.settings.metric, "trials": trials}
        replace_text(self.folder / RESULTS, json.dumps(content, indent=1) + "\n")

    def _judge(self, code: int, process: TrialProcess, best: float | None) -> None:
        """Give the sweep up when the config itself is wrong, or when nothing but failures comes."""
        last = "\n".join(process.last_lines())
        if code == 0 and best is None:
            self.stop()
            raise ConfigError(
                f"the runs record no {self.settings.metric!r} on validation data",
                hint=suggest(self.settings.metric, process.recorded()),
            )
        self._failed.append(last)
        if code == 2 or (len(self._failed) >= _HOPELESS and not self._completed()):
            self.stop()
            kind = ConfigError if code == 2 else UserCodeError
            raise kind(f"{len(self._failed)} of the first trials failed, the last one with exit code {code}:\n{last}")

    def _note(self, trial: Any, overrides: list[str], outcome: str) -> None:
        self.say(f"trial {trial.number:>3}  {'  '.join(overrides)}  {outcome}")

    def results(self) -> list[Result]:
        """Return finished trials, best first, then the pruned and the failed ones."""
        found = [
            Result(
                number=one.number,
                state=one.state.name.lower(),
                value=one.value if one.state.name == "COMPLETE" else None,
                overrides=tuple(f"{key}={written(value)}" for key, value in one.params.items()),
                folder=str(self.folder / f"trial-{one.number:03d}"),
            )
            for one in self._started()
        ]
        sign = 1 if self.settings.lower else -1
        return sorted(found, key=lambda one: (one.value is None, sign * (one.value or 0.0), one.number))

    # -- Optuna --------------------------------------------------------------------------------------------------

    def _study(self, prune: bool) -> Any:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        backend = optuna.storages.journal.JournalFileBackend(str(self.folder / "journal.log"))
        pruner = (
            optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1) if prune else optuna.pruners.NopPruner()
        )
        return optuna.create_study(
            study_name="sweep",
            storage=optuna.storages.JournalStorage(backend),
            pruner=pruner,
            direction="minimize" if self.settings.lower else "maximize",
            load_if_exists=True,
        )

    def _ask(self) -> Any:
        """Draw a trial. The seed follows its number: a sweep that goes on would draw its first trials again."""
        seed = self.settings.seed + len(self._started())
        samplers = self._optuna.samplers
        random = self.settings.sampler != "tpe"
        self.study.sampler = samplers.RandomSampler(seed) if random else samplers.TPESampler(seed=seed)
        return self.study.ask()

    def _enqueue_grid(self) -> None:
        """Queue every combination. Optuna's own grid sampler works only where Optuna runs the loop."""
        choices = [one for one in self.space.dimensions if isinstance(one, Choices)]
        for values in itertools.product(*(one.values for one in choices)):
            named = {one.key: value for one, value in zip(choices, values, strict=True)}
            self.study.enqueue_trial(named, skip_if_exists=True)

    def _is_exhausted(self) -> bool:
        size = self.space.grid_size if self.settings.sampler == "grid" else None
        return size is not None and len(self._started()) >= size

    def _is_settled(self) -> bool:
        """Return whether ``patience`` trials in a row, in the order they ended, brought nothing better."""
        ended = [one for one in self.study.get_trials(deepcopy=False) if one.state.is_finished()]
        ended.sort(key=lambda one: one.datetime_complete)
        if self._patience is None or not self._completed():
            return False
        is_stable = len(ended) - 1 - ended.index(self.study.best_trial) >= self._patience
        if is_stable and not self._said_stable:
            self._said_stable = True
            self.say(f"{counted(self._patience, 'trial')} in a row brought nothing better")
        return is_stable

    def _started(self) -> list[Any]:
        return [one for one in self.study.get_trials(deepcopy=False) if one.state.name != "WAITING"]

    def _running(self) -> list[Any]:
        return [one for one in self.study.get_trials(deepcopy=False) if one.state.name == "RUNNING"]

    def _completed(self) -> bool:
        return any(one.state.name == "COMPLETE" for one in self.study.get_trials(deepcopy=False))

    def _remember(self) -> None:
        """Write the settings down, or compare them with those that the folder was begun with."""
        path = self.folder / SETTINGS
        asked = json.loads(json.dumps(asdict(self.settings)))
        if not path.exists():
            replace_text(path, json.dumps(asked, indent=1) + "\n")
            return
        before = json.loads(path.read_text())
        changed = [key for key in asked if asked[key] != before.get(key)]
        if changed:
            text = "; ".join(f"{key} was {before.get(key)!r} and is {asked[key]!r}" for key in changed)
            raise ConfigError(f"{self.folder} holds another sweep: {text}", hint="give another --folder")


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _text(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4g}"


class TrialProcess:
    """A run ``etude train CONFIG … --folder FOLDER`` whose evaluations are read while it trains."""

    def __init__(self, config: str, overrides: Sequence[str], folder: Path, metric: str) -> None:
        self.folder, self.metric = folder, metric
        self._records: Records | None = None
        self.log = folder.with_name(f"{folder.name}.out")
        words = [sys.executable, "-m", "etude", "train", config, *overrides, "--folder", str(folder)]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            # A trial holds the lock of its log as long as it lives, for that is its output. So this waits for a trial
            # that a sweep killed by SIGKILL has left, even if that one has no folder yet.
            fcntl.flock(out, fcntl.LOCK_EX)
            if self._run() is not None:
                words.append("--resume")
            # A separate session: Ctrl-C reaches the sweep alone, which then stops its trials in order.
            self.process = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)

    def wait(self, report: Callable[[int, float], bool], stopping: Callable[[], bool]) -> int | None:
        """Report every evaluation until the run ends; return its exit code, or None when ``report`` gave it up."""
        seen = 0
        while True:
            code = self.process.poll()
            values = self.values()
            for step, value in values[seen:]:
                if report(step, value) and code is None:
                    self.stop()
                    return None
            seen = len(values)
            if code is not None:
                return code
            if stopping():
                return self.stop()
            time.sleep(_PERIOD)

    def stop(self) -> int:
        """End the run in good order: it saves and can be resumed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def values(self) -> list[tuple[int, float]]:
        """Return step and value of the metric for every evaluation that is written whole."""
        run = self._run() if self._records is None else None
        if run is not None:
            self._records = Records(run)
        if self._records is None:
            return []
        self._records.update()
        return evaluations(self._records, self.metric)

    def recorded(self) -> list[str]:
        """Return the names of what the run has recorded on validation data."""
        return [] if self._records is None else list(self._records.results)

    def _run(self) -> Path | None:
        """Return the folder of the run once it is there; some systems make one inside of ours."""
        runs = find_runs(self.folder) if self.folder.is_dir() else []
        return runs[-1] if runs else None

    def last_lines(self, most: int = 6) -> list[str]:
        """Return what the run said last, for a message about its failure."""
        return self.log.read_text(errors="replace").splitlines()[-most:] if self.log.exists() else []


def evaluations(records: Records, metric: str) -> list[tuple[int, float]]:
    """Return step and value of ``metric`` for every evaluation on validation data in the records of a run."""
    curve = records.results.get(metric)
    return [] if curve is None else [(int(step), value) for step, value in zip(curve.steps, curve.values, strict=True)]
