from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from etude.building.options import Options
from etude.checkpoint.store import Store
from etude.core import loop
from etude.core.evaluation import Evaluation
from etude.core.forward import Forward
from etude.core.hook import Hook, HookTable
from etude.core.run import Run
from etude.core.update import Step
from etude.data.datasets.tensors import TensorData
from etude.data.loader import Loader
from etude.data.resume import Replay
from etude.errors import ConfigError, Diverged, ResumeError, UserCodeError
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.ema import Ema
from etude.hooks.evaluate import Evaluate
from etude.metrics.classes import Accuracy, Confusion
from etude.session.recovery.interrupted import step_before
from etude.session.session import Session

SCORES = [0.5, 0.9, float("nan"), 0.0, 0.7]


class Scores:
    """A metric whose results are known beforehand."""

    name = "score"

    def __init__(self, scores: list[float]) -> None:
        self.left = list(scores)

    def reset(self) -> None: ...

    def update(self, output: Any, target: Any) -> None: ...

    def compute(self) -> float:
        return self.left.pop(0)


def make_run(*hooks: Hook, epochs: int = 5, scores: list[float] | None = None, **step: Any) -> Run:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Loader(TensorData(torch.randn(8, 2), torch.zeros(8, dtype=torch.long)), batch_size=4)
    forward = Forward(model, {"loss": torch.nn.CrossEntropyLoss()})
    metrics = {"score": Scores(scores)} if scores is not None else {}
    return Run(
        model=model, update=Step(forward, {"": optimizer}, **step), loop=loop.epochs, hooks=HookTable(hooks, steps_per_epoch=2),
        data={"train": data, "val": data}, optimizers={"": optimizer}, evaluation=Evaluation(forward, metrics),
        max_epochs=epochs, total_steps=2 * epochs, steps_per_epoch=2,
    )  # fmt: skip


def every(hook: Any, amount: str) -> Any:
    hook.every = amount
    return hook


def train(run: Run, folder: Path, **options: Any) -> Run:
    with Session(run, Options(folder=folder, quiet=True, **options)):
        loop.train(run)
    return run


def saved(folder: Path) -> list[str]:
    return [entry.name for entry in Store(folder / "checkpoints", write=False).entries()]


def test_it_saves_every_so_many_steps_and_at_the_end(tmp_path: Path) -> None:
    train(make_run(every(Checkpoint(keep=None), "3step")), tmp_path)
    assert [name[-2:] for name in saved(tmp_path)] == ["03", "06", "09", "10"]


def test_it_saves_by_epochs_and_by_the_clock(tmp_path: Path) -> None:
    train(make_run(every(Checkpoint(keep=None), "2ep")), tmp_path / "epochs")
    assert [name[-2:] for name in saved(tmp_path / "epochs")] == ["04", "08", "10"]
    train(make_run(every(Checkpoint(keep=None), "0.000001s")), tmp_path / "clock")
    assert len(saved(tmp_path / "clock")) == 10


def test_the_end_is_not_saved_when_not_wanted(tmp_path: Path) -> None:
    train(make_run(every(Checkpoint(keep=None, save_last=False), "4step")), tmp_path)
    assert [name[-2:] for name in saved(tmp_path)] == ["04", "08"]


def test_last_and_best_and_every_mth_are_kept(tmp_path: Path) -> None:
    hook = every(Checkpoint(keep=1, best="score", forever="6step"), "1ep")
    train(make_run(every(Evaluate(), "1ep"), hook, scores=SCORES), tmp_path)
    kept = {entry.step: entry.metrics.get("score") for entry in Store(tmp_path / "checkpoints").entries()}
    assert kept[4] == 0.9 and set(kept) == {4, 6, 10} and hook.best_step == 4


def test_a_best_is_saved_between_two_saves(tmp_path: Path) -> None:
    hook = every(Checkpoint(keep=1, best="score"), "5ep")
    train(make_run(every(Evaluate(), "1ep"), hook, scores=SCORES), tmp_path)
    assert [entry.step for entry in Store(tmp_path / "checkpoints").entries()] == [4, 10]


def test_weights_alone_are_saved_beside_full_checkpoints(tmp_path: Path) -> None:
    train(make_run(every(Checkpoint(), "5step"), every(Checkpoint(weights_only=True), "4step")), tmp_path)
    names = sorted(name for name in os.listdir(tmp_path / "checkpoints") if name.startswith("weights"))
    assert names == ["weights-000000004", "weights-000000008", "weights-000000010"]


