from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.commands import CONFIG
from tests.sampling import sample


def test_a_plan_tells_length_groups_hooks_times_disk_and_curves(command):
    said = command("plan", "c.yaml", "+train.accumulate=4")
    assert said.code == 0
    for part in (
        r"^length     12 steps, 2 epochs, 6 batches of 256 per epoch$",
        r"^updates    3 \(every 4 steps\)$",
        r"^           -            all +2 +1,184  lr 0.001  weight_decay 0.01  beta1 0.9  beta2 0.999$",
        r"^           -            \*\.bias +2 +26  lr 0.001  weight_decay 0  beta1 0.9  beta2 0.999$",
        r"^           after_step       Timer \(20\), Log \(60, every 3step\)$",
        r"^           Log              3 6 9 12  \(4 times\)$",
        r"^           Checkpoint       6 12  \(2 times\)$",
        r"^disk       2 checkpoints of about [\d.]+ kB",
        r"^curve      lr all, lr \*\.bias$",
        r"^constant   beta1 all, beta1 \*\.bias: 0.9$",
        r"^hooks      at each point, in the order they act: name \(priority, how often\)$",
    ):
        assert re.search(part, said.out, re.MULTILINE), part
    assert not Path("runs").exists()


def test_every_act_can_be_listed(command):
    said = command("plan", "c.yaml", "train.epochs=1", "--acts")
    lines = said.out.splitlines()
    assert lines[0].split() == ["epoch", "0", "step", "0", "before_run", "Schedule"]
    assert sum("after_step" in line and "Timer" in line for line in lines) == 6
    assert lines[-1].split()[4:] == ["after_epoch", "Checkpoint"]


@pytest.mark.parametrize(
    ("name", "magic"), sample([("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.pdf", b"%PDF")], (0,))
)
def test_curves_are_drawn_into_a_picture(command, name, magic):
    said = command("plan", "c.yaml", "--plot", name)
    assert said.code == 0 and f"drawn into {name}" in said.out
    assert Path(name).read_bytes().startswith(magic) and Path(name).stat().st_size > 2000


def test_a_picture_of_another_kind_is_refused(command):
    said = command("plan", "c.yaml", "--plot", "x.doc")
    assert said.code == 2 and ".png" in said.err
    said = command("plan", "c.yaml", "--plot", "nowhere/x.png")
    assert said.code == 2 and "nowhere/x.png" in said.err


def test_a_plan_of_a_bad_config_is_refused(command):
    said = command("plan", "c.yaml", c_yaml=CONFIG.replace("sizes", "szes"))
    assert said.code == 2 and "c.yaml:1" in said.err and "'sizes'" in said.err


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("+train.accumulate=4", "accumulates"),
        ("+train.nonfinite=rollback", "may roll back"),
        ("optim.type=Adadelta", "has an optimizer that is not fused"),
        ("optim.lr=0.01", None),
    ],
)
def test_a_plan_says_why_every_step_waits_for_an_accelerator(command, monkeypatch, override, reason):
    monkeypatch.setattr("etude.core.nonfinite.sees_memory", lambda device: False)
    said = command("plan", "c.yaml", override)
    assert said.code == 0
    notes = re.findall(r"^note       every step waits for the device to read its loss: this run (.*)$", said.out, re.M)
    assert notes == ([] if reason is None else [reason])
