from __future__ import annotations

import json
import os
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import etude
from etude.building.options import Options
from etude.cli import main
from etude.errors import ConfigError, ResumeError, UserError
from tests import zygote
from tests.mmengine import lives
from tests.places import REPOSITORY

CONFIG = """
custom_imports = dict(imports=["tests.mmengine.registered"], allow_failed_imports=False)
model = dict(type="RegisteredNet")
train_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler", shuffle=True), dataset=dict(type="RegisteredNumbers"))
train_cfg = dict(by_epoch=True, max_epochs=2)
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="SGD", lr=0.1, momentum=0.9))
param_scheduler = dict(type="MultiStepLR", milestones=[1], end=2)
auto_scale_lr = dict(base_batch_size=16)
randomness = dict(seed=0)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(textwrap.dedent(CONFIG))
    return path


def train(config: Path, folder: Path, **extras: Any) -> Any:
    known = {key: extras.pop(key) for key in ("resume",) if key in extras}
    return etude.train(config, options=Options(folder=folder, quiet=True, extras=extras, **known))


def test_the_command_line_way_trains_and_leaves_the_dialects_files(config: Path, tmp_path: Path) -> None:
    run = train(config, tmp_path / "work")
    assert (run.epoch, run.step, run.exit_code) == (2, 8, 0)
    left = {path.name for path in (tmp_path / "work").iterdir()}
    assert {"epoch_1.pth", "epoch_2.pth", "last_checkpoint", "net.py"} <= left
    assert run.runner.experiment_name.startswith("net_")


def test_flags_of_the_train_scripts_reach_the_runner(config: Path, tmp_path: Path) -> None:
    run = train(config, tmp_path / "work", amp=True, auto_scale_lr=True, seed=7, cfg_options=["train_cfg.max_epochs=1"])
    runner = run.runner
    assert type(runner.optim_wrapper).__name__ == "AmpOptimWrapper" and runner.seed == 7 and runner.max_epochs == 1
    assert runner.optim_wrapper.optimizer.param_groups[0]["initial_lr"] == pytest.approx(0.1 * 2 / 16)


@pytest.mark.parametrize("resume", ["auto", "", "file"])
def test_a_run_goes_on_from_the_latest_file_or_a_given_one(config: Path, tmp_path: Path, resume: str) -> None:
    whole = train(config, tmp_path / "whole")
    train(config, tmp_path / "work", cfg_options=["train_cfg.max_epochs=1"])
    where = str(tmp_path / "work" / "epoch_1.pth") if resume == "file" else resume
    rest = train(config, tmp_path / "work", resume=where)
    assert rest.step == 8 and len(rest.model.batches) == 4
    assert torch.equal(rest.model.fc.weight, whole.model.fc.weight)


def test_a_second_start_in_a_folder_is_a_run_of_its_own_and_a_resumed_one_is_not(config: Path, tmp_path: Path) -> None:
    plan = tmp_path / "work" / "plan.yaml"
    train(config, tmp_path / "work")
    config.write_text(config.read_text().replace("max_epochs=2", "max_epochs=1"))
    train(config, tmp_path / "work", resume="")
    assert "max_epochs: 2" in plan.read_text()
    train(config, tmp_path / "work")
    assert "max_epochs: 1" in plan.read_text()


def test_a_dry_run_leaves_nothing_behind(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from etude.debug_options import DebugOptions

    options = Options(quiet=True, extras={"fast_dev_run": True})
    run = etude.train(config, options=options, trial=DebugOptions(fast_dev_run=True))
    assert run.step == 2
    assert {path.name for path in tmp_path.iterdir()} == {"net.py"}


def test_a_limit_beyond_the_data_leaves_an_epoch_as_it_is(config: Path, tmp_path: Path) -> None:
    from etude.debug_options import DebugOptions

    options = Options(folder=tmp_path / "work", quiet=True)
    assert etude.train(config, options=options, trial=DebugOptions(limit_batches=100)).step == 8


def test_mistakes_are_told_with_their_place(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace('type="OptimWrapper"', 'type="OptimWraper"'))
    with pytest.raises(ConfigError, match=r"net\.py:\d+.*OptimWrapper"):
        train(config, tmp_path / "work")
    config.write_text(CONFIG.replace("custom_imports", 'custom_hooks = [dict(type="NoSuchHook")]\ncustom_imports'))
    with pytest.raises(UserError, match="NoSuchHook"):
        train(config, tmp_path / "work")


def test_a_signal_stops_the_command_with_a_file_to_go_on_from(config: Path, tmp_path: Path) -> None:
    config.write_text(CONFIG + 'custom_hooks = [dict(type="Terminate", at=5)]\n')
    done = zygote.etude("train", str(config), "--work-dir", str(tmp_path / "work"), cwd=REPOSITORY)
    assert done.returncode == 143, done.stderr
    assert (tmp_path / "work" / "last_checkpoint").read_text().endswith("iter_5.pth")
    config.write_text(CONFIG)
    rest, whole = train(config, tmp_path / "work", resume=""), train(config, tmp_path / "whole")
    assert torch.equal(rest.model.fc.weight, whole.model.fc.weight)
    rows = next(iter(sorted((tmp_path / "whole").glob("*/vis_data/scalars.json"))))
    assert json.loads(rows.read_text().splitlines()[-1])["iter"] == 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1), accumulative_counts=0)",
         r"net\.py:10: .*accumulative_counts.*1"),
        ("custom_hooks = [dict(type='EMAHook', momentum=1.5)]", r"net\.py:10: .*momentum"),
        ("param_scheduler = dict(type='ReduceOnPlateauLR', by_epoch=False)", r"net\.py:\d+: .*by_epoch"),
    ],
)  # fmt: skip
def test_a_value_that_a_part_refuses_is_a_mistake_of_the_config(
    config: Path, tmp_path: Path, change: str, said: str
) -> None:
    config.write_text(textwrap.dedent(CONFIG) + change + "\n")
    with pytest.raises(ConfigError, match=said):
        train(config, tmp_path / "work")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("child", "place"),
    [
        (
            "default_hooks = dict(\n    logger=dict(out_suffix=1))\n",
            r"child\.py:3: LoggerHook cannot be made: out_suffix",
        ),
        ("custom_hooks = [\n    dict(type='EMAHook',\n         begin_iter=99)]\n", r"child\.py:4: .*begin_iter"),
    ],
    ids=["a changed argument", "a replaced list"],
)
def test_what_is_found_while_building_is_told_where_the_child_asks_for_it(
    config: Path, tmp_path: Path, child: str, place: str
) -> None:
    inherited = (
        "default_hooks = dict(logger=dict(type='LoggerHook'))\ncustom_hooks = [dict(type='EMAHook', begin_iter=1)]\n"
    )
    config.write_text(CONFIG + inherited)
    (tmp_path / "child.py").write_text(f"_base_ = 'net.py'\n{child}")
    with pytest.raises(ConfigError, match=place):
        train(tmp_path / "child.py", tmp_path / "work")
    assert not (tmp_path / "work").exists()
    changed = "default_hooks.logger.out_suffix=1"
    with pytest.raises(ConfigError, match=rf"override '{changed}': LoggerHook cannot be made"):
        train(config, tmp_path / "work", cfg_options=[changed])


def test_a_checkpoint_that_is_not_there_is_no_fault_of_the_engine(config: Path, tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match="nowhere.pth"):
        train(config, tmp_path / "work", load_from="nowhere.pth")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("kind", ["missing", "damaged", "refused"])
def test_a_file_that_cannot_be_resumed_from_leaves_nothing_behind(config: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "some.pth"
    if kind == "damaged":
        path.write_bytes(b"PK\x03\x04 half")
    elif kind == "refused":
        torch.save({"meta": {"epoch": 1, "iter": 4}, "state_dict": {}, "how": os.system}, path)
    before = sorted(tmp_path.iterdir())
    for folder in (tmp_path / "work", tmp_path / "deep" / "work"):
        with pytest.raises(ResumeError, match="some.pth"):
            train(config, folder, resume=str(path))
    assert sorted(tmp_path.iterdir()) == before
    assert main(["train", str(config), "--work-dir", str(tmp_path / "work"), "-q", "--resume", str(path)]) == 7


def test_a_missing_file_is_answered_with_what_is_there_and_a_finished_run_says_so(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "work")
    assert main(["train", str(config), "--work-dir", folder, "-q"]) == 0
    newest = max(tmp_path.glob("work/epoch_*.pth"))
    assert main(["train", str(config), "--work-dir", folder, "--resume", f"{newest}"[:-5] + "7.pth"]) == 7
    told = capsys.readouterr()
    assert f"did you mean {newest.name!r}?" in told.err and not told.out
    assert main(["train", str(config), "--work-dir", folder, "--resume"]) == 0
    assert "nothing is left to train: " in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--diff-seed", "--deterministic", "--eval-only", "--auto-resume"])
def test_a_flag_of_another_system_is_refused(config: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(config), flag]) == 2
    assert f"{flag} does nothing in a mmengine config" in capsys.readouterr().err


def test_a_test_after_training_keeps_the_trained_average(config: Path, tmp_path: Path) -> None:
    config.write_text(textwrap.dedent(CONFIG) + "custom_hooks = [dict(type='EMAHook', momentum=0.1)]\n")
    runner = train(config, tmp_path / "work").runner
    hook = next(hook for hook in runner.hooks if type(hook).__name__ == "EMAHook")
    trained = {name: value.clone() for name, value in hook.ema_model.state_dict().items()}
    runner.call_hook("before_run")
    assert all(torch.equal(trained[name], value) for name, value in hook.ema_model.state_dict().items())


def test_nothing_alarming_is_said_about_accumulation_and_about_a_resume_inside_an_epoch(
    config: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    text = config.read_text().replace('type="OptimWrapper"', 'type="OptimWrapper", accumulative_counts=2')
    stepped = text.replace("milestones=[1], end=2", "milestones=[1], by_epoch=False")
    config.write_text(f"{stepped}\ncustom_hooks = [dict(type='Terminate', at=3)]\n")
    with pytest.raises(SystemExit):
        train(config, tmp_path / "work")
    config.write_text(stepped)
    run = train(config, tmp_path / "work", resume="")
    assert run.step == 8
    assert not [warning for warning in recwarn if "scheduler" in str(warning.message)]
    log = next(path.read_text() for path in sorted((tmp_path / "work").glob("*/*.log"), reverse=True))
    assert "loop_stage" not in log and "resumed epoch: 0, iter: 3" in log


def test_the_plan_foretells_the_size_of_small_checkpoints(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config.write_text(f"{CONFIG}custom_hooks = [dict(type='EMAHook')]\n")
    assert main(["plan", str(config)]) == 0
    told = re.search(r"checkpoints of about ([\d.]+) kB", capsys.readouterr().out)
    train(config, tmp_path / "work")
    assert told and 0.6 < float(told[1]) * 1000 / (tmp_path / "work" / "epoch_2.pth").stat().st_size < 1.6


def test_a_start_says_the_warnings_of_check_and_places_what_is_found_late(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(f"{CONFIG}lr_config = dict(policy='step')\n")
    words = ["train", str(config), "--work-dir", str(tmp_path / "work")]
    assert main(words) == 0
    assert "net.py:10: warning: unknown key lr_config: nothing reads it; MMEngine reads param_scheduler" in said(capsys)
    config.write_text(CONFIG.replace('"RegisteredNet")', '"RegisteredNet", data_preprocessor=dict(type="Nothing"))'))
    assert main([*words, "-q"]) == 2
    assert re.search(r"net\.py:3: .*Nothing", said(capsys))
    config.write_text(CONFIG.replace('"RegisteredNumbers")', '"RegisteredNumbers", length=0)'))
    assert main([*words, "-q"]) == 5
    assert "train_dataloader gives no batch" in said(capsys)
    config.write_text(f"{CONFIG}launcher = 'pytorch'\n")
    assert main([*words, "-q"]) == 2
    assert "needs torchrun" in said(capsys)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_a_checkpoint_is_measured_on_the_test_data_or_on_that_of_validation(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated = """
{0}_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler", shuffle=False), dataset=dict(type="RegisteredNumbers", length=6))
{0}_cfg = dict()
{0}_evaluator = dict(type="RegisteredScore", values=({1},))
"""
    config.write_text(f"{CONFIG}{evaluated.format('val', 0.25)}{evaluated.format('test', 0.75)}")
    folder = tmp_path / "work"
    train(config, folder)
    before = sorted(folder.rglob("*.pth"))
    assert main(["test", str(config), str(folder / "epoch_2.pth"), "--work-dir", str(folder), "-q"]) == 0
    assert "acc  0.75\n" in capsys.readouterr().out
    assert main(["test", str(config), str(folder), "--work-dir", str(folder), "-q", "--split", "val"]) == 0
    assert "acc  0.25\n" in capsys.readouterr().out
    assert sorted(folder.rglob("*.pth")) == before


def test_a_hook_that_does_not_come_back_has_the_grace_that_was_asked_for(config: Path, tmp_path: Path) -> None:
    config.write_text(f"{CONFIG}custom_hooks = [dict(type='Stuck')]\n")
    words = ["train", str(config), "--work-dir", str(tmp_path / "work"), "-q", "--grace", "1s"]
    assert lives.command(words, world=1) == 143
    assert not list((tmp_path / "work").glob("*.pth"))


def test_a_config_that_only_tests_can_be_measured(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(config, tmp_path / "work")
    config.write_text(
        """
custom_imports = dict(imports=["tests.mmengine.registered"], allow_failed_imports=False)
model = dict(type="RegisteredNet")
test_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler", shuffle=False), dataset=dict(type="RegisteredNumbers", length=6))
test_cfg = dict()
test_evaluator = dict(type="RegisteredScore", values=(0.75,))
"""
    )
    assert main(["test", str(config), str(tmp_path / "work"), "--work-dir", str(tmp_path / "w"), "-q"]) == 0
    assert "acc  0.75\n" in capsys.readouterr().out
    assert main(["train", str(config), "--work-dir", str(tmp_path / "w"), "-q"]) == 2
    assert "train_dataloader, train_cfg" in said(capsys)
