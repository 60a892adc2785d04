"""Prints what of each project of the family works on Étude, and writes docs/projects/table.md: ``python bench/reach.py``.

For every project, at the releases that ``tests/projects/fetch.py`` pins: modules that import, configs that load, configs that
``etude check`` finds nothing wrong with, and for some narrow configs whether three to six training steps end in the weights of
the original engine, bit by bit, and whether a resumed run does (``etude verify-resume``).

``python bench/reach.py mmseg`` measures one project, ``--column steps`` one column. A cell that has been measured with the same
torch and the same commit is not measured again (``--anew`` does): a run that was stopped goes on. Cells are kept in
``~/.cache/etude/reach.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import projects
import projects_tests

from tests.projects import checkout, mmengine_cases
from tests.projects.fetch import fetch
from tests.projects.tiny import write_scenes

ROOT = Path(__file__).parent.parent
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "etude" / "reach.json"
TABLE = ROOT / "docs/projects/table.md"
PINS = {**projects.PINS, "mmseg": ("mmseg-0.30.0", "mmcv-lite-2.2.0", "opencv")}
OLD = ("mmcv-1.7.2", "mmengine-needs", "mmpretrain-needs", "torchvision-0.15.2")
#: Project → the folders of the original engine, before its own.
CONTROLS = {**projects.CONTROLS, "mmseg": OLD}
#: Project → the configs that train.
CONFIGS = {
    "mmcls": ("resnet.py", "vit.py"),
    "mmseg": ("fcn.py",),
    "mmpretrain": ("configs/pretrain_resnet18_cifar.py", "configs/pretrain_vit.py"),
    "mmselfsup": ("configs/selfsup_simclr.py", "configs/selfsup_mae.py"),
}
#: Project → changes for a resume, which needs a checkpoint in the middle.
SAVING = {"mmseg": ("checkpoint_config.interval=1",)}
COLUMNS = ("modules", "configs", "steps", "resume")
HEADS = {
    "modules": "modules that import (original)",
    "configs": "configs that load · without mistakes",
    "steps": "trained to the original's bits",
    "resume": "resumed to the same bits",
}
#: Runs a project's script on the original engine.
SCRIPT = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
NEW = "import sys, types; sys.modules['mmselfsup.engine.runner'] = types.ModuleType('runner'); "


def is_old(project: str) -> bool:
    """Return whether a project is for mmcv 1.x."""
    return project in ("mmcls", "mmdet", "mmtrack", "mmseg")


def lay_out(project: str, root: Path) -> None:
    """Write data and configs of a project into ``root``."""
    if project == "mmcls":
        checkout.lay_out(root, fetch("mmcls-0.25.0"))
    elif project == "mmseg":
        write_scenes(root / "data")
        text = (ROOT / "tests/projects/mmseg/fcn.py").read_text()
        (root / "fcn.py").write_text(text.replace('"mmseg/.mim', f'"{fetch("mmseg-0.30.0")}/mmseg/.mim'))
    else:
        mmengine_cases.write(root)


def run(project: str, words: list[str], root: Path, *, control: bool = False) -> subprocess.CompletedProcess[str]:
    """Run ``python words…`` in ``root``, on Étude or on the original engine."""
    names = [*(CONTROLS[project] if control else ()), *PINS[project]]
    names = [name for name in names if not (control and is_old(project) and name == "mmcv-lite-2.2.0")]
    paths = os.pathsep.join([str(root), *(str(fetch(name)) for name in dict.fromkeys(names))])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=root, env=env, capture_output=True, text=True, check=False)


def weights(folder: Path) -> dict[str, Any]:
    """Return the weights of the newest checkpoint in a folder."""
    newest = max(folder.glob("*_[0-9]*.pth"), key=lambda path: int(path.stem.rpartition("_")[2]))
    state = torch.load(newest, map_location="cpu", weights_only=False)
    return dict(state["state_dict"])


def steps(project: str) -> str:
    """Return how many configs end in the bits of the original engine, and what the others say."""
    if project not in CONFIGS:
        return "–"
    said, good = [], 0
    package = fetch(PINS[project][0]) / project / ".mim/tools/train.py"
    seed = ["--seed", "1"] if is_old(project) else ["--cfg-options", "randomness.seed=1"]
    for config in CONFIGS[project]:
        with tempfile.TemporaryDirectory() as made:
            root = Path(made)
            lay_out(project, root)
            ours = run(project, ["-m", "etude", "train", config, *seed, "--work-dir", "ours"], root)
            start = (projects_tests.OLD if is_old(project) else NEW) + SCRIPT
            theirs = run(
                project, ["-c", start, str(package), config, *seed, "--work-dir", "theirs"], root, control=True
            )
            failed = next((one for one in (ours, theirs) if one.returncode), None)
            if failed is not None:
                engine = "Étude" if failed is ours else "the original"
                said.append(f"{Path(config).stem}: {engine} ends with {failed.stderr.strip().splitlines()[-1][:80]}")
                continue
            one, other = weights(root / "ours"), weights(root / "theirs")
            same = one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
            good += same
            said += [] if same else [f"{Path(config).stem}: other weights"]
    return "; ".join([f"{good} of {len(CONFIGS[project])}", *said])


def resume(project: str) -> str:
    """Return how many configs a resumed run ends with the same bits for."""
    if project not in CONFIGS:
        return "–"
    said, good = [], 0
    for config in CONFIGS[project]:
        with tempfile.TemporaryDirectory() as made:
            lay_out(project, Path(made))
            done = run(project, ["-m", "etude", "verify-resume", config, *SAVING.get(project, ())], Path(made))
            good += done.returncode == 0
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            said += [] if done.returncode == 0 else [f"{Path(config).stem}: {lines[-1][:80] if lines else '?'}"]
    return "; ".join([f"{good} of {len(CONFIGS[project])}", *said])


def modules(project: str) -> str:
    """Return how many modules of a project import, and how many on the original engine."""
    good, count = projects.measured(project, projects.MODULES)
    known = project in projects.CONTROLS
    theirs = f" ({projects.measured(project, projects.MODULES, control=True)[0]})" if known else ""
    return f"{good} of {count}{theirs}"


def configs(project: str) -> str:
    """Return how many configs of a project load, and in how many `etude check` finds no mistake."""
    loaded, clean, count = projects.measured(project, projects.CONFIGS)
    return f"{loaded} of {count} · {clean}"


MEASURES: dict[str, Callable[[str], str]] = {"modules": modules, "configs": configs, "steps": steps, "resume": resume}


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def table(cells: dict[str, dict[str, Any]]) -> str:
    """Return the table as Markdown, with the releases and what the cells were measured with."""
    lines = [
        "# What works, measured",
        "",
        "`python bench/reach.py` writes this page. A cell says with which torch and which commit it was measured where",
        "these differ from the first; an empty one was not measured yet.",
        "",
        "| project | " + " | ".join(HEADS.values()) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    first = next((one for row in cells.values() for one in row.values()), None)
    for project in PINS:
        row = cells.get(project, {})
        shown = []
        for column in COLUMNS:
            cell = row.get(column)
            other = cell is not None and first is not None and cell["with"] != first["with"]
            shown.append("" if cell is None else cell["text"] + (f" ({cell['with']})" if other else ""))
        lines.append(f"| {PINS[project][0].replace('-', ' ')} | {' | '.join(shown)} |")
    lines += ["", f"Measured with {first['with']}." if first is not None else "", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", default=list(PINS), choices=[*PINS, []], metavar="PROJECT")
    parser.add_argument("--column", action="append", choices=COLUMNS, help="default: all")
    parser.add_argument("--anew", action="store_true", help="measure cells again that have been measured")
    parser.add_argument("--table", type=Path, default=TABLE, metavar="FILE", help="default: docs/projects/table.md")
    args = parser.parse_args()
    projects.PINS.update(PINS)
    cells: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    now = f"torch {torch.__version__}, {commit()}"
    for project in args.projects:
        for column in args.column or COLUMNS:
            row = cells.setdefault(project, {})
            if column in row and row[column]["with"] == now and not args.anew:
                continue
            row[column] = {"text": MEASURES[column](project), "with": now}
            print(f"{project:12}{column:10}{row[column]['text']}", flush=True)
            KEPT.parent.mkdir(parents=True, exist_ok=True)
            KEPT.write_text(json.dumps(cells, indent=1))
            args.table.write_text(table(cells), encoding="utf-8")
    print(table(cells))


if __name__ == "__main__":
    main()
