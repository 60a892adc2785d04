"""`etude runs`, `show` and `diff` as a person uses them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import zygote

ROW = {"step": 4, "epoch": 0, "split": "train", "loss": 0.5}


def trained(command, *words):
    said = command("train", "c.yaml", *words)
    assert said.code == 0, said.err
    return said


def test_training_ends_with_curves_and_where_the_time_went(command, monkeypatch):
    monkeypatch.setattr("etude.session.watch.wall_time._LEAST", 0.0)
    said = trained(command, "train.epochs=4")
    assert "train/loss" in said.err and "val/accuracy" in said.err and re.search("[⠁-⣿]", said.err)
    assert re.search(r"time +\S.* s +\d+%", said.err)
    assert not re.search("[⠁-⣿]", trained(command, "-q").err)


def test_two_records_make_a_curve_at_the_end(command):
    said = trained(command, "train.steps=4", "train.epochs=null", "log.every=2step", "train.validate=2step")
    assert "train/loss" in said.err and "val/accuracy" in said.err and re.search("[⠁-⣿]", said.err)


def test_runs_lists_state_best_and_what_was_changed(command):
    trained(command, "-q")
    trained(command, "-q", "optim.lr=0.02")
    os.rename("runs/c", "runs/config")  # as a config that is called config.yaml names them
    said = command("runs")
    assert said.code == 0 and said.out.count("finished") == 2
    assert said.out.splitlines()[0].split()[-1] == "differs"
    assert "val/accuracy" in said.out and "optim.lr=0.02" in said.out and "train.epochs" not in said.out
    rows = json.loads(command("runs", "--json", "--sort", "accuracy").out)
    assert (
        rows[0]["differs"] == {"optim.lr": 0.02}
        and rows[0]["best"]["val/accuracy"]["value"] >= rows[1]["best"]["val/accuracy"]["value"]
    )
    table = list(csv.DictReader(io.StringIO(command("runs", "--csv").out)))
    assert {row["optim.lr"] for row in table} == {"0.001", "0.02"}
    assert command("runs", "--filter", "lr=0.02").out.count("finished") == 1
    assert command("runs", "--state", "failed").out.count("finished") == 0


def test_a_folder_without_runs_and_one_that_is_not_there(command, workdir, monkeypatch):
    deep = workdir / "a" / "b"  # a run is looked for up to three folders above, where other tests may have left some
    (deep / "empty").mkdir(parents=True)
    monkeypatch.chdir(deep)
    for verb in ("runs", "show", "report"):
        for where in ("empty", "nowhere", "c.yaml"):
            words = [verb, where, *(["-o", "x.html"] if verb == "report" else [])]
            said = command(*words)
            assert said.code == 2 and said.err.count("etude: error:") == 1 and "Traceback" not in said.err
    assert not (deep / "x.html").exists()


def test_mistakes_get_the_near_word(command, make_run):
    make_run(rows=[ROW])
    assert "did you mean 'finished'" in command("runs", "--state", "finishd").err
    assert "did you mean 'train/loss'" in command("runs", "--sort", "train/los").err
    assert "did you mean 'train/loss'" in command("show", "runs", "-m", "train/lss").err
    assert "did you mean 'loss'" in command("show", "runs", "-m", "lss").err


PICTURES = """
import warnings
import numpy as np
import etude


class Pictures(etude.Hook):
    def after_epoch(self, run):
        run.events.put_media("image", "sample", np.zeros((4, 4, 3)))
        warnings.warn("too <dark>")
