"""Faults one by one, each in processes of its own: what the process said and how it ended, and that a resume is exact.

    python -m tests.faults.scenes [NAME …]

torch is imported once; every life is a fork. Prints a JSON object per scene.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from etude.checkpoint.storage import disk
from etude.checkpoint.storage.lock import Lock
from etude.checkpoint.store import Store
from etude.checkpoint.tools.same_runs import compare_runs
from etude.cli import main as main_of_etude
from etude.core.hook import POINTS
from tests.faults import job
from tests.faults.job import Variant, digest, train
from tests.faults.lives import live
from tests.sampling import ALL, sample

PLAIN = Variant(keep=None)
BY_EPOCH = Variant(save="1ep", keep=2)
SCENES: dict[str, Callable[[Path], dict[str, Any]]] = {}
#: Scenes with a sibling that fails in nearly the same way: `make test-all` plays them.
SIBLINGS = {"sigterm in evaluation of an epoch's last step", "sigterm in a validation epoch"}


def scene(name: str) -> Callable[[Callable[[Path], dict[str, Any]]], Callable[[Path], dict[str, Any]]]:
    def enter(body: Callable[[Path], dict[str, Any]]) -> Callable[[Path], dict[str, Any]]:
        SCENES[name] = body
        return body

    return enter


def life(folder: Path, variant: Variant = PLAIN, *, before: Callable[[], Any] = lambda: None, **options: Any) -> int:
    """The job in a fork; what it says goes to ``folder/log.txt``."""

    def body() -> int:
        before()
        return train(folder, variant, **options).exit_code

    return live(body, quiet=True)


def said(folder: Path) -> str:
    return "\n".join(line[21:] for line in (folder / "log.txt").read_text().splitlines())


@functools.cache
def calm(variant: Variant, root: Path) -> dict[str, str]:
    """What an undisturbed run leaves."""
    folder = Path(tempfile.mkdtemp(prefix="calm-", dir=root)) / "run"
    assert life(folder, variant, resume=None) == 0
    return digest(folder)


def ends(folder: Path, variant: Variant = PLAIN, **options: Any) -> dict[str, Any]:
    """Resume without further faults and compare with an undisturbed run; a stop may have saved a step more."""
    code = life(folder, variant, **options)
    left, right = digest(folder), calm(variant, folder.parent)
    more = {key for key in left.keys() - right.keys() if key.startswith("step-")}
    odd = sorted(key for key in (left.keys() | right.keys()) - more if left.get(key) != right.get(key))
    return {"resumed": code, "differs": odd}


def by_chaos(faults: str, variant: Variant = PLAIN, **options: Any) -> Callable[[Path], dict[str, Any]]:
    """``options`` may have ``before``, as :func:`life` takes it."""

    def body(folder: Path) -> dict[str, Any]:
        code = life(folder, variant, resume=None, chaos=faults, **options)
        kept = sorted(name for name in os.listdir(folder / "checkpoints") if name != "latest")
        return {"code": code, "kept": kept, "said": said(folder), **ends(folder, variant), "later": said(folder)}

    return body


SCENES["sigterm"] = by_chaos("sigterm@step=11")
SCENES["sigterm twice"] = by_chaos("slow@save=3,sigterm@step=10,sigterm@step=10")
SCENES["ctrl-c"] = by_chaos("sigint@step=11")
SCENES["usr1"] = by_chaos("usr1@step=11")
SCENES["exception"] = by_chaos("raise@step=10")
SCENES["nan"] = by_chaos("nan@step=11")
SCENES["no space once"] = by_chaos("enospc@save=2", replace(PLAIN, keep=2))
SCENES["bad disk once"] = by_chaos("eio@save=2", replace(PLAIN, keep=2))
SCENES["killed in a save"] = by_chaos("kill@save=3")
SCENES["worker dies"] = by_chaos("worker-dies@batch=9", replace(PLAIN, workers=2))


SCENES["worker dies in a save"] = by_chaos("slow@save=2,worker-dies@batch=9", replace(PLAIN, workers=2))


def in_save(number: int, act: Callable[[], Any]) -> Callable[[], None]:
    """Have ``act`` done inside the ``number``-th save, between two of its writes."""

    def before() -> None:
        begun: list[str] = []

        def gate(call: str, path: str, size: int) -> None:
            if call == "create" and path.endswith("model.safetensors"):
                begun.append(path)
                if len(begun) == number:
                    act()

        disk.set_gate(gate)

    return before


def at_evaluation(act: Callable[[], Any], step: int = 18, batch: int = 0) -> Callable[[], None]:
    """Have ``act`` done once, inside the evaluation after ``step`` steps, before its ``batch``-th batch."""

    def before() -> None:
        left = [act]
        seen: list[int] = []

        def once(self: Any, run: Any) -> None:
            seen.append(run.done)
            if run.done == step and seen.count(step) > batch and left:
                left.pop()()

        job.Evaluating.before_eval_step = once  # type: ignore[method-assign]

    return before


def at_step(number: int, act: Callable[[], Any]) -> Callable[[], None]:
    """Have ``act`` done before a step."""

    def before() -> None:
        def once(self: Any, run: Any) -> None:
            if run.step == number:
                act()

        job.Last.before_step = once  # type: ignore[method-assign]

    return before


def fail() -> None:
    raise ValueError("a mistake in a hook")


SCENES["bit flipped"] = by_chaos("bitflip@save=5,kill-saved@step=13")


def bad_sample(number: int) -> Callable[[], None]:
    """Have the ``number``-th sample that a process makes raise."""

    def before() -> None:
        fetch, made = job.Noisy.__getitem__, iter(range(1, 10**6))

        def fetched(self: Any, index: int) -> Any:
            if next(made) == number:
                fail()
            return fetch(self, index)

        job.Noisy.__getitem__ = fetched  # type: ignore[method-assign]

    return before


def no_batch(variant: Variant, number: int) -> Callable[[Path], dict[str, Any]]:
    def body(folder: Path) -> dict[str, Any]:
        code = life(folder, variant, before=bad_sample(number), resume=None)
        return {"code": code, "kept": standing(folder / "checkpoints"), **ends(folder, variant)}

    return body


SCENES["bad sample"] = no_batch(PLAIN, 45)
SCENES["bad sample of a worker"] = no_batch(replace(PLAIN, workers=2), 14)
SCENES["bad sample of a stream"] = no_batch(replace(PLAIN, stream=True, epochs=3), 45)


def signal_self(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@scene("sigterm in evaluation")
def sigterm_in_evaluation(folder: Path) -> dict[str, Any]:
    """Saves come after evaluations only; the epoch before is not lost all the same."""
    code = life(folder, BY_EPOCH, before=at_evaluation(signal_self(signal.SIGTERM)), resume=None)
    return {"code": code, "said": said(folder), **ends(folder, BY_EPOCH), "later": said(folder)}


BY_STEPS = Variant(loop="steps", steps=31, validate="7step", save="10step", keep=None)
IN_WORKFLOW = Variant(loop="workflow", save="5step", keep=None)


def stopped_in_evaluation(variant: Variant, step: int, batch: int = 1) -> Callable[[Path], dict[str, Any]]:
    def body(folder: Path) -> dict[str, Any]:
        before = at_evaluation(signal_self(signal.SIGTERM), step, batch)
        code = life(folder, variant, before=before, resume=None)
        kept = standing(folder / "checkpoints")
        return {"code": code, "kept": kept, "said": said(folder), **ends(folder, variant), "later": said(folder)}

    return body


SCENES["sigterm in evaluation within a step"] = stopped_in_evaluation(BY_STEPS, 14, batch=0)
SCENES["sigterm in evaluation of an epoch's last step"] = stopped_in_evaluation(
    replace(BY_STEPS, validate="9step"), 18, 0
)
SCENES["sigterm in evaluation of the last step"] = stopped_in_evaluation(replace(BY_STEPS, steps=28), 28, 0)
SCENES["sigterm in a validation epoch"] = stopped_in_evaluation(replace(IN_WORKFLOW, validate="9ep"), 18, 0)


@scene("exception in evaluation within a step")
def exception_within_a_step(folder: Path) -> dict[str, Any]:
    code = life(folder, BY_STEPS, before=at_evaluation(fail, 14), resume=None)
    return {"code": code, "kept": standing(folder / "checkpoints"), **ends(folder, BY_STEPS), "later": said(folder)}


@scene("sigterm in a save")
def sigterm_in_a_save(folder: Path) -> dict[str, Any]:
    code = life(folder, before=in_save(2, signal_self(signal.SIGTERM)), resume=None)
    kept = standing(folder / "checkpoints")
    return {"code": code, "kept": kept, "said": said(folder), **ends(folder)}


@scene("sigterm before the first step")
def sigterm_before_the_first_step(folder: Path) -> dict[str, Any]:
    def before() -> None:
        job.WarmupCosine.before_run = lambda self, run: signal_self(signal.SIGTERM)()  # type: ignore[method-assign]

    code = life(folder, before=before, resume=None)
    kept = standing(folder / "checkpoints") if (folder / "checkpoints").exists() else []
    return {"code": code, "kept": kept, **ends(folder), "later": said(folder)}


@scene("reader of the log gone")
def reader_gone(folder: Path) -> dict[str, Any]:
    """``etude train … 2>&1 | head -1``: the pipe breaks, the training does not."""

    def body() -> int:
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, 1), os.dup2(writing, 2)
        os.chdir(folder)
        return main_of_etude(["train", "c.yaml", "--folder", "run"])

    project(folder)
    code = live(body, quiet=True)
    return {"code": code, "steps": Store(folder / "run/checkpoints", write=False).entries()[-1].step}


@scene("killed in evaluation")
def killed_in_evaluation(folder: Path) -> dict[str, Any]:
    return {"code": life(folder, before=at_evaluation(signal_self(signal.SIGKILL)), resume=None), **ends(folder)}


@scene("exception in evaluation")
def exception_in_evaluation(folder: Path) -> dict[str, Any]:
    code = life(folder, BY_EPOCH, before=at_evaluation(fail), resume=None)
    return {"code": code, **ends(folder, BY_EPOCH), "later": said(folder)}


@scene("exception with debug")
def exception_with_debug(folder: Path) -> dict[str, Any]:
    variant = replace(PLAIN, debug=True)
    code = life(folder, variant, resume=None, chaos="raise@step=10")
    aside = Store(folder / "checkpoints", write=False).load("failed-000000010")
    return {"code": code, "parts": sorted(aside.state), "batch": list(aside.state["batch"][0].shape), **ends(folder)}


#: A project of a user whose hooks end the run as the environment says: ``raise@after_step@7``. One that ``keeps`` has a
#: state and has changed it when it raises; that of ``hoards`` is large.
PARTS = """\
import os, signal, time, etude

