"""A run that was killed goes on as if nothing had happened."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import params
from tests.golden.mmengine import toys
from tests.golden.mmengine.toys import Hook


class Watch(Hook):
    """Notes what each iteration sees, and ends the process's work at iteration ``kill_at``."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.kill_at, self.trace = kill_at, []

    def before_run(self, runner: Any) -> None:
        self.trace.append("before_run")

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        self.trace.append({"loaded": sorted(checkpoint)})

    def before_train(self, runner: Any) -> None:
        self.trace.append({"before_train": [runner.epoch, runner.iter], "lr": runner.optim_wrapper.get_lr()["lr"]})

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        seen = {"e": runner.epoch, "i": runner.iter, "b": batch_idx, "data": [int(i) for i in data_batch["idx"]]}
        self.trace.append({**seen, "lr": runner.optim_wrapper.get_lr()["lr"]})

    def before_val(self, runner: Any) -> None:
        self.trace.append({"val": [runner.epoch, runner.iter]})

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if runner.iter + 1 == self.kill_at:
            raise KeyboardInterrupt


def _loader(settings: dict[str, Any]) -> dict[str, Any]:
    """Eight samples, shuffled; a case may say more about the loader and its sampler."""
    made = toys.loader(toys.ToyData(settings.get("dataset_len", 8)), shuffle=True)
    given = settings.get("train_dataloader", {})
    sampler = {**made["sampler"], **given.get("sampler", {}), **settings.get("sampler", {})}
    return {**made, **given, "sampler": sampler}


def _runner(folder: Path, settings: dict[str, Any], watch: Watch, **more: Any) -> Any:
    settings = copy.deepcopy(settings)
    arguments = toys.validation(settings["metrics"]) if "metrics" in settings else {}
    runner = toys.runner(
        folder,
        model=toys.ToyNet(),
        train_dataloader=_loader(settings),
        train_cfg=settings["train_cfg"],
        optim_wrapper=settings.get("optim_wrapper", {"optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9}}),
        param_scheduler=settings.get("param_scheduler"),
        default_hooks=settings.get("default_hooks"),
        custom_hooks=[settings["ema"]] if "ema" in settings else None,
        randomness=settings.get("randomness", {"seed": 0}),
        **arguments,
        **more,
    )
    runner.register_hook(watch)
    return runner


@pytest.mark.parametrize("case", params("mmengine", "resume"))
def test_a_resumed_run_goes_on_as_recorded(case: dict[str, Any], tmp_path: Path) -> None:
    expect, first = case["expect"], Watch(case.get("kill_at"))
    settings = case["first"] | case.get("second", {})
    folder = tmp_path / "run"
    runner = _runner(folder, case["first"], first)
    if case.get("kill_at"):
        with pytest.raises(KeyboardInterrupt):
            runner.train()
    else:
        runner.train()
    _assert_row([row for row in first.trace if "i" in row][-1], expect["first_last"])
    assert _files(folder) == sorted(expect["files_before"])
    pointer = folder / "last_checkpoint"
    assert (Path(pointer.read_text()).name if pointer.exists() else None) == expect["last_checkpoint"]

    second, whole = Watch(), runner
    where = tmp_path / "other" if case["mode"] == "load" else folder
    more: dict[str, Any] = {"resume": case["mode"] != "load"}
    if case["mode"] != "auto":
        more["load_from"] = str(folder / case["pick"])
    runner = _runner(where, settings, second, **more)
    if "error" in expect:
        with pytest.raises(Exception):
            runner.train()
        return
    runner.train()
    if _is_inside_an_epoch(case):
        _assert_exact(second, runner, expect)
        _assert_final(runner, expect.get("uninterrupted_final") or _final(whole))
        return
    assert len(second.trace) == len(expect["second_trace"])
    for row, recorded in zip(second.trace, expect["second_trace"], strict=True):
        _assert_row(row, recorded)
    assert _files(where) == sorted(expect["files_after"])
    hub = {key: runner.message_hub.runtime_info.get(key) for key in expect["hub"]}
    assert {k: Path(v).name if isinstance(v, str) else v for k, v in hub.items()} == expect["hub"]
    lengths = {key: len(runner.message_hub.get_scalar(key)) for key in expect["history_len"]}
    assert lengths == expect["history_len"]
    assert runner.seed == expect["seed"]
    _assert_final(runner, expect["final"])


def _is_inside_an_epoch(case: dict[str, Any]) -> bool:
    """An iteration file in an epoch loop: the original trains the whole epoch again, here its rest follows."""
    if not case.get("quirk") or not case["first"]["train_cfg"]["by_epoch"] or case["mode"] == "load":
        return False
    epoch, iteration = next(row["before_train"] for row in case["expect"]["second_trace"] if "before_train" in row)
    return iteration != 4 * epoch


def _assert_exact(second: Watch, runner: Any, expect: dict[str, Any]) -> None:
    start = next(row["before_train"] for row in expect["second_trace"] if "before_train" in row)
    rows = [row for row in second.trace if "i" in row]
    assert [row["i"] for row in rows] == list(range(start[1], runner.max_iters))
    assert [row["b"] for row in rows] == [i % 4 for i in range(start[1], runner.max_iters)]


def _final(runner: Any) -> dict[str, Any]:
    lin = runner.model.lin
    return {"epoch": runner.epoch, "iter": runner.iter, "w": [lin.weight.item(), lin.bias.item()]}


def _assert_final(runner: Any, final: dict[str, Any]) -> None:
    assert (runner.epoch, runner.iter) == (final["epoch"], final["iter"])
    lin = runner.model.lin
    assert [lin.weight.item(), lin.bias.item()] == pytest.approx(final["w"], rel=1e-5, abs=1e-6)
    if "ema" in final:
        average = next(hook for hook in runner.hooks if type(hook).__name__ == "EMAHook").ema_model
        averaged = [average.module.lin.weight.item(), average.module.lin.bias.item()]
        assert averaged == pytest.approx(final["ema"], rel=1e-5, abs=1e-6)
        assert int(average.steps) == final["ema_steps"]


def _assert_row(row: Any, recorded: Any) -> None:
    if isinstance(recorded, str):
        assert row == recorded
        return
    assert {key: value for key, value in row.items() if key != "lr"} == {k: v for k, v in recorded.items() if k != "lr"}
    if "lr" in recorded:
        assert row["lr"] == pytest.approx(recorded["lr"], rel=1e-9, abs=1e-15)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))
