from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import etude
from etude.api import train_config
from etude.cli import main

CONFIG = """\
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 512}}
optim: {type: SGD, lr: 0.1}
train: {epochs: 1, threads: 1}
"""


def test_a_secret_on_the_command_line_is_not_printed_back(workdir: Path, capfd):
    Path("c.yaml").write_text(CONFIG)
    secrets = ["+extra.api_token=SESAME42", "+extra.more={url: a.b, api_key: SESAME42, names: [x]}"]
    assert main(["train", "c.yaml", *secrets]) == 0
    assert main(["train", "c.yaml", "+optim={type: SDG, api_key: SESAME42}"]) == 2
    said = "".join(capfd.readouterr())
    written = "".join(path.read_text(errors="replace") for path in Path("runs").rglob("*") if path.is_file())
    assert "SESAME42" not in said and "SESAME42" not in written


PARTS = """\
import etude, torch

class Bad(torch.nn.Linear):
    def forward(self, x):
        if self.training:
            raise RuntimeError("no such thing")
        return super().forward(x)

class Worse(torch.nn.Linear):
    def __init__(self, *args):
        raise RuntimeError("no such thing")

class Late(etude.Hook):
    def before_run(self, run):
        raise RuntimeError("no such thing")

class Later(etude.Hook):
    def after_step(self, run):
        raise RuntimeError("no such thing")
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["model={type: parts.Bad, in_features: 64, out_features: 10}"], 3),
        (["model={type: parts.Worse}"], 3),
        (["+hooks=[parts.Late]"], 3),
        (["optim.type=SDG"], 2),
        (["--chaos", "kil@step=3"], 2),
        (["--resume", "nowhere"], 2),
    ],
)
@pytest.mark.parametrize("folder", [[], ["--folder", "a/b"]])
def test_a_start_that_fails_leaves_no_folder_behind(workdir: Path, words: list[str], code: int, folder: list[str]):
    Path("c.yaml").write_text(CONFIG + "imports: [parts.py]\n")
    Path("parts.py").write_text(PARTS)
    assert main(["train", "c.yaml", *words, *folder]) == code
    assert not Path("runs").exists() and not Path("a").exists()


def test_what_was_there_before_a_failed_start_stays(workdir: Path):
    Path("c.yaml").write_text(CONFIG + "imports: [parts.py]\n")
    Path("parts.py").write_text(PARTS)
    for path in ("runs/other/now/metrics.jsonl", "own/notes.txt"):
        Path(path).parent.mkdir(parents=True)
        Path(path).write_text("mine")
    assert main(["train", "c.yaml", "+hooks=[parts.Late]"]) == 3
    assert main(["train", "c.yaml", "+hooks=[parts.Late]", "--folder", "own"]) == 3
    assert sorted(map(str, Path("runs").iterdir())) == ["runs/other"] and Path("own/notes.txt").read_text() == "mine"
    assert main(["train", "c.yaml", "+hooks=[parts.Later]", "--folder", "a"]) == 3  # a step was done
    assert Path("a/log.txt").exists()


def test_nothing_is_fetched_or_sent(workdir: Path, monkeypatch: pytest.MonkeyPatch):
    """No version check, no telemetry, no hub: a run needs no network, and does not try."""
    import socket

    tried: list[object] = []

    def refuse(*args: object, **kwargs: object) -> None:
        tried.append(args)
        raise OSError("no network")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    Path("c.yaml").write_text(CONFIG)
    for words in (["train", "c.yaml", "--folder", "a"], ["check", "c.yaml"], ["plan", "c.yaml"], ["ckpt", "ls", "a"]):
        assert main(words) == 0
    assert tried == []


def test_a_state_that_could_not_be_loaded_again_is_the_users_mistake(workdir: Path, capfd):
    """Told after the first step, not when it is to be saved for the first time."""
    Path("c.yaml").write_text(CONFIG + "imports: [odd.py]\nhooks: [odd.Odd]\ncheckpoint: {every: 100step}\n")
    Path("odd.py").write_text(
        "import etude\nclass Odd(etude.Hook):\n"
        "    def state_dict(self):\n        return {'thing': object()}\n"
        "    def load_state_dict(self, state):\n        pass\n"
    )
    assert main(["train", "c.yaml"]) == 3
    said = capfd.readouterr()
    assert "cannot save hook.Odd.thing: it is object" in said.err and "after 1 step" in said.out + said.err


@pytest.mark.parametrize(
    ("typed", "options", "told"),
    [
        ("train c.yaml --resume runs/x/step-7 lr=1", {"resume": "runs/x/step-7"}, "etude train c.yaml lr=1 --resume"),
        ("train c.yaml --chaos kill@step=3", {"chaos": "kill@step=3"}, "etude train c.yaml --resume"),
        ("train c.yaml --resume --restart", {"resume": ""}, "etude train c.yaml --resume"),
    ],
)
def test_the_command_to_go_on_asks_for_the_newest_state_and_no_fault(typed, options, told):
    from etude.building.options import Options
    from etude.session.last_words import resume_command

    assert resume_command(None, Options(extras={"typed": typed.split()}, **options)) == told


@pytest.mark.parametrize(("config", "shown"), [("c.yaml", '"c.yaml"'), (None, "plan")])
@pytest.mark.parametrize("overrides", [(), ("train.epochs=3", "log.every=1step")])
def test_a_script_is_told_the_whole_call_that_continues_its_run(workdir, config, shown, overrides):
    Path("c.yaml").write_text(CONFIG)
    plan = etude.load_plan("c.yaml", list(overrides))[0] if config is None else config
    given = () if config is None else overrides
    stopped = train_config(plan, given, options=etude.Options(quiet=True, chaos="sigterm@step=2"))
    assert stopped.exit_code == 143 and stopped.folder is not None
    changed = f", {json.dumps(given)}" if given else ""
    call = f'etude.train({shown}{changed}, options=etude.Options(folder="{stopped.folder}", resume=""))'
    assert f"  resume  {call}\n" in (stopped.folder / "log.txt").read_text()
    assert eval(call, {"etude": etude, "plan": plan}).step > 2


def test_a_fault_that_never_comes_is_refused():
    from etude.checkpoint.storage import chaos
    from etude.errors import ConfigError

    with pytest.raises(ConfigError, match="never comes"):
        chaos.parse("kill@save=0")


def test_what_packages_draw_while_they_are_imported_does_not_change_a_run(workdir: Path, monkeypatch):
    """As rich does, which is imported at a terminal alone."""
    Path("drawing.py").write_text("import random\nrandom.random()\n")
    Path("parts.py").write_text(
        "import etude, random\n"
        "drawn = []\n"
        "class Drawing(etude.Hook):\n"
        "    def after_step(self, run): drawn.append(random.random())\n"
        "@etude.WRITERS.register\n"
        "class Lazy:\n"
        "    def __init__(self, folder): import drawing\n"
        "    def write(self, record): ...\n"
        "    def close(self): ...\n"
    )
    monkeypatch.syspath_prepend(str(workdir))
    text = f"{CONFIG}imports: [parts.py]\nhooks: [parts.Drawing]\n"
    for name, more in (("a", ""), ("b", "log: {to: [Lazy]}\n")):
        Path(f"{name}.yaml").write_text(text + more)
        train_config(f"{name}.yaml", options=etude.Options(folder=Path(name), quiet=True))
    import parts

    steps = len(parts.drawn) // 2
    assert "drawing" in sys.modules and parts.drawn[:steps] == parts.drawn[steps:]
