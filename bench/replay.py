"""Measures how far a run can be called back: steps run again, planted differences named, forgeries found.

    python bench/replay.py [--pairs 200] [--only steps causes forgeries] [--seed 0]

- steps: random (run, step) pairs of native runs and of runs of mmcv 1.x, MMEngine, LiBai and McQuic, with 0 and 2 data
  workers, dropout, augmentation, bf16, accumulation, EMA and clipping, most of them killed and resumed, are run again;
  each must be bitwise as its ledger says, the ledger of a killed run must be that of a calm one, and no file of a run
  may have changed;
- causes: two runs that differ in one thing; `etude bisect` must name the first step and the cause;
- forgeries: `etude verify` must find each, and must find nothing in honest runs.

What the ledger costs is measured by ``bench/ledger.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _common import table

from etude.checkpoint.find import FOLDER
from etude.cli import main as etude
from etude.ledger import rows
from etude.ledger.bisect import bisect
from etude.ledger.replay import replay
from etude.ledger.statement import FILE, attest, verify

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CONFIG = """
imports: [own.py]
model: {{type: Own, width: {width}, dropout: {dropout}}}
loss: {loss}
data:
  train: {{dataset: {{type: Noisy, noise: {noise}}}, batch_size: {batch}, shuffle: {shuffle}, workers: {workers}}}
optim: {{type: {optimizer}, lr: {lr}{more}}}
schedule: {schedule}
train: {{steps: {steps}, threads: {threads}, seed: {seed}, precision: {precision}, accumulate: {accumulate}}}
hooks: {hooks}
checkpoint: {{every: {every}, keep: null}}
log: {{every: 5step}}
"""
USUAL: dict[str, Any] = {
    "width": 32, "dropout": 0.0, "loss": "CrossEntropyLoss", "noise": 0.0, "batch": 128, "shuffle": "true",
    "workers": 0, "optimizer": "SGD", "lr": 0.1, "more": ", momentum: 0.9", "schedule": "{}", "steps": 24,
    "threads": 1, "seed": 0, "precision": "fp32", "accumulate": 1, "hooks": "[]", "every": "5step",
}  # fmt: skip
OWN = """
import torch
from etude import DATASETS, HOOKS, MODELS
from etude.core.hook import Hook
from etude.data.datasets.digits import Digits


@DATASETS.register
class Noisy(Digits):
    def __init__(self, noise=0.0):
        super().__init__("train")
        self.noise = noise

    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        return image + self.noise * torch.randn(image.shape), target


@MODELS.register
class Own(torch.nn.Module):
    def __init__(self, width=32, dropout=0.0):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, width), torch.nn.Linear(width, 10)
        self.drop = torch.nn.Dropout(dropout)

    def forward(self, x):
        return self.second(self.drop(torch.relu(self.first(x))))


@HOOKS.register
class Push(Hook):
    def after_step(self, run):
        if run.step == 6:
            with torch.no_grad():
                run.model.first.bias.add_(0.01)
"""
#: A sum over so many numbers is cut into pieces by the number of threads.
THREADS = OWN.replace(
    "torch.relu(self.first(x))", "torch.relu(self.first(x)) * torch.linspace(0, 1, 1000003).sin().sum() * 1e-5"
)

#: Runs another operator from step 9 on; the count is in the state of the model, so a replay has it, too.
COUNTING = (
    OWN.replace("{", "{{")
    .replace("}", "}}")
    .replace("self.drop = ", 'self.register_buffer("steps", torch.tensor(0)); self.drop = ')
    .replace("torch.relu(self.first(x))", "self.act(self.first(x))")
    .replace(
        "    def forward",
        "    def act(self, x):\n        self.steps += 1\n"
        "        return torch.relu(x) if self.steps < 9 else {act}(x)\n\n    def forward",
    )
)
#: For a difference that may need some steps to reach the loss.
ANY = -1


def forked(work: Callable[[], Any]) -> Any:
    """Do ``work`` in a process that begins with everything imported; return its result, or how it was killed."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        os.close(read)
        try:
            with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
                result: Any = work()
        except BaseException:
            result = traceback.format_exc()
        with os.fdopen(write, "wb") as file:
            file.write(pickle.dumps(result))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    status = os.waitpid(pid, 0)[1]
    return pickle.loads(data) if data else -os.WTERMSIG(status)


def train(folder: str, *words: str, code: str = OWN, **changes: Any) -> Any:
    """Train a run in ``folder`` and return the exit code."""
    Path("own.py").write_text(code)
    Path("config.yaml").write_text(CONFIG.format(**USUAL | changes))
    command = ["train", "config.yaml", "-q", "--folder", folder, *words]

    def work() -> int:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            code = etude(command)
        return code if code == 0 else f"{code}: {said.getvalue()}"  # type: ignore[return-value]

    return forked(work)


