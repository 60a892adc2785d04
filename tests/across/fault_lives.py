"""The examples of other systems' configs through many lives: each is stopped in another way, the next one goes on.

    python -m tests.across.fault_lives [NAME …]
    python -m tests.across.fault_lives --replay NAME …      fewer lives, and steps of them run again

torch is imported once; every life is the command line in a fork. Prints a JSON object per system.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from etude import dialects
from etude.checkpoint.tools.same_runs import compare_runs, steps_of
from etude.cli import main as etude
from etude.ledger import rows
from tests import sampling
from tests.faults.lives import live
from tests.places import EXAMPLES

SMALL = {
    "mmcv1": [
        "mmcv1/digits.py", "runner.max_epochs=2", "data.samples_per_gpu=256",
        "custom_hooks.1.type=TensorboardLoggerHook",
        "checkpoint_config.interval=2", "checkpoint_config.by_epoch=false",
    ],
    "mmengine": [
        "mmengine/simclr_lars.py", "train_cfg.max_epochs=3", "param_scheduler=[]", "train_dataloader.batch_size=256",
        "default_hooks.checkpoint.interval=1",
    ],
    "libai": [
        "libai/char_transformer.py", "train.train_iter=12", "train.train_micro_batch_size=4", "model.width=16",
        "train.test_micro_batch_size=4", "model.depth=1", "train.log_period=4", "train.evaluation.eval_period=6",
        "train.evaluation.eval_iter=4", "train.checkpointer.period=4",
    ],
    "mcquic": [
        "mcquic/photos.yaml", "train.epoch=3", "train.valFreq=2", "train.trainSet=tiles", "train.valSet=photos",
        "train.batchSize=2", "model.params.channel=8",
    ],
}  # fmt: skip
#: Convolutions are slow: as many steps with fewer images.
SMALLER = {
    "mmcv1": ["data.samples_per_gpu=64", "--limit-batches=6"],
    "mmengine": ["train_dataloader.batch_size=64", "--limit-batches=4"],
}
#: What the examples import, slowly; and the packages whose modules the first life of a system imports for all others.
IMPORTED = ("torch._dynamo", "pydoc_data.topics")
IMPORTED_BY = {"mmcv1": ("sklearn.datasets",)}
PACKAGES = ("etude.", "etude_", "torch.", "tensorboard.")
#: Systems whose runs are also let die at the same step again and again; with `make test-all` more than one.
LOOPING = ("mmcv1", "mmengine") if sampling.ALL else ("mmcv1",)
#: How each life ends, its exit code, and a word of what it says last.
LIVES = [
    (["--chaos", "sigterm@step=2"], 143, "SIGTERM"),
    # Each system saves at step 4 in the background: training has gone on, the save has not come far.
    (["--resume", "--chaos", "slow@save=1,kill@step=5"], -9, ""),
    (["--resume", "--chaos", "sigint@step=4"], 130, "Ctrl-C"),
    (["--resume", "--chaos", "usr1@step=6"], 75, "SIGUSR1"),
    (["--resume", "--max-time", "0.01s"], 75, "time is up"),
    (["--resume", "--chaos", "kill@save=1"], -9, ""),
    (["--resume"], 0, ""),
]
#: The lives that each system has without `make test-all`, and the disasters that it survives: every kind somewhere, a kill
#: everywhere.
SOME_LIVES = {"mmcv1": (0, 1, 3, 6), "mmengine": (0, 5, 6), "libai": (1, 2, 6), "mcquic": (4, 5, 6)}
SOME_DISASTERS = {"mmcv1": (), "mmengine": ("nan",), "libai": ("full",), "mcquic": ()}


def draw_pictures() -> None:
    """What the compressor's example trains on, smaller."""
    dice = np.random.default_rng(0)
    for folder, count in (("tiles", 8), ("photos", 1)):
        os.mkdir(folder)
        for number in range(count):
            Image.fromarray(dice.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(f"{folder}/{number}.png")


def shorten_text() -> None:
    """What the transformer's example trains on, likewise."""
    topics = sys.modules["pydoc_data.topics"].topics
    for topic in sorted(topics)[8:]:
        del topics[topic]


def command(name: str, folder: str, *words: str) -> tuple[int, str]:
    config, *overrides = SMALL[name] + SMALLER.get(name, [])

    def body() -> int:
        said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1), os.dup2(said, 2)
        code = etude(["train", str(EXAMPLES / config), *overrides, "--folder", folder, *words])
        Path("imported").write_text(" ".join(name for name in sys.modules if name.startswith(PACKAGES)))
        return code

    return live(body, quiet=True), Path("said").read_text()


