"""MMSegmentation 0.30, a project that Étude knows nothing about: its own script builds what ``etude train`` trains."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.projects.conftest import Projects
from tests.projects.tiny import write_scenes

PINS = ("mmseg-0.30.0", "mmcv-lite-2.2.0", "opencv")
CHECK = """\
import sys
from etude.cli.configs.check import inspect
for config in sys.argv[1:]:
    wrong = [str(one) for one in inspect(config)[0] if one.severity == "error"]
    print(*wrong, sep="\\n", end="\\n" if wrong else "")
"""


def left(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    saved = torch.load(folder / "iter_3.pth", weights_only=False)["state_dict"]
    (log,) = folder.glob("*.log.json")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return saved, [
        {key: value for key, value in row.items() if "time" not in key and key != "memory"}
        for row in rows
        if "mode" in row
    ]


@pytest.mark.pins(*PINS)
def test_etude_train_ends_in_the_bits_of_the_script_of_mmsegmentation(projects: Projects) -> None:
    package = projects.folders[0] / "mmseg"
    write_scenes(projects.cwd / "data")
    text = (Path(__file__).parent / "mmseg/fcn.py").read_text()
    (projects.cwd / "fcn.py").write_text(text.replace('"mmseg/.mim', f'"{package}/.mim'))

    for command, folder in ((["train"], "ours"), (["exec", str(package / ".mim/tools/train.py")], "theirs")):
        done = projects.etude(*command, "fcn.py", "--seed", "1", "--work-dir", folder)
        assert done.returncode == 0, done.stderr

    (ours, log), (theirs, other) = left(projects.cwd / "ours"), left(projects.cwd / "theirs")
    assert len(log) == 4 and log == other
    assert all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)


@pytest.mark.pins(*PINS)
def test_configs_of_mmsegmentation_have_no_mistakes(projects: Projects) -> None:
    configs = sorted((projects.folders[0] / "mmseg/.mim/configs").glob("[!_]*/*.py"))
    assert len(configs) == 644
    done = projects.run("-c", CHECK, *map(str, configs[::60]))

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.pins(*PINS)
def test_a_run_is_measured_predicts_and_becomes_a_program(projects: Projects) -> None:
    """From the run's folder alone. The tuples of its config, which the YAML of its plan has as lists, are tuples again."""
    package, root = projects.folders[0] / "mmseg", projects.cwd
    write_scenes(root / "data")
    text = (Path(__file__).parent / "mmseg/fcn.py").read_text()
    (root / "fcn.py").write_text(text.replace('"mmseg/.mim', f'"{package}/.mim'))

    for words in (
        ("train", "fcn.py", "--seed", "1", "--work-dir", "run"),
        ("test", "run", "--split", "val", "--out", "measured.json"),
        ("predict", "run", "val", "-o", "split.pkl"),
        ("predict", "run", "data/img", "-o", "pictures.jsonl"),
        ("export", "run", "-o", "model.pt2"),
    ):
        done = projects.etude(*words)
        assert done.returncode == 0, done.stderr

    split = pickle.loads((root / "split.pkl").read_bytes())
    rows = [json.loads(line) for line in (root / "pictures.jsonl").read_text().splitlines()]
    assert [Path(row["sample"]).name for row in rows] == [f"{index}.png" for index in range(4)]
    assert all((one == np.array(row["result"])).all() for one, row in zip(split, rows, strict=True))
    truth = [np.array(Image.open(root / f"data/ann/{index}.png")) for index in range(4)]
    right = np.mean([(one == other).mean() for one, other in zip(split, truth, strict=True)])
    assert json.loads((root / "measured.json").read_text())["aAcc"] == pytest.approx(right, abs=1e-4)
    program = torch.export.load(str(root / "model.pt2")).module()
    assert program(torch.rand(2, 3, 48, 64) * 255)[0].shape == (2, 4, 48, 64)
