"""The smaller hooks, each through a run."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from etude.core.hook import FunctionHook
from etude.core.loop import fit
from etude.errors import ConfigError
from etude.events.console import format_record
from etude.events.record import Record
from etude.hooks.early_stop import EarlyStop, TimeBudget
from etude.hooks.ema import Ema
from etude.hooks.evaluate import Evaluate
from etude.hooks.freeze import Freeze
from etude.hooks.log import Log, _others
from etude.hooks.profiler import Profiler
from etude.hooks.schedule import Schedule
from etude.hooks.statistics import Statistics
from etude.hooks.timer import Timer
from etude.hooks.upkeep import EmptyCache, SamplerSeed, SyncBuffers
from etude.optim.clipping import Norm
from etude.schedules.curves import Linear
from etude.schedules.phases import schedules_from
from tests.hooks.conftest import Keep, small_run


def every(hook, amount: str):
    hook.every = amount
    return hook


def scripted(run, results: list[float], name: str = "accuracy") -> None:
    """Let the evaluations of a run give these results."""
    remaining = iter(results)
    run.evaluation.end = lambda: {name: next(remaining)}


def test_evaluate_records_and_remembers_the_best():
    keep, hook = Keep(), every(Evaluate(), "1ep")
    run = small_run([hook], epochs_wanted=4)
    run.events.writers.append(keep)
    scripted(run, [0.5, 0.9, math.nan, 0.7])
    fit(run)
    assert [(r.step, r.epoch, r.split) for r in keep.records] == [
        (4, 0, "val"),
        (8, 1, "val"),
        (12, 2, "val"),
        (16, 3, "val"),
    ]
    assert hook.best == {"accuracy": (0.9, 8)} and hook.summary() == "best    accuracy 0.9000 (step 8)"
    again = Evaluate()
    again.load_state_dict(hook.state_dict())
    assert again.best == hook.best


def test_evaluate_measures_all_of_the_data_once_more_at_the_end():
    keep = Keep()
    run = small_run([every(Evaluate(), "3step")], epochs_wanted=2)
    run.events.writers.append(keep)
    run.data["val"].load_state_dict({"epoch": 0, "batch": 1, "samples": 32})
    fit(run)
    assert [record.step for record in keep.records] == [3, 6, 8]
    assert run.model.training and set(run.metrics) == {"loss", "accuracy"}


def test_evaluate_needs_its_data():
    run = small_run([Evaluate("vla")])
    with pytest.raises(ConfigError, match="did you mean 'val'"):
        fit(run)


@pytest.mark.parametrize(
    ("options", "results", "steps", "reason"),
    [
        ({"metric": "accuracy", "patience": 2}, [0.5, 0.6, 0.6, 0.5, 0.9], 16, "has not improved since step 8"),
        ({"metric": "loss", "patience": 1}, [0.5, 0.6], 8, "has not improved since step 4"),
        ({"metric": "accuracy", "mode": "min", "patience": 1}, [0.5, 0.6], 8, "since step 4"),
        ({"metric": "accuracy", "patience": 1, "by": 0.2}, [0.5, 0.6], 8, "since step 4"),
        ({"metric": "accuracy", "patience": 1}, [0.5, math.nan], 8, "since step 4"),
        ({"metric": "accuracy", "target": 0.6}, [0.5, 0.61], 8, "has reached 0.61"),
    ],
)
def test_early_stop_ends_a_run_that_no_longer_improves(options, results, steps, reason):
    hook = EarlyStop(**options)
    run = small_run([every(Evaluate(), "1ep"), hook], epochs_wanted=9)
    scripted(run, results, options["metric"])
    fit(run)
    assert run.step == steps and reason in run.stopping and run.exit_code == 0
    again = EarlyStop(**options)
    again.load_state_dict(hook.state_dict())
    assert (again.best, again.waited) == (hook.best, hook.waited)


def test_early_stop_needs_its_metric():
    run = small_run([every(Evaluate(), "1ep"), EarlyStop("acuracy")])
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        fit(run)


def test_timer_tells_of_the_steps_since_the_last_record():
    keep = Keep()
    timer = Timer()
    run = small_run([timer, every(Log(), "4step"), every(Evaluate(), "1ep")], epochs_wanted=3)
    run.events.writers.append(keep)
    fit(run)
    records = [record for record in keep.records if record.split == "train"]
    assert len(records) == 3
    for record in records:
        values = record.values
        assert values["time/step"] > 0 and values["time/data"] > 0 and values["memory/megabytes"] > 10
        assert values["throughput/steps_per_second"] == pytest.approx(1 / (values["time/step"] + values["time/data"]))
    again = [float(gauge) for gauge in list(timer._gauges.values())[:3]]
    assert again == [records[-1].values[name] for name in list(timer._gauges)[:3]]
    assert timer.totals["evaluation"] > 0
    for name in ("step", "data"):  # a record has the mean of its four steps
        assert 4 * sum(record.values[f"time/{name}"] for record in records) == pytest.approx(timer.totals[name])


def test_freeze_holds_parameters_and_statistics_for_a_while():
    seen = []

    def look(run):
        seen.append(
            (run.model[0].weight.clone().detach(), run.model[1].running_mean.clone(), run.model[2].weight.clone())
        )

    run = small_run([Freeze(["0", "1"], until="1ep"), FunctionHook(look, "after_step"), every(Evaluate(), "2step")])
    start = run.model[0].weight.detach().clone()
    fit(run)
    assert torch.equal(seen[3][0], start) and not torch.equal(seen[4][0], start)
    assert torch.equal(seen[3][1], torch.zeros(4)) and not torch.equal(seen[4][1], torch.zeros(4))
    assert not torch.equal(seen[0][2], seen[1][2])


def test_freeze_can_begin_later_and_leave_norms_running():
    run = small_run([Freeze("1", begin="2step", still=False)])
    run.model[0].weight.requires_grad_(False)
    fit(run)
    assert not run.model[1].weight.requires_grad and run.model[1].training
    assert not run.model[0].weight.requires_grad
    with pytest.raises(ConfigError, match="fits no parameter"):
        small_run([Freeze("encoder")])
    with pytest.raises(ConfigError, match="before it begins"):
        small_run([Freeze("0", begin="2ep", until="1ep")])


def test_time_budget_stops_for_the_queue():
    run = small_run([TimeBudget("0.000000001s")])
    fit(run)
    assert run.step == 1 and run.exit_code == 75 and "time budget" in run.stopping
    used = TimeBudget("1h", total=True)
    used.load_state_dict({"seconds": 3601.0})
    run = small_run([used])
    fit(run)
    assert run.step == 1
    with pytest.raises(ConfigError, match="not a time"):
        TimeBudget("3ep")


def test_statistics_record_norms_and_distributions():
    keep = Keep()
    run = small_run(
        [every(Statistics(per_layer=True, histograms=True), "4step"), every(Log(), "4step")], epochs_wanted=1
    )
    run.events.writers.append(keep)
    run.hooks.add(FunctionHook(lambda run: norms.append(run.model[0].weight.detach().norm()), "before_update"))
    norms: list = []
    fit(run)
    values = keep.records[0].values
    assert values["norm/weight/0.weight"] == pytest.approx(float(norms[3]))
    assert values["norm/gradient"] > 0
    assert ("histogram", "gradient/2.bias") in [(kind, name) for kind, name, _ in keep.records[0].media]


def test_norms_are_those_of_the_last_step_before_a_record():
    keep, weights, gradients = Keep(), [], []
    run = small_run([every(Statistics(per_layer=True), "1step"), every(Log(), "4step")], epochs_wanted=1)
    run.events.writers.append(keep)

    def look(run) -> None:
        weights.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]).norm())
        gradients.append(run.model[0].weight.grad.norm())

    run.hooks.add(FunctionHook(look, "before_update"))
    fit(run)
    values = keep.records[0].values
    assert values["norm/weight"] == pytest.approx(float(weights[3])) != pytest.approx(float(weights[2]))
    assert values["norm/gradient/0.weight"] == pytest.approx(float(gradients[3])) != pytest.approx(float(gradients[2]))
    assert not keep.records[0].media


def test_freeze_finds_its_parameters_in_a_run_that_it_joins_late():
    run, frozen = small_run(), []
    run.hooks.add(Freeze("0"))
    run.hooks.add(FunctionHook(lambda run: frozen.append(run.model[0].weight.requires_grad), "before_update"))
    fit(run)
    assert frozen == [False] * 8


@pytest.mark.parametrize(("first", "steps", "works"), [(1, 1, True), (0, 1, False), (1, 0, False), (-1, 3, False)])
def test_profiler_traces_from_the_first_step_on(first, steps, works):
    if works:
        assert Profiler(first, steps).first == first
    else:
        with pytest.raises(ConfigError, match="first and steps must be at least 1"):
            Profiler(first, steps)


def test_profiler_leaves_a_trace_in_the_folder(tmp_path):
    fit(small_run([Profiler(first=2, steps=2)], folder=tmp_path))
    assert (tmp_path / "profile" / "trace.json").stat().st_size > 100
    assert "aten::" in (tmp_path / "profile" / "table.txt").read_text()
    fit(small_run([Profiler(first=7, steps=50)], folder=tmp_path / "short"))
    with pytest.raises(ConfigError):
        Profiler(first=0)


def test_records_of_one_step_say_the_same_epoch_whenever_they_are_written():
    """A log line of the last step comes after the run's last epoch is counted, its evaluation before."""
    run = small_run([every(Log(), "3step"), every(Evaluate(), "1ep")], epochs_wanted=2)
    keep = Keep()
    run.events.writers.append(keep)
    fit(run)
    assert [(r.step, r.epoch, r.split) for r in keep.records] == [
        (3, 0, "train"), (4, 0, "val"), (6, 1, "train"), (8, 1, "val"), (8, 1, "train"),
    ]  # fmt: skip