def test_a_signal_saves_everything_also_where_else_weights_alone_are(tmp_path: Path) -> None:
    """What a scheduler stopped and is to queue again goes on, and does not begin anew."""
    run = make_run(every(Checkpoint(weights_only=True), "4step"))
    train(run, tmp_path, chaos="usr1@step=5")
    assert run.exit_code == 75 and [entry.step for entry in Store(tmp_path / "checkpoints").entries()] == [5]


class Trips(Hook):
    """Raises inside a step, once."""

    left = 1

    def before_update(self, run: Run) -> None:
        if run.step == 5 and Trips.left:
            Trips.left -= 1
            raise RuntimeError("no such thing")


def test_a_state_inside_a_step_that_failed_is_gone_on_from_by_name_and_loses_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trips, "left", 1)
    first, run = (make_run(every(Checkpoint(debug=True), "3step"), Trips()) for _ in range(2))
    del first.data["val"], run.data["val"]
    with pytest.raises(RuntimeError):
        train(first, tmp_path)
    train(run, tmp_path, resume=str(tmp_path / "checkpoints" / "failed-000000005"))
    said = (tmp_path / "log.txt").read_text()
    assert "failed-000000005 was saved inside the failed step" in said and "resumed from step 5" in said
    assert run.step == 10 and "batch is not used" not in said


def test_of_a_step_that_is_cut_off_what_can_be_kept_of_batch_and_outputs_is() -> None:
    hook = Checkpoint()
    run = make_run(hook)
    run.batch = [torch.ones(4, 2), object()]
    run.outputs = {"loss": torch.ones(()), "output": torch.ones(9, 9), "own": object(), object(): 1}
    assert list(step_before(run, hook)["outputs"]) == ["loss", "output"]
    kept = step_before(run, hook, most=100)
    assert list(kept["outputs"]) == ["loss"] and kept["batch"] is None


def test_a_hook_of_etude_that_fails_half_way_is_not_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it keeps (here an average of weights) is not copied before it acts."""

    def break_down(self: Ema, run: Run) -> None:
        if run.done == 3:
            raise MemoryError("no room")

    monkeypatch.setattr(Ema, "after_step", break_down)
    with pytest.raises(MemoryError):
        train(make_run(every(Checkpoint(), "2step"), Ema()), tmp_path)
    assert [name[-2:] for name in saved(tmp_path)] == ["02"]
    assert "1 step is to be repeated: hook Ema may have changed its state" in (tmp_path / "log.txt").read_text()


class Torn:
    """Batches of another make, the last of which cannot be had."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:
        yield torch.randn(4, 2), torch.zeros(4, dtype=torch.long)
        torch.rand(3)
        raise OSError("no such sample")


def test_a_loader_of_another_make_that_fails_may_have_drawn_and_is_not_gone_on_from(tmp_path: Path) -> None:
    run = make_run(every(Checkpoint(), "1ep"))
    run.data = {"train": Replay(Torn())}
    with pytest.raises(OSError, match="no such sample"):
        train(run, tmp_path)
    assert saved(tmp_path) == []
    assert "1 step is to be repeated: a loader of another make may have drawn" in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize(("metric", "best"), [(Accuracy([1, 5]), "accuracy_top5"), (Confusion(), "recall/3")])
def test_each_result_of_a_metric_can_be_the_best(metric, best) -> None:
    hook = Checkpoint(best=best)
    run = make_run(hook)
    run.evaluation = SimpleNamespace(metrics={"any": metric})
    hook.attach(run)
    with pytest.raises(ConfigError, match="no metric 'any'"):
        Checkpoint(best="any").attach(run)


def test_a_misspelt_metric_is_found_before_training() -> None:
    hook = Checkpoint(best="scroe")
    run = make_run(hook)
    with pytest.raises(ConfigError, match=r"no metric 'scroe'"):
        hook.attach(run)
    run.data.pop("val")
    with pytest.raises(ConfigError, match=r"no data\.val"):
        hook.attach(run)


