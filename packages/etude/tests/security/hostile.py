"""Inputs and files that somebody made to break Étude, each with the command that reads it and the code it must end with.

``python -m tests.security.hostile`` runs all of them in processes with little memory and prints a table;
``bench/faults.py --security`` shows it too, and ``test_hostile.py`` runs them one by one.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import zygote
from tests.dist.security import row
from tests.security.ways import PARTS, RAN, WAYS

CONFIG = """\
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 512}, val: {dataset: {type: Digits, split: val}, batch_size: 512}}
optim: {type: AdamW, lr: 0.1}
metrics: [Accuracy]
train: {epochs: 2, threads: 1}
"""
#: Seconds of processor time, and bytes of memory, that no case may need. A start with torch takes some of both.
SECONDS, BYTES = 60, 6 << 30


@dataclass(frozen=True)
class Case:
    """What is made in an empty folder with ``config.yaml``, the command, its exit code, and words of its answer."""

    make: Callable[[Path], object]
    command: tuple[str, ...]
    code: int
    words: tuple[str, ...] = ()
    #: Whether it needs the folder ``run`` of a run that has ended.
    trained: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def _config(text: str, name: str = "config.yaml") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def _with(old: str, new: str) -> Callable[[Path], object]:
    assert old in CONFIG
    return _config(CONFIG.replace(old, new))


def _extra(*lines: str) -> Callable[[Path], object]:
    return _config(CONFIG + "extra:\n" + "".join(f"  {line}\n" for line in lines))


def _doubled() -> list[str]:
    return ["a0: xxxxxxxx", *(f'a{n}: "${{extra.a{n - 1}}}${{extra.a{n - 1}}}"' for n in range(1, 40))]


def _tenfold() -> list[str]:
    tens = [f"a{n}: [{', '.join([chr(34) + '${extra.a' + str(n - 1) + '}' + chr(34)] * 10)}]" for n in range(1, 12)]
    return ["a0: [x, x, x, x, x, x, x, x, x, x]", *tens]


def _laughs(folder: Path) -> None:
    lines = [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (folder / "config.yaml").write_text(CONFIG + "extra:\n  a0: &a0 [x, x]\n" + "\n".join(lines) + "\n")


def _many_aliases(folder: Path) -> None:
    lines = "\n".join(f"  b{n}: *a" for n in range(60_000))
    (folder / "config.yaml").write_text(f"{CONFIG}extra:\n  a: &a {{x: 1}}\n{lines}\n")


def _merges(folder: Path) -> None:
    keys = ", ".join(f"k{n}: 1" for n in range(300))
    lines = "\n".join(f"  b{n}: {{<<: *a}}" for n in range(3000))
    (folder / "config.yaml").write_text(f"{CONFIG}extra:\n  a: &a {{{keys}}}\n{lines}\n")


def _bases(folder: Path) -> None:
    for number in range(30):
        (folder / f"b{number}.yaml").write_text(f"_base_: [b{number + 1}.yaml, b{number + 1}.yaml]\n")
    (folder / "b30.yaml").write_text("name: x\n")
    (folder / "config.yaml").write_text("_base_: b0.yaml\n" + CONFIG)


def _chain(folder: Path) -> None:
    for number in range(400):
        (folder / f"b{number}.yaml").write_text(f"_base_: b{number + 1}.yaml\n")
    (folder / "config.yaml").write_text("_base_: b0.yaml\n" + CONFIG)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    (folder / "config.yaml").write_text("_base_: pipe.yaml\n" + CONFIG)


def _large(folder: Path) -> None:
    with (folder / "large.yaml").open("wb") as file:
        file.truncate(1 << 40)  # without a block on the disk


def _expanded(folder: Path) -> None:
    import torch

    torch.save({"state_dict": {"layers.0.weight": torch.zeros(1).expand(8_500_000_000)}}, folder / "w.pth")


def _many_expanded(folder: Path) -> None:
    import torch

    weights = {f"w{n}": torch.zeros(1).expand(60_000_000) for n in range(200)}
    torch.save({"state_dict": weights}, folder / "w.pth")


def _nested_pickle(folder: Path) -> None:
    import torch

    value: Any = [0]
    for _ in range(60):
        value = [value] * 10
    torch.save({"state_dict": {}, "meta": value}, folder / "w.pth")


def _zip_bomb(folder: Path) -> None:
    with zipfile.ZipFile(folder / "w.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/data.pkl", b"\x80\x02" + b"N0" * 50_000_000 + b".")


def _header_bomb(folder: Path) -> None:
    (folder / "w.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")


# -- the folder of a run -----------------------------------------------------------------------------------------------


def newest(folder: Path) -> Path:
    return sorted((folder / "run" / "checkpoints").glob("step-*"))[-1]


def change_manifest(**changes: Any) -> Callable[[Path], object]:
    """Change the newest checkpoint's manifest, and give it the digest that it then has."""

    def make(folder: Path) -> None:
        path = newest(folder) / "manifest.json"
        body = json.loads(path.read_text())
        for key, value in changes.items():
            body[key] = value(body[key]) if callable(value) else value
        _sign(path, body)

    return make


