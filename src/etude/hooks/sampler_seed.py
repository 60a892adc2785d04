"""SamplerSeed: tell samplers of a torch DataLoader which epoch it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etude.core.hook import Hook

if TYPE_CHECKING:
    from etude.core.run import Run


class SamplerSeed(Hook):
    """Calls ``set_epoch`` on the sampler, or the batch sampler's, of the training data.

    Étude's own loader needs no such help; a ``DistributedSampler`` repeats its order in every epoch without it.
    """

    priority = 10

    def before_epoch(self, run: Run) -> None:
        loader = run.data["train"]
        for owner in (loader, getattr(loader, "batch_sampler", None)):
            set_epoch = getattr(getattr(owner, "sampler", None), "set_epoch", None)
            if set_epoch is not None:
                set_epoch(run.epoch)
                return