def lives_of(name: str) -> list[tuple[list[str], int, str]]:
    return sampling.sample(LIVES, SOME_LIVES[name])


def disasters_of(name: str) -> tuple[str, ...]:
    return ("full", "nan") if sampling.ALL else SOME_DISASTERS[name]


def play(name: str) -> dict[str, Any]:
    import_what_it_needs(name)
    config, *overrides = SMALL[name]
    with redirect_stdout(io.StringIO()):  # reads the sources of what the config names; they are kept
        assert etude(["check", str(EXAMPLES / config), *overrides]) == 0
    calm, killed = Path(f"{name}-calm"), Path(f"{name}-killed")
    code, said = command(name, calm.name)
    assert code == 0, said
    for module in Path("imported").read_text().split():
        importlib.import_module(module)
    ends = [command(name, killed.name, *words) for words, _, _ in lives_of(name)]
    again = ("--resume", "--chaos", "raise@step=3")
    loop = [command(name, f"{name}-loop", *again) for _ in range(4)] if name in LOOPING else []
    found: dict[str, Any] = {}
    if "full" in disasters_of(name):
        code, said = command(name, f"{name}-full", "--chaos", "enospc@save=1")
        found["full"] = [code, "training continues" in said, compare_runs(calm, Path(f"{name}-full"))]
    if "nan" in disasters_of(name):
        code, _ = command(name, f"{name}-nan", "--chaos", "nan@step=2")
        found["nan"] = [code, compare_runs(calm, Path(f"{name}-nan"))]
    return found | {
        "loop": loop and [[code for code, _ in loop], loop[-1][1][-2000:]],
        "name": name,
        "codes": [code for code, _ in ends],
        "said": [said[-2000:] for _, said in ends],
        "steps": [steps_of(calm), steps_of(killed)],
        "differs": compare_runs(calm, killed) if ends[-1][0] == 0 else "not finished",
    }


def import_what_it_needs(name: str) -> None:
    """Import once what every life would import."""
    package = type(dialects.find(name)).__module__.rpartition(".")[0]
    for module in (f"{package}.live.build", *IMPORTED, *IMPORTED_BY.get(name, ())):
        importlib.import_module(module)
    shorten_text()


def replayed(name: str) -> dict[str, Any]:
    """Kill a run and continue it; compare its ledger with that of a calm one, and run steps of it again."""
    import_what_it_needs(name)
    calm, killed = Path(f"{name}-calm"), Path(f"{name}-killed")
    ends = [command(name, calm.name), command(name, killed.name, "--chaos", "kill@step=6")]
    ends.append(command(name, killed.name, "--resume"))
    folders = [next(folder.rglob("ledger.bin")).parent for folder in (calm, killed)]
    before = contents(killed)
    said, codes = [], []
    for step in (2, 5, len(rows.read(folders[1]))):
        codes.append(live(lambda step=step: spoken(["replay", str(folders[1]), "--step", str(step)]), quiet=True))
        said.append(Path("said").read_text()[:2000])
    steps = rows.read(folders[1])
    codes.append(live(lambda: spoken(["attest", str(folders[1])]) or spoken(["verify", str(folders[1])]), quiet=True))
    return {
        "name": name,
        "codes": [code for code, _ in ends],
        "ended": [text[-2000:] for _, text in ends],
        "same": (folders[0] / "ledger.bin").read_bytes() == (folders[1] / "ledger.bin").read_bytes(),
        "known": [int((steps["ids"] != 0).sum()), int(np.isfinite(steps["loss"]).sum()), len(steps)],
        "replayed": codes,
        "said": [*said, Path("said").read_text()[-2000:]],
        "untouched": before == contents(killed),
    }


def contents(folder: Path) -> dict[str, bytes]:
    """Return what is in the files of a run, but for the statement about it."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "statement.json"]
    return {str(path): path.read_bytes() for path in files}


def spoken(words: list[str]) -> int:
    """Run a command whose output goes to the file ``said``."""
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1), os.dup2(said, 2)
    return etude(words)


def main() -> int:
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="etude-dialects-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    os.chdir(root)
    draw_pictures()
    words = [word for word in sys.argv[1:] if word != "--replay"]
    for name in words or SMALL:
        print(json.dumps((replayed if "--replay" in sys.argv else play)(name)), flush=True)
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
