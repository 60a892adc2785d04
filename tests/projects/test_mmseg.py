"""MMSegmentation 0.30, a project that Étude knows nothing about: its own script builds what ``etude train`` trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.projects.conftest import Projects

PINS = ("mmseg-0.30.0", "mmcv-lite-2.2.0", "opencv")
CHECK = """\
import sys
from etude.cli.configs.check import inspect
for config in sys.argv[1:]:
    wrong = [str(one) for one in inspect(config)[0] if one.severity == "error"]
    print(*wrong, sep="\\n", end="\\n" if wrong else "")
"""


def write_scenes(root: Path) -> None:
    """Write ``root/img`` and ``root/ann``: four pictures of noise, each with a class for every pixel."""
    rng = np.random.default_rng(0)
    for folder, shape, most in (("img", (48, 64, 3), 255), ("ann", (48, 64), 4)):
        (root / folder).mkdir(parents=True)
        for index in range(4):
            Image.fromarray(rng.integers(0, most, shape, dtype=np.uint8)).save(root / folder / f"{index}.png")


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
