"""Log: every so often, hand what was recorded to the writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etude.core.hook import Periodic
from etude.core.update import settle

if TYPE_CHECKING:
    from etude.core.run import Run


class Log(Periodic):
    """Write a record of the values since the last one, with the learning rate of each optimizer's first group."""

    priority = 60

    def act(self, run: Run) -> None:
        settle(run)
        for name, optimizer in run.optimizers.items():
            run.events.put(f"lr/{name}" if name else "lr", optimizer.param_groups[0]["lr"], last=True)
        run.events.flush(step=run.done, epoch=run.last_epoch)
