"""A user's mistake in a script's config or command line: one message with its place, exit code 2, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli import main
from tests.libai.project import CONFIG, PARTS

SCRIPT = ["exec", "tools/train_net.py", "--config-file", "config.py"]

OVERRIDES = {
    "train.train_itr=5": "unknown key train.train_itr; did you mean 'train_iter'?",
    "trian.train_iter=5": "unknown key trian; did you mean 'train'?",
    "dataloader.trian=1": "unknown key dataloader.trian; did you mean 'train'?",
    "train.log_period": "this is no override; write section.key=value",
    "--resume": "this is no override; flags stand before the first key=value",
    "train.seed.x=1": "train.seed is not a config",
    "train.log_period=0": "at least 1 is needed",
    "train.global_batch_size=7": "a multiple of train_micro_batch_size (4) is needed",
    "train.dist.tensor_parallel_size=2": "tensor_parallel_size=2 needs 2 processes; 1 was started; start them with --nproc 2",
    "optim.lrr=1": "optim: oneflow.optim.AdamW takes no argument 'lrr'; did you mean 'lr'?",
    "model._target_=line_parts.Lnie": "there is no line_parts.Lnie; did you mean line_parts.Line?",
}


@pytest.mark.parametrize("override", OVERRIDES)
def test_an_override_that_cannot_be_is_refused_before_anything_is_written(
    config: Path, override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SCRIPT, "train.train_iter=3", override]) == 2
    told = capsys.readouterr().err
    assert f"etude: error: override '{override}': " in told
    assert OVERRIDES[override] in told
    assert not Path("out").exists()


def test_a_key_of_ones_own_is_taken_with_a_word(config: Path) -> None:
    config.write_text(f"{CONFIG}\ntrain.log_periods = 3\n")
    assert main([*SCRIPT, "train.train_iter=1", "train.evaluation.enabled=false", "train.own=1", "own.key=2"]) == 0
    log = Path("out/log.txt").read_text()
    assert "override 'train.own=1': the config had no key train.own; nothing of Étude reads it" in log
    assert "config.py:38: unknown key train.log_periods; did you mean 'log_period'?" in log
    assert "own.key" not in "".join(line for line in log.splitlines() if "WARNING" in line)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--config-file", "confg.py"], "confg.py: there is no such config; did you mean 'config.py'?"),
        ([], "no config is named; name one with --config-file, before any key=value"),
        (["--config-file", "broken.py"], "broken.py:38: SyntaxError: '(' was never closed (broken = (1,)"),
    ],
)
def test_a_config_that_is_not_there_or_broken_is_the_users_mistake(
    config: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.py").write_text(f"{CONFIG}\nbroken = (1,\n")
    assert main(["exec", "tools/train_net.py", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["train", "exec"])
def test_what_a_part_refuses_is_told_with_the_line_that_asked_for_it(
    config: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = SCRIPT if verb == "exec" else ["train", "config.py"]
    config.write_text("import torch\n" + CONFIG.replace("(Line)(dropout=0.0)", "(torch.nn.Dropout)(\n    p=1.5\n)"))
    assert main(words) == 2
    said = (
        "model: torch.nn.Dropout cannot be made: ValueError: dropout probability has to be between 0 and 1, but got 1.5"
    )
    assert f"config.py:13: {said}" in capsys.readouterr().err


def test_what_a_class_of_ones_own_raises_is_told_with_both_places(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("line_parts.py").write_text(
        PARTS.replace("self.hidden,", 'raise ValueError("too deep")\n        self.hidden,')
    )
    for words in (SCRIPT, ["train", "config.py"]):
        assert main(words) == 3
        told = capsys.readouterr().err
        assert "line_parts.py" in told
        assert "etude: error: config.py:11: model: line_parts.Line raised ValueError: too deep" in told


@pytest.mark.parametrize("verb", ["train", "exec"])
def test_data_to_evaluate_on_that_is_empty_is_refused_before_the_training(
    config: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = SCRIPT if verb == "exec" else ["train", "config.py"]
    assert main([*words, "dataloader.test.0.dataset.n=0"]) == 2
    told = capsys.readouterr().err
    assert "dataloader.test.0: Points has no sample to evaluate on; or set train.evaluation.enabled=False" in told


@pytest.mark.parametrize("verb", ["train", "exec"])
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("forward(self, x, labels)", "forward(self, x, label)", "a batch's fields are the arguments of Line.forward"),
        ("_loss", "", "the model returned no loss: what has 'loss' in its name is learnt from; it returned mse, l1"),
        ("predicted = ", "raise ValueError('no')\n        predicted = ", "line_parts.py:30: ValueError: no"),
    ],
)
def test_what_ends_the_first_iteration_is_the_users_to_mend_and_the_log_stays(
    config: Path, verb: str, old: str, new: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("line_parts.py").write_text(PARTS.replace(old, new))
    assert main(SCRIPT if verb == "exec" else ["train", "config.py"]) == 3
    assert told in capfd.readouterr().err
    assert "Exception during training" in Path("out/log.txt").read_text()


@pytest.mark.parametrize("last", [1, 30])
def test_what_a_data_worker_raises_is_told_with_its_line(
    config: Path, last: int, capfd: pytest.CaptureFixture[str]
) -> None:
    lost = f"if index >= {last}:\n            raise KeyError('lost')\n        x = torch.tensor([index"
    Path("line_parts.py").write_text(PARTS.replace("x = torch.tensor([index", lost))
    assert main(["train", "config.py", "dataloader.train.num_workers=1", "train.evaluation.enabled=false"]) == 3
    assert "line_parts.py:19: KeyError: 'lost' (in data worker 0)" in capfd.readouterr().err


def test_an_evaluation_at_the_end_is_blamed_on_its_hook(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("line_parts.py").write_text(PARTS.replace('return {"mse"', 'raise ValueError("no")\n        return {"mse"'))
    assert main(["train", "config.py", "train.train_iter=2"]) == 3
    assert "hook EvalHook" in capfd.readouterr().err
    assert Path("out/model_final").is_dir()


def test_weights_that_were_never_trained_are_evaluated_with_a_word(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exec", "tools/train_net.py", "--eval-only", "--config-file", "config.py"]) == 0
    assert "looks at weights that were never trained; --resume takes" in Path("out/log.txt").read_text()
    assert main(["train", "config.py", "--eval-only", "--resume", "--folder", "nowhere"]) == 7
    assert "nowhere: there is no checkpoint to evaluate" in capsys.readouterr().err
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("verb", ["train", "exec"])
def test_what_is_refused_late_is_not_blamed_on_milestones_that_were_scaled(
    config: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = "from libai.scheduler import WarmupMultiStepLR\n"
    scheduler += "train.scheduler = LazyCall(WarmupMultiStepLR)(warmup_factor=0.1, milestones=[0.5, 0.8])\n"
    config.write_text(CONFIG + scheduler)
    words = SCRIPT if verb == "exec" else ["train", "config.py"]
    assert main([*words, "train.load_weight=nowhere"]) == 2
    told = capsys.readouterr().err
    assert "override 'train.load_weight=nowhere': " in told
    assert "milestones is" not in told


NO_HOOKS = {
    "def build_hooks(self): return [*super().build_hooks(), 'saves']": "Own.build_hooks returned str 'saves', which is "
    "not a HookBase",
    "def train(self): self.register_hooks([Own])": "register_hooks was given the class Own, which is not a HookBase; "
    "call it: Own()",
}


@pytest.mark.parametrize("method", NO_HOOKS)
def test_what_is_no_hook_is_told_with_the_line_that_brought_it(
    config: Path, method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Path("tools/train_net.py")
    text = script.read_text().replace("logger = ", f"class Own(DefaultTrainer):\n    {method}\nlogger = ")
    script.write_text(text.replace("= DefaultTrainer(cfg)", "= Own(cfg)"))
    line = text[: text.index(method)].count("\n") + 1
    assert main([*SCRIPT, "train.train_iter=3"]) == 3
    assert f"etude: error: tools/train_net.py:{line}: {NO_HOOKS[method]}" in capfd.readouterr().err


def test_a_message_of_several_lines_is_shown_in_lines(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = Path("tools/train_net.py")
    script.write_text(script.read_text().replace("logger = ", "raise ValueError('first\\n    second')\nlogger = "))
    assert main(SCRIPT) == 3
    told = capfd.readouterr().err
    assert "ValueError: first\n  second\netude: error: tools/train_net.py:13: ValueError: first second\n" in told
