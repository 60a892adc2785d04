from __future__ import annotations

import csv
import json
import os
import pty
import re
import select
from pathlib import Path

import pytest

from tests import zygote
from tests.cli.commands import CONFIG

PARTS = """\
import numpy as np
import torch

import etude


@etude.DATASETS.register
class Named(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return {"pixels": torch.full((64,), index / 64), "label": index % 10}


@etude.MODELS.register
class ByName(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def forward(self, pixels):
        return super().forward(pixels)


@etude.LOSSES.register
def half(output, target, *, scale=0.5):
    return scale * torch.nn.functional.cross_entropy(output, target)


@etude.OPTIMIZERS.register
class Averaged(torch.optim.SGD):
    modes = []

    def train(self):
        self.modes.append("train")

    def eval(self):
        self.modes.append("eval")

    def step(self, closure=None):
        assert self.modes[-1] == "train"
        return super().step(closure)


@etude.HOOKS.register
class Pictures(etude.Hook):
    every = "3step"

    def after_step(self, run):
        run.events.put_media("image", "noise", torch.rand(8, 8, 3))
        run.events.put_media("histogram", "weights", next(run.model.parameters()).detach())
        run.events.put_media("text", "note", f"step {run.done}")


def tell(run):
    print(f"epoch {run.epoch} is over")
"""


def with_parts(text: str) -> str:
    Path("parts.py").write_text(PARTS)
    return "imports: [parts.py]\n" + text


def records(folder: str) -> list[dict]:
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def test_off_a_terminal_there_are_plain_lines_and_a_summary(command, monkeypatch):
    monkeypatch.setattr("etude.session.watch.wall_time._LEAST", 0.0)
    said = command("train", "c.yaml", "--folder", "run")
    assert said.code == 0 and said.out == ""
    lines = said.err.splitlines()
    number = r"[\d.e+-]+"
    assert re.fullmatch(
        rf"epoch 1/2  step  3/12  loss {number}  lr {number}  [\d.]+ (steps/s|s/step)  \d+:\d\d left", lines[0]
    )
    assert any(re.fullmatch(rf"epoch 2/2  step 12/12  val: loss {number}  accuracy {number}", line) for line in lines)
    assert "\x1b" not in said.err
    assert re.search(r"^finished: 12 steps in \d+:\d\d$", said.err, re.MULTILINE)
    summary = {line.split()[0]: line for line in lines if re.match(r"  [a-z]+ ", line)}
    assert set(summary) == {"last", "time", "best", "run"}
    assert "accuracy" in summary["best"] and "%" in summary["time"]
    assert summary["run"].endswith("run")


def test_the_log_file_holds_the_same_lines_and_quiet_prints_none(command):
    said = command("train", "c.yaml", "--folder", "run", "-q")
    assert (said.code, said.out, said.err) == (0, "", "")
    log = Path("run/log.txt").read_text()
    assert "step  3/12" in log and "finished: 12 steps" in log


def test_a_terminal_has_a_live_line(workdir):
    (workdir / "c.yaml").write_text(CONFIG)
    ours, theirs = pty.openpty()
    words = ["-m", "etude", "train", "c.yaml", "train.epochs=40", "--folder", "run"]
    terminal = os.environ | {"TERM": "xterm", "COLUMNS": "140"}
    with open(os.devnull) as nothing:
        child = zygote.start(*words, env=terminal, files=(nothing.fileno(), theirs, theirs))
    os.close(theirs)
    shown = _read(ours).decode(errors="replace")
    assert child.wait() == 0, shown
    live = re.search(r"epoch +\d+/40  step +\d+/240  loss [\d.]+  lr [\d.e-]+  \d+ steps/s  \d+:\d\d left", shown)
    assert live and "\x1b[2K" in shown and "━" in shown
    assert "finished: 240 steps" in shown


def _read(descriptor: int) -> bytes:
    """Everything until the other side closes."""
    data = b""
    while select.select([descriptor], [], [], 120)[0]:
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            break
        if not part:
            break
        data += part
    os.close(descriptor)
    return data


def test_a_fast_run_takes_two_batches_of_everything_and_leaves_nothing(command):
    Path("tell.py").write_text("def told(run):\n    print('evaluated', run.done)\n")
    text = CONFIG.replace("log:", "imports: [tell.py]\nhooks: [{type: tell.told, point: after_eval_step}]\nlog:")
    said = command("train", "c.yaml", "--fast-dev-run", c_yaml=text)
    assert said.code == 0 and "finished: 2 steps" in said.err and "run  " not in said.err
    assert said.out.count("evaluated") == 2
    assert sorted(path.name for path in Path().iterdir() if path.name != "__pycache__") == ["c.yaml", "tell.py"]


