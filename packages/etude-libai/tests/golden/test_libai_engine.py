"""The train loop, its hooks, its checkpoints and its steps, call by call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.golden.goldens import params
from tests.golden.libai_support import Boom, Messages, number, same, served


def trainers(flavor: str) -> Any:
    return served(flavor, "engine.trainer" if flavor == "libai" else "engine.train_loop")


def recording_trainer(case: dict[str, Any], calls: list[Any] | None = None) -> Any:
    """A trainer whose step does nothing but fail where the case says so."""

    class Recording(trainers(case["flavor"]).TrainerBase):
        def __init__(self) -> None:
            super().__init__()
            self.cfg = SimpleNamespace(train=SimpleNamespace(global_batch_size=4))

        def run_step(self) -> None:
            if calls is not None:
                calls.append(["trainer", "run_step", self.iter, self.storage.iter])
            if self.iter == case.get("run_step_fails_at"):
                raise Boom(f"run_step {self.iter}")

    return Recording()


def outcome(train: Any) -> dict[str, str] | None:
    try:
        train()
    except (Exception, KeyboardInterrupt) as error:
        return {"error": type(error).__name__, "message": str(error)}
    return None


# -- the loop ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "loop_order_libai") + params("libai", "loop_order_detectron2"))
def test_order_of_calls(case: dict[str, Any]) -> None:
    calls: list[Any] = []
    trainer = recording_trainer(case, calls)

    class Recorder(trainers(case["flavor"]).HookBase):
        def __init__(self, name: str) -> None:
            self.name = name

        def note(self, method: str) -> None:
            calls.append([self.name, method, self.trainer.iter, self.trainer.storage.iter])
            wanted = case["hook_raises"].get(self.name)
            if wanted and wanted[0] == method and wanted[1] in (None, self.trainer.iter):
                raise Boom(f"{self.name} {method}")

        def before_train(self) -> None:
            self.note("before_train")

        def after_train(self) -> None:
            self.note("after_train")

        def before_step(self) -> None:
            self.note("before_step")

        def after_step(self) -> None:
            self.note("after_step")

    hooks: list[Any] = [Recorder(name) for name in case["hooks"]]
    with Messages(trainer.logger_name) as said:
        trainer.register_hooks([None, *hooks] if case["register_with_none"] else hooks)
        raised = outcome(lambda: trainer.train(case["start_iter"], case["max_iter"]))
    assert calls == case["calls"]
    assert raised == case["raises"]
    assert trainer.iter == case["final_iter"]
    assert getattr(trainer.storage, "_samples", None) == case["storage_samples"]
    assert [[record.levelname, record.getMessage()] for record in said.records] == case["log"]


# -- hooks by schedule -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "hook_schedule_libai") + params("libai", "hook_schedule_detectron2"))
def test_when_hooks_act(case: dict[str, Any]) -> None:
    calls: list[Any] = []
    trainer = recording_trainer(case)
    hooks, timed = scheduled_hooks(case, trainer, calls)
    with Messages(f"{case['flavor']}.engine.hooks") as said:
        trainer.register_hooks(hooks)
        raised = outcome(lambda: trainer.train(case["start_iter"], case["max_iter"]))
    if any(call[0] == "eval" and call[1] == case["run_step_fails_at"] for call in case["calls"]):
        # Departure: nothing is evaluated after a step that failed.
        assert raised == case["raises"]
        assert [call for call in calls if call[0] == "eval"] == [
            call for call in case["calls"] if call[0] == "eval" and call[1] < case["run_step_fails_at"]
        ]
        return
    assert calls == case["calls"]
    assert raised == case["raises"]
    latest = {name: list(value) for name, value in trainer.storage.latest().items() if name != "time"}
    assert same(latest, case["latest"])
    assert [iteration for _, iteration in timed()] == case["time_iters"]
    if "timer_log" in case:
        assert len(said.texts) == len(case["timer_log"])
        assert all(text.startswith(start) for text, start in zip(said.texts, case["timer_log"], strict=True))


def scheduled_hooks(case: dict[str, Any], trainer: Any, calls: list[Any]) -> tuple[list[Any], Any]:
    module = served(case["flavor"], "engine.hooks")
    made: list[Any] = []
    if case["timer_warmup"] is not None:
        made.append(module.IterationTimer(case["timer_warmup"]))
    if case["eval_period"] is not None:
        options = {} if case["eval_after_train"] is None else {"eval_after_train": case["eval_after_train"]}
        made.append(module.EvalHook(case["eval_period"], evaluation(case, trainer, calls), **options))
    if case["write_period"] is not None:
        made.append(module.PeriodicWriter([recording_writer(case, trainer, calls)], case["write_period"]))
    return made, lambda: trainer.storage.histories()["time"].values() if "time" in trainer.storage.histories() else []


def evaluation(case: dict[str, Any], trainer: Any, calls: list[Any]) -> Any:
    """Serves the recorded results in order, the last one again and again."""
    results = [number(result) for result in case["eval_results"]]

    def evaluate() -> Any:
        calls.append(["eval", trainer.iter, trainer.storage.iter])
        if trainer.iter == case["eval_raises_at"]:
            raise Boom("eval")
        return results.pop(0) if len(results) > 1 else results[0]

    return evaluate


def recording_writer(case: dict[str, Any], trainer: Any, calls: list[Any]) -> Any:
    class Writer(served(case["flavor"], "utils.events").EventWriter):
        def write(self) -> None:
            calls.append(["write", trainer.storage.iter])

        def close(self) -> None:
            calls.append(["close"])

    return Writer()


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "checkpoint_libai") + params("libai", "checkpoint_detectron2"))
def test_what_is_saved(case: dict[str, Any], tmp_path: Path) -> None:
    trainer = recording_trainer(case)
    model = nn.Linear(1, 1)
    libai = case["flavor"] == "libai"
    module = served(case["flavor"], "utils.checkpoint" if libai else "checkpoint")
    saves: list[Any] = []

    class Recording(module.Checkpointer):
        def save(self, name: str, **kwargs: Any) -> None:
            saves.append([name, kwargs])
            super().save(name, **kwargs)

    checkpointer = Recording(model, str(tmp_path), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    evaluated: list[int] = []
    hooks: list[Any] = []
    with Messages(f"{case['flavor']}.engine.hooks") as said:

        def train() -> None:
            hooks.extend(saving_hooks(case, trainer, checkpointer, evaluated))
            trainer.register_hooks(hooks)
            trainer.train(case["start_iter"], case["max_iter"])

        raised = outcome(train)
    best = next((hook for hook in hooks if hasattr(hook, "best_metric")), None)
    last = tmp_path / "last_checkpoint"
    actual = {
        "saves": saves,
        "files": sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()),
        "last_checkpoint": last.read_text() if last.exists() else None,
        "eval_iters": evaluated,
        "best_metric": best.best_metric if best else None,
        "best_iter": best.best_iter if best else None,
        "messages": said.texts,
    }
    assert raised == case["raises"]
    expected = {key: number(case[key]) for key in actual}
    if "quirk" in case:
        expected = better(case, expected)
    assert same(actual, expected)


def saving_hooks(case: dict[str, Any], trainer: Any, checkpointer: Any, evaluated: list[int]) -> list[Any]:
    module = served(case["flavor"], "engine.hooks")
    made: list[Any] = []
    if case["period"] is not None:
        options = {"max_to_keep": case["max_to_keep"], "file_prefix": case["file_prefix"]}
        made.append(module.PeriodicCheckpointer(checkpointer, case["period"], **options))
    if case["best"]:
        best = case["best"]
        served_results = iter(number(best["metrics"]))

        def evaluate() -> Any:
            evaluated.append(trainer.iter)
            value = next(served_results, None)
            return {"other": 1.0} if value == "other" else None if value is None else {best["val_metric"]: value}

        made.append(module.EvalHook(best["eval_period"], evaluate))
        made.append(
            module.BestCheckpointer(
                best["eval_period"],
                checkpointer,
                best["val_metric"],
                mode=best["mode"],
                file_prefix=best["file_prefix"],
            )
        )
    return made


def better(case: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Departures: no evaluation after a failed step; a resume goes on from the newest checkpoint, not the best."""
    fails, flavor = case["run_step_fails_at"], case["flavor"]
    if fails is not None and fails in expected["eval_iters"]:
        expected["eval_iters"].remove(fails)
        best = case["best"]
        before = [value for value in best["metrics"][: len(expected["eval_iters"])] if isinstance(value, float)]
        if "Saved best" in expected["messages"][-1] or "Saved first" in expected["messages"][-1]:
            expected["saves"].pop()
        expected["messages"].pop()
        expected["best_metric"] = (max if best["mode"] == "max" else min)(before)
        expected["best_iter"] = expected["eval_iters"][before.index(expected["best_metric"])]
    if flavor == "detectron2":
        newest = [name for name, _ in expected["saves"] if name != case["best"]["file_prefix"]]
        if newest:
            expected["last_checkpoint"] = f"{newest[-1]}.pth"
    return expected


