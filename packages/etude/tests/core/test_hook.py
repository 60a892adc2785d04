from __future__ import annotations

from types import SimpleNamespace

import pytest

from etude.core.hook import (
    POINTS,
    FunctionHook,
    Hook,
    HookTable,
    Periodic,
    is_builtin,
    misspelt_points,
    number_of,
    origin_of,
    require_call,
    require_points,
    with_subject,
)
from etude.errors import ConfigError


class FakeRun:
    """Only the counters and who acts: all that a table uses of a run."""

    def __init__(self) -> None:
        self.step = 0
        self.epoch = 0
        self.acting = None


class Note(Hook):
    def __init__(self, text: str, seen: list, *, priority: int = 50, every: str | None = None) -> None:
        self.text, self.seen, self.priority, self.every = text, seen, priority, every

    def after_step(self, run) -> None:
        self.seen.append((run.step, self.text))

    def after_epoch(self, run) -> None:
        self.seen.append((run.epoch, self.text))


def walk(table: HookTable, steps: range) -> None:
    run = FakeRun()
    for run.step in steps:
        table.after_step(run)


def test_hooks_act_by_priority_and_equal_ones_in_given_order():
    seen: list = []
    walk(HookTable([Note("b", seen), Note("c", seen), Note("a", seen, priority=10)]), range(1))
    assert seen == [(0, "a"), (0, "b"), (0, "c")]


def test_a_method_that_is_set_on_the_hook_itself_is_called():
    seen: list = []
    hook = Hook()
    hook.after_step = lambda run: seen.append(run.step)
    walk(HookTable([hook]), range(2))
    assert seen == [0, 1]


@pytest.mark.parametrize("every", ["1step", "2step", "3step", "7step"])
@pytest.mark.parametrize("start", [0, 1, 5, 6])
def test_a_periodic_hook_acts_after_every_nth_step_from_any_start(every, start):
    seen: list = []
    walk(HookTable([Note("x", seen, every=every)]), range(start, 40))
    period = int(every.removesuffix("step"))
    assert [step for step, _ in seen] == [step for step in range(start, 40) if (step + 1) % period == 0]


def test_periodic_and_constant_hooks_keep_the_order_of_priorities():
    seen: list = []
    hooks = [Note("late", seen, priority=90), Note("third", seen, every="3step"), Note("early", seen, priority=1)]
    walk(HookTable([*hooks, Note("second", seen, priority=60, every="2step")]), range(6))
    expected = []
    for step in range(6):
        due = ["early", *(["third"] if step % 3 == 2 else []), *(["second"] if step % 2 else []), "late"]
        expected += [(step, name) for name in due]
    assert seen == expected


def test_an_interval_in_epochs_means_whole_epochs_at_step_points():
    seen: list = []
    walk(HookTable([Note("x", seen, every="2ep")], steps_per_epoch=3), range(13))
    assert [step for step, _ in seen] == [5, 11]


def test_only_overridden_points_are_called():
    table = HookTable([Note("x", [])])
    assert {point for point in POINTS if getattr(table, point)} == {"after_step", "after_epoch"}


def test_counters_that_jump_back_are_seen_after_rewind():
    seen: list = []
    table = HookTable([Note("x", seen, every="4step")])
    walk(table, range(8))
    table.rewind()
    walk(table, range(4))
    assert [step for step, _ in seen] == [3, 7, 3]


def test_an_exception_keeps_its_class_and_tells_hook_point_and_step():
    def broken(run):
        raise KeyError("gone")

    table = HookTable([FunctionHook(broken, "after_step")])
    run = FakeRun()
    run.step = 12
    with pytest.raises(KeyError) as caught:
        table.after_step(run)
    site = caught.value.etude_site
    assert (site.hook, site.point, site.step) == ("broken", "after_step", 13)
    assert "test_hook.py" in site.origin
    assert "in hook broken" in caught.value.__notes__[0]


def test_a_hook_that_is_not_essential_only_warns_and_only_once():
    def broken(run):
        raise KeyError("gone")

    hook = FunctionHook(broken, "after_step")
    hook.essential = False
    table = HookTable([hook])
    with pytest.warns(UserWarning, match="broken failed at after_step") as told:
        for _ in range(3):
            table.after_step(FakeRun())
    assert len(told) == 1


def test_an_attribute_that_hides_a_method_of_hooks_is_told():
    class Counter(Hook):
        def __init__(self):
            self.calls = 0

    with pytest.raises(ConfigError, match=r"Counter .*`calls`"):
        HookTable([Counter()])


def test_an_unknown_point_is_answered_with_the_near_one():
    with pytest.raises(ConfigError, match="after_step"):
        FunctionHook(print, "after_stp")


def test_methods_that_look_like_points_are_noticed():
    class Typo(Hook):
        def after_stpe(self, run) -> None: ...

    assert misspelt_points(Typo()) == {"after_stpe": "after_step"}
    assert misspelt_points(Note("x", [])) == {}


def test_a_run_knows_which_hook_is_at_work():
    seen = []

    class Outer(Hook):
        def after_epoch(self, run):
            table.after_step(run)
            seen.append(table.acting(run.acting))

    outer, inner = Outer(), FunctionHook(lambda run: seen.append(table.acting(run.acting)), "after_step")
    table, run = HookTable([outer, inner]), FakeRun()
    table.after_epoch(run)
    assert seen == [(inner, "after_step"), (outer, "after_epoch")] and run.acting is None