def test_batches_can_be_limited(command):
    assert command("train", "c.yaml", "--limit-batches", "2", "--folder", "run").code == 0
    assert records("run")[-1]["step"] == 4


def test_a_batch_can_be_learnt_by_heart(command):
    words = ("optim.lr=0.02", "train.epochs=10", "log.every=10step", "~schedule")
    assert command("train", "c.yaml", *words, "--overfit", "1", "--folder", "run").code == 0
    losses = [record["loss"] for record in records("run") if record["split"] == "train"]
    assert records("run")[-1]["step"] == 60, "the steps of ten epochs of six batches"
    assert losses[-1] < 0.1 * losses[0]


def test_debugging_prints_every_registry_first(command):
    said = command("train", "c.yaml", "-D", "--fast-dev-run")
    assert said.code == 0
    for part in ("models:", "optimizers:", "hooks:", "AdamW", "CrossEntropyLoss", "Digits", "EarlyStop"):
        assert part in said.out


def test_seed_and_device_of_the_command_line_win(command):
    command("train", "c.yaml", "--folder", "one", "--seed", "1", "--device", "cpu", "-q")
    command("train", "c.yaml", "--folder", "again", "--seed", "1", "-q")
    command("train", "c.yaml", "--folder", "two", "--seed", "2", "-q")
    assert records("one") == records("again") != records("two")
    said = command("train", "c.yaml", "--device", "cpuu")
    assert said.code == 2 and "cpuu" in said.err


def test_a_folder_with_a_run_is_refused_until_told_what_to_do(command):
    assert command("train", "c.yaml", "--folder", "run", "-q").code == 0
    said = command("train", "c.yaml", "--folder", "run")
    assert said.code == 2 and "--resume" in said.err and "--restart" in said.err
    assert command("train", "c.yaml", "--folder", "run", "--restart", "-q").code == 0
    said = command("train", "c.yaml", "--folder", "run", "--resume", "train.epochs=3")
    assert said.code == 0 and "resumed from step 12" in said.err and records("run")[-1]["step"] == 18


def test_a_folder_with_a_run_without_checkpoints_is_refused_too(command):
    assert command("train", "c.yaml", "checkpoint=false", "--folder", "run", "-q").code == 0
    before = records("run")
    said = command("train", "c.yaml", "checkpoint=false", "--folder", "run")
    assert said.code == 2 and "--restart" in said.err and records("run") == before
    assert command("train", "c.yaml", "train.epochs=1", "--folder", "run", "--restart", "-q").code == 0
    assert records("run")[-1]["step"] == 6 and "epochs: 1" in Path("run/plan.yaml").read_text()


def test_batches_with_names_go_to_the_model_by_name(command):
    text = with_parts(CONFIG).replace("{type: MLP, sizes: [64, 16, 10]}", "ByName")
    text = text.replace("{type: Digits, split: train}", "Named").replace("{type: Digits, split: val}", "Named")
    text = text.replace("*.bias", "bias")
    said = command("train", "c.yaml", c_yaml=text)
    assert said.code == 0 and "accuracy" in said.err


def test_several_losses_are_summed_and_told_apart(command):
    losses = "loss: [CrossEntropyLoss, {type: CrossEntropyLoss, label_smoothing: 0.1}, {type: half, scale: 0.25}]"
    text = with_parts(CONFIG).replace("loss: CrossEntropyLoss", losses)
    assert command("train", "c.yaml", "--folder", "run", "-q", c_yaml=text).code == 0
    first = records("run")[0]
    parts = [first[f"loss/{name}"] for name in ("CrossEntropyLoss", "CrossEntropyLoss#2", "half")]
    assert first["loss"] == pytest.approx(sum(parts), abs=1e-5)
    assert parts[2] == pytest.approx(0.25 * parts[0], abs=1e-5)


