"""Mistakes of a user's model, metric or hook: where they are and what would be right, with exit code 3."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from etude.cli import main
from tests.mmengine import mistaken, toy
from tests.mmengine.test_build import CONFIG

from mmengine.dataset import BaseDataset  # isort: skip

PROJECT = CONFIG.replace("mmengine.registered", "mmengine.mistaken").replace(
    'custom_imports = dict(imports=["', 'custom_imports = dict(imports=["tests.mmengine.registered", "'
)
VALIDATION = """
val_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler", shuffle=False), dataset=dict(type="RegisteredNumbers"))
val_cfg = dict()
val_evaluator = dict(type="NoDict")
"""


def place(method: Any) -> str:
    return re.escape(f"mistaken.py:{inspect.getsourcelines(method)[1]}")


def trained(tmp_path: Path, text: str, *more: str) -> int:
    config = tmp_path / "net.py"
    config.write_text(text)
    return main(["train", str(config), "--work-dir", str(tmp_path / "work"), "-q", *more])


LOSSES = [
    ("another name", "gave the keys ce; none contains 'loss'"),
    ("a tensor", "must return a dict of losses by name, it gave a Tensor"),
    ("a float", "gave a float as 'loss'"),
    ("no gradient", "gave a loss that no parameter leads to"),
]


@pytest.mark.parametrize(("gives", "said"), LOSSES, ids=[gives for gives, _ in LOSSES])
@pytest.mark.parametrize("since", [0, 2])
def test_losses_of_a_wrong_form_are_told_with_the_model_that_gave_them(
    gives: str, said: str, since: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = f'model = dict(type="WrongNet", gives="{gives}", since={since})'
    assert trained(tmp_path, PROJECT.replace('model = dict(type="RegisteredNet")', model)) == 3
    told = capsys.readouterr().err
    assert re.search(rf"WrongNet\.forward \(.*{place(mistaken.WrongNet.forward)}\) with mode='loss' {said}", told)


def test_a_metric_that_gives_no_dict_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained(tmp_path, PROJECT + VALIDATION) == 3
    where = place(mistaken.NoDict.compute_metrics)
    assert re.search(
        rf"NoDict\.compute_metrics \(.*{where}\) must return a dict .* gave an int", capsys.readouterr().err
    )


def test_without_validation_what_only_it_would_use_is_not_made(tmp_path: Path) -> None:
    assert trained(tmp_path, PROJECT + VALIDATION, "--no-validate") == 0


def test_a_hook_that_takes_less_than_it_is_given_is_told_the_right_signature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(tmp_path, PROJECT + 'custom_hooks = [dict(type="Short")]\n') == 3
    told = capsys.readouterr().err
    assert re.search(rf"Short\.after_train_iter \(.*{place(mistaken.Short.after_train_iter)}\)", told)
    assert "write `def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None)`" in told


def test_a_model_that_takes_other_words_than_its_batches_hold_is_told_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(tmp_path, PROJECT.replace('type="RegisteredNet"', 'type="OtherWords"')) == 3
    where = place(mistaken.OtherWords.forward)
    said = rf"OtherWords\.forward \(.*{where}\) is called with what a batch holds \(inputs, data_samples\)"
    assert re.search(said, capsys.readouterr().err)


def test_a_transform_that_gives_nothing_is_told_with_its_place() -> None:
    data = BaseDataset(pipeline=[mistaken.nothing], lazy_init=True, serialize_data=False)
    data.data_list, data._fully_initialized = [{"x": 1}], True
    with pytest.raises(Exception, match="Cannot find valid image") as caught:
        data[0]
    assert re.search(rf"its transform nothing \(.*{place(mistaken.nothing)}\)", str(caught.value.etude_reported))


def test_data_that_are_not_there_are_no_fault_of_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = 'type="mmengine.dataset.BaseDataset", ann_file="nowhere/train.json"'
    assert trained(tmp_path, PROJECT.replace('type="RegisteredNumbers"', nowhere)) == 5
    told = capsys.readouterr().err
    assert "etude: error: dataset mmengine.dataset.BaseDataset: " in told and "nowhere/train.json" in told
    assert f"relative paths start at {Path.cwd()}" in told


def test_a_module_that_is_no_python_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken_parts_of_told.py").write_text("import os\nimport json os\n")
    text = PROJECT.replace(
        'custom_imports = dict(imports=["', 'custom_imports = dict(imports=["broken_parts_of_told", "'
    )
    assert trained(tmp_path, text) == 3
    assert "broken_parts_of_told.py:2: SyntaxError: invalid syntax: import json os" in capsys.readouterr().err


def test_a_script_meets_the_exceptions_that_it_knows(tmp_path: Path) -> None:
    for gives, kind in (("another name", AttributeError), ("a tensor", AttributeError), ("a float", TypeError)):
        with pytest.raises(kind):
            toy.make(tmp_path, model=mistaken.WrongNet(gives)).train()
    with pytest.raises(RuntimeError, match="does not require grad"):
        toy.make(tmp_path, model=mistaken.WrongNet("no gradient")).train()
    with pytest.raises(AttributeError):
        toy.make(tmp_path, val=True, val_evaluator=[mistaken.NoDict()]).train()
    with pytest.raises(TypeError, match="unexpected keyword"):
        toy.make(tmp_path, custom_hooks=[mistaken.Short()]).train()