def require(result: Any, wanted: Any = 0) -> None:
    if result != wanted:
        raise SystemExit(f"a run ended with {result}, not with {wanted}")


@contextlib.contextmanager
def scratch() -> Iterator[None]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="bench-replay-") as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


# -- steps ---------------------------------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "2 workers": {"workers": 2},
    "dropout, augmentation": {"dropout": 0.3, "noise": 0.2},
    "augmentation in 2 workers": {"noise": 0.2, "workers": 2},
    "bf16, dropout": {"precision": "bf16", "dropout": 0.3},
    "accumulation of 3": {"accumulate": 3, "noise": 0.2},
    "EMA, AdamW, clipping": {
        "hooks": "[{type: EMA, momentum: 0.1}]", "optimizer": "AdamW", "lr": 0.01, "more": ", clip_norm: 1.0",
    },
    "cosine, dropout, 2 workers": {"schedule": "{lr: Cosine}", "dropout": 0.3, "workers": 2, "every": "7step"},
}  # fmt: skip


@dataclass
class Driven:
    """A run of another system: an example's config, what is changed in it, and where its checkpoints lie."""

    config: str
    steps: int
    changes: tuple[str, ...] = ()
    folder: str = ""


_MMCV1 = ("runner.max_epochs=2", "checkpoint_config.by_epoch=False", "checkpoint_config.interval=8",
          "checkpoint_config.max_keep_ckpts=-1")  # fmt: skip
_MMENGINE = ("train_cfg.max_epochs=3", "default_hooks.checkpoint.by_epoch=False",
             "default_hooks.checkpoint.interval=8", "default_hooks.checkpoint.max_keep_ckpts=-1")  # fmt: skip
_LIBAI = ("train.train_iter=30", "train.checkpointer.period=8", "train.evaluation.eval_period=12",
          "train.evaluation.eval_iter=1", "train.log_period=5")  # fmt: skip
DRIVEN: dict[str, Driven] = {
    "mmcv 1.x: dropout, augmentation, EMA": Driven("mmcv1/digits.py", 46, _MMCV1),
    "mmcv 1.x: 2 workers": Driven("mmcv1/digits.py", 46, (*_MMCV1, "data.workers_per_gpu=2")),
    "mmcv 1.x: accumulation of 3": Driven(
        "mmcv1/digits.py", 46,
        (*_MMCV1, "optimizer_config.type=GradientCumulativeOptimizerHook", "optimizer_config.cumulative_iters=3",
         "custom_hooks.1.interval=1000"),  # the example's own hook looks at gradients, which are gone after an update
    ),
    "MMEngine: augmentation, LARS": Driven("mmengine/simclr_lars.py", 33, _MMENGINE),
    "MMEngine: 2 workers": Driven("mmengine/simclr_lars.py", 33, (*_MMENGINE, "train_dataloader.num_workers=2")),
    "MMEngine: bf16, accumulation of 2, clipping": Driven(
        "mmengine/simclr_lars.py", 33,
        (*_MMENGINE, "optim_wrapper.type=AmpOptimWrapper", "optim_wrapper.dtype=bfloat16",
         "optim_wrapper.accumulative_counts=2", "optim_wrapper.clip_grad.max_norm=1.0"),
    ),
    "LiBai: dropout, clipping": Driven("libai/char_transformer.py", 30, _LIBAI),
    "LiBai: 2 workers": Driven("libai/char_transformer.py", 30, (*_LIBAI, "dataloader.train.num_workers=2")),
    "LiBai: bf16, accumulation of 2": Driven(
        "libai/char_transformer.py", 30, (*_LIBAI, "train.amp.enabled=true", "train.num_accumulation_steps=2")
    ),
    "McQuic": Driven("mcquic/photos.yaml", 24, ("train.epoch=8", "train.valFreq=2"), "latest"),
}  # fmt: skip


