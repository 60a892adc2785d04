"""What the engine does as one rank of several; here it is the only one, in a real process group."""

from __future__ import annotations

import pytest
import torch
from torch import distributed

from etude.core.evaluation import Evaluation
from etude.core.hook import FunctionHook
from etude.core.loop import evaluate, fit
from etude.dist import group
from etude.dist.peers import Peers
from etude.dist.world import World
from etude.errors import Diverged
from etude.metrics.values import MAE
from tests.core.support import make_run


@pytest.fixture
def peers():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    group.join(World())
    yield Peers(World())
    group.leave()


class Leaves(Peers):
    """Replicas of which one has left while gradients were averaged, at the first update alone."""

    left = False

    def average(self, params) -> bool:
        self.left, before = True, self.left
        return before


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_rank_alone_learns_what_a_process_without_ranks_learns(peers, accumulate):
    alone, ranked = make_run(accumulate=accumulate), make_run(accumulate=accumulate)
    ranked.peers = peers
    told: list[bool] = []
    peers._sync = told.append
    fit(alone), fit(ranked)
    assert all(map(torch.equal, alone.model.parameters(), ranked.model.parameters()))
    assert told == [number % accumulate == accumulate - 1 or number == 7 for number in range(8)]


def test_a_share_of_a_batch_counts_as_much_as_it_weighs(peers):
    class Shares(list):
        weight = 0.5

    def trained(scale: float, data=None):
        run = make_run(2, loss=lambda output, target: output.mean() * scale, data=data)
        run.max_epochs, run.total_steps, run.peers = 1, 2, peers
        fit(run)
        return run

    batches = [(torch.ones(1, 3), torch.zeros(1)) for _ in range(2)]
    whole, share = trained(0.5, batches), trained(1.0, Shares(batches))
    assert torch.equal(whole.model.weight, share.model.weight)
    recorded = [run.events.flush(step=2, epoch=0).values["loss"] for run in (whole, share)]
    assert recorded[0] == recorded[1]


def test_gradients_that_a_replica_spoilt_are_dropped_and_the_next_ones_are_used(peers):
    run = make_run(2)
    run.max_epochs, run.total_steps = 1, 2
    run.peers = Leaves(World(), by_hand=True)
    before = run.model.weight.clone()
    seen = []
    look = FunctionHook(
        lambda run: seen.append((torch.equal(run.model.weight, before), run.update.pending)), "after_step"
    )
    run.hooks.add(look)
    fit(run)
    assert seen == [(True, 0), (False, 0)] and run.model.weight.grad is None


def test_a_loss_that_is_not_finite_names_the_rank_that_has_it(peers):
    run = make_run(loss=lambda output, target: output.sum() * float("nan"))
    run.peers = peers
    with pytest.raises(Diverged, match=r"not finite at step 1 on rank 0 \(loss nan\)"):
        fit(run)


def test_a_batch_that_was_only_lent_to_a_rank_is_not_measured(peers):
    run = make_run(loss=lambda output, target: target.mean())
    evaluation = Evaluation(run.update.forward, {"mae": MAE()})
    batches = [(torch.ones(2, 3), torch.full((2, 2), value)) for value in (1.0, 3.0)]

    class Lends:
        weight = 1.0

        def __iter__(self):
            yield batches[0]
            self.weight = 0.0
            yield batches[1]

    evaluation.loader = loader = Lends()
    alone = evaluate(run, loader, evaluation)["loss"]
    run.peers, evaluation.loader = peers, (loader := Lends())
    assert (alone, evaluate(run, loader, evaluation)["loss"]) == (2.0, 1.0)


def test_gradients_that_are_dropped_are_counted_and_no_update_is_told(peers):
    run = make_run(2)
    run.max_epochs, run.total_steps = 1, 1
    run.peers, seen = Leaves(World(), by_hand=True), []
    run.hooks.add(FunctionHook(seen.append, "before_update"))
    fit(run)
    assert seen == [] and run.events.flush(step=1, epoch=0).values["dropped"] == 1.0