"""


def test_a_report_has_every_part_of_a_real_run_and_a_picture(command, workdir):
    (workdir / "pictures.py").write_text(PICTURES)
    words = [
        "+imports=[pictures.py]",
        "+hooks=[pictures.Pictures]",
        "+log.to=[media]",
        "log.every=5step",
        "optim.lr=0.02",
    ]
    trained(command, *words, "-q", "--folder", "r")
    assert [path.name for path in sorted(Path("r/media").iterdir())] == ["sample-000000006.png", "sample-000000012.png"]
    said = command("report", "r", "-o", "x.html", "--png", "x.png", "--metric", "val/*")
    assert said.code == 0, said.err
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    heads = ["Overview", "Validation", "Training", "Learning rate and momentum", "Throughput, time and memory"]
    heads += ["Where the time went", "When hooks acted", "Images", "Plan", "Parameter groups", "Hooks", "Environment"]
    page = Path("x.html").read_text()
    assert re.findall(r"<h2 id=[^>]*>([^<]*)</h2>", page) == heads
    assert "too &lt;dark&gt;" in page and "too <dark>" not in page and "data:image/png;base64," in page
    spent = json.loads(Path("r/status.json").read_text())["time"]
    assert spent
    for part in ("override", "c.yaml:", "Pictures", *spent):
        assert part in page, part


def test_a_missing_folder_of_runs_is_answered_with_what_makes_it(command):
    for verb in ("runs", "show", "board"):
        said = command(verb)
        assert said.code == 2 and "there is no folder runs; `etude train CONFIG` makes it" in said.err


def test_show_ends_with_the_last_records_of_the_log(command):
    trained(command, "-q", "--folder", "r")
    last = command("show", "r", "--tail", "2").out.splitlines()[-2:]
    assert "val: loss" in last[0] and "finished: " in last[1]


def test_states(command, make_run):
    here = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    unnoticed = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, unnoticed.pid, os.WEXITED | os.WNOWAIT)
    make_run("goes", [ROW], status={"state": "running", **here})
    make_run("unnoticed", [ROW], status={"state": "running", **here, "pid": unnoticed.pid})
    make_run("killed", [ROW], status={"state": "running", **here, "pid": gone.pid})
    (
        make_run("saved", [ROW], status={"state": "running", **here, "pid": gone.pid})
        / "checkpoints"
        / "step-000000004"
    ).mkdir(parents=True)
    make_run("broke", [ROW], status={"state": "failed", "error": "ValueError: x"})
    make_run("reused", [ROW], status={"state": "running", **here, "since": time.time() - 1e8})
    torn = make_run("torn", [ROW])
    (torn / "status.json").write_text('{"state": "runn')
    old = time.time() - 3600
    os.utime(torn / "metrics.jsonl", (old, old))
    found = {row["name"]: row["state"] for row in json.loads(command("runs", "--json").out)}
    unnoticed.wait()
    assert found == {
        "unnoticed": "interrupted",
        "goes": "running",
        "killed": "interrupted",
        "saved": "resumable",
        "broke": "failed",
        "reused": "interrupted",
        "torn": "unknown",
    }


def test_show_draws_curves_and_lists_them(command, make_run):
    folder = make_run(
        "a", [{"step": n, "split": "train", "loss": "nan" if n == 3 else 1 / n, "lr": 0.1} for n in range(1, 40)]
    )
    said = command("show", str(folder), "--log", "-m", "loss")
    assert said.code == 0 and "1 of 39 values are not finite" in said.out and re.search("[⠁-⣿]", said.out)
    assert command("show", str(folder), "--list").out.split() == ["train/loss", "train/lr"]
    all_nan = make_run("b", [{"step": 1, "split": "train", "loss": "nan"}])
    assert "nothing to draw" in command("show", str(all_nan)).out
    assert "nothing is recorded yet" in command("show", str(make_run("c", []))).out


def test_a_hostile_name_and_log_cannot_draw_on_the_terminal(command, make_run):
    folder = make_run("evil\x1b[31m", [{**ROW, "loss\x1b[2J": 1.0}])
    (folder / "log.txt").write_text("\x1b]0;owned\x07 text\n")
    for words in (["runs"], ["show", str(folder)], ["show", str(folder), "-m", "*"]):
        said = command(*words)
        assert said.code == 0 and "\x1b" not in said.out + said.err


def test_diff_names_the_key_and_the_first_step(command):
    trained(command, "-q", "--folder", "a")
    trained(command, "-q", "--folder", "b", "+train.seed=7")
    trained(command, "-q", "--folder", "again")
    said = command("diff", "a", "b")
    assert said.code == 0 and "train.seed: – → 7" in said.out and "train/loss at step 3" in said.out
    assert "no difference" in command("diff", "a", "again").out
    kinds = {one["kind"] for one in json.loads(command("diff", "a", "b", "--json").out)}
    assert kinds == {"plan", "metric"}


def test_diff_shows_other_data_and_code_without_secrets(command, workdir):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (workdir / "model.py").write_text("width = 1\n")
    for words in (["init", "-q"], ["add", "model.py"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    trained(command, "-q", "--folder", "a")
    (workdir / "model.py").write_text("width = 2\napi_token = 'hunter22'\n")
    trained(command, "-q", "--folder", "b", "data.train.dataset.split=val")
    said = command("diff", "a", "b")
    assert "+width = 2" in said.out and "\ndata\n  train:" in said.out
    for path in Path("b").rglob("*"):
        assert not path.is_file() or b"hunter22" not in path.read_bytes()


def test_two_systems_side_by_side(command, make_run):
    make_run("native", [ROW, {"step": 4, "split": "val", "accuracy": 0.5}])
    make_run("old", [{"mode": "train", "epoch": 1, "iter": 4, "loss": 0.4}], file="x.log.json")
    rows = {row["name"]: row["dialect"] for row in json.loads(command("runs", "--json").out)}
    assert rows == {"native": "native", "old": "mmcv1"}
    assert "train/loss at step 4" in command("diff", "runs/native", "runs/old").out


def test_follow_ends_with_the_run(command, workdir):
    training = zygote.start("-m", "etude", "train", "c.yaml", "train.epochs=30", "-q", "--folder", "r")
    try:
        while not (workdir / "r" / "metrics.jsonl").exists() and training.poll() is None:
            time.sleep(0.05)
        shown = zygote.etude("show", "r", "--follow")
        assert training.wait() == 0
        assert shown.returncode == 0 and "finished" in shown.stdout.split("\n\nr  ")[-1], shown.stdout[-2000:]
    finally:
        training.kill()


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [("plotly", ("-o", "r.html"), "report"), ("matplotlib", ("--png", "r.png"), "plot")],
)
def test_a_report_without_its_package_says_what_to_install(command, make_run, monkeypatch, module, words, extra):
    folder = make_run("r", [ROW])
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    said = command("report", str(folder), *words)
    assert said.code == 2 and f"pip install 'etude[{extra}]'" in said.err


def test_a_file_that_is_too_large_to_read_whole_is_shown_from_samples(command, make_run):
    folder = make_run("r", [ROW])
    with (folder / "metrics.jsonl").open("r+b") as file:
        file.seek(64 << 20)
        rows = ({"step": step, "epoch": 0, "split": "train", "loss": 1 / step} for step in range(5, 3000))
        file.write(b"\n" + b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    shown = command("show", str(folder))
    assert shown.code == 0 and "evenly spaced samples" in shown.out and "at step 2999" in shown.out
    assert "2999" in command("runs", str(folder.parent)).out
    assert command("report", str(folder), "-o", "r.html").code == 0 and "sampled" in Path("r.html").read_text()


@pytest.mark.parametrize("verb", ["runs", "show", "diff"])
def test_no_torch_is_imported(make_run, verb, workdir):
    folder = str(make_run(rows=[ROW]))
    words = [verb, folder, *([folder] if verb == "diff" else [])]
    code = f"import sys; from etude.cli import main; code = main({words!r}); assert 'torch' not in sys.modules; sys.exit(code)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_diff_tells_metrics_and_steps_of_one_run_only_and_what_was_not_recorded(command, make_run):
    row = {"step": 1, "split": "train", "loss": 1.0}
    make_run("a", [row])
    make_run("b", [{**row, "step": 2, "loss": 9.0}])
    make_run("c", [row, {**row, "step": 2}, {"step": 2, "split": "val", "accuracy": 0.5}])
    make_run("libai", [{"iteration": 0, "total_loss": 1.0}], file="metrics.json")
    said = command("diff", "runs/a", "runs/b").out
    assert (
        "train/loss: only A has a value at step 1, only B has a value at step 2" in said and "no difference" not in said
    )
    assert "not recorded in either run: plan, code, data, environment" in said
    said = command("diff", "runs/a", "runs/c").out
    assert "train/loss: only B has a value at step 2" in said
    assert "val/accuracy: not recorded → 1 value" in said
    make_run("d", [row, *({**row, "step": step} for step in (10, 20))])
    assert "train/loss: only A has values at 2 steps, from step 10\n" in command("diff", "runs/d", "runs/a").out
    assert "no metric in common: train/loss → train/total_loss" in command("diff", "runs/a", "runs/libai").out
    assert "no difference: metric\nnot recorded" in command("diff", "runs/a", "runs/a").out


def test_diff_shows_changed_files_that_git_does_not_know(command, workdir):
    parts = workdir / "parts.py"
    parts.write_text("WIDTH = 1\nAPI_TOKEN = 'hunter22'\n")
    trained(command, "-q", "--folder", "a", "+imports=[parts.py]")
    parts.write_text("WIDTH = 20\nAPI_TOKEN = 'hunter23'\n")
    trained(command, "-q", "--folder", "b", "+imports=[parts.py]")
    said = command("diff", "a", "b").out
    assert re.search(r"code\n  parts.py:\n.*\n +-WIDTH = 1\n +\+WIDTH = 20\n", said), said
    assert "hunter" not in said + Path("a/code.json").read_text()


def test_diff_of_uncommitted_changes_is_told_by_file(command, make_run):
    change = "diff --git a/{0} b/{0}\nindex 1..2 100644\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-x = 1\n+x = {1}\n"
    for name, text in (
        ("a", change.format("one.py", 2)),
        ("b", change.format("one.py", 3) + change.format("two.py", 4)),
    ):
        folder = make_run(name, [ROW])
        (folder / "env.json").write_text(json.dumps({"git": {"commit": "abc"}}))
        (folder / "code.diff").write_text(text)
    said = command("diff", "runs/a", "runs/b").out
    assert re.search(r"one.py, uncommitted changes: \+1 −1 lines .* → \+1 −1 lines", said)
    assert re.search(r"two.py, changed in B and not committed:\n +@@ -1 \+1 @@\n +-x = 1\n +\+x = 4\n", said)
    assert "+++" not in said


def test_runs_are_found_by_the_names_that_runs_prints(command):
    trained(command, "-q")
    name = json.loads(command("runs", "--json").out)[0]["name"]
    time_of_it = name.partition("/")[2]
    for words in (["show", name], ["show", time_of_it], ["diff", name, time_of_it], ["test", name, "-q"]):
        said = command(*words)
        assert said.code == 0, said.err
    for words in (["report", name, "-o", "x.html"], ["predict", name, "-o", "x.csv"], ["ckpt", "ls", name]):
        assert command(*words).code == 0
    said = command("show", "c/20000101-000000")
    assert said.code == 2 and "`etude runs` lists" in said.err


def test_a_spike_stays_in_the_terminal(command, make_run):
    rows = [{"step": n, "split": "train", "loss": 100.0 if n == 9000 else 1 + 1 / n} for n in range(1, 20_001)]
    lines = command("show", str(make_run("a", rows))).out.splitlines()
    top = next(line for line in lines if "┤" in line)
    assert top.split()[0] == "100" and re.search("[⠁-⣿]", top)


@pytest.mark.parametrize("scale", [[], ["--log"]])
def test_values_that_are_not_finite_leave_a_gap(command, make_run, scale):
    losses = [1.0] * 40 + ["NaN"] * 20 + [2.0] * 10 + [float("inf")] * 10 + [1.0] * 20
    rows = [{"step": n, "split": "train", "loss": loss} for n, loss in enumerate(losses)]
    lines = [line.partition("┤")[2] for line in command("show", str(make_run("a", rows)), *scale).out.splitlines()]
    picture = [line for line in lines if line]
    drawn = [any(cell != "⠀" for cell in column) for column in zip(*picture, strict=True)]
    parts = re.findall("1+|0+", "".join(str(int(one)) for one in drawn))
    assert [part[0] for part in parts] == ["1", "0", "1", "0", "1"]
    assert 0.15 * len(drawn) < len(parts[1]) < 0.25 * len(drawn)


def test_the_time_of_a_run_counts_after_its_status_was_written(command, make_run):
    began = time.time() - 1000
    row = {"step": 1, "split": "train", "loss": 1.0}
    status = {"state": "running", "host": socket.gethostname(), "since": began, "seen": began, "seconds": 0.5}
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    make_run("goes", [row], status={**status, "pid": os.getpid(), "since": time.time()})
    killed = make_run("killed", [row], status={**status, "pid": gone.pid})
    (killed / "timing.jsonl").write_text(json.dumps({"step": 1, "time": began + 65.0, "time/step": 0.1}) + "\n")
    found = {row["name"]: row["seconds"] for row in json.loads(command("runs", "--json").out)}
    assert found["goes"] >= 1000 and 65 <= found["killed"] <= 66
    assert "interrupted, step 1, 1:05" in command("show", "killed").out


def test_runs_are_sorted_by_a_key_of_the_plan(command, make_run):
    for name, rate in (("a", 0.1), ("b", 0.02), ("c", 3)):
        make_run(name, [ROW], status={"state": "finished", "step": 4, "plan": {"optim.lr": rate}})
    make_run("other", [ROW])
    order = [row["name"] for row in json.loads(command("runs", "--json", "--sort", "optim.lr").out)]
    assert order == ["b", "a", "c", "other"]
    assert "did you mean 'optim.lr'" in command("runs", "--sort", "optim.l").err


def test_a_best_value_of_zero_is_a_value(command, make_run):
    for name, loss in (("a", 0.5), ("b", 0.0), ("c", 0.25)):
        make_run(name, [{"step": 1, "split": "val", "loss": loss}])
    make_run("none", [ROW])
    rows = json.loads(command("runs", "--json", "--sort", "val/loss").out)
    assert [row["name"] for row in rows][:3] == ["b", "c", "a"]


def test_show_marks_the_best_checkpoint(command, make_run):
    rows = [{"step": n, "split": "val", "accuracy": 1 - abs(n - 2) / 10} for n in range(1, 9)]
    folder = make_run("a", rows)
    for step in range(1, 9):
        (folder / "checkpoints" / f"step-{step:09}").mkdir(parents=True)
    assert "saved   step-000000002 (best val/accuracy), step-000000005, " in command("show", "a").out
    (folder / "checkpoints" / "best").write_text("step-000000007\n")
    assert "step-000000006, step-000000007 (best), step-000000008\n" in command("show", "a").out


@pytest.mark.parametrize(
    "where", ["eng/20261117", "eng/20261117/vis_data", "eng", "eng/20261117/vis_data/scalars.json"]
)
def test_mmengine_records_are_found_in_a_folder_of_any_name(command, make_run, where):
    make_run("eng", [{"loss": 3.0, "iter": 10, "step": 10}], file="20261117/vis_data/scalars.json")
    said = command("show", where)
    assert said.code == 0 and "train/loss  3 at step 10" in said.out, said.err


KEEPS_STATUS = """
import shutil
import etude


class KeepsStatus(etude.Hook):
    def after_epoch(self, run):
        shutil.copy(run.folder / "status.json", "seen.json")
"""


def test_where_the_time_goes_is_told_while_a_run_goes_on(command, workdir, make_run, monkeypatch):
    monkeypatch.setattr("etude.session.watch.status._PAUSE", 0.0)
    (workdir / "keeps.py").write_text(KEEPS_STATUS)
    trained(command, "-q", "--folder", "r", "+imports=[keeps.py]", "+hooks=[keeps.KeepsStatus]")
    status = json.loads(Path("seen.json").read_text())
    spent = {name: 1 + seconds for name, seconds in status["time"].items()}
    make_run("goes", [ROW], status={**status, "pid": os.getpid(), "time": spent})
    assert status["state"] == "running" and re.search(r"\ntime\n(  .+\n)*  start +\S+ s", command("show", "goes").out)