def measure_steps(pairs: int, chance: random.Random) -> list[tuple[str, ...]]:
    found, each = [], -(-pairs // (2 * len(KINDS) + len(DRIVEN)))
    for number, (name, changes) in enumerate(KINDS.items()):
        with scratch():
            kills = sorted(chance.sample(range(3, 23), 1 + number % 2))
            found.append(_killed_and_replayed(
                name, lambda folder, *words, c=changes: train(folder, *words, **c), kills, ("calm", "cut"), 24, each,
                chance,
            ))  # fmt: skip
    with scratch():
        shutil.copytree(EXAMPLES, "examples")
        _pictures(Path("examples/mcquic"))
        for name, one in DRIVEN.items():
            place = Path("examples", one.config).parent.absolute()

            def train_it(folder: str, *words: str, one: Driven = one, place: Path = place) -> Any:
                command = ["train", Path(one.config).name, *one.changes, "-q", "--folder", f"{place}/{folder}", *words]
                return forked(lambda: _in(place, command))

            kills = [chance.randrange(9, one.steps)]
            folders = tuple(f"{place}/{folder}/{one.folder}".rstrip("/") for folder in ("cut", "calm"))
            found.append(_killed_and_replayed(name, train_it, kills, folders, one.steps, each, chance, only=1))
            for folder in ("calm", "cut"):
                shutil.rmtree(place / folder)
    return found


#: Runs of this part, and what `etude verify --replay 1` finds wrong about them.
HONEST: list[tuple[str, Any]] = []


def _alarms(folder: str) -> list[str]:
    attest(Path(folder))
    return verify(Path(folder), replays=1).wrong


def _in(place: Path, command: list[str]) -> Any:
    os.chdir(place)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = etude(command)
    return code if code == 0 else f"{code}: {said.getvalue()}"


def _pictures(place: Path) -> None:
    """Write small pictures for the compressor."""
    import numpy as np
    from PIL import Image

    chance = np.random.default_rng(0)
    for folder, count in (("tiles", 24), ("photos", 2)):
        (place / folder).mkdir()
        for number in range(count):
            values = chance.integers(0, 255, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(values).save(place / folder / f"{number:02}.png")


def _killed_and_replayed(
    name: str, train: Callable[..., Any], kills: list[int], folders: tuple[str, ...], steps: int, each: int,
    chance: random.Random, only: int = 2,
) -> tuple[str, ...]:  # fmt: skip
    """Train a run calmly and once more with kills; run random steps of the first ``only`` folders again."""
    require(train("calm"))
    for count, step in enumerate(kills):
        require(train("cut", "--chaos", f"kill@step={step}", *(["--resume"] if count else [])), -signal.SIGKILL)
    require(train("cut", "--resume"))
    same = len({Path(folder, rows.FILE).read_bytes() for folder in folders}) == 1
    chosen = {folder: chance.sample(range(1, steps + 1), min(each, steps)) for folder in folders[:only]}
    before = {folder: _contents(folder) for folder in chosen}
    different = forked(lambda: [replay(folder, step).different for folder, some in chosen.items() for step in some])
    if isinstance(different, str):
        raise SystemExit(different)
    untouched = all(_contents(folder) == content for folder, content in before.items())
    HONEST.extend((f"{name}, {Path(folder).name}", forked(lambda folder=folder: _alarms(folder))) for folder in folders)
    good = sum(one is None for one in different)
    print(f"  {name}: {good} of {len(different)}{'' if same else ', ANOTHER ledger'}", flush=True)
    if not untouched:
        print("      a replay has CHANGED the run")
    killed = f"killed at {', '.join(map(str, kills))}"
    return (
        name,
        f"{good} of {len(different)}",
        killed,
        "the same" if same else "ANOTHER",
        "yes" if untouched else "NO",
    )


def _contents(folder: str) -> str:
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    parts = (f"{path} {path.lstat().st_mtime_ns} ".encode() + path.read_bytes() for path in files)
    return hashlib.sha256(b"".join(parts)).hexdigest()


# -- causes --------------------------------------------------------------------------------------------------------------


@dataclass
class Planted:
    """One difference between two runs, and what `etude bisect` must say of it."""

    name: str
    step: int | None
    #: Words that the cause, or what is written below it, must have.
    cause: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    code: str = OWN
    base: dict[str, Any] = field(default_factory=dict)
    base_code: str = OWN


PLANTED = [
    Planted("nothing", None),
    Planted("2 workers", None, changes={"workers": 2, "noise": 0.1}, base={"noise": 0.1}),
    Planted("log and checkpoint more often", None, changes={"every": "3step"}),
    Planted("seed", 1, ("other samples", "train.seed"), {"seed": 3}),
    Planted("order of samples", 1, ("other samples", "shuffle"), {"shuffle": "false"}),
    Planted("batch size", 1, ("other samples", "batch_size"), {"batch": 64}),
    Planted("learning rate", 2, ("other settings of the optimizer: lr 0.1 in A, 0.05 in B",), {"lr": 0.05}),
    Planted("momentum", 3, ("other settings of the optimizer: momentum 0.9 in A, 0.8 in B",),
            {"more": ", momentum: 0.8"}),
    Planted("weight decay", 2, ("other settings of the optimizer: weight_decay 0",),
            {"more": ", momentum: 0.9, weight_decay: 0.1}"[:-1]}),
    Planted("schedule", 3, ("other settings of the optimizer: lr",), {"schedule": "{lr: Cosine}"}),
    Planted("optimizer", 2, ("other settings of the optimizer: SGD in A, AdamW in B",),
            {"optimizer": "AdamW", "more": ""}),
    Planted("precision", 1, ("other operators", "train.precision"), {"precision": "bf16"}),
    Planted("type of weights", 1, ("other types of weights", "float32 32×64 in A, float64 32×64 in B"),
            code=OWN.replace("torch.relu(self.first(x))", "torch.relu(self.first(x.double()))").replace(
                "torch.nn.Dropout(dropout)\n", "torch.nn.Dropout(dropout)\n        self.double()\n")),
    Planted("width", 1, ("other initial weights: other shapes", "model.width"), {"width": 33}),
    Planted("initialisation", 1, ("other initial weights", "first.bias"),
            code=OWN.replace("        self.drop =", "        torch.nn.init.zeros_(self.first.bias)\n        self.drop =")),
    Planted("another operator", 1, ("A runs relu.default, B gelu.default", "functional.gelu"),
            code=OWN.replace("torch.relu", "torch.nn.functional.gelu")),
    Planted("another constant in the model", 1, ("the same operator with another constant: 1 in A, 1.5 in B", "own.py"),
            base_code=OWN.replace("self.first(x))", "self.first(x) * 1)"),
            code=OWN.replace("self.first(x))", "self.first(x) * 1.5)")),
    Planted("dropout", 1, ("another constant: 0.8 in A, 0.7 in B", "model.dropout"), {"dropout": 0.3},
            base={"dropout": 0.2}),
    Planted("augmentation", 1, ("other augmentation or other data", "noise"), {"noise": 0.1}),
    Planted("code of the augmentation", 1, ("other augmentation or other data", "torch.rand("), {"noise": 0.1},
            base={"noise": 0.1}, code=OWN.replace("torch.randn(", "torch.rand(")),
    Planted("accumulation", 2, ("train.accumulate",), {"accumulate": 2}),
    Planted("clipping", 1, ("norm of the gradients", "clip_norm"), {"more": ", momentum: 0.9, clip_norm: 1.0"}),
    Planted("smoothing in the loss", 1, ("other operators", "label_smoothing"),
            {"loss": "{type: CrossEntropyLoss, label_smoothing: 0.1}"}),
    Planted("a hook that changes weights", 8, ("a hook changes the weights", "only in B: hook Push"),
            {"hooks": "[Push]"}),
    Planted("an operator in the middle of the run", 9, ("A runs relu.default, B leaky_relu.default",),
            base_code=COUNTING.format(act="torch.relu"), code=COUNTING.format(act="torch.nn.functional.leaky_relu")),
    Planted("Nesterov's momentum", 2, ("other settings of the optimizer: nesterov False in A, True in B",),
            {"more": ", momentum: 0.9, nesterov: true"}),
    Planted("betas", 3, ("other settings of the optimizer: betas",),
            {"more": ", betas: [0.8, 0.99]"}, base={"optimizer": "AdamW", "lr": 0.01, "more": ", betas: [0.9, 0.99]"}),
    Planted("a learning rate a little larger", ANY, ("lr 0.1 in A, 0.100001 in B",), {"lr": 0.100001}),
    Planted("a warm-up", 2, ("other settings of the optimizer: lr",),
            {"schedule": "{lr: [{type: Linear, start: 0.1, end: 1.0, until: 5step}, {type: Constant}]}"}),
    Planted("another activation", 1, ("A runs relu.default, B tanh.default", "torch.tanh"),
            code=OWN.replace("torch.relu", "torch.tanh")),
    Planted("one initial weight", 1, ("other initial weights", "first.bias"),
            code=OWN.replace("        self.drop =", "        self.first.bias.data[3] += 0.5\n        self.drop =")),
    Planted("a layer without bias", 1, ("other parameters in the model", "second.bias is only in A"),
            code=OWN.replace("torch.nn.Linear(width, 10)", "torch.nn.Linear(width, 10, bias=False)")),
    Planted("an additional layer", 1, ("other parameters in the model", "third"),
            code=OWN.replace("        self.drop =", "        self.third = torch.nn.Linear(2, 2)\n        self.drop =")),
    Planted("more augmentation", 1, ("other augmentation or other data", "noise"), {"noise": 0.2}, base={"noise": 0.1}),
    Planted("one changed picture", ANY, ("other augmentation or other data",),
            code=OWN.replace("        return image +", "        image = image * 0.5 if index == 7 else image\n        return image +")),
    Planted("one changed label", ANY, ("other augmentation or other data",),
            code=OWN.replace("torch.randn(image.shape), target", "torch.randn(image.shape), 0 if index == 7 else target")),
    Planted("a hook that pushes further", 8, ("another constant: 0.01 in A, 0.02 in B",), {"hooks": "[Push]"},
            base={"hooks": "[Push]"}, code=OWN.replace("0.01", "0.02")),
    Planted("averages of the weights, which change nothing", None, changes={"hooks": "[{type: EMA, momentum: 0.1}]"}),
    Planted("threads", ANY, ("threads: 1 in A, 2 in B",), {"threads": 2}, code=THREADS, base_code=THREADS),
]  # fmt: skip


def measure_causes() -> list[tuple[str, ...]]:
    found = []
    with scratch():
        trained: dict[str, str] = {}

        def run_of(code: str, changes: dict[str, Any]) -> Path:
            key = repr((code, sorted(changes.items())))
            if key not in trained:
                # Its own folder for the code, so that a replay does not have to put anything back.
                trained[key] = f"run-{len(trained)}"
                require(train(trained[key], code=code, **{"steps": 14} | changes))
            return Path(trained[key])

        for one in PLANTED:
            a, b = run_of(one.base_code, one.base), run_of(one.code, one.base | one.changes)
            if a == b:
                b = Path("again")
                require(train("again", code=one.code, steps=14, **one.base))
            found.append(_judged(one, a, b))
        found.append(_judged(*_edited_checkpoint()))
        found.append(_judged(*_other_package()))
    return found


def _judged(one: Planted, a: Path, b: Path, python_a: str = "", python_b: str = "") -> tuple[str, ...]:
    from etude.cli.looking.bisect import shown

    parting = bisect(a, b, python_a=python_a, python_b=python_b)
    said = "\n".join(shown(parting))
    right = (parting.step == one.step or (one.step == ANY and parting.step is not None)) and all(
        part in said for part in one.cause
    )
    print(f"  {one.name}: {'right' if right else 'WRONG'}", flush=True)
    if not right:
        print("\n".join(f"      {line}" for line in said.splitlines()[:14]))
    return one.name, str(parting.step or "none"), "yes" if right else "NO", (parting.cause or parting.what)[:70]


def _edited_checkpoint() -> tuple[Planted, Path, Path]:
    """B ended at a checkpoint and went on from there later; one weight in it was changed, with all digests made anew."""
    from safetensors.torch import load_file, save_file

    require(train("a-edited", steps=14))
    require(train("b-edited", steps=10))
    newest = sorted(Path("b-edited", FOLDER).glob("step-*"))[-1]
    weights = newest / "model.safetensors"

    def edit() -> None:
        values = load_file(weights)
        values["first.bias"][3] += 0.5  # not a weight of the first pixel, which is always 0
        save_file(values, weights)

    require(forked(edit), None)
    fit_manifest(newest)
    require(train("b-edited", "--resume", steps=14))
    wanted = ("B goes on with other weights than it had come to", "step-000000010 of B has been edited")
    return Planted("an edited checkpoint", 11, wanted), Path("a-edited"), Path("b-edited")


def _other_package() -> tuple[Planted, Path, Path, str, str]:
    """The runs were made, and are replayed, with two versions of one package."""
    code = f"import scaling\n{OWN}".replace("self.first(x))", "scaling.scaled(self.first(x)))")
    Path("own.py").write_text(code)
    Path("config.yaml").write_text(CONFIG.format(**USUAL | {"steps": 14}))
    pythons = []
    for name, factor in (("1.0", "1.0"), ("2.0", "1.25")):
        site = Path(f"site-{name}").absolute()
        about = site / f"scaling-{name}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: scaling\nVersion: {name}\n")
        (site / "scaling.py").write_text(f"def scaled(x):\n    return x * {factor}\n")
        python = Path(f"python-{name}").absolute()
        python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
        python.chmod(0o700)
        folder = f"package-{name}"
        subprocess.run([python, "-m", "etude", "train", "config.yaml", "-q", "--folder", folder], check=True)
        pythons.append(str(python))
    planted = Planted("another version of a package", 1, ("package scaling: 1.0 in A, 2.0 in B", "constant"))
    return planted, Path("package-1.0"), Path("package-2.0"), *pythons


# -- forgeries -----------------------------------------------------------------------------------------------------------


def flip(path: Path, at: int = -9) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def fit_manifest(checkpoint: Path) -> None:
    """Make all digests in a manifest anew, as a careful forger would."""
    from etude.checkpoint.manifest import _digest

    path = checkpoint / "manifest.json"
    body = json.loads(path.read_text())
    body.pop("digest")
    for name, stored in body["files"].items():
        data = (checkpoint / name).read_bytes()
        stored |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(body | {"digest": _digest(body)}, indent=1))