class Deadly(etude.Hook):
    words = ("raise", "kill")
    def calls(self):
        word, _, rest = os.environ.get("DEADLY", "").partition("@")
        point, _, step = rest.partition("@")

        def end(run):
            self.act(run)
            inside = point.endswith("_step") and "eval" not in point or point in ("after_forward", "before_update")
            if run.step + 1 == int(step) if inside else run.done >= int(step) or point in ("before_run", "before_train"):
                if word == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("a mistake in a hook")

        return {point: end} if word in self.words else {}
    def act(self, run):
        pass

class Keeps(Deadly):
    words = ("keeps", "hoards")
    acts = 0
    def act(self, run):
        self.acts += 1
        run.events.put("acts", self.acts, last=True)
    def state_dict(self):
        return {"acts": self.acts, "hoard": [0] * 5000 if "hoards" in os.environ.get("DEADLY", "") else []}
    def load_state_dict(self, state):
        self.acts = state["acts"]

class Clocks(etude.Hook):
    priority = 90
    def before_step(self, run):
        self.began = time.time()
    def after_step(self, run):
        assert 0 <= time.time() - self.began < 60
        self.loss = run.outputs["loss"].item()
        run.events.put("clocked", self.loss, last=True)

class Ends(etude.Hook):
    def after_train(self, run):
        with open("ends", "a") as file:
            file.write("after_train\\n")