# -- steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "step_libai") + params("libai", "step_detectron2"))
def test_a_step(case: dict[str, Any]) -> None:
    if case["kind"] == "write_metrics":
        check_metrics(case)
    elif case["kind"] == "graph_step":
        check_graph_step(case)
    else:
        check_run_step(case)


def check_metrics(case: dict[str, Any]) -> None:
    events = served(case["flavor"], "utils.events")
    losses = {key: torch.tensor(value, dtype=torch.float64) for key, value in number(case["loss_dict"]).items()}
    libai = case["flavor"] == "libai"
    module = trainers(case["flavor"])
    with events.EventStorage(case["iter"]) as storage:

        def write() -> None:
            if libai:
                module.TrainerBase.write_metrics(losses, case["data_time"], prefix=case["prefix"])
            else:
                module.SimpleTrainer.write_metrics(losses, case["data_time"], case["iter"], case["prefix"])

        raised = outcome(write)
        latest = {name: list(value) for name, value in storage.latest().items()}
    assert (raised or {}).get("error") == case.get("raises", {}).get("error")
    assert same(latest, case["latest"])
    assert list(latest) == case["order"]


class Log(list[str]):
    """The operations of a step, as text."""


class Data:
    """Batches of two samples, worth 1, 2, 3, …"""

    def __init__(self, log: Log, flavor: str, count: int | None) -> None:
        self.log, self.flavor, self.count = log, flavor, count

    def __iter__(self) -> Iterator[Any]:
        self.log.append("iter()")
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        index = 0
        while self.count is None or index < self.count:
            self.log.append(f"next {index}")
            yield torch.full((2,), float(index + 1))
            index += 1