def test_an_optimizer_with_two_modes_is_in_the_right_one(command):
    text = with_parts(CONFIG).replace("type: AdamW", "type: Averaged")
    assert command("train", "c.yaml", "-q", c_yaml=text).code == 0
    from etude.registry import OPTIMIZERS

    assert OPTIMIZERS.get("Averaged").modes == ["train", "eval", "train", "eval", "train"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_runs_on_the_cpu(command, precision):
    said = command("train", "c.yaml", f"+train.precision={precision}", "--folder", "run", "-q")
    assert said.code == 0, said.err
    assert records("run")[-1]["accuracy"] > 0.1


def test_torchmetrics_are_metrics(command):
    metrics = "metrics: [{type: torchmetrics.classification.MulticlassF1Score, num_classes: 10}]"
    text = CONFIG.replace("metrics: [Accuracy]", metrics).replace("best: accuracy", "best: multiclass_f1_score")
    said = command("train", "c.yaml", c_yaml=text)
    assert said.code == 0 and "best    multiclass_f1_score" in said.err


def test_records_go_to_further_writers_with_their_pictures(command):
    text = with_parts(CONFIG).replace("every: 3step", "every: 3step, to: [tensorboard, csv]")
    text += "hooks: [Pictures, {type: parts.tell, point: after_epoch}]\n"
    said = command("train", "c.yaml", "--folder", "run", c_yaml=text)
    assert said.code == 0 and said.out.splitlines() == ["epoch 0 is over", "epoch 1 is over"]
    with open("run/metrics.csv", newline="") as file:
        assert [row["step"] for row in csv.DictReader(file) if row["split"] == "train"] == ["3", "6", "9", "12"]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator("run/tensorboard").Reload()
    tags = board.Tags()
    assert (
        tags["images"] == ["noise"] and tags["histograms"] == ["weights"] and tags["tensors"] == ["note/text_summary"]
    )
    assert [event.step for event in board.Images("noise")] == [3, 6, 9, 12]


def test_groups_may_have_schedules_of_their_own(command):
    schedule = '[{type: Constant, factor: 0.5, groups: ["*.bias"]}, {type: Cosine, groups: [all]}]'
    text = CONFIG.replace("[{type: Cosine, until: end}]", schedule)
    said = command("plan", "c.yaml", c_yaml=text)
    assert said.code == 0 and "constant   lr *.bias: 0.0005" in said.out and "curve      lr all" in said.out
    mixed = text.replace(", groups: [all]", "")
    said = command("check", "c.yaml", c_yaml=mixed)
    assert said.code == 2 and "c.yaml:8" in said.out + said.err and "groups" in said.out + said.err


@pytest.mark.parametrize("words", [("--limit-batches", "0"), ("--overfit", "-1"), ("--overfit", "some")])
def test_a_number_of_batches_is_at_least_one(command, words):
    said = command("train", "c.yaml", *words)
    assert said.code == 2 and words[0] in said.err and "at least 1" in said.err


def test_a_device_that_is_not_there_is_told_before_anything_is_built(command):
    said = command("train", "c.yaml", "--device", "cuda:77")
    assert said.code == 2 and "cuda:77" in said.err and "Traceback" not in said.err


STREAM = """\
import torch

import etude


@etude.DATASETS.register
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(600):
            yield torch.full((64,), number / 600), number % 10
"""


def test_a_stream_trains_in_its_own_order_unless_another_is_asked_for(command):
    Path("stream.py").write_text(STREAM)
    text = "imports: [stream.py]\n" + CONFIG.replace("{type: Digits, split: train}", "Stream")
    text = text.replace("epochs: 2", "steps: 4")
    assert command("train", "c.yaml", "-q", c_yaml=text).code == 0
    said = command("train", "c.yaml", "+data.train.shuffle=true")
    assert said.code == 2 and "a stream comes in its own order" in said.err


def test_two_averages_cannot_both_be_evaluated(command):
    said = command("train", "c.yaml", c_yaml=CONFIG + "hooks: [EMA, SWA]\n")
    assert said.code == 2 and "c.yaml:13" in said.err and "evaluate: false" in said.err and not Path("runs").exists()


def test_a_schedule_of_an_attribute_that_is_not_there_is_told_with_its_place(command):
    text = CONFIG.replace("schedule:", "schedule:\n  model.gian: [{type: Linear, from: 1, to: 2}]")
    said = command("train", "c.yaml", c_yaml=text)
    assert said.code == 2 and "c.yaml:7" in said.err and "gian" in said.err


def test_a_fast_run_fits_into_any_schedule(command):
    schedule = "[{type: Linear, from: 0.1, until: 5ep}, {type: Cosine, until: end}]"
    text = CONFIG.replace("[{type: Cosine, until: end}]", schedule).replace("epochs: 2", "epochs: 9, accumulate: 3")
    said = command("train", "c.yaml", "--fast-dev-run", c_yaml=text)
    assert said.code == 0 and "finished: 2 steps" in said.err
    said = command("train", "c.yaml", "train.epochs=4")
    assert said.code == 2 and "c.yaml:8" in said.err and "until 5ep" in said.err and "ends at 4ep" in said.err


def test_warnings_are_said_before_training(command):
    said = command("train", "c.yaml", c_yaml=CONFIG.replace("until: end", "until: 1ep"))
    assert said.code == 0 and "etude: c.yaml:8: warning: the schedule of lr ends at 1ep" in said.err


def test_a_phase_may_be_a_bare_name(command):
    one = command("plan", "c.yaml", c_yaml=CONFIG.replace("[{type: Cosine, until: end}]", "Cosine"))
    several = command("plan", "c.yaml", c_yaml=CONFIG.replace("[{type: Cosine, until: end}]", "[Cosine]"))
    assert one.code == 0 and one.out == several.out == command("plan", "c.yaml", c_yaml=CONFIG).out
    said = command("check", "c.yaml", c_yaml=CONFIG.replace("[{type: Cosine, until: end}]", "[Cosin]"))
    assert said.code == 2 and "'Cosine'" in said.out + said.err


@pytest.mark.parametrize(
    "clip",
    ["clip_norm: 0.01", "clip_value: 0.01", "clip: AGC", "clip: [{type: Norm, max: 0.1, per: group}, {type: AGC}]"],
)
def test_the_norm_of_clipped_gradients_is_recorded(command, clip):
    assert (
        command("train", "c.yaml", "--folder", "run", "-q", c_yaml=CONFIG.replace("lr: 1e-3", f"lr: 1e-3, {clip}")).code
        == 0
    )
    assert records("run")[0]["grad_norm"] > 0.1


def test_mistakes_in_clippings_are_found_before_anything_is_built(command):
    wrong = "lr: 1e-3, clip: [{type: Nrom, max: 1}, {type: Norm, maxi: 1}, {type: AGC, factor: high}]"
    said = command("check", "c.yaml", c_yaml=CONFIG.replace("lr: 1e-3", wrong))
    text = said.out + said.err
    assert said.code == 2 and "no clipping is called 'Nrom'; did you mean 'Norm'?" in text
    assert "Norm has no parameter 'maxi'; did you mean 'max'?" in text and "AGC: factor must be" in text
    said = command("train", "c.yaml", c_yaml=CONFIG.replace("lr: 1e-3", "lr: 1e-3, clip: {type: Norm, max: -1}"))
    assert said.code == 2 and "max must be more than zero, not -1" in said.err


def test_a_clipping_that_nobody_would_do_is_refused(command):
    both = """optim:
  first: {type: SGD, lr: 0.1, params: ["layers.0.*"], clip_norm: 1.0}
  second: {type: SGD, lr: 0.1, params: ["layers.2.*"]}"""
    text = CONFIG.replace('optim: {type: AdamW, lr: 1e-3, groups: [{match: "*.bias", weight_decay: 0}]}', both)
    said = command("train", "c.yaml", c_yaml=text)
    assert said.code == 2 and "c.yaml:7" in said.err and "clipped together" in said.err
    assert command("train", "c.yaml", "+optim.second.clip_norm=1.0", "-q").code == 0


def test_a_model_that_does_not_fit_its_data_is_told_with_the_shapes(command):
    said = command("train", "c.yaml", "model.sizes=[63, 10]")
    assert said.code == 3 and "Traceback" not in said.err
    assert "model MLP, step 1, batch of (256, 64) and (256,): RuntimeError" in said.err


def test_train_names_all_the_mistakes_that_check_does(command):
    wrong = CONFIG.replace("sizes", "szes").replace("epochs", "epoch")
    told = command("check", "c.yaml", c_yaml=wrong)
    said = command("train", "c.yaml", c_yaml=wrong)
    assert said.code == told.code == 2
    lines = [line for line in told.out.splitlines() if line.startswith("c.yaml:") and "mistakes" not in line]
    assert len(lines) >= 3
    assert [line.removeprefix("etude: error: ") for line in said.err.splitlines()] == lines


def test_a_name_that_could_allow_nothing_is_refused(command):
    assert command("train", "c.yaml", "-q").code == 0
    said = command("train", "c.yaml", "--resume", "optim.lr=0.5", "--allow-change", "optim.lrr")
    assert said.code == 2 and "--allow-change optim.lrr: no key is called that; did you mean 'optim.lr'?" in said.err
    said = command("train", "c.yaml", "--dialect", "mmcv1", "--allow-change", "lr")
    assert said.code == 2 and "--allow-change does nothing in a mmcv1 config" in said.err
