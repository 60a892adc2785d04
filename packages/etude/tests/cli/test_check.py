"""``etude check``: every mistake at once, on lines of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from etude.cli import main

GOOD = """
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 64}
optim: {type: SGD, lr: 0.1}
train: {epochs: 2}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.yaml"
    path.write_text(GOOD)
    return path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    code = main(["check", *words])
    return code, capsys.readouterr().out.splitlines()


def test_a_sound_config_raises_no_alarm(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "a.yaml") == (0, ["a.yaml: no mistakes found"])


def test_mistakes_of_keys_names_parameters_and_types_come_together_in_order(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(
        textwrap.dedent("""\
        model: {type: MLP, sises: [64, 10]}
        loss: CrossEntropyLos
        data:
          train: {dataset: {type: Digits, splt: train}, batchsize: 64}
        optim: {type: SGD, lr: "0.1", momentum: yes}
        train: {epochs: 2, sede: 1}
        hoks: []
        """)
    )
    assert told(capsys, "a.yaml") == (
        2,
        [
            "a.yaml:1: MLP has no parameter 'sises'; did you mean 'sizes'?",
            "a.yaml:2: no loss is called 'CrossEntropyLos'; did you mean 'CrossEntropyLoss'?",
            "a.yaml:4: unknown key data.train.batchsize; did you mean 'batch_size'?",
            "a.yaml:4: Digits has no parameter 'splt'; did you mean 'split'?",
            "a.yaml:5: SGD: lr must be a number, not the string '0.1'; write 0.1 without quotes",
            "a.yaml:5: SGD: momentum must be a number, not the string 'yes'",
            "a.yaml:6: unknown key train.sede; did you mean 'seed'?",
            "a.yaml:7: unknown key hoks; did you mean 'hooks'?",
            "a.yaml: 8 mistakes",
        ],
    )


def test_overrides_are_checked_where_they_stand(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = told(capsys, "a.yaml", "optim.lr=fast", "+optim.momentm=1")
    assert code == 2
    assert sorted(lines[:2], reverse=True) == [
        "override 'optim.lr=fast': SGD: lr must be a number, not the string 'fast'",
        "override '+optim.momentm=1': SGD has no parameter 'momentm'; did you mean 'momentum'?",
    ]


def test_warnings_do_not_fail_a_check(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = told(capsys, "a.yaml", "+schedule.lr={type: Cosine, until: 5ep}")
    assert code == 0
    assert lines[0].endswith(
        "warning: the schedule of lr continues until 5ep, but the run ends at 2ep; `until: end` follows the run"
    )
    assert lines[-1] == "a.yaml: 1 warning"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n\ttype: MLP\n", "a.yaml:2: a tab in the indentation"),
        ("_base_: b.yaml\n", "a.yaml:1: there is no file b.yaml"),
        ("_base_: a.yaml\n", "a.yaml:1: the bases go in a circle: a.yaml → a.yaml"),
        ("model: 1\nmodel: 2\n", "a.yaml:2: the key model is written twice"),
    ],
)
def test_a_config_that_cannot_be_read_is_a_finding_too(
    config: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    config.write_text(text)
    code, lines = told(capsys, "a.yaml")
    assert code == 2
    assert lines[0].startswith(message)
    assert lines[-1] == "a.yaml: 1 mistake"


def test_a_comment_that_names_another_system_does_not_mislead(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("# converted from an mmengine config, samples_per_gpu=2\n" + GOOD)
    assert told(capsys, "a.yaml") == (0, ["a.yaml: no mistakes found"])


def test_a_misspelt_file_is_answered_with_the_near_one(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = told(capsys, "aa.yaml")
    assert (code, lines[0]) == (2, "there is no file aa.yaml; did you mean 'a.yaml'?")


def test_several_configs_are_checked_one_after_another(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.yaml").write_text(GOOD.replace("epochs", "epoch"))
    code, lines = told(capsys, "a.yaml", "b.yaml")
    assert code == 2
    assert "a.yaml: no mistakes found" in lines
    assert "b.yaml:7: unknown key train.epoch; did you mean 'epochs'?" in lines


def test_a_python_config_is_said_to_have_been_run_and_can_be_forbidden(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.py").write_text("_base_ = 'a.yaml'\ntrain = dict(epochs=3)\n")
    code, lines = told(capsys, "c.py")
    assert (code, lines) == (
        0,
        ["c.py: Étude runs this Python file to read it (--no-python-config forbids that)", "c.py: no mistakes found"],
    )
    code, lines = told(capsys, "c.py", "--no-python-config")
    assert (code, lines[0]) == (2, "c.py: a Python config runs code, and --no-python-config forbids that")


def test_no_torch_is_imported_and_no_code_of_the_user_is_run(config: Path) -> None:
    Path("own.py").write_text(
        "from etude import MODELS\nimport torch\nraise SystemExit('run!')\n"
        "@MODELS.register\nclass Own(torch.nn.Module):\n    def __init__(self, width: int): ...\n"
    )
    config.write_text(GOOD.replace("type: MLP, sizes: [64, 10]", "type: Own, width: 3") + "imports: [own.py]\n")
    code = (
        "import sys; from etude.cli import main; code = main(['check', 'a.yaml']); "
        "heavy = {'torch', 'numpy', 'rich'} & set(sys.modules); assert not heavy, heavy; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    names = "a.yaml:8: imports: own.py: a run of this config runs that code\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{names}a.yaml: no mistakes found\n", "")


def test_control_characters_of_a_config_cannot_forge_lines(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GOOD + '"x\\na.yaml: no mistakes found\\u001b[2J": 1\n')
    code, lines = told(capsys, "a.yaml")
    assert code == 2
    assert len(lines) == 2
    assert "\x1b" not in lines[0]