def checkpoints(run: Path) -> list[Path]:
    return sorted((run / FOLDER).glob("step-*"))


def chained_anew(run: Path, change: Callable[[Any], Any]) -> None:
    """Change rows of the ledger, and chain all of them anew."""
    table = change(rows.read(run).copy())
    table["step"] = range(1, len(table) + 1)
    digest = 0
    for at in range(len(table)):
        table[at : at + 1]["digest"] = rows.chained(table[at : at + 1], digest)
        digest = int(table["digest"][at])
    (run / rows.FILE).write_bytes(rows.HEADER + table.tobytes())


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old not in text:
        raise SystemExit(f"the forgery of {path.name} finds nothing to change")
    path.write_text(text.replace(old, new, 1))


def _losses(table: Any) -> Any:
    table["loss"][5] *= 0.5
    return table


def _ids(table: Any) -> Any:
    table["ids"][[3, 4]] = table["ids"][[4, 3]]
    return table


def _cut(table: Any) -> Any:
    import numpy as np

    return np.delete(table, [3, 4])


def _longer(table: Any) -> Any:
    import numpy as np

    return np.concatenate([table, table[-3:]])


def _weights_of_other(run: Path, number: int, *, fit: bool) -> None:
    shutil.copy(checkpoints(run.parent / "other")[number] / "model.safetensors", checkpoints(run)[number])
    if fit:
        fit_manifest(checkpoints(run)[number])


