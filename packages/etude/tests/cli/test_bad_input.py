"""Bad input is normal input: each mistake has a message with its place, the right exit code, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import pytest

from etude.cli import main
from tests import zygote

GOOD = """\
model: {type: MLP, sizes: [64, 16, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 256}
  val: {dataset: {type: Digits, split: val}, batch_size: 256}
optim: {type: AdamW, lr: 1e-3}
schedule:
  lr: [{type: Cosine, until: end}]
train: {epochs: 1}
metrics: [Accuracy]
hooks: [{type: EMA, momentum: 0.01}]
checkpoint: {every: 1ep, keep: 2, best: accuracy}
log: {every: 2step}
"""


@pytest.fixture
def etude(workdir, capfd):
    """Write files, run the command, give back exit code and what it said."""

    def run(*words: str, **files: str) -> tuple[int, str]:
        for name, text in files.items():
            Path(name.replace("__", ".")).write_text(textwrap.dedent(text))
        code = main(list(words))
        out, err = capfd.readouterr()
        return code, out + err

    return run


def refused(etude, text: str, *wanted: str, code: int = 2, words: tuple[str, ...] = ()) -> str:
    got, said = etude("train", "c.yaml", *words, c__yaml=text)
    assert got == code, said
    assert "Traceback (most recent call last)" not in said
    for part in wanted:
        assert part in said, said
    assert not os.path.exists("runs"), "a run was left half-written"
    return said


def test_the_good_config_is_good(etude):
    code, said = etude("train", "c.yaml", c__yaml=GOOD)
    assert code == 0, said


@pytest.mark.parametrize(
    ("old", "new", "line", "hint"),
    [
        ("optim:", "optm:", 6, "'optim'"),
        ("lr: 1e-3", "lrr: 1e-3", 6, "'lr'"),
        ("type: AdamW", "type: AdmaW", 6, "'AdamW'"),
        ("sizes:", "szes:", 1, "'sizes'"),
        ("CrossEntropyLoss", "CrossEntropiLoss", 2, "'CrossEntropyLoss'"),
        ("batch_size: 256}\n  val", "bath_size: 256}\n  val", 4, "'batch_size'"),
        ("split: val", "splt: val", 5, "'split'"),
        ("type: Cosine", "type: Cosin", 8, "'Cosine'"),
        ("until: end", "untl: end", 8, "'until'"),
        ("epochs: 1", "epoch: 1", 9, "'epochs'"),
        ("Accuracy", "Acuracy", 10, "'Accuracy'"),
        ("momentum: 0.01", "momentm: 0.01", 11, "'momentum'"),
        ("keep: 2", "kep: 2", 12, "'keep'"),
        ("best: accuracy", "best: acuracy", 12, "accuracy"),
        ("every: 2step", "evry: 2step", 13, "'every'"),
    ],
)
def test_a_typo_at_any_depth_is_answered_with_place_and_suggestion(etude, old, new, line, hint):
    assert old in GOOD
    refused(etude, GOOD.replace(old, new), f"c.yaml:{line}", hint)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lr: 1e-3", "lr: fast", "lr"),
        ("batch_size: 256}\n  val", "batch_size: many}\n  val", "batch_size"),
        ("epochs: 1", "epochs: -1", "more than zero"),
        ("every: 2step", "every: -2step", "every"),
        ("every: 2step", "every: 0", "every"),
        ("epochs: 1", "epochs: 1, steps: 3", "not both"),
        ("train: {epochs: 1}\n", "train: {}\n", "epochs"),
        ("  lr: [{", "\tlr: [{", "tab"),
        ("loss: CrossEntropyLoss", "loss: CrossEntropyLoss\nloss: MSELoss", "loss"),
        ("model: {", "model: [", "c.yaml"),
        ("lr: 1e-3", "lr: ${env:LR}", "a reference needs quotes"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(etude, old, new, said):
    refused(etude, GOOD.replace(old, new), "c.yaml:", said)


def test_all_mistakes_come_at_once(etude):
    text = GOOD.replace("sizes", "szes").replace("epochs", "epohcs").replace("Accuracy", "Acuracy")
    said = refused(etude, text, "c.yaml:9")
    code, checked = etude("check", "c.yaml")
    assert code == 2
    assert "'epochs'" in said + checked


def test_a_missing_file_and_a_misspelt_command(etude):
    code, said = etude("train", "nowhere.yaml")
    assert code == 2 and "nowhere.yaml" in said
    code, said = etude("trian", "c.yaml")
    assert code == 2 and "did you mean 'train'" in said
    code, said = etude("train", "c.yaml", "--fast-dev-rum", c__yaml=GOOD)
    assert code == 2 and "--fast-dev-run" in said


def test_a_cycle_of_bases_is_told_with_its_chain(etude):
    code, said = etude("train", "a.yaml", a__yaml="_base_: b.yaml\n", b__yaml="_base_: a.yaml\n")
    assert code == 2 and "a.yaml" in said and "b.yaml" in said


def test_a_python_config_that_raises_is_told_with_its_line(etude):
    code, said = etude("train", "c.py", c__py="x = 1\ny = x / 0\n")
    assert code == 2 and "c.py:2" in said and "ZeroDivisionError" in said
    code, said = etude("train", "c.py", "--no-python-config", c__py="model = dict(type='MLP')\n")
    assert code == 2


def test_an_override_of_an_unknown_key_suggests_the_near_one(etude):
    code, said = etude("train", "c.yaml", "optim.lrr=1", c__yaml=GOOD)
    assert code == 2 and "lr" in said


PARTS = """\
import torch, etude

@etude.DATASETS.register
class Empty(torch.utils.data.Dataset):
    def __len__(self): return 0
    def __getitem__(self, i): raise IndexError

@etude.DATASETS.register
class Broken(torch.utils.data.Dataset):
    def __len__(self): return 600
    def __getitem__(self, i):
        if i == 224: raise ValueError('half a picture')
        return torch.zeros(64), 0

@etude.MODELS.register
class NoLoss(torch.nn.Linear):
    def __init__(self): super().__init__(64, 10)
    def forward(self, x, y): return {'accuracy': y}

@etude.HOOKS.register
class Raises(etude.Hook):
    def __init__(self, point): self.point = point
    def calls(self): return {self.point: self.fail}
    def fail(self, run): raise RuntimeError('on purpose')

@etude.HOOKS.register
class Typo(etude.Hook):
    def after_stpe(self, run): ...
"""


def with_parts(text: str) -> str:
    return "imports: [parts.py]\n" + text


def test_an_empty_dataset_is_found_before_the_first_step(etude):
    Path("parts.py").write_text(PARTS)
    text = with_parts(GOOD).replace("{type: Digits, split: train}", "Empty")
    assert "empty" in refused(etude, text)


def test_a_sample_that_raises_is_named(etude):
    Path("parts.py").write_text(PARTS)
    text = with_parts(GOOD).replace("{type: Digits, split: train}", "Broken")
    code, said = etude("train", "c.yaml", c__yaml=text)
    assert code == 5 and "sample 224" in said and "half a picture" in said


def test_a_model_without_a_loss_is_told_what_to_do(etude):
    Path("parts.py").write_text(PARTS)
    text = (
        with_parts(GOOD).replace("{type: MLP, sizes: [64, 16, 10]}", "NoLoss").replace("loss: CrossEntropyLoss\n", "")
    )
    code, said = etude("train", "c.yaml", c__yaml=text)
    assert code == 2 and "returned no loss" in said and "accuracy" in said


@pytest.mark.parametrize("point", ["before_run", "before_train", "before_epoch", "before_step", "after_forward", "before_update", "after_step", "after_epoch", "before_eval", "before_eval_step", "after_eval_step", "after_eval", "before_save", "after_train", "after_run"])  # fmt: skip
def test_a_hook_that_raises_is_named_with_point_and_origin(etude, point):
    Path("parts.py").write_text(PARTS)
    text = with_parts(GOOD).replace("hooks: [", f"hooks: [{{type: Raises, point: {point}}}, ")
    code, said = etude("train", "c.yaml", c__yaml=text)
    assert code == 3, said
    assert "Raises" in said and point in said and "parts.py" in said and "on purpose" in said


def test_a_misspelt_point_of_a_hook_is_found(etude):
    Path("parts.py").write_text(PARTS)
    text = with_parts(GOOD).replace("hooks: [", "hooks: [Typo, ")
    refused(etude, text, "after_stpe", "'after_step'")


def test_a_run_folder_that_cannot_be_written(etude):
    Path("taken").write_text("a file")
    code, said = etude("train", "c.yaml", "--folder", "taken/run", c__yaml=GOOD)
    assert code == 2 and "taken/run" in said
    for words in (["--folder", "memory://a/run"], ["+folder=memory://a"]):
        code, said = etude("train", "c.yaml", *words)
        assert code == 2 and "has to be on a disk of this machine" in said and not Path("memory:").exists()


def test_a_forgotten_loss_is_told_and_not_called_the_engines_fault(etude):
    code, said = etude("train", "c.yaml", "~loss", c__yaml=GOOD)
    assert code == 2 and "no `loss` is named" in said and "fault of the engine" not in said


def test_a_file_of_ones_own_that_python_cannot_parse_is_found_with_its_line(etude):
    Path("parts.py").write_text("x = 1\ndef (:\n")
    code, said = etude("check", "c.yaml", c__yaml=with_parts(GOOD))
    assert code == 2 and "parts.py:2" in said


def test_a_time_limit_is_a_time(etude):
    code, said = etude("train", "c.yaml", "--max-time", "1ep", c__yaml=GOOD)
    assert code == 2 and "--max-time takes a time" in said
    code, said = etude("train", "c.yaml", "--resume", "--restart")
    assert code == 2 and "pass one of them" in said


def test_resume_goes_on_with_a_run_that_saved_something(etude):
    assert etude("train", "c.yaml", c__yaml=GOOD)[0] == 0
    assert etude("train", "c.yaml", "+init_from=nowhere.pth")[0] == 2
    code, said = etude("train", "c.yaml", "--resume", "train.epochs=2")
    assert code == 0 and "resumed from step" in said, said


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("keep: 0", "checkpoint.keep must be at least 1, not 0: there would be nothing to resume from"),
        ("keep: 2, best_k: 0", "checkpoint.best_k must be at least 1, not 0"),
        ("keep: 2, failures: 0", "checkpoint.failures must be at least 1, not 0"),
        ("keep: 2, mode: maximum", "checkpoint.mode is min or max, not 'maximum'; did you mean 'max'?"),
        ("keep: 2, forever: 0ep", "checkpoint.forever: '0ep' must be more than zero"),
    ],
)
def test_checkpoints_that_would_keep_nothing_are_told_at_their_line(etude, words, wanted):
    text = GOOD.replace("keep: 2", words)
    line = 1 + text.splitlines().index(next(line for line in text.splitlines() if line.startswith("checkpoint:")))
    refused(etude, text, f"c.yaml:{line}: {wanted}")
    code, said = etude("check", "c.yaml")
    assert code == 2 and f"c.yaml:{line}: {wanted}" in said


def test_a_fault_that_cannot_come_is_refused_and_one_that_did_not_is_told(etude):
    refused(etude, GOOD, "'kill@step=0' never comes; the first step is 1", words=("--chaos", "kill@step=0"))
    code, said = etude("train", "c.yaml", "--chaos", "kill@step=500")
    assert code == 0 and "warning: --chaos kill@step=500 never came: the run has 6 steps" in said


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGUSR1", 75)])
def test_a_signal_before_training_ends_with_its_code_and_leaves_nothing(workdir, name, code):
    Path("c.yaml").write_text(textwrap.dedent(GOOD) + "imports: [slow.py]\n")
    Path("slow.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    child = zygote.start("-m", "etude", "train", "c.yaml")
    child.until("importing")
    child.send_signal(getattr(signal, name))
    _, said = child.communicate()
    assert (child.returncode, os.path.exists("runs")) == (code, False)
    assert f"stopped by {name} outside of training: there is nothing to save" in said


def test_a_diverged_run_names_the_checkpoint_that_was_being_written(etude):
    text = GOOD.replace("every: 1ep, keep: 2", "every: 1step, keep: 2")
    code, said = etude("train", "c.yaml", "--chaos", "nan@step=4", c__yaml=text)
    assert code == 4 and "step-000000003" in said, said


def test_a_batch_learnt_by_heart_gets_the_steps_of_the_whole_data_and_leaves_nothing(etude):
    code, said = etude("train", "c.yaml", "--overfit", "1", "train.epochs=20", c__yaml=GOOD)
    assert code == 0 and "step 120/120" in said, said
    assert not os.path.exists("runs")