def test_sampler_seed_tells_samplers_the_epoch():
    class Sampler(torch.utils.data.SequentialSampler):
        epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    run = small_run([SamplerSeed()])
    data = run.data["train"].dataset
    run.data["train"] = torch.utils.data.DataLoader(data, batch_size=8, sampler=Sampler(data))
    fit(run)
    assert Sampler.epochs == [0, 1]


def test_sync_buffers_and_empty_cache_leave_a_single_process_alone():
    run = small_run([SyncBuffers(), EmptyCache(["after_epoch", "after_eval"])])
    fit(run)
    assert run.step == 8
    with pytest.raises(ConfigError, match="did you mean 'after_epoch'"):
        EmptyCache(["after_epcoh"])


def test_no_tensor_is_read_between_log_lines():
    class Reads(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Reads.count += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    hooks = [Timer(), Ema(0.01), every(Statistics(per_layer=True), "1step"), Freeze("0", until="1ep")]
    run = small_run(hooks, clip=[Norm(1.0)], optimizer=lambda m: torch.optim.AdamW(m.parameters(), fused=True))
    with Reads():
        fit(run)
    assert Reads.count == 0


def test_a_profile_is_a_trace_that_perfetto_reads(tmp_path):
    """The JSON of Chrome's trace events: complete events have a time, a length, a process and a thread."""
    import json

    import etude
    from etude.data import Digits
    from etude.hooks.profiler import Profiler

    model = torch.nn.Linear(64, 10)
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.1), torch.nn.CrossEntropyLoss()
    profiler = Profiler(first=2, steps=2)
    trainer = etude.Trainer(model, optimizer=optimizer, loss=loss, hooks=[profiler], folder=tmp_path, quiet=True)
    trainer.fit(Digits("train"), steps=6, batch_size=16)
    trace = json.loads((tmp_path / "profile/trace.json").read_text())
    events = trace["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} <= set("XMsftBEinbeC")
    assert all(event["dur"] >= 0 and event["ts"] >= 0 and {"pid", "tid", "name"} <= set(event) for event in complete)
    assert {"ProfilerStep#1", "ProfilerStep#2", "aten::linear"} <= {event["name"] for event in complete}
    assert "aten::addmm" in (tmp_path / "profile/table.txt").read_text()


def test_rates_of_groups_and_scheduled_momenta_are_recorded():
    def recorded(optimizer, *schedules):
        hooks, keep = [every(Log(), "4step"), Schedule(schedules)], Keep()
        run = small_run(hooks, epochs_wanted=1, optimizer=optimizer)
        run.events.writers.append(keep)
        fit(run)
        return keep.records[0].values

    def grouped(model):
        first, second = {"params": model[0].parameters(), "name": "all"}, {"params": model[2].parameters()}
        return torch.optim.SGD([first, second | {"name": "head", "lr": 0.5}], lr=0.1, momentum=0.9)

    def plain(model):
        return torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)

    (falling,) = schedules_from({"momentum": Linear(1.0, 0.5)})
    rates = recorded(grouped)
    assert (rates["lr"], rates["lr/head"]) == (0.1, 0.5) and "momentum" not in rates and "lr/all" not in rates
    assert 0.45 <= recorded(grouped, falling)["momentum"] < 0.9
    assert not {name for name in recorded(plain) if name.startswith(("lr/", "momentum"))}
    assert 0.45 <= recorded(plain, falling)["momentum"] < 0.9
    line = format_record(Record(4, 0, "train", rates, 0.0), {})
    assert "lr 0.1000" in line and "head" not in line


@pytest.mark.parametrize(
    ("names", "values", "others"),
    [
        ("abc", [torch.tensor(0.5), 0.25, 0.25], {"b": 0.25, "c": 0.25}),
        ("abc", [torch.tensor(0.5), torch.tensor(0.5), 0.25], {"c": 0.25}),
        ("", [0.5, 0.25, 0.25, 0.125], {"1": 0.25, "3": 0.125}),
        ("", [None, 0.9], {"1": 0.9}),
        ("", [None, None], {}),
        ("", [0.5], {}),
    ],
)
def test_groups_are_logged_where_their_value_is_not_that_of_the_first(names, values, others):
    groups = [{"name": name} for name in names] or [{} for _ in values]
    assert dict(_others(groups, values)) == others


def test_freeze_says_what_it_holds_and_when():
    always, later = Freeze("0"), Freeze(["0", "1"], begin="2step", until="1ep")
    small_run([always, later])
    assert always.describe() == "0 (16 parameters)"
    assert later.describe() == "0, 1 (24 parameters, from step 3 to 4)"