def _checkpoint_of_other(run: Path, number: int) -> None:
    shutil.rmtree(checkpoints(run)[number])
    shutil.copytree(checkpoints(run.parent / "other")[number], run / FOLDER / f"step-{6 * (number + 1):09d}")


def _fit_statement(run: Path) -> None:
    """Put the digests of the files as they are now into the statement."""
    body = json.loads((run / FILE).read_text())
    for one in body["subject"]:
        one["digest"]["sha256"] = hashlib.sha256((run / one["name"]).read_bytes()).hexdigest()
    (run / FILE).write_text(json.dumps(body))


def _metrics_and_statement(run: Path) -> None:
    flip(run / "metrics.jsonl")
    _fit_statement(run)


def _payload(run: Path) -> None:
    """Change the metrics, and what a signed statement says of them."""
    import base64

    flip(run / "metrics.jsonl")
    envelope = json.loads((run / FILE).read_text())
    body = json.loads(base64.b64decode(envelope["payload"]))
    for one in body["subject"]:
        one["digest"]["sha256"] = hashlib.sha256((run / one["name"]).read_bytes()).hexdigest()
    envelope["payload"] = base64.b64encode(json.dumps(body).encode()).decode()
    (run / FILE).write_text(json.dumps(envelope))


def _reattested(run: Path, number: int) -> None:
    """Put in weights of another run, make all digests anew, and write a statement about that."""
    _weights_of_other(run, number, fit=True)
    attest(run)