class OneWeight(nn.Module):
    """Its loss is the mean of the batch times its weight; it returns the mean as ``acc`` too."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.log = log

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.log.append(f"forward n={len(x)}")
        loss = (x * self.weight).mean()
        loss.register_hook(lambda grad: self.log.append(f"backward g={float(grad):.4f}"))
        return {"loss": loss, "acc": x.mean()}


def logging_optimizer(log: Log, weight: nn.Parameter) -> Any:
    class Logging(torch.optim.SGD):
        def clip_grad(self) -> None:
            log.append("clip_grad")

        def step(self, closure: Any = None) -> None:
            log.append(f"step g={float(weight.grad):.4f}")

        def zero_grad(self, set_to_none: bool = True) -> None:
            log.append("zero_grad")
            super().zero_grad()

    return Logging([weight], lr=0.0)


def check_run_step(case: dict[str, Any]) -> None:
    log, libai = Log(), case["flavor"] == "libai"
    model = OneWeight(log)
    optimizer = logging_optimizer(log, model.weight)
    module = trainers(case["flavor"])
    loader = Data(log, case["flavor"], case["n_batches"])
    options = {key: case[key] for key in ("zero_grad_before_forward", "gather_metric_period") if case.get(key)}
    model.eval()
    if libai:
        trainer = module.EagerTrainer(model, loader, optimizer, case["grad_acc_steps"])
    else:
        trainer = module.SimpleTrainer(model, loader, optimizer, **options)
    log.append(f"constructed training={model.training}")

    def get_batch(data: torch.Tensor, device: str, mixup: Any) -> dict[str, torch.Tensor]:
        log.append(f"get_batch dev={device} mixup={mixup}")
        return {"x": data}

    def run() -> None:
        for iteration in range(case["start"], case["start"] + case["iters"]):
            log.append(f"-- iter {iteration}")
            storage.iter = trainer.iter = iteration
            if case["eval_mode_at"] == iteration:
                model.eval()
            trainer.run_step(get_batch, "cpu") if libai else trainer.run_step()

    with served(case["flavor"], "utils.events").EventStorage(case["start"]) as storage:
        raised = outcome(run)
        history = {name: [value for value, _ in storage.history(name).values()] for name in case["history"]}
    assert (raised or {}).get("error") == case.get("raises", {}).get("error")
    assert list(log) == case["log"]
    assert same(history, case["history"])


def check_graph_step(case: dict[str, Any]) -> None:
    log = Log()

    def graph(x: torch.Tensor) -> dict[str, torch.Tensor]:
        log.append(f"graph n={len(x)} first={float(x[0])} last={float(x[-1])}")
        parts = x.reshape(case["grad_acc_steps"], -1)
        losses, counts = parts.mean(dim=1), torch.full((len(parts),), float(parts.shape[1]))
        if case["output_shape"] != "vec":
            return {"lm_loss": losses.mean(), "count": counts.sum()}
        return {"lm_loss": losses, "count": counts}

    graph.model = OneWeight(log)  # type: ignore[attr-defined]
    trainer = trainers("libai").GraphTrainer(graph, Data(log, "libai", None), case["grad_acc_steps"])
    log.clear()
    with served("libai", "utils.events").EventStorage(0) as storage:
        for iteration in range(case["iters"]):
            log.append(f"-- iter {iteration}")
            storage.iter = trainer.iter = iteration
            trainer.run_step(lambda data, device, mixup: {"x": data}, "cpu")
        history = {name: [value for value, _ in storage.history(name).values()] for name in case["history"]}
    assert list(log) == case["log"]
    assert same(history, case["history"])
