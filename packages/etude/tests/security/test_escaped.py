"""What lies in a run's folder came from somebody: it cannot draw on the terminal, lead elsewhere, or hold up the board."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest

from etude.board.index import Index
from etude.cli.escaped import Escaped
from tests.board.conftest import make_run, serving
from tests.zygote import etude

#: A title, a link, the clipboard, a colour, a cleared screen, a forged line, text that runs backwards.
ESCAPES = {
    "OSC": "\x1b]0;owned\x07", "link": "\x1b]8;;http://evil.example\x1b\\x\x1b]8;;\x1b\\", "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "CSI": "\x1b[31mred", "C1": "\x9b2J", "return": "x\rforged", "bidi": "\u202egnp.exe", "isolate": "\u2066x\u2069",
    "backspace": "x\x08y", "line separator": "\u2028x", "delete": "\x7f",
}  # fmt: skip
FORBIDDEN = set("\x1b\x9b\x07\x08\r\x7f\u202e\u2066\u2069\u2028")


def hostile_run(root: Path, name: str, text: str) -> Path:
    folder = make_run(root, name, plan={f"optim.{text}": text})
    status = json.loads((folder / "status.json").read_text())
    status |= {
        "dialect": text, "error": text, "warnings": [text], "time": {text: 3.0}, "reason": text,
        "last": {f"val/{text}": 1.0}, "best": {f"val/{text}": [1.0, 3]},
    }  # fmt: skip
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "env.json").write_text(
        json.dumps({"torch": text, text: text, "git": {"commit": text}, "data": {"a": text}})
    )
    (folder / "code.json").write_text(json.dumps({f"{name}{text}.py": text, "a.py": f"{name} {text}\n"}))
    (folder / "facts.json").write_text(
        json.dumps({"hooks": [{"name": text, "points": [text]}], "groups": [{"name": text}]})
    )
    (folder / "log.txt").write_text(f"{text}\n")
    (folder / "plan.yaml").write_text("{}\n")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 30, "split": text, text: 2.0, "loss": 1.0}) + "\n")
    step = folder / "checkpoints" / f"step-000000020{text.replace('/', '')}"
    step.mkdir(parents=True)
    (step / "manifest.json").write_text(json.dumps({"format": 99, "kind": text}))
    (folder / "checkpoints" / "best").write_text(text)
    return folder


@pytest.mark.parametrize("kind", ESCAPES)
def test_nothing_in_the_folder_of_a_run_reaches_the_terminal_raw(workdir: Path, kind: str) -> None:
    text = ESCAPES[kind]
    hostile_run(Path("runs"), "a", text)
    hostile_run(Path("runs"), "b", f"{text}2")
    for words in (
        ["show", "runs/a"], ["show", "runs/a", "--list"], ["runs", "runs"], ["runs", "runs", "--csv"],
        ["runs", "runs", "--json"], ["diff", "runs/a", "runs/b"], ["diff", "runs/a", "runs/b", "--json"],
        ["ckpt", "ls", "runs/a"], ["ckpt", "verify", "runs/a"], ["report", "runs/a", "-o", "r.html"],
    ):  # fmt: skip
        done = etude(*words)
        assert not FORBIDDEN & set(done.stdout + done.stderr), (words, done.stdout)
        assert done.returncode in (0, 7), done.stderr


def test_lines_and_tabs_stay_and_a_page_may_be_drawn_anew(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as file:
        out = Escaped(file)
        out.write("a\tb\n\x1b[31mc\n")
        out.write("\x1b[2J\x1b[H")
        file.seek(0)
        assert file.read() == "a\tb\n\\x1b[31mc\n\x1b[2J\x1b[H"


SECRET = "the diary of the reader"


@pytest.mark.parametrize(
    "name",
    ["log.txt", "metrics.jsonl", "timing.jsonl", "status.json", "env.json", "facts.json", "plan.yaml", "code.json"],
)
def test_the_board_follows_no_link_out_of_the_folder_of_a_run(workdir: Path, name: str) -> None:
    Path("secret").write_text(json.dumps({"step": 1, "loss": 3.0, "state": SECRET, "dialect": SECRET, "torch": SECRET}))
    if name == "log.txt":
        Path("secret").write_text(f"{SECRET}\n")
    for folder in (make_run(Path("runs"), "a"), make_run(Path("runs"), "b")):
        (folder / "plan.yaml").write_text("name: x\n")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(Path("secret").absolute())
    shown = etude("show", "runs/a", "--tail", "50")
    assert SECRET not in shown.stdout
    with serving(Path("runs")) as address, httpx.Client(base_url=address, timeout=60) as board:
        answers = [board.get("/api/runs"), board.get("/api/run?run=a"), board.get("/api/curves?run=a"),
                   board.get("/api/diff?run=a&run=b")]  # fmt: skip
        assert all(answer.status_code == 200 and SECRET not in answer.text for answer in answers)


def test_a_link_inside_of_the_folder_is_followed(workdir: Path) -> None:
    folder = make_run(Path("runs"), "a")
    (folder / "log.txt").rename(folder / "real.txt")
    (folder / "log.txt").symlink_to("real.txt")
    assert "last line" in etude("show", "runs/a", "--tail", "5", check=True).stdout


@pytest.mark.parametrize("name", ["log.txt", "metrics.jsonl", "status.json", "env.json", "facts.json", "plan.yaml"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_no_pipe_and_no_device_holds_up_a_reader(workdir: Path, name: str, kind: str) -> None:
    folder = make_run(Path("runs"), "a")
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    for words in (["show", "runs/a"], ["runs", "runs"], ["diff", "runs/a", "runs/a"]):
        assert etude(*words).returncode == 0
    index = Index(Path("runs"))
    index.refresh()
    assert index.details("a") is not None


@pytest.mark.parametrize("since", ["nan", "inf", "-inf", "x", "1e400", "[]"])
def test_an_odd_version_is_refused(workdir: Path, since: str) -> None:
    make_run(Path("runs"), "a")
    with serving(Path("runs")) as address, httpx.Client(base_url=address, timeout=60) as board:
        known = board.get("/api/runs").json()["board"]
        assert board.get("/api/runs", params={"since": since, "board": known}).status_code == 400
        assert board.get("/api/curves", params={"run": "a", "low": since, "high": since}).status_code == 200


def test_a_long_list_has_every_name_at_once_and_fills_in(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        make_run(Path("runs"), f"{number:02}", steps=number + 1)
    monkeypatch.setattr("etude.board.index._BUDGET", -1.0)
    index = Index(Path("runs"))
    index.refresh()
    lines = index.runs()["runs"]
    assert len(lines) == 30 and index.is_stale and {line["state"] for line in lines} == {"unknown"}
    details = index.details("07")
    assert details is not None and details["best_steps"] == {"val/accuracy": 8}
    before = index.version
    monkeypatch.setattr("etude.board.index._BUDGET", 60.0)
    index.refresh()
    lines = index.runs(before)["runs"]
    assert not index.is_stale and [line["step"] for line in lines] == list(range(1, 31))
    assert {line["state"] for line in lines} == {"finished"} and index.refresh() == index.version
