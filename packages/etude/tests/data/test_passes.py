"""A pass over a loader that is resumed in its middle, alone and by other numbers of processes."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler

from etude.data.seeds import kept_generators
from etude.data.torch_loader import passes, position, remainder
from etude.data.torch_loader.epoch_seeds import end_workers, keep_workers
from etude.data.torch_loader.passes import LoaderPass, Passes, replay
from etude.data.torch_loader.worker_states import Made, current_state


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with kept_generators():
        torch.manual_seed(1)
        yield


def shuffled(workers: int = 0, **options: Any) -> DataLoader[Any]:
    return DataLoader(list(range(10)), batch_size=2, shuffle=True, num_workers=workers, **options)


def lists(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def next_number() -> float:
    return float(torch.rand(()))


# --- the workers of a loader; none of these is started


def test_a_loader_has_the_same_workers_whenever_it_is_asked_and_some_have_none():
    loader = shuffled(2, persistent_workers=True)
    workers = passes.workers_of(loader)
    assert workers is passes.workers_of(loader) and (workers.count, workers.persist) == (2, True)
    for other in (shuffled(), [1, 2], keep_workers(shuffled(2)), DataLoader([1], batch_size=None, num_workers=1)):
        assert passes.workers_of(other) is None and passes.worker_states(other) == {}
        passes.set_worker_states(other, {"started": True, "states": {}})
        passes.take_no_seed(other)
        assert not passes.has_seed(other)


def test_the_states_of_workers_go_from_one_loader_to_the_next():
    first, second = shuffled(2), shuffled(2)
    assert passes.worker_states(first) == {"started": False, "states": {}}
    passes.workers_of(first).started = True
    passes.workers_of(first).states[1] = state = current_state()
    saved = passes.worker_states(first)
    passes.set_worker_states(second, {})
    assert not passes.workers_of(second).started
    passes.set_worker_states(second, {**saved, "states": {str(at): one for at, one in saved["states"].items()}})
    assert passes.workers_of(second).started and passes.workers_of(second).states == {1: state}


def test_workers_that_stay_have_a_seed_once_they_were_started_here_or_before():
    lasting, passing = shuffled(1, persistent_workers=True), shuffled(1)
    assert not passes.has_seed(lasting)
    lasting._iterator = object()
    assert passes.has_seed(lasting)
    lasting._iterator = None
    for loader in (lasting, passing):
        passes.take_no_seed(loader)
    assert passes.has_seed(lasting) and not passes.has_seed(passing)
    assert lasting.generator is not None and passing.generator is None and not passes.workers_of(passing).started


def test_the_generator_of_a_loader_is_put_back_also_after_an_error():
    loader = shuffled()
    with pytest.raises(ValueError), passes.no_seed_drawn(loader):
        assert isinstance(loader.generator, torch.Generator)
        raise ValueError
    assert loader.generator is None


@pytest.mark.parametrize(
    ("persists", "begun", "drawn", "draws", "lends"),
    [
        (True, True, True, True, False), (True, False, True, False, False), (False, False, True, False, False),
        (True, True, False, False, True), (False, False, False, False, True),
    ],
)  # fmt: skip
def test_a_seed_for_workers_is_drawn_or_not_whatever_the_loader_would_do(persists, begun, drawn, draws, lends):
    loader = shuffled(1, persistent_workers=persists)
    loader._iterator = object() if begun else None
    before = torch.get_rng_state()
    with passes.seed_for_workers(loader, drawn=drawn):
        assert torch.equal(torch.get_rng_state(), before) != draws
        assert (loader.generator is not None) == lends
    assert loader.generator is None
    loader._iterator = None


def test_a_loader_with_a_generator_of_its_own_keeps_it():
    own = torch.Generator()
    loader = shuffled(1, generator=own)
    before = torch.get_rng_state()
    for other in (loader, [1]):
        with passes.seed_for_workers(other, drawn=False):
            assert loader.generator is own
    assert loader.generator is own and torch.equal(torch.get_rng_state(), before)


# --- one pass


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_a_pass_is_resumed_at_its_position_with_the_order_that_it_had(at_once, own):
    loader = shuffled(generator=torch.Generator().manual_seed(5) if own else None)
    current, batches = LoaderPass(loader, at_once=at_once), passes.begin(loader)
    if not at_once:
        next_number()  # something else draws between the start and the first batch
    current.draw(batches), current.draw(batches)
    state = copy.deepcopy(current.state())
    assert state["taken"] == 2 and (state["first_rng"] is None) == at_once and state["lasting"] is False
    rest = lists(batches)
    torch.manual_seed(99)
    other = shuffled(generator=torch.Generator() if own else None)
    resumed, place = replay(other, state)
    assert lists(resumed) == rest and place.taken == 2
    assert (place.first is None) == at_once


def test_a_pass_looks_at_the_generators_before_its_first_batch_alone():
    current = LoaderPass([1, 2])
    before = torch.get_rng_state()
    batches = iter([1, 2])
    assert current.draw(batches) == 1
    torch.manual_seed(4)
    assert current.draw(batches) == 2 and torch.equal(current.first.torch, before) and current.taken == 2
    with pytest.raises(StopIteration):
        current.draw(batches)
    assert current.taken == 2


def test_a_pass_knows_whether_its_workers_had_been_started():
    loader = shuffled(1)
    assert not LoaderPass(loader).lasting
    passes.workers_of(loader).started = True
    assert LoaderPass(loader).lasting and not LoaderPass([1]).lasting


# --- the passes of a run


class Steps:
    """A run over a loader: its passes, and the steps that it has done."""

    def __init__(self, loader: Any) -> None:
        self.done, self.said = 0, []
        self.passes = Passes(lambda: loader, lambda: self.done, self.said.append)

    def take(self, batches: Iterator[Any], count: int) -> list[list[int]]:
        taken = lists(islice(batches, count))
        self.done += len(taken)
        return taken


def test_a_resumed_run_ends_its_pass_in_the_order_in_which_it_was_begun():
    run = Steps(shuffled())
    assert run.passes.state_dict() is None and run.passes.current is None and run.passes.resumed is None
    run.take(run.passes.begin(0), 5)
    batches = run.passes.begin(1)
    run.take(batches, 2)
    state = copy.deepcopy(run.passes.state_dict())
    assert (state["number"], state["first"], state["workers"], state["persistent"]) == (1, 5, 0, False)
    assert run.passes.current == (1, 5)
    rest = lists(batches)

    def resumed(number: int, skip: int) -> list[list[int]]:
        torch.manual_seed(99)
        other = Steps(shuffled())
        other.done = 7
        other.passes.load_state_dict(state)
        assert other.passes.resumed == other.passes.current == (1, 5) and other.said == []
        found = lists(other.passes.begin(number, skip=skip))
        assert other.passes.resumed is None and other.passes.current == (number, 7 - skip)
        return found

    assert resumed(1, 2) == rest
    assert resumed(2, 2) != rest and resumed(1, 0)[2:] != rest


def test_a_place_without_random_numbers_is_a_place_all_the_same():
    run = Steps(shuffled())
    run.passes.resume_at(3, 12)
    assert run.passes.current == (3, 12)
    assert len(lists(run.passes.begin(3, skip=1))) == 4


@pytest.mark.parametrize(
    ("before", "here", "told", "count"),
    [(0, 2, True, 2), (3, 2, True, 2), (4, 2, False, 4), (2, 2, False, 2), (2, 0, False, 2), (0, 0, False, 0)],
)
def test_workers_that_cannot_stand_for_those_of_the_run_before_are_reported(before, here, told, count):
    run, state = Steps(shuffled(here)), current_state()
    saved = {"number": 0, "first": 0, "workers": before, "persistent": True, "states": {}}
    run.passes.load_state_dict({**saved, "states": {"0": list(state)}})
    assert bool(run.said) == told and (run.passes._workers.count, run.passes._workers.persist) == (count, True)
    assert run.passes._workers.states == ({} if told else {0: state})


@pytest.mark.parametrize(
    ("number", "persists", "made", "draws"),
    [(0, True, True, True), (1, True, True, False), (1, False, True, True), (1, True, False, True)],
)
def test_a_pass_draws_a_seed_where_the_workers_of_the_run_would_be_started(number, persists, made, draws):
    loader = shuffled()
    run = Steps(loader)
    run.passes.load_state_dict({"number": 0, "first": 0, "workers": 2, "persistent": persists})
    vars(loader)["_DataLoader__initialized"] = made
    before = torch.get_rng_state()
    run.passes.begin(number)
    assert torch.equal(torch.get_rng_state(), before) != draws and loader.generator is None


def test_a_loader_that_is_no_loader_of_torch_has_passes_too():
    run = Steps([1, 2, 3])
    assert list(run.passes.begin(0)) == [1, 2, 3] and list(run.passes.begin(1, skip=1)) == [2, 3]
    state = run.passes.state_dict()
    assert (state["workers"], state["persistent"], state["states"]) == (0, False, {})


def test_workers_are_new_where_they_persist_and_their_loader_has_lost_them():
    def asked(loader: Any, skip: int = 0, *, persist: bool = True, times: int = 2) -> list[bool]:
        workers = position.Workers(2, persist=persist)
        workers.states, workers.lent = {0: current_state()}, loader
        found = [workers.are_new(loader, skip) for _ in range(times)]
        assert bool(workers.states) == (workers.lent is not None) == (not any(found))
        return found

    assert asked(shuffled(2)) == [False, True]
    assert asked(shuffled(2), skip=1) == asked(shuffled(2), persist=False) == asked([1]) == [False, False]
    here, unmade = shuffled(2), shuffled(2)
    here._iterator = object()
    vars(unmade)["_DataLoader__initialized"] = False
    assert asked(here) == [False, False] and asked(unmade, times=1) == [True]
    here._iterator = None


def test_marked_batches_say_whose_they_are_and_who_begins_a_pass():
    inner = BatchSampler(range(6), 2, False)
    marked = copy.deepcopy(position.Numbered(inner))
    workers = position.Workers(2, persist=True)
    noted: list[int] = []
    assert list(marked) == [[0, 1], [2, 3], [4, 5]] and len(marked) == 3 and marked.batch_size == 2
    marked.lend(lambda: noted.append(1))
    assert list(marked) == [[0, 1], [2, 3], [4, 5]] and noted == [1]
    marked.begin(workers, 1, None)
    batches = list(marked)
    assert [(batch, batch.turn.worker) for batch in batches] == [([2, 3], 1), ([4, 5], 0)] and noted == [1]
    marked.ask(position.Workers(3, persist=True))
    assert [(batch, batch.turn.worker) for batch in marked] == [([], 0), ([], 1), ([], 2)]
    assert list(marked) == batches
    marked.batch_size = 3
    assert [list(batch) for batch in marked] == [[3, 4, 5]]
    with pytest.raises(AttributeError):
        position.Numbered.__new__(position.Numbered)._inner


def test_the_samples_of_workers_that_are_gone_are_made_in_this_process_as_theirs():
    class Draws:
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> float:
            return index + random.random()

    def made(init: Any) -> list[list[float]]:
        loader = DataLoader(Draws(), 2, worker_init_fn=init)  # type: ignore[arg-type]
        before = random.getstate(), torch.get_rng_state()
        batches = position.begin(loader, workers=position.Workers(2, persist=False))
        found = [batch.tolist() for batch in batches]
        assert random.getstate() == before[0]
        return found

    def expected(first_seed: int) -> list[list[float]]:
        dice = [random.Random(first_seed), random.Random(first_seed + 1)]
        return [[index + dice[number % 2].random() for index in (2 * number, 2 * number + 1)] for number in range(5)]

    assert made(None) == expected(0)
    assert made(lambda worker: random.seed(70 + worker)) == expected(70)


def test_only_loaders_that_draw_indices_can_begin_in_their_middle_by_skipping_them():
    class Own(DataLoader[Any]):
        def __iter__(self) -> Any:
            return iter([1, 2, 3])

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(4))

    assert position.has_indices(shuffled()) and position.has_indices(DataLoader([1], batch_sampler=[[0]]))
    others = [Own([1]), DataLoader(Stream(), 2), DataLoader([1], batch_size=None), [1]]
    assert not any(position.has_indices(other) for other in others)
    assert list(position.begin(others[0], skip=2)) == [3] and lists(position.begin(others[1], skip=1)) == [[2, 3]]
    assert list(position.begin(others[0])) == [1, 2, 3]


def test_a_pass_whose_batches_are_counted_is_torchs_iterator_in_all_else():
    batches, workers, state = iter(shuffled()), position.Workers(1, persist=True), current_state()
    taken = position.Taken(batches, workers)
    assert taken._dataset is batches._dataset and len(list(taken)) == 5 and workers.states == {}
    assert list(position.Taken(iter([Made("a", 0, state), "b"]), workers)) == ["a", "b"] and workers.states == {
        0: state
    }
    with pytest.raises(AttributeError):
        position.Taken.__new__(position.Taken)._batches


@pytest.mark.parametrize(("here", "count", "told"), [(0, 0, False), (2, 2, True)])
def test_a_pass_that_was_saved_without_a_number_of_workers_had_none(here, count, told):
    run = Steps(shuffled(here))
    run.passes.load_state_dict({"number": 1, "first": 5, "persistent": False})
    assert bool(run.said) == told and run.passes._workers.count == count and not run.passes._workers.persist


@pytest.mark.parametrize(
    ("persists", "started", "made", "draws"),
    [(True, False, True, True), (True, True, True, False), (False, True, True, True), (True, True, False, True)],
)
def test_workers_that_were_started_before_begin_without_a_seed_of_the_run(persists, started, made, draws):
    loader = shuffled(1, persistent_workers=persists)
    passes.workers_of(loader).started = started
    vars(loader)["_DataLoader__initialized"] = made
    sampler = loader.sampler
    sampler.generator = torch.Generator()  # so that the order draws nothing of the run
    before = torch.get_rng_state()
    batches = passes.begin(loader)
    assert torch.equal(torch.get_rng_state(), before) != draws and loader.generator is None
    assert passes.workers_of(loader).started
    end_workers([loader], [batches])


def test_a_turn_names_the_worker_of_a_batch_and_its_state_at_first():
    state = current_state()
    workers = position.Workers(2, persist=False)
    workers.states = {0: state}
    turns = [workers.turn(number, 4) for number in (4, 5, 6, 7)]
    assert [(turn.worker, turn.state is state, turn.fresh) for turn in turns] == [
        (0, True, False), (1, False, True), (0, False, False), (1, False, False),
    ]  # fmt: skip
    assert not position.Workers(2, persist=True).turn(0, 0).fresh
    workers.begin(skip=1)
    assert workers.states
    workers.begin(skip=0)
    assert not workers.states


# --- the rest of an epoch, for another number of processes


def taken(loader: Any, count: int) -> tuple[dict[str, Any], list[int]]:
    """Take some batches; return what a checkpoint says of the pass, and the samples that are left."""
    current = LoaderPass(loader, at_once=True)
    batches = passes.begin(loader)
    for _ in range(count):
        current.draw(batches)
    saved = {**copy.deepcopy(current.state()), "order": remainder.facts(loader, 1)}
    return saved, [sample for batch in batches for sample in batch.tolist()]


@pytest.mark.parametrize(
    ("loader", "kind"),
    [
        (lambda: shuffled(), "drawn"), (lambda: shuffled(generator=torch.Generator().manual_seed(3)), "drawn"),
        (lambda: DataLoader(range(10), batch_size=2), "in order"),
        (lambda: DataLoader(range(10), 2, sampler=DistributedSampler(range(10), 1, 0, seed=4)), "shared"),
        (lambda: DataLoader(range(10), 2, sampler=DistributedSampler(range(10), 1, 0, shuffle=False)), "shared"),
    ],
)  # fmt: skip
def test_what_is_left_of_an_epoch_is_known_without_its_loader(loader, kind):
    saved, rest = taken(loader(), 2)
    before = torch.get_rng_state()
    assert saved["order"]["kind"] == kind and remainder.left(saved) == rest and len(rest) == 6
    assert torch.equal(torch.get_rng_state(), before) and remainder.to_share(saved) is None
    assert remainder.to_share({**saved, "left": [1, 2]}) == [1, 2]


def test_the_shares_of_several_processes_are_put_together():
    samplers = [DistributedSampler(range(12), 2, rank, seed=4) for rank in range(2)]
    loaders = [DataLoader(range(12), 2, sampler=sampler) for sampler in samplers]
    for sampler in samplers:
        sampler.set_epoch(3)
    saved = {**LoaderPass(loaders[0]).state(), "taken": 1, "order": remainder.facts(loaders[0], 2)}
    rest = [sample for loader in loaders for batch in lists(loader)[1:] for sample in batch]
    assert sorted(remainder.left(saved)) == sorted(rest) and len(rest) == 8
    assert remainder.facts(loaders[0], 3) is None


def test_an_order_that_nobody_can_draw_again_is_unknown():
    class Own(BatchSampler):
        pass

    class Reversed(DistributedSampler):
        def __iter__(self):
            return reversed(list(super().__iter__()))

    data = range(10)
    plain = DataLoader(data, 2)
    unknown = [
        [1, 2],
        DataLoader(data, batch_sampler=Own(RandomSampler(data), 2, False)),
        DataLoader(data, 2, sampler=Reversed(data, 1, 0)),
        DataLoader(data, 2, sampler=RandomSampler(data, replacement=True)),
        DataLoader(data, 2, sampler=RandomSampler(data, num_samples=4)),
        shuffled(2),
    ]
    assert [remainder.facts(loader, 1) for loader in unknown] == [None] * 6
    assert remainder.facts(plain, 1) is not None and remainder.facts(plain, 2) is None
    assert remainder.facts(shuffled(), 2) is None
    assert remainder.left({}) is None and remainder.left({"order": None}) is None and remainder.to_share({}) is None
    saved, _ = taken(shuffled(), 1)
    assert remainder.left({**saved, "own": saved["own"] * 2 or [1, 2]}) is None


def test_processes_share_out_what_is_left_and_go_on_with_whole_epochs():
    rest, loaders = [9, 7, 5, 3, 1], [DataLoader(range(10), 2) for _ in range(2)]
    begun = [remainder.begin(loader, rest, rank, 2) for rank, loader in enumerate(loaders)]
    # Five samples are filled up to six, so that both have as many; a whole epoch has five batches.
    assert [current.taken for _, current in begun] == [3, 3]
    known = remainder.facts(loaders[0], 2)
    assert (known["kind"], known["first"], known["order"].tolist()) == ("rest", 3, [9, 7, 5, 3, 1, 9])
    assert (known["batch"], known["batches"], known["world"]) == (2, 5, 2)
    saved = {"order": known, "taken": 4}
    assert remainder.left(saved) == remainder.to_share(saved) == [1, 9]
    assert [lists(batches) for batches, _ in begun] == [[[9, 5], [1]], [[7, 3], [9]]]
    assert lists(loaders[0]) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]] and len(loaders[0].batch_sampler) == 5
    assert remainder.facts(loaders[0], 1)["kind"] == "in order"
    again, _ = remainder.begin(loaders[0], [4], 0, 1)
    assert lists(again) == [[4]] and not isinstance(loaders[0].batch_sampler.inner, remainder.Rest)
    assert copy.deepcopy(loaders[0].batch_sampler).drop_last is False


@pytest.mark.parametrize(("rest", "taken"), [([4, 2], 4), (list(range(9)), 0), (list(range(10)), 0), ([0] * 12, 0)])
def test_a_rest_ends_where_a_whole_epoch_would_if_it_is_not_longer(rest, taken):
    loader = DataLoader(range(10), 2)
    batches, current = remainder.begin(loader, rest, 0, 1)
    assert current.taken == taken
    current.draw(batches)
    assert current.state()["first_rng"] is None and current.taken == taken + 1


@pytest.mark.parametrize(("rest", "world", "filled"), [(4, 3, 2), (5, 3, 1), (6, 3, 0), (5, 4, 3), (3, 1, 0)])
def test_a_rest_is_filled_up_with_its_first_samples_so_that_all_have_as_many(rest, world, filled):
    order, loaders = list(range(rest)), [DataLoader(range(10), 2) for _ in range(world)]
    shares = [lists(remainder.begin(loader, order, rank, world)[0]) for rank, loader in enumerate(loaders)]
    assert sorted(sample for share in shares for batch in share for sample in batch) == sorted(order + order[:filled])
    assert len({sum(map(len, share)) for share in shares}) == 1


def test_the_rest_is_put_below_samplers_that_only_mark_batches():
    loader = keep_workers(DataLoader(range(6), 2))
    assert remainder.can_begin(loader) and remainder.can_begin(DataLoader(range(6), 2))
    remainder.begin(loader, [5, 4], 0, 1)
    assert isinstance(loader.batch_sampler.batches, remainder.Rest)
    for other in ([1], DataLoader(range(6), batch_size=None), DataLoader(range(4), batch_sampler=[[0, 1], [2, 3]])):
        assert not remainder.can_begin(other)
    with pytest.raises(TypeError, match="list has no batch sampler"):
        remainder.begin([1], [1], 0, 1)