def _renamed(run: Path) -> None:
    checkpoints(run)[1].rename(run / FOLDER / "step-000000011")


def _copied(run: Path) -> None:
    shutil.copytree(checkpoints(run)[1], run / FOLDER / "step-000000013")


Forge = Callable[[Path], Any]
FORGERIES: dict[str, Forge] = {
    "a bit of a loss in the ledger": lambda run: flip(run / rows.FILE, 32 * 6 + 20),
    "a bit of a digest in the ledger": lambda run: flip(run / rows.FILE, -1),
    "a loss, chained anew": lambda run: chained_anew(run, _losses),
    "samples of two steps swapped, chained anew": lambda run: chained_anew(run, _ids),
    "steps cut out, chained anew": lambda run: chained_anew(run, _cut),
    "the end cut off": lambda run: os.truncate(run / rows.FILE, rows.size_of(15)),
    "steps invented after the end": lambda run: chained_anew(run, _longer),
    "the ledger of another run": lambda run: shutil.copy(run.parent / "other" / rows.FILE, run),
    "no ledger": lambda run: (run / rows.FILE).unlink(),
    "a bit of the last weights": lambda run: flip(checkpoints(run)[-1] / "model.safetensors"),
    "a bit of the first weights": lambda run: flip(checkpoints(run)[0] / "model.safetensors"),
    "weights of another run": lambda run: _weights_of_other(run, -1, fit=False),
    "weights of another run, with a new manifest": lambda run: _weights_of_other(run, -1, fit=True),
    "a checkpoint of another run": lambda run: _checkpoint_of_other(run, 2),
    "an older checkpoint of another run": lambda run: _checkpoint_of_other(run, 1),
    "a checkpoint renamed to another step": _renamed,
    "a checkpoint twice": _copied,
    "a checkpoint removed": lambda run: shutil.rmtree(checkpoints(run)[0]),
    "a manifest that is none": lambda run: (checkpoints(run)[-1] / "manifest.json").write_text("{"),
    "another lr in the plan": lambda run: edit(run / "plan.yaml", "lr: 0.1", "lr: 0.2"),
    "another log interval in the plan": lambda run: edit(run / "plan.yaml", "every: 5step", "every: 7step"),
    "another data set": lambda run: edit(
        run / "env.json", json.loads((run / "env.json").read_text())["data"]["train"], "0" * 8
    ),
    "another torch": lambda run: edit(run / "env.json", '"torch": "', '"torch": "9'),
    "other code": lambda run: edit(run / "code.json", "torch.relu", "torch.tanh"),
    "another config": lambda run: edit(next((run / "config").glob("*.yaml")), "lr: 0.1", "lr: 0.2"),
    "another metric": lambda run: flip(run / "metrics.jsonl"),
    "no metrics": lambda run: (run / "metrics.jsonl").write_text(""),
    "an empty statement": lambda run: (run / FILE).write_text("{}"),
    "no statement": lambda run: (run / FILE).unlink(),
    "the statement of another run": lambda run: shutil.copy(run.parent / "other" / FILE, run),
    "weights of another run, attested anew": lambda run: _reattested(run, -1),
    "first weights of another run, attested anew": lambda run: _reattested(run, 0),
    "metrics and a signed statement": _payload,
    "metrics and a statement without a signature": _metrics_and_statement,
}  # fmt: skip
#: What is done to a run of another system, whose checkpoints are files of its own.
FOREIGN: dict[str, tuple[str, Forge]] = {
    "mmcv: a bit of the last checkpoint": ("mmcv", lambda run: flip(_newest_file(run), -1000)),
    "mmcv: half of a checkpoint": ("mmcv", lambda run: os.truncate(_newest_file(run), 20_000)),
    "mmcv: a checkpoint of another run": (
        "mmcv",
        lambda run: shutil.copy(_newest_file(run.parent / "mmcv-other"), _newest_file(run)),
    ),
    "mmcv: a checkpoint removed": ("mmcv", lambda run: _newest_file(run).unlink()),
    "mmcv: a checkpoint twice": ("mmcv", lambda run: shutil.copy(_newest_file(run), run / "iter_4.pth")),
    "mmcv: a loss, chained anew": ("mmcv", lambda run: chained_anew(run, _losses)),
    "mmcv: steps cut out, chained anew": ("mmcv", lambda run: chained_anew(run, _cut)),
    "mmcv: the ledger of another run": (
        "mmcv",
        lambda run: shutil.copy(run.parent / "mmcv-other" / rows.FILE, run / rows.FILE),
    ),
    "mmcv: another lr in the plan": ("mmcv", lambda run: edit(run / "plan.yaml", "lr: 0.005", "lr: 0.006")),
    "mmcv: other code": ("mmcv", lambda run: edit(run / "code.json", "relu", "tanh")),
    "mmcv: a checkpoint of another run, attested anew": ("mmcv", lambda run: _foreign_reattested(run)),
    "mmcv: another log": ("mmcv", lambda run: flip(next(run.glob("*.log.json")))),
    "LiBai: a bit of the weights": ("libai", lambda run: flip(run / "model_0000007" / "model", -1000)),
    "LiBai: weights of another run": (
        "libai",
        lambda run: shutil.copy(run.parent / "libai-other" / "model_0000007" / "model", run / "model_0000007"),
    ),
    "LiBai: samples of two steps swapped, chained anew": ("libai", lambda run: chained_anew(run, _ids)),
    "LiBai: the end cut off": ("libai", lambda run: os.truncate(run / rows.FILE, rows.size_of(9))),
}


