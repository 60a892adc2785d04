"""One trial of a sweep: an ordinary run in a process of its own, watched through the files it writes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

#: Seconds between two looks at a run's metrics.
_PERIOD = 0.2
#: Seconds that a trial has to save and end after SIGTERM.
_GRACE = 60


class TrialProcess:
    """A run ``etude train CONFIG … --folder FOLDER`` whose evaluations are read while it trains."""

    def __init__(self, config: str, overrides: Sequence[str], folder: Path, metric: str) -> None:
        self.folder, self.metric = folder, metric
        self.log = folder.with_name(f"{folder.name}.out")
        words = [sys.executable, "-m", "etude", "train", config, *overrides, "--folder", str(folder)]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            # A trial holds the lock of its log as long as it lives, for that is its output. So this waits for a trial
            # that a sweep killed by SIGKILL has left behind, even if that one has no folder yet.
            fcntl.flock(out, fcntl.LOCK_EX)
            if (folder / "plan.yaml").exists():
                words.append("--resume")
            # A session of its own: Ctrl-C reaches the sweep alone, which then stops its trials in order.
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
        return read_metric(self.folder / "metrics.jsonl", self.metric)

    def last_lines(self, most: int = 6) -> list[str]:
        """Return what the run said last, for a message about its failure."""
        return self.log.read_text(errors="replace").splitlines()[-most:] if self.log.exists() else []


def read_metric(path: Path, metric: str) -> list[tuple[int, float]]:
    """Read the values of ``metric`` from the validation records of a run; a torn last line is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().split(os.linesep.encode())[:-1]:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        value = record.get(metric)
        if record.get("split") == "val" and isinstance(value, int | float):
            found.append((int(record["step"]), float(value)))
    return found
