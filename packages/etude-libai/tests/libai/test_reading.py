"""A config that cannot be read is told with the line to look at, also in the files that it imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli import main
from tests.libai.project import CONFIG, PARTS

#: What is wrong → (files, the config that is checked, what is said).
WRONG: dict[str, tuple[dict[str, str], str]] = {
    "bracket": ({"config.py": f"{CONFIG}\nfoo = (1,\n"}, "config.py:38: SyntaxError: '(' was never closed (foo = (1,)"),
    "imported syntax": (
        {"config.py": f"{CONFIG}\nfrom .other import x\n", "other.py": "x = dict(\na=1\nb=2)\n"},
        "other.py:2: SyntaxError: invalid syntax. Perhaps you forgot a comma? (a=1); read for config.py:38",
    ),
    "imported error": (
        {"config.py": f"{CONFIG}\nfrom .sub.other import x\n", "sub/other.py": "from ..third import y\nx = y\n",
         "third.py": "y = dict(a=1)\ny.update(b=undefined)\n"},
        "third.py:2: NameError: name 'undefined' is not defined; read for config.py:38",
    ),
    "a relative import alone": (
        {"mine.py": "from .confg import train\n\ntrain.seed = 2\n"},
        "mine.py:1: ImportError: Cannot import name confg from mine.py: confg.py has to exist; did you mean 'config.py'?",
    ),
    "name of another config": (
        {"mine.py": "from .config import trian\n"}, "from config file config.py; did you mean 'train'?"
    ),
    "served name": ({"config.py": CONFIG.replace("import LazyCall", "import LazyCal")}, "did you mean 'LazyCall'?"),
    "served module": ({"config.py": CONFIG.replace("libai.config", "libai.confg")}, "config.py:2: module 'libai' (served by Étude) has no 'confg'; did you mean 'config'?"),
    "own name": ({"config.py": CONFIG.replace("import Error", "import Eror")}, "did you mean 'Error'?"),
    "own module": ({"config.py": CONFIG.replace("line_parts", "line_prts")}, "did you mean 'line_parts'?"),
    "module behind": (
        {"line_parts.py": PARTS.replace("from torch import nn", "import nothing_there")},
        "line_parts.py:3: ModuleNotFoundError: No module named 'nothing_there'; pip install nothing_there; read for config.py:5",
    ),
    "out of scope": (
        {"config.py": f"from libai.models import BertModel\n{CONFIG}"}, "config.py:1: libai.models.BertModel is out of"
    ),
    "common config": ({"config.py": CONFIG.replace("common/train", "common/trian")}, "did you mean 'common/train.py'?"),
    "section": (
        {"config.py": CONFIG.replace("train.log_period", "train.evaluatoin.eval_period")},
        "config.py:30: ConfigAttributeError: Missing key evaluatoin. Did you mean: 'evaluation'?",
    ),
    "variable": ({"config.py": CONFIG.replace("LazyCall(Line)", "LazyCal(Line)")}, "config.py:11: NameError"),
    "argument by position": (
        {"config.py": CONFIG.replace("(Line)(dropout=0.0)", "(Line)(0.0)")}, "a lazy call takes its arguments by name"
    ),
    "an object": (
        {"config.py": CONFIG.replace("LazyCall(Line)(", "Line(")},
        "config.py:11: `model` is neither a lazy call nor a mapping",
    ),
    "yaml": (
        {"mine.yaml": "dataloader:\n  train: {_target_: x\n  test: [\n"},
        "mine.yaml:3: while parsing a flow mapping: expected ',' or '}', but got ':'",
    ),
}  # fmt: skip

#: What a config ends with → what is said; the line is its last one.
SHAPES = {
    "optim.params = dict(weight_decay_norm=0.0)": "optim.params is a mapping without a target, not a lazy call",
    "dataloader['test'] = dataloader['test'][0]": "dataloader.test is one loader; write a list: [LazyCall(…)(…)]",
    "train.evaluation.evaluator = Error": "train.evaluation.evaluator is the class Error, not a lazy call",
    "train = dict(train_iter=3, output_dir='out')": 'begin with train = get_config("common/train.py").train',
    "dataloader['train'] = dict(num_workers=0)": "dataloader.train is a mapping without a target, not a lazy call",
}


@pytest.mark.parametrize("line", SHAPES)
def test_what_is_not_of_the_shape_that_its_place_asks_for_is_told(
    config: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(f"{CONFIG}{line}\n")
    assert main(["check", "config.py"]) == 2
    told = capsys.readouterr().out
    assert "config.py:37: " in told
    assert SHAPES[line] in told


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_read_is_told_with_its_line(
    config: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files, said = WRONG[wrong]
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    asked = next((name for name in files if name.startswith("mine.")), "config.py")
    assert main(["check", asked]) == 2
    told = capsys.readouterr().out
    assert said in told
    assert f"{asked}: 1 mistake" in told