def _newest_file(run: Path) -> Path:
    return max((path for path in run.glob("iter_*.pth")), key=lambda path: int(path.stem.rpartition("_")[2]))


def _foreign_reattested(run: Path) -> None:
    """Put in other weights under the same entries of Étude, and write a statement about that."""
    import torch

    state = torch.load(_newest_file(run), weights_only=False)
    for name, value in state["state_dict"].items():
        if name == "fc.bias":
            value += 0.25
    torch.save(state, _newest_file(run))
    attest(run)


#: Those that only a replay shows, and those that only a signature shows.
REPLAYED = (
    "weights of another run, attested anew",
    "first weights of another run, attested anew",
    "mmcv: a checkpoint of another run, attested anew",
)
SIGNED = ("metrics and a signed statement", "metrics and a statement without a signature")


def measure_forgeries() -> list[tuple[str, ...]]:
    found = []
    with scratch():
        _honest_runs()
        alarms = list(HONEST)
        for run in sorted(Path("runs").iterdir()):

            def work(run: Path = run) -> list[str]:
                attest(run)
                return verify(run, replays=3).wrong

            alarms.append((run.name, forked(work)))
            print(f"  honest {run.name}: {alarms[-1][1] or 'nothing is wrong'}", flush=True)
        for name in ("key", "public"):
            make = ["genpkey", "-algorithm", "ed25519"] if name == "key" else ["pkey", "-in", "key.pem", "-pubout"]
            subprocess.run(["openssl", *make, "-out", f"{name}.pem"], check=True)
        _foreign_runs()
        forgeries = {name: ("run", forge) for name, forge in FORGERIES.items()} | FOREIGN
        for name, (folder, forge) in forgeries.items():
            shutil.copytree("runs", "forged", symlinks=True)

            def forging(name: str = name, folder: str = folder, forge: Forge = forge) -> list[str]:
                run = Path("forged", folder)
                if name == SIGNED[0]:
                    attest(run, "key.pem")
                forge(run)
                return verify(
                    run, replays=3 if name in REPLAYED else 0, key="public.pem" if name in SIGNED else ""
                ).wrong

            wrong = forked(forging)
            shutil.rmtree("forged")
            if isinstance(wrong, str):
                raise SystemExit(wrong)
            found.append((name, "yes" if wrong else "NO", wrong[0][:90] if wrong else ""))
            print(f"  {name}: {wrong[0] if wrong else 'NOT FOUND'}", flush=True)
        for name, wrong in alarms:
            found.append((f"honest: {name}", "yes" if not wrong else "NO", str(wrong[0] if wrong else "nothing")[:90]))
    return found


