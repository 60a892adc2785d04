"""``etude check`` reads a lazy config without importing what it names, and without OmegaConf where it can."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etude.cli import main
from etude_libai.lower import read
from tests.libai.project import CONFIG

#: What a config does with its nodes; each ends the same with OmegaConf.
LINES = (
    "train.evaluation.update(dict(eval_period=3, extra=dict(a=[1, (2, 3)])))",
    "other = train.evaluation\nother.eval_mode = 'min'",
    "model.cfg = dict(a=1)\nkept = model.cfg\nmodel.copied = kept\nkept.a = 2",
    "optim.betas[0] = 0.5\nmodel.sizes = [*optim.betas, *optim.betas[:1]]\nmodel.sizes.append(dict(b=2))",
    "del train.amp\nmodel.there = 'amp' in train\nmodel.got = train.get('amp', 7)",
    "model.popped = train.evaluation.pop('eval_mode')\nmodel.absent = train.pop('nothing', 3)",
    "import copy\nmodel.deep = copy.deepcopy(train.dist)\nmodel.deep.x = 1\nmodel.dist = train.dist.copy()",
    "from omegaconf import DictConfig, OmegaConf\nmodel.a = OmegaConf.create(dict(b=1))\nmodel.c = DictConfig({'d': 2})",
    "train.evaluation.eval_iter = train.evaluation.eval_iter * 2\nmodel.items_of = [str(key) for key in train.dist]",
    "model.same = train.dist == dict(train.dist)\nmodel.list = optim.betas == [0.9, 0.999]",
    "train.topology = '${train.dist}'\nmodel.set_default = train.setdefault('extra', 4)",
    "from omegaconf import OmegaConf\nOmegaConf.update(train, 'dist.data_parallel_size', 4)",
    "train.merge_with(dict(dist=dict(data_parallel_size=2)))",
    "train.seed_of = '${train.seed}'\nmodel.seed = train.seed_of",
)


def _plain(value: Any) -> Any:
    """Return values with targets by name, as a sketch has them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else value


@pytest.mark.parametrize("line", LINES)
def test_a_sketch_holds_what_omegaconf_would(config: Path, line: str) -> None:
    # The targets of a run are objects, some of them where Étude keeps them: compared is all the rest.
    config.write_text(f"{CONFIG}{line}\n")
    sketched, run = (read(str(config), options={"sketch": sketch}).values for sketch in (True, False))
    assert _without_targets(sketched) == _without_targets(_plain(run))


def _without_targets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_targets(item) for key, item in value.items() if key != "_target_"}
    return [_without_targets(item) for item in value] if isinstance(value, list) else value


def test_a_check_imports_neither_torch_nor_omegaconf_nor_the_parts(config: Path) -> None:
    code = (
        "import sys, etude.cli\n"
        f"assert etude.cli.main(['check', {str(config)!r}]) == 0\n"
        "found = {name.partition('.')[0] for name in sys.modules} & {'torch', 'omegaconf', 'yaml', 'line_parts'}\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_config_may_compute_with_its_parts(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG + "train.train_iter = 2 * len(Points(n=8))\nassert train.train_iter == 16\n")
    assert main(["check", "config.py"]) == 0, capsys.readouterr().out


def test_what_is_not_known_is_no_mistake(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "numbers_of.py").write_text("def seed():\n    return 3\n\n\nclass Sizes:\n    batch = 4\n")
    more = "from numbers_of import Sizes, seed\ntrain.seed = seed()\ntrain.train_micro_batch_size = Sizes.batch\n"
    config.write_text(CONFIG + more)
    assert main(["check", "config.py"]) == 0, capsys.readouterr().out


def test_parts_may_stand_in_a_folder_without_init(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "folder" / "inner").mkdir(parents=True)
    (config.parent / "folder" / "inner" / "parts.py").write_text("import nothing_installed\n\n\nclass Line: ...\n")
    config.write_text(CONFIG + "from folder.inner import parts\nmodel = LazyCall(parts.Line)()\n")
    assert main(["check", "config.py"]) == 0
    said = capsys.readouterr().out
    assert "parts.py:1: warning: the package 'nothing_installed' is not installed, and training imports it" in said


def test_what_is_not_known_may_stand_beside_references(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG + "model.shapes = [Points(n=3)]\nmodel.also = '${model.shapes[0]}'\n")
    assert main(["check", "config.py"]) == 2
    printed = capsys.readouterr().out
    assert printed.count("Line takes no argument") == 2
    assert "config.py: 2 mistakes" in printed


def test_names_of_an_original_are_known_beside_those_of_ours(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = config.parent / "detectron2"
    for file, text in {
        "__init__.py": "",
        "modeling/__init__.py": "",
        "modeling/meta_arch/build.py": "",
        "evaluation/__init__.py": "from .coco import COCOEvaluator\n",
        "evaluation/coco.py": "class COCOEvaluator:\n    def __init__(self, dataset_name=None): ...\n",
    }.items():
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(text)
    evaluator = "from detectron2.evaluation import {}\ntrain.evaluation.evaluator = LazyCall({})()\n"
    config.write_text(CONFIG + evaluator.format("COCOEvaluator", "COCOEvaluator"))
    assert main(["check", "config.py"]) == 0, capsys.readouterr().out
    config.write_text(CONFIG + evaluator.format("COCOEvaluatr", "COCOEvaluatr"))
    assert main(["check", "config.py"]) == 2
    assert "did you mean 'COCOEvaluator'?" in capsys.readouterr().out


def test_a_config_of_detectron2s_model_zoo_is_read(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = config.parent / "detectron2"
    for file, text in {
        "__init__.py": "",
        "modeling/meta_arch/build.py": "",
        "model_zoo/__init__.py": "from .model_zoo import get_config\n",
        "model_zoo/model_zoo.py": "import nothing_installed\n\n\ndef get_config(config_path, trained=False): ...\n",
        "model_zoo/configs/common/train.py": "train = dict(max_iter=90, output_dir='./output')\n",
    }.items():
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(text)
    lines = (
        "from detectron2 import model_zoo\nfrom libai.config import LazyCall\n"
        'train = model_zoo.get_config("common/train.py").train\ntrain.max_iter = 7\n'
    )
    config.write_text(lines)
    assert read("config.py", options={"sketch": True}).values == {"train": {"max_iter": 7, "output_dir": "./output"}}


def test_a_section_that_a_function_returns_is_read_with_it(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "sections.py").write_text("def lengths(train):\n    train.train_itr = 5\n    return train\n")
    config.write_text(CONFIG + "from sections import lengths\ntrain = lengths(train)\n")
    assert main(["check", "config.py"]) == 2
    assert "unknown key train.train_itr" in capsys.readouterr().out


def test_a_class_of_the_config_takes_what_its_base_takes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG + "class Mine(Line):\n    pass\n\n\nmodel = LazyCall(Mine)(dropout=0.1)\n")
    assert main(["check", "config.py"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "line, said",
    [
        ("import nothing_installed", "No module named 'nothing_installed'; pip install nothing_installed"),
        ("import os; os.environ['NO_SUCH_FOLDER']", "the environment variable NO_SUCH_FOLDER is not set; set it"),
    ],
)
def test_what_the_machine_lacks_is_reported_with_a_remedy(
    config: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    config.write_text(f"{CONFIG}{line}\n")
    assert main(["check", "config.py"]) == 2
    printed = capsys.readouterr().out
    assert f"config.py:{len(CONFIG.splitlines()) + 1}: " in printed and said in printed