def test_a_hook_by_the_clock_acts_at_the_first_step_after_its_time_and_waits_again():
    seen: list = []
    now = 0.0
    table = HookTable([Note("x", seen, every="10s"), Note("each", seen, priority=90)], clock=lambda: now)
    run = FakeRun()
    for run.step, now in enumerate((10.0, 15.0, 19.9, 20.0, 35.0, 44.0, 45.0)):
        table.after_step(run)
    assert [step for step, text in seen if text == "x"] == [0, 3, 4, 6]
    assert [step for step, text in seen if text == "each"] == list(range(7))


def test_a_hook_by_epochs_counts_them_at_points_of_epochs_and_one_by_steps_acts_at_each():
    seen: list = []
    table, run = (
        HookTable([Note("2", seen, every="2ep"), Note("step", seen, every="3step")], steps_per_epoch=4),
        FakeRun(),
    )
    for run.epoch in range(5):
        table.after_epoch(run)
    assert [epoch for epoch, text in seen if text == "2"] == [1, 3]
    assert [epoch for epoch, text in seen if text == "step"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("during", [None, OSError("disk full")])
def test_at_the_end_every_hook_is_called_and_the_first_error_counts(during):
    def broken(run):
        raise KeyError(len(seen))

    seen: list = []
    hooks = [FunctionHook(act, "after_train") for act in (seen.append, broken, seen.append, broken, seen.append)]
    table = HookTable(hooks)
    with pytest.warns(UserWarning, match="broken failed at after_train") as told:
        if during is None:
            with pytest.raises(KeyError, match="1"):
                table.after_train.each(FakeRun())
        else:
            table.after_train.each(FakeRun(), during=during)
    assert len(seen) == 3 and len(told) == (1 if during is None else 2)


def test_a_method_with_other_arguments_is_answered_with_what_to_write():
    class Wrong(Hook):
        def after_step(self) -> None: ...

    with pytest.raises(ConfigError, match=r"after_step is called with the run\n?.*def after_step\(self, run\)"):
        require_points(Wrong())
    with pytest.raises(ConfigError, match=r"write def lambda\(run, batch\)"):
        require_call(lambda run: None, "the update", "run", "batch")
    require_call(dict.fromkeys, "the function", "run")
    require_call(dict, "a class without a signature", "run")


def test_a_point_of_another_system_is_answered_with_ours():
    class Lightning(Hook):
        def on_train_batch_end(self, run) -> None: ...

    assert misspelt_points(Lightning()) == {"on_train_batch_end": "after_step"}
    with pytest.raises(
        ConfigError, match="hook Lightning has a method on_train_batch_end, .*did you mean 'after_step'"
    ):
        require_points(Lightning())
    with pytest.raises(ConfigError, match="no point is called 'on_train_epoch_end'; did you mean 'after_epoch'"):
        FunctionHook(print, "on_train_epoch_end")


def test_a_hook_that_is_removed_acts_no_more_and_the_table_counts_those_that_are_left():
    seen: list = []
    table = HookTable([Note("a", seen), stays := Note("b", seen)])
    table.remove(next(iter(table)))
    walk(table, range(1))
    assert seen == [(0, "b")] and len(table) == 1 and table.after_step.hooks == [stays] and table.acting(None) is None


def test_a_table_wraps_the_calls_of_its_hooks_for_who_watches():
    seen: list = []

    def wrap(hook, point, call):
        return lambda run: (seen.append((hook.text, point)), call(run))

    walk(HookTable([Note("a", seen)], wrap=wrap), range(1))
    assert seen == [("a", "after_step"), (0, "a")]


@pytest.mark.parametrize(
    ("point", "number"), [("after_step", 5), ("before_update", 5), ("after_epoch", 4), ("on_error", 4)]
)
def test_points_of_a_step_count_it_from_one(point, number):
    run = FakeRun()
    run.step = 4
    assert number_of(run, point) == number


def test_origins_and_makers_of_hooks_are_known():
    assert origin_of(Note).rpartition("/")[2].startswith("test_hook.py:") and origin_of(len) == "builtins"
    assert is_builtin(Hook()) and not is_builtin(Note("x", []))
    assert Note("x", []).origin == origin_of(Note) and Note("x", []).name == "Note"


def test_an_error_keeps_the_site_of_the_hook_that_raised_it_first():
    def broken(run):
        raise KeyError("gone")

    class Outer(Hook):
        def after_epoch(self, run):
            inner.after_step(run)

    inner = HookTable([FunctionHook(broken, "after_step")])
    with pytest.raises(KeyError) as caught:
        HookTable([Outer()]).after_epoch(FakeRun())
    assert caught.value.etude_site.hook == "broken" and caught.value.etude_site.word == "after_step"
    assert len(caught.value.__notes__) == 1


def test_another_subject_takes_the_place_of_the_run():
    seen: list = []
    with_subject(seen.append, "runner")(FakeRun())
    assert seen == ["runner"]


class Acts(Periodic):
    def __init__(self) -> None:
        self.seen: list = []

    def act(self, run) -> None:
        self.seen.append(run.done)


@pytest.mark.parametrize(
    ("fields", "acts"),
    [({}, [3]), ({"error": ValueError()}, []), ({"exit_code": 143}, []), ({"done": 0}, []), ({"done": 2}, [])],
)
def test_a_periodic_hook_acts_once_more_at_the_end_of_a_run_that_went_well(fields, acts):
    hook = Acts()
    hook.load_state_dict({"acted_at": 2})
    assert hook.state_dict() == {"acted_at": 2} and list(hook.calls()) == ["after_step", "after_train"]
    run = SimpleNamespace(**{"done": 3, "error": None, "exit_code": 0} | fields)
    hook.calls()["after_train"](run)
    assert hook.seen == acts
    hook.at_end = False
    assert list(hook.calls()) == ["after_step"]