class Draws(etude.Hook):
    priority = 60
    def after_step(self, run):
        self.drawn = getattr(self, "drawn", 0) + run.outputs["loss"].item()
        run.events.put("drawn", self.drawn, last=True)
    def state_dict(self):
        return {"drawn": getattr(self, "drawn", 0)}
    def load_state_dict(self, state):
        self.drawn = state["drawn"]
"""
PROJECT = """\
imports: [parts.py]
model: {type: MLP, sizes: [64, 10], dropout: 0.2}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 256}, val: {dataset: {type: Digits, split: val}, batch_size: 256}}
optim: {type: AdamW, lr: 1e-2}
schedule: {lr: [{type: Cosine, until: end}]}
train: {epochs: 2, validate: 1ep, threads: 1, limit_batches: 6}
hooks: [parts.Deadly, parts.Keeps, parts.Ends, parts.Draws, parts.Clocks, Alerts]
checkpoint: {every: 4step, keep: null}
log: {every: 2step}
"""


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "parts.py").write_text(PARTS)
    (folder / "c.yaml").write_text(PROJECT)
    return folder


def command(folder: Path, *words: str, deadly: str = "") -> tuple[int, str]:
    """``etude train c.yaml …`` in a process of its own: how it ended, and what it said."""

    def body() -> int:
        os.environ["DEADLY"] = deadly
        os.chdir(folder)
        said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1), os.dup2(said, 2)
        return main_of_etude(["train", "c.yaml", *words])

    code = live(body, quiet=True)
    return code, (folder / "said").read_text()


@scene("crash loop")
def crash_loop(folder: Path) -> dict[str, Any]:
    """A scheduler types the same command again and again."""
    project(folder)
    words = ("--folder", "run", "--resume")
    ends = ("raise@before_update@7", "kill@before_update@7", "kill@before_update@7")
    codes = [command(folder, *words, deadly=deadly)[0] for deadly in ends]
    history = (folder / "run" / "attempts.json").read_bytes()
    refused = [command(folder, *words) for _ in range(2)]
    kept = history == (folder / "run" / "attempts.json").read_bytes()
    retried = command(folder, "--folder", "run", "--retry", deadly="raise@before_update@11")[0]
    finished = command(folder, *words)[0]
    gone = not (folder / "run" / "attempts.json").exists()
    return {"codes": codes, "refused": refused, "kept": kept, "retried": retried, "finished": finished, "gone": gone}


#: Before the run, an epoch and a save, inside a step and an evaluation, after the run; the next scene has ``*_step``.
SOME_POINTS = (0, 2, 4, 9, 12, 14)


@scene("hooks that raise")
def hooks_that_raise(folder: Path) -> dict[str, Any]:
    """At every point: what is said, what is saved, and that the resumed run (without the mistake) is exact."""
    project(folder)
    assert command(folder, "--folder", "calm")[0] == 0
    points = sample([point for point in POINTS if point not in ("after_load", "on_error")], SOME_POINTS)
    return {"points": {point: raised_at(folder, "raise", point, "calm", "") for point in points}}


@scene("hooks that raise with a state")
def hooks_that_raise_with_a_state(folder: Path) -> dict[str, Any]:
    """The same where the hook that raises has changed a state of its own by then."""
    project(folder)
    found = {}
    for point in ("before_step", "after_step"):
        harmless = f"keeps@{point}@99"
        assert command(folder, "--folder", f"calm-{point}", deadly=harmless)[0] == 0
        found[point] = raised_at(folder, "keeps", point, f"calm-{point}", harmless)
    return {"points": found, "large": command(folder, "--folder", "large", deadly="hoards@after_step@6")}


def raised_at(folder: Path, word: str, point: str, calm: str, harmless: str) -> dict[str, Any]:
    (folder / "ends").unlink(missing_ok=True)
    name = f"{word}-{point}"
    code, text = command(folder, "--folder", name, deadly=f"{word}@{point}@6")
    kept = standing(folder / name / "checkpoints") if (folder / name / "checkpoints").exists() else []
    ended = (folder / "ends").read_text().count("after_train") if (folder / "ends").exists() else 0
    resumed, later = command(folder, "--folder", name, "--resume", deadly=harmless)
    return {
        "code": code, "said": text, "kept": kept, "ended": ended, "resumed": resumed, "later": later,
        "differs": compare_runs(folder / calm, folder / name),
    }  # fmt: skip


@scene("hooks that raise at rare points")
def hooks_that_raise_at_rare_points(folder: Path) -> dict[str, Any]:
    """After a checkpoint was loaded, and beside another error."""
    project(folder)
    assert command(folder, "--folder", "calm")[0] == 0
    assert command(folder, "--folder", "loads", "--chaos", "sigterm@step=6")[0] == 143
    kept = standing(folder / "loads" / "checkpoints")
    loading = command(folder, "--folder", "loads", "--resume", deadly="raise@after_load@6")
    untouched = kept == standing(folder / "loads" / "checkpoints")
    beside = command(folder, "--folder", "errs", "--chaos", "raise@step=6", deadly="raise@on_error@6")
    resumed = [command(folder, "--folder", name, "--resume")[0] for name in ("loads", "errs")]
    differs = [compare_runs(folder / "calm", folder / name) for name in ("loads", "errs")]
    return {"loading": loading, "untouched": untouched, "beside": beside, "resumed": resumed, "differs": differs}


@scene("second starter")
def second_starter(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    lock = Lock(folder)
    first = live(lambda: train(folder, PLAIN, resume=None), quiet=True)
    lock.release()
    return {"code": first, **ends(folder)}


@scene("hangup")
def hangup(folder: Path) -> dict[str, Any]:
    return {"code": life(folder, before=at_step(5, signal_self(signal.SIGHUP)), resume=None), **ends(folder)}


@scene("disk full")
def disk_full(folder: Path) -> dict[str, Any]:
    """A small file system of its own where mounting is allowed, else a limit on the size of files."""
    variant = replace(PLAIN, width=4000)
    folder.mkdir()
    room = folder / "checkpoints"
    room.mkdir()
    mounted = ctypes.CDLL(None, use_errno=True).mount(b"tmpfs", str(room).encode(), b"tmpfs", 0, b"size=1200k") == 0

    def before() -> None:
        if not mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))

    try:
        code = life(folder, variant, before=before, resume=None)
        text = said(folder)
        kept = sorted(os.listdir(room))
        aside = folder.with_name("aside")
        shutil.copytree(room, aside)
    finally:
        if mounted:
            ctypes.CDLL(None).umount2(str(room).encode(), 2)
    shutil.rmtree(room)
    shutil.move(aside, room)
    return {"code": code, "kept": kept, "said": text, "mounted": mounted, **ends(folder, variant)}


@scene("read-only")
def read_only(folder: Path) -> dict[str, Any]:
    def gate(call: str, path: str, size: int) -> None:
        if call in ("mkdir", "create", "write", "rename"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    code = life(folder, before=at_step(8, lambda: disk.set_gate(gate)), resume=None)
    return {"code": code, "said": said(folder), **ends(folder)}


def standing(folder: Path) -> list[str]:
    """What stands in a folder of checkpoints, without the unfinished save that a kill may leave and a start sweeps."""
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


@scene("all damaged")
def all_damaged(folder: Path) -> dict[str, Any]:
    assert life(folder, resume=None, chaos="kill@step=14") == -9
    for path in (folder / "checkpoints").glob("step-*/model.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    names = standing(folder / "checkpoints")
    code = life(folder)
    same = names == standing(folder / "checkpoints")
    restarted = life(folder, resume=None, restart=True)
    return {"code": code, "untouched": same, "restarted": restarted, **ends(folder)}


@scene("model changed")
def model_changed(folder: Path) -> dict[str, Any]:
    assert life(folder, resume=None, chaos="kill@step=14") == -9
    return {"code": life(folder, replace(PLAIN, width=17)), **ends(folder)}


@scene("existing run")
def existing_run(folder: Path) -> dict[str, Any]:
    assert life(folder, resume=None, chaos="kill@step=14") == -9
    return {"code": life(folder, resume=None), **ends(folder)}


@scene("resume from an older one")
def resume_from_older(folder: Path) -> dict[str, Any]:
    assert life(folder, resume=None, chaos="kill@step=20") == -9
    path = str(folder / "checkpoints" / "step-000000006")
    return {"code": life(folder, resume=path, chaos="kill@step=11"), **ends(folder), "said": said(folder)}


@scene("finished")
def finished(folder: Path) -> dict[str, Any]:
    assert life(folder, resume=None) == 0
    return ends(folder)


@scene("time does not grow")
def time_does_not_grow(folder: Path) -> dict[str, Any]:
    """A resume late in a long epoch asks the dataset for no sample that was used before."""
    asked: list[int] = []
    fetch = job.Noisy.__getitem__

    def counted(self: Any, index: int) -> Any:
        asked.append(index)
        return fetch(self, index)

    job.Noisy.__getitem__ = counted  # type: ignore[method-assign]
    variant = replace(PLAIN, epochs=1, validate="9ep")
    try:
        assert life(folder, variant, resume=None, chaos="sigterm@step=6") == 143
        run = job.make_run(variant)
        train_before = len(asked)
        with job.Session(run, job.Options(folder=folder, resume="", quiet=True)):
            job.loop.train(run)
    finally:
        job.Noisy.__getitem__ = fetch  # type: ignore[method-assign]
    return {"asked": len(asked) - train_before, "step": run.step}


def main() -> int:
    torch.set_num_threads(1)
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix="etude-scenes-", dir=base))
    train(root / "warm", Variant(epochs=1), resume=None)
    for name in sys.argv[1:] or (SCENES if ALL else [name for name in SCENES if name not in SIBLINGS]):
        began = time.monotonic()
        result = SCENES[name](root / name.replace(" ", "-"))
        print(json.dumps({"name": name, "seconds": round(time.monotonic() - began, 2), **result}), flush=True)
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
