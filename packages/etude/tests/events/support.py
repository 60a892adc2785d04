"""What several tests of this room share."""

from __future__ import annotations

import time

from etude.events.record import Record
from etude.events.trackers.tracker import Job, Tracker


def numbered(step: int, split: str = "train", media=(), **values: float) -> Record:
    return Record(step, step // 10, split, values, 1000.0 + step, media)


def record(step, values=None, media=()):
    return Record(step, 0, "train", values if values is not None else {"loss": 1 / step}, time.time(), tuple(media))


class Collect(Tracker):
    """Keeps what it gets; waits for ``gate`` before each record."""

    name = "collect"

    def __init__(self, folder, gate=None, fail_at=None, **settings):
        super().__init__(folder, **settings)
        self.gate, self.fail_at, self.got, self.jobs = gate, fail_at, [], []

    def open(self, job: Job) -> str:
        self.jobs.append(job)
        return job.known_as or "id-1"

    def scalars(self, values, step):
        if self.gate is not None:
            self.gate.wait(300)
        if step == self.fail_at:
            raise ConnectionError("the network is gone")
        self.got.append((step, dict(values)))
