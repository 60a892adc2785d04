"""Log: passes recorded values to the writers periodically."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etude.core.hook import Periodic
from etude.core.update import read_losses
from etude.hooks.schedule import Schedule, TorchSchedule

if TYPE_CHECKING:
    from etude.core.run import Run


class Log(Periodic):
    """Write a record of the values since the last one, with the learning rate of each optimizer's first group.

    Groups with another rate come as ``lr/GROUP``. The momentum comes too where it is scheduled or
    groups differ.
    """

    priority = 60

    def act(self, run: Run) -> None:
        read_losses(run)
        moves = any(isinstance(hook, Schedule | TorchSchedule) and hook.moves_momentum for hook in run.hooks)
        for name, optimizer in run.optimizers.items():
            groups, ending = optimizer.param_groups, f"/{name}" if name else ""
            run.events.put(f"lr{ending}", groups[0]["lr"], last=True)
            for group, rate in _others(groups, [one["lr"] for one in groups]):
                run.events.put(f"lr{ending}/{group}", rate, last=True)
            momenta = [_momentum(one) for one in groups]
            others = dict(_others(groups, momenta))
            if momenta[0] is not None and (moves or others):
                run.events.put(f"momentum{ending}", momenta[0], last=True)
                for group, momentum in others.items():
                    run.events.put(f"momentum{ending}/{group}", momentum, last=True)
        run.events.flush(step=run.done, epoch=run.last_epoch)


def _others(groups: Sequence[Mapping[str, Any]], values: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield the groups whose value is not that of the first; of groups without a name one for each value."""
    if len(groups) == 1:
        return
    seen = {values[0] if values[0] is None else float(values[0])}
    first = set(seen)
    for index, (group, value) in enumerate(zip(groups, values, strict=True)):
        if value is not None and (number := float(value)) not in (first if "name" in group else seen):
            seen.add(number)
            yield str(group.get("name", index)), number


def _momentum(group: Mapping[str, Any]) -> Any:
    betas = group.get("betas")
    return group.get("momentum", betas[0] if betas else None)