def _sign(path: Path, body: dict[str, Any]) -> None:
    body.pop("digest", None)
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
    path.write_text(json.dumps(body | {"digest": digest}))


def change_state(part: str, value: Any) -> Callable[[Path], object]:
    """Put ``value`` in place of what a key (``counters.step``) of the newest state.json has, with right checksums."""

    def make(folder: Path) -> None:
        state, manifest = newest(folder) / "state.json", newest(folder) / "manifest.json"
        trees = json.loads(state.read_text())
        *way, last = part.split("/")
        holder = trees
        for key in way:
            holder = holder[key]
        holder[last] = value
        text = json.dumps(trees).encode()
        state.write_bytes(text)
        body = json.loads(manifest.read_text())
        body["files"]["state.json"] = {"size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        _sign(manifest, body)

    return make


def change_json(name: str, **changes: Any) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        path = folder / "run" / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return make


def append(name: str, *lines: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        with (folder / "run" / name).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    return make


def _answer(verb: tuple[str, ...]) -> str:
    return "wrote r.html" if verb[0] == "report" else "run"


NAN, INF = float("nan"), float("inf")
LONG = "9" * 4301
DEEP = "[" * 100_000
_CHECK, _PLAN = ("check", "config.yaml"), ("plan", "config.yaml")
_TRAIN = ("train", "config.yaml", "--folder", "new", "-q")
_RESUME = ("train", "config.yaml", "--folder", "run", "--resume")
_READ = ("ckpt", "convert", "w.pth", "out.safetensors")
_FELL_BACK = ("skipped step-000000006", "resumed from step 3")
_ODD_STATUS = {
    "step": NAN, "total": [1], "began": 1e300, "seconds": NAN, "since": INF, "seen": [], "time": {"data": [], "x": NAN},
    "last": {"a": [1]}, "best": {"b": [NAN, NAN], "c": 3, "d": [1, INF]}, "warnings": [1, None], "plan": [1],
    "pid": 1 << 60, "host": 3, "dialect": ["x"], "error": {"a": 1}, "state": "running",
}  # fmt: skip

#: What somebody may write into a config or on the command line.
INPUTS: dict[str, Case] = {
    "references that double": Case(_extra(*_doubled()), _CHECK, 2, ("config.yaml:", "by its references")),
    "references that double, trained": Case(_extra(*_doubled()), _TRAIN, 2, ("config.yaml:", "by its references")),
    "references to ten lists each": Case(_extra(*_tenfold()), _CHECK, 2, ("config.yaml:", "references make more than")),
    "aliases of ten lists each": Case(_laughs, _CHECK, 2, ("config.yaml:", "values")),
    "60,000 aliases": Case(_many_aliases, _CHECK, 2, ("config.yaml:", "values")),
    "3,000 merges of 300 keys": Case(_merges, _CHECK, 2, ("config.yaml:", "values")),
    "bases that double": Case(_bases, _CHECK, 2, ("bases",)),
    "a chain of 400 bases": Case(_chain, _CHECK, 2, ("bases deep",)),
    "deep brackets": Case(_config(f"a: {DEEP}"), _CHECK, 2, ("config.yaml",)),
    "deep brackets in JSON": Case(_config(f'{{"a": {DEEP}', "c.json"), ("check", "c.json"), 2, ("c.json",)),
    "a device as a base": Case(_config("_base_: /dev/zero\n"), _CHECK, 2, ("config.yaml:1: /dev/zero is no file",)),
    "a pipe as a base": Case(_pipe, _CHECK, 2, ("config.yaml:1: pipe.yaml is no file, but a pipe",)),
    "a pipe as a config": Case(_pipe, ("train", "pipe.yaml"), 2, ("pipe.yaml is no file",)),
    "a device as a config": Case(_config(CONFIG), ("check", "/dev/zero"), 2, ("no file, but a device",)),
    "a config of a terabyte": Case(_large, ("check", "large.yaml"), 2, ("large.yaml has", "MB")),
    "10^18 epochs": Case(_with("epochs: 2", f"epochs: {10**18}"), _PLAN, 0, (f"{3 * 10**18} steps",)),
    "10^18 steps": Case(_with("epochs: 2", f"steps: {10**18}"), _PLAN, 0, (f"{10**18} steps",)),
    "10^18 steps, each of them saved": Case(
        _config(
            CONFIG.replace("epochs: 2", f"steps: {10**18}") + "checkpoint: {every: 1step}\nlog: {every: 1step}\n"
        ),
        _PLAN, 0, (f"({10**18} times)",),
    ),
    "100,000 workers": Case(_with("batch_size: 512}, val", "batch_size: 512, workers: 100000}, val"), _CHECK, 2, ("workers",)),
    "100,000 workers, trained": Case(
        _with("batch_size: 512}, val", "batch_size: 512, workers: 100000}, val"), _TRAIN, 2, ("config.yaml:3", "workers")
    ),
    "a million threads": Case(_with("threads: 1", "threads: 1000000"), _TRAIN, 2, ("config.yaml:6", "threads")),
    "a number of 4,301 digits": Case(_with("epochs: 2", f"epochs: {LONG}"), _CHECK, 2, ("config.yaml:6", "4301 digits")),
    "a number of 4,301 digits in JSON": Case(
        _config(f'{{"train": {{"epochs": {LONG}}}}}', "c.json"), ("check", "c.json"), 2, ("c.json:1", "4301 digits")
    ),
    "a number of 4,301 digits in TOML": Case(
        _config(f"[train]\nepochs = {LONG}\n", "c.toml"), ("check", "c.toml"), 2, ("c.toml:2", "4301 digits")
    ),
    "a number of 4,301 digits as an override": Case(
        _config(CONFIG), ("train", "config.yaml", f"train.epochs={LONG}"), 2, ("digits",)
    ),
    "a number of 4,301 digits in the environment": Case(
        _with("epochs: 2", 'epochs: "${env:ETUDE_N}"'), _CHECK, 2, ("config.yaml:6", "digits"), environment={"ETUDE_N": LONG}
    ),
    "a number that no float holds": Case(_with("lr: 0.1", f"lr: {10**400}"), _CHECK, 2, ("config.yaml:4", "digits")),
    "a base of 300 letters": Case(_config(f"_base_: {'b' * 300}.yaml\n"), _CHECK, 2, ("config.yaml:1", "too long")),
    "a config of 300 letters": Case(_config(CONFIG), ("check", f"{'c' * 300}.yaml"), 2, ("too long",)),
    "a folder of 300 letters": Case(_config(CONFIG), ("train", "config.yaml", "--folder", "f" * 300), 2, ("long",)),
    "a resume of 300 letters": Case(
        _config(CONFIG), ("train", "config.yaml", "--folder", "f", "--resume", "r" * 300), 2, ("rrr",)
    ),
    "weights of 300 letters": Case(_config(f"{CONFIG}init_from: {'w' * 300}.pth\n"), _TRAIN, 2, ("www",)),
    "an import of 300 letters": Case(_config(f"imports: [{'i' * 300}.py]\n{CONFIG}"), _TRAIN, 2, ("config.yaml:1",)),
    "a run of 300 letters": Case(_config(CONFIG), ("show", "r" * 300), 2, ("rrr",)),
    "a null character in a path": Case(_config(f'folder: "a\\0b"\n{CONFIG}'), ("train", "config.yaml", "-q"), 2, ("null",)),
}  # fmt: skip

#: What somebody may put into a file that Étude reads as data.
FILES: dict[str, Case] = {
    "a tensor of 34 GB in 2 KB": Case(_expanded, _READ, 7, ("w.pth: refused: tensors of 34",)),
    "a tensor of 34 GB in 2 KB, as weights": Case(
        lambda folder: (_expanded(folder), _config(f"{CONFIG}init_from: w.pth\n")(folder)), _TRAIN, 7, ("refused: tensors",)
    ),
    "200 tensors of 240 MB in 20 KB": Case(_many_expanded, _READ, 7, ("refused: tensors",)),
    "a pickle of 10^60 lists": Case(_nested_pickle, _READ, 7, ("refused: it holds the same lists",)),
    "a compressed archive": Case(_zip_bomb, _READ, 7, ("refused: a compressed archive",)),
    "a header of a terabyte": Case(_header_bomb, ("ckpt", "convert", "w.safetensors", "out.safetensors"), 7, ("w.safetensors",)),
    **{
        f"a manifest with {name}": Case(change_manifest(**change), _RESUME, 0, _FELL_BACK, trained=True)
        for name, change in {
            "an endless size": {"files": lambda files: files | {"state.json": {"size": INF, "sha256": ""}}},
            "a size that is a list": {"files": lambda files: files | {"state.json": {"size": [], "sha256": ""}}},
            "files as a list": {"files": []},
            "parts as a number": {"parts": 3},
            "a part that is a list": {"parts": lambda parts: parts | {"model": ["model.safetensors"]}},
            "metrics as a list": {"metrics": [1]},
            "an endless epoch": {"epoch": INF},
            "an epoch that is no number": {"epoch": NAN},
            "a world of text": {"world": "two"},
            "a kind that is a list": {"kind": []},
        }.items()
    },
    **{
        f"a state with {name}": Case(change_state(part, value), _RESUME, 0, _FELL_BACK, trained=True)
        for name, part, value in (
            ("endless counters", "counters/step", {"$float": "inf"}),
            ("counters that are text", "counters/epoch", "two"),
            ("counters as a list", "counters", [1, 2]),
            ("counters of nothing", "counters", {}),
            ("a model that is a list", "model", [1]),
            ("weights that are lists", "model/layers.0.weight", [[1.0]]),
            ("an optimizer that is a number", "optimizer", 5),
            ("parameter groups that are text", "optimizer/param_groups", ["a"]),
            ("an optimizer's state that is a list", "optimizer/state", []),
            ("generators as a list", "generators", []),
            ("a generator of text", "generators/torch", "x"),
            ("a position that is a list", "data.train/batch", []),
            ("samples that are a list", "data.train/samples", [1]),
            ("events as a list", "events", [1]),
            ("a plan as a list", "plan", [1]),
            ("a hook's state as text", "hook.Evaluate", "x"),
            ("a deque of text", "hook.Log", {"$deque": "x"}),
            ("a name of no tensor", "model/layers.0.weight", {"$tensor": "nothing"}),
        )
    },
    **{
        f"an odd status, {verb[0]}": Case(change_json("status.json", **_ODD_STATUS), verb, 0, (_answer(verb),), trained=True)
        for verb in (("show", "run"), ("runs", "."), ("report", "run", "-o", "r.html"), ("diff", "run", "run"))
    },
    **{
        f"odd facts, {verb[0]}": Case(
            change_json("facts.json", hooks=[{"points": 3, "steps": "x"}, 4], groups={"a": 1}, places=[1]),
            verb, 0, (_answer(verb),), trained=True,
        )
        for verb in (("show", "run"), ("report", "run", "-o", "r.html"))
    },
    **{
        f"an odd environment, {verb[0]}": Case(
            change_json("env.json", git=[1], data=[2], config=[3], torch={"a": NAN}), verb, code, (), trained=True
        )
        for verb, code in ((("show", "run"), 0), (("report", "run", "-o", "r.html"), 0), (("diff", "run", "run"), 0),
                           (("test", "run", "--split", "val"), 0))
    },
    **{
        f"odd {name}, {verb[0]}": Case(
            append(
                name, '{"step": NaN, "loss": 1.0}', '{"step": Infinity, "loss": 1.0, "time": 1e300}', '{"step": [1]}',
                '{"step": 7, "split": ["a"], "loss": 1}', '{"step": 7, "split": "train", "loss": [1], "time": NaN}',
                '{"step": 7, "split": "train", "loss": {"a": 1}}', f'{{"step": {LONG}, "loss": 1}}', "[1]", "3",
                f'{{"step": {10**300}, "loss": 1, "time": 1e308}}', DEEP,
            ),
            verb, 0, (_answer(verb),), trained=True,
        )
        for name in ("metrics.jsonl", "timing.jsonl")
        for verb in (("show", "run"), ("runs", "."), ("report", "run", "-o", "r.html"))
    },
    "an odd plan, show": Case(lambda folder: (folder / "run/plan.yaml").write_text("- 1\n"), ("show", "run"), 0, trained=True),
    "an odd plan, test": Case(
        lambda folder: (folder / "run/plan.yaml").write_text("- 1\n"), ("test", "run"), 2, ("plan.yaml",), trained=True
    ),
    "odd attempts": Case(
        lambda folder: (folder / "run/attempts.json").write_text('{"lives": 3, "how": [], "done": Infinity}'),
        _RESUME, 0, ("nothing is left",), trained=True,
    ),
}  # fmt: skip


class _Makes:
    """A pickle that makes the folder ``ran`` where it is read."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (RAN,)


def _pickled(folder: Path) -> None:
    (folder / "w.pth").write_bytes(pickle.dumps({"state_dict": _Makes()}))


def _planted(name: str) -> Callable[[Path], object]:
    return lambda folder: (newest(folder) / name).write_bytes(pickle.dumps(_Makes()))


def _way(text: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        for name in ("parts.py", "timm.py"):
            (folder / name).write_text(PARTS)
        (folder / "config.yaml").write_text(text)

    return make


#: What must not run code: each case fails if it has made ``ran``.
CODE: dict[str, Case] = {
    **{
        f"{way}, {verb} --no-python-config": Case(
            _way(text), (verb, "config.yaml", "--no-python-config"), 2, ("runs code, and --no-python-config forbids that",)
        )
        for way, (text, _, _) in WAYS.items()
        for verb in ("train", "plan", "check")
    },
    **{
        f"{way}, check": Case(_way(WAYS[way][0]), ("check", "config.yaml"), 0, ("runs that code",))
        for way in ("a file", "a module", "a model")
    },
    "a function of Python": Case(_with("type: MLP", f"type: os.mkdir, path: {RAN}"), _TRAIN, 2, ("config.yaml:1",)),
    "a tag of YAML": Case(_extra(f"a: !!python/object/apply:os.mkdir [{RAN}]"), _TRAIN, 2, ("config.yaml:",)),
    "a pickle as weights": Case(_pickled, _READ, 7, ("refused",)),
    "a pickle to begin with": Case(
        lambda folder: (_pickled(folder), _config(f"{CONFIG}init_from: w.pth\n")(folder)), _TRAIN, 7, ("refused",)
    ),
    **{
        f"a pickle as {name}": Case(_planted(name), _RESUME, 0, _FELL_BACK, trained=True)
        for name in ("manifest.json", "state.json", "model.safetensors")
    },
}  # fmt: skip
CASES = {**INPUTS, **FILES, **CODE}


def train(folder: Path) -> None:
    """Train the run that the cases with ``trained`` damage."""
    (folder / "config.yaml").write_text(CONFIG)
    words = ["train", "config.yaml", "--folder", "run", "-q"]
    subprocess.run([sys.executable, "-m", "etude", *words], cwd=folder, check=True, capture_output=True)


def prepare(case: Case, folder: Path, trained: Path) -> None:
    """Make a case's files in ``folder``; ``trained`` holds the run that some of them change."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(CONFIG)
    if case.trained:
        shutil.copytree(trained / "run", folder / "run")
    case.make(folder)


def fault(case: Case, folder: Path, code: int, said: str) -> str:
    """Return what was wrong with the answer of a command; empty if nothing was."""
    missing = [word for word in case.words if word not in said]
    if code != case.code:
        return f"exit code {code}, not {case.code}: {said.strip()[-300:]}"
    if missing:
        return f"{missing[0]!r} is not in: {said.strip()[-300:]}"
    if (folder / RAN).exists():
        return "it ran code"
    return "a traceback" if "Traceback" in said or "fault of the engine" in said else ""


def main() -> int:
    """Run every case in a process with little memory; print how many of each kind held."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    wrong = []
    with tempfile.TemporaryDirectory() as made:
        trained = Path(made)
        train(trained)
        for kind, cases in (("hostile inputs", INPUTS), ("hostile files", FILES), ("code behind the switch", CODE)):
            longest, before = 0.0, len(wrong)
            for number, (name, case) in enumerate(cases.items()):
                folder = trained / kind / str(number)
                prepare(case, folder, trained)
                began = time.monotonic()
                problem = fault(case, folder, *_run(case, folder))
                longest = max(longest, time.monotonic() - began)
                wrong += [f"    {name}: {problem}"] if problem else []
                shutil.rmtree(folder)
            row(kind, len(cases) - len(wrong) + before, len(cases), f"   longest {longest:.1f} s")
    print("\n".join(wrong), end="\n" * bool(wrong))
    return int(bool(wrong))


def _run(case: Case, folder: Path) -> tuple[int, str]:
    words = ("-m", "tests.security.limited", str(BYTES), str(SECONDS), *case.command)
    child = zygote.start(*words, cwd=folder, env={**os.environ, **case.environment})
    try:
        said = child.communicate(timeout=2 * SECONDS)
    except TimeoutError:
        child.kill()
        return -1, "no end"
    return child.returncode, "".join(said)


if __name__ == "__main__":
    sys.exit(main())