class Diary(Hook):
    """Adds to a checkpoint what it likes."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def before_save(self, run: Run) -> None:
        self.pages.append(f"saved at {run.done}")

    def after_load(self, run: Run) -> None:
        self.pages.append(f"loaded at {run.step}")

    def state_dict(self) -> dict[str, Any]:
        return {"pages": self.pages}

    def load_state_dict(self, state: Any) -> None:
        self.pages = list(state["pages"])


def test_hooks_take_part_in_saving_and_loading(tmp_path: Path) -> None:
    train(make_run(every(Checkpoint(), "4step"), Diary(), epochs=2), tmp_path)
    diary = Diary()
    train(make_run(every(Checkpoint(), "4step"), diary, epochs=3), tmp_path, resume="")
    assert diary.pages == ["saved at 4", "loaded at 4", "saved at 6"]


class Odd(Hook):
    def state_dict(self) -> dict[str, Any]:
        return {"thing": object()}

    def load_state_dict(self, state: Any) -> None: ...


def test_a_state_that_cannot_come_back_is_named_when_it_is_saved(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"hook\.Odd\.thing: it is object"):
        train(make_run(every(Checkpoint(), "2step"), Odd()), tmp_path)


class Poison(Hook):
    """Makes a weight infinite after some steps."""

    def after_step(self, run: Run) -> None:
        if run.done == 5:
            next(run.model.parameters()).data[0, 0] = float("inf")


def test_weights_that_are_not_finite_end_the_run_and_are_not_resumed_from(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"weight weight is not finite at step 5|loss is not finite"):
        train(make_run(every(Checkpoint(keep=None), "1step"), Poison(), epochs=50), tmp_path)
    loaded = Store(tmp_path / "checkpoints").resume()
    assert loaded is not None and loaded.manifest.step == 4
    with pytest.raises(ResumeError, match="diverged-000000005: its weights are not finite"):
        train(make_run(Checkpoint()), tmp_path, resume=str(tmp_path / "checkpoints" / "diverged-000000005"))


class Spike(Hook):
    """A batch whose loss is NaN."""

    def __init__(self) -> None:
        self.left = 1

    def after_forward(self, run: Run) -> None:
        if run.step == 5 and self.left:
            self.left -= 1
            run.outputs["loss"].detach().fill_(float("nan"))


def test_rollback_goes_back_to_the_weights_of_the_last_checkpoint(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []
    watch = type("Watch", (Hook,), {"after_step": lambda self, run: seen.append(run.model.weight.detach().clone())})()
    run = train(make_run(every(Checkpoint(), "2step"), Spike(), watch, nonfinite="rollback"), tmp_path)
    assert run.step == 10
    assert torch.equal(seen[5], seen[3]) and not torch.equal(seen[5], seen[4])  # after 6 steps: as after 4


class Counting(Hook):
    """Learns beside the model, in plain numbers."""

    def __init__(self) -> None:
        self.steps = 0
        self.seen: list[int] = []

    def after_step(self, run: Run) -> None:
        self.steps += 1
        self.seen.append(self.steps)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Any) -> None:
        self.steps = int(state["steps"])


def test_rollback_takes_the_states_of_hooks_back_too(tmp_path: Path) -> None:
    counting = Counting()
    run = train(make_run(every(Checkpoint(), "2step"), Spike(), counting, nonfinite="rollback"), tmp_path)
    assert run.step == 10 and counting.seen == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9]  # in step 6 back to what it was after 4
    assert (tmp_path / "log.txt").read_text().count(
        "not finite at step 6: went back to the weights and hooks of step 4"
    ) == 1


def test_weights_that_are_found_bad_by_the_last_save_are_no_good_end(tmp_path: Path) -> None:
    run = make_run(Checkpoint(), Poison(), epochs=3)
    run.loop, run.total_steps = loop.steps, 5
    with pytest.raises(Diverged, match=r"weight weight is not finite at step 5"):
        train(run, tmp_path)
    said = (tmp_path / "log.txt").read_text()
    assert "finished" not in said and "ended by Diverged after 5 steps" in said


@pytest.mark.parametrize("best", ["", "score"])
def test_a_finished_run_that_is_resumed_changes_nothing(tmp_path: Path, best: str) -> None:
    def life(**options: Any) -> None:
        hooks = [every(Checkpoint(best=best), "3step"), every(Evaluate(), "1ep")]
        train(make_run(*hooks, scores=[0.5, 0.6, 0.7, 0.8, 0.9]), tmp_path, **options)

    life()
    before = {path: path.read_bytes() for path in tmp_path.glob("checkpoints/**/*") if path.is_file()}
    life(resume="")
    assert {path: path.read_bytes() for path in tmp_path.glob("checkpoints/**/*") if path.is_file()} == before


def test_a_new_hook_starts_fresh_only_by_name(tmp_path: Path) -> None:
    from etude.errors import ResumeError

    train(make_run(every(Checkpoint(), "4step"), epochs=2), tmp_path)
    with pytest.raises(ResumeError, match=r"no state of hook\.Diary; --allow-change hook\.Diary"):
        train(make_run(every(Checkpoint(), "4step"), Diary(), epochs=3), tmp_path, resume="")
    diary = Diary()
    train(make_run(every(Checkpoint(), "4step"), diary, epochs=3), tmp_path, resume="", allow_change=("hook.Diary",))
    assert diary.pages == ["loaded at 4", "saved at 6"]