def _honest_runs() -> None:
    small: dict[str, Any] = {"steps": 18, "every": "6step", "dropout": 0.1}
    require(train("runs/run", **small))
    require(train("runs/other", **small, seed=1))
    require(train("runs/workers", **small, workers=2, noise=0.1))
    require(train("runs/bf16", **small, precision="bf16"))
    require(train("runs/accumulated", **small, accumulate=3))
    require(train("runs/averaged", **small, hooks="[{type: EMA, momentum: 0.1}]"))
    for name, kills in (("killed", [11]), ("killed-thrice", [4, 9, 16]), ("killed-workers", [14])):
        more = small | ({"workers": 2, "noise": 0.1} if name == "killed-workers" else {})
        for count, step in enumerate(kills):
            words = ["--resume"] if count else []
            require(train(f"runs/{name}", "--chaos", f"kill@step={step}", *words, **more), -signal.SIGKILL)
        require(train(f"runs/{name}", "--resume", **more))
    require(train("runs/longer", **small | {"steps": 12}))
    require(train("runs/longer", "--resume", **small))
    require(train("runs/without-shuffle", **small, shuffle="false"))
    require(train("runs/wide", **small, width=48))
    require(train("runs/adamw", **small, optimizer="AdamW", more=", clip_norm: 1.0"))
    require(train("runs/cosine", **small, schedule="{lr: Cosine}"))


def _foreign_runs() -> None:
    """Train two runs each of mmcv 1.x and LiBai beside the others, and attest them."""
    runs = Path("runs").absolute()
    shutil.copytree(EXAMPLES, "examples")
    for name, one in (("mmcv", DRIVEN["mmcv 1.x: 2 workers"]), ("libai", DRIVEN["LiBai: dropout, clipping"])):
        place = Path("examples", one.config).parent.absolute()
        for folder, more in ((name, ()), (f"{name}-other", ("seed=1",) if name == "mmcv" else ("train.seed=1",))):
            command = ["train", Path(one.config).name, *one.changes, *more, "-q", "--folder", str(runs / folder)]
            require(forked(lambda command=command, place=place: _in(place, command)))
            require(forked(lambda folder=folder: attest(runs / folder) and None), None)


# ------------------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=("steps", "causes", "forgeries"))
    args = parser.parse_args()
    parts: dict[str, tuple[Callable[[], list[tuple[str, ...]]], tuple[str, ...]]] = {
        "steps": (
            lambda: measure_steps(args.pairs, random.Random(args.seed)),
            ("runs", "steps bitwise as recorded", "second run", "its ledger", "untouched"),
        ),
        "causes": (measure_causes, ("planted", "first step", "right", "cause")),
        "forgeries": (measure_forgeries, ("forged", "right", "said")),
    }
    bad = 0
    pages = []
    for name in args.only or parts:
        print(name, flush=True)
        measure, heads = parts[name]
        lines = measure()
        wrong = [one for one in lines if "NO" in one or "ANOTHER" in one]
        if name == "steps":
            counts = [one[1].split(" of ") for one in lines]
            wrong += [one for one, (good, of) in zip(lines, counts, strict=True) if good != of]
            total = f"{sum(int(good) for good, _ in counts)} of {sum(int(of) for _, of in counts)} steps"
        else:
            total = f"{len(lines) - len(wrong)} of {len(lines)} right"
        pages.append(f"{name}: {total}\n\n{table(lines, heads)}\n")
        bad += len(wrong)
    print("\n" + "\n".join(pages))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
