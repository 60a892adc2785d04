"""Mistakes that new users make: each is told as theirs, with its place and what was probably meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.commands import CONFIG, Commands

PARTS = '''
import torch, etude

@etude.METRICS.register
class NoReset:
    def update(self, output, target): ...
    def compute(self): return 1.0

@etude.METRICS.register
class NoCompute:
    def update(self, output, target): ...
    def reset(self): ...

@etude.METRICS.register
class Raises:
    def update(self, output, target): raise RuntimeError("never mind")
    def compute(self): return 1.0
    def reset(self): ...

@etude.HOOKS.register
class Slip(etude.Hook):
    def after_stepp(self, run): ...
    def helper(self): ...

@etude.HOOKS.register
class Below(Slip):
    def after_step(self, run): ...

@etude.DATASETS.register
class NoLength:
    def __getitem__(self, index): return torch.zeros(64), 1

@etude.LOSSES.register
class PerSample(torch.nn.Module):
    def forward(self, output, target): return (output.argmax(1) - target).float() * output.sum(1)

@etude.MODELS.register
class Named(torch.nn.Module):
    def __init__(self, key: str = "logits"):
        super().__init__()
        self.layer, self.key = torch.nn.Linear(64, 10), key
    def forward(self, inputs): return {self.key: self.layer(inputs)}

@etude.UPDATES.register
class Own:
    def __init__(self, forward, optimizers):
        self.forward, self.optimizer = forward, optimizers[""]
    def __call__(self, run, batch):
        losses, _, _ = self.forward(batch)
        sum(losses.values()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

@etude.UPDATES.register
class WithStep:
    """Counts the updates that the engine's step makes."""
    def __init__(self, forward, optimizers, step):
        self.forward, self.step = forward, step
    def __call__(self, run, batch):
        with self.step.autocast():
            losses, output, _ = self.forward(batch)
        run.events.put("half", float(output.dtype == torch.bfloat16))
        self.step.learn(run, losses)
        run.events.put("pending", float(self.step.pending))
'''


@pytest.fixture
def mistaken(command: Commands):
    """Write c.yaml with changes of its lines, and parts.py beside it, and call the command."""

    def call(*words: str, **changes: str):
        config = "imports: [parts.py]\n" + CONFIG
        for old, new in changes.items():
            line = next(line for line in config.splitlines() if line.strip().startswith(f"{old}:"))
            config = config.replace(line, new)
        Path("parts.py").write_text(PARTS)
        return command(*words, m_yaml=config)

    return call


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "loss: {type: CrossEntropyLoss, reduction: none}"}, "m.yaml:3: CrossEntropyLoss: reduction 'none'"),
        ({"metrics": "metrics: [NoReset]", "checkpoint": ""}, "metric NoReset has no method 'reset'"),
        ({"metrics": "metrics: [NoCompute]", "checkpoint": ""}, "metric NoCompute has no method 'compute'"),
        ({"train": "  train: {dataset: NoLength, batch_size: 4}"}, "m.yaml:5: the dataset NoLength has no __len__"),
    ],
)
def test_a_part_that_does_not_fit_is_told_before_the_first_step(mistaken, changes, message):
    said = mistaken("train", "m.yaml", "--folder", "run", **changes)
    assert said.code == 2 and message in said.err
    assert "Traceback" not in said.err and "fault of the engine" not in said.err
    assert not Path("run").exists()


@pytest.mark.parametrize("name", ["Slip", "Below"])
@pytest.mark.parametrize("word", ["check", "train"])
def test_a_misspelt_method_of_a_hook_is_found(mistaken, word, name):
    said = mistaken(word, "m.yaml", log=f"hooks: [{name}]\nlog: {{every: 1step}}")
    assert said.code == 2
    both = said.out + said.err
    assert f"hook {name} has a method after_stepp, which is not a point; did you mean 'after_step'?" in both
    assert re.search(r"m.yaml:\d+: hook", both) and "helper" not in both


@pytest.mark.parametrize(
    ("metrics", "best", "hint"),
    [
        ("[Accuracy]", "acuracy", "did you mean 'accuracy'?"),
        ("[Accuracy]", "loss/CrossEntropyLoss", "known: accuracy, loss"),
        ("[{type: Accuracy, top: [1, 5]}]", "accuracy_top3", "did you mean 'accuracy_top5'?"),
    ],
)
def test_a_result_that_nothing_gives_is_found_before_training(mistaken, metrics, best, hint):
    changes = {"metrics": f"metrics: {metrics}", "checkpoint": f"checkpoint: {{best: {best}}}"}
    for word in ("check", "train"):
        said = mistaken(word, "m.yaml", **changes)
        assert said.code == 2 and re.search(rf"m.yaml:\d+: Checkpoint: no metric gives '{best}'", said.out + said.err)
        assert hint in said.out + said.err


def test_a_metric_of_ones_own_may_give_any_name(mistaken):
    said = mistaken("check", "m.yaml", metrics="metrics: [Raises]", checkpoint="checkpoint: {best: dice}")
    assert said.code == 0, said.out + said.err


def test_a_loss_of_ones_own_that_gives_many_numbers_is_named(mistaken):
    said = mistaken("train", "m.yaml", "--folder", "run", loss="loss: PerSample")
    assert said.code == 2 and "m.yaml:3: the loss PerSample (parts.py:35) returned a tensor of shape (256,)" in said.err
    assert "Traceback" not in said.err


def test_a_metric_that_raises_is_named_and_shows_the_users_lines(mistaken):
    said = mistaken("train", "m.yaml", "--folder", "run", metrics="metrics: [Raises]", checkpoint="")
    assert said.code == 3 and "m.yaml:11: metric raises, of (90, 10) and (90,): RuntimeError: never mind" in said.err
    assert "parts.py" in said.err and said.err.count("RuntimeError: never mind") == 2  # the traceback and the message


def test_scores_are_found_in_a_mapping_and_missed_with_a_reason(mistaken):
    good = mistaken("train", "m.yaml", "--folder", "run", "train.epochs=1", model="model: Named")
    assert good.code == 0, good.err
    bad = mistaken("train", "m.yaml", "--folder", "bad", model="model: {type: Named, key: features}")
    assert bad.code == 3 and "the model returns a dict with features" in bad.err and "logits" in bad.err
    assert re.search(r"m.yaml:\d+: model Named, step 1", bad.err)


@pytest.mark.parametrize(
    "key", ["train.accumulate=2", "train.precision=bf16", "train.nonfinite=skip", "optim.clip_norm=1"]
)
def test_an_update_of_ones_own_that_would_ignore_a_key_is_refused(mistaken, key):
    said = mistaken("check", "m.yaml", f"+{key}", log="update: Own\nlog: {every: 1step}")
    assert said.code == 2 and "the update Own decides itself" in said.out + said.err
    fine = mistaken("check", "m.yaml", f"+{key}", log="update: WithStep\nlog: {every: 1step}")
    assert fine.code == 0, fine.out + fine.err


def test_an_update_of_ones_own_can_use_the_engines_step(mistaken):
    import json

    said = mistaken(
        "train", "m.yaml", "--folder", "run", "+train.accumulate=3", "+train.precision=bf16", "+optim.clip_norm=1",
        log="update: WithStep\nlog: {every: 1step}",
    )  # fmt: skip
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "pending" in row]
    assert [row["pending"] for row in rows] == [1, 2, 0] * 4 and {row["half"] for row in rows} == {1.0}
    assert len([row for row in rows if "grad_norm" in row]) == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("optim", "optim: {type: AdamW, learning_rate: 1e-3}", "AdamW has no parameter 'learning_rate'; did you mean 'lr'?"),
        ("checkpoint", "checkpoint: {monitor: accuracy}", "Checkpoint has no parameter 'monitor'; did you mean 'best'?"),
        ("lr", "  lr: [{type: CosineAnnealingLR}]", "no schedule is called 'CosineAnnealingLR'; did you mean 'Cosine'?"),
        ("log", "max_epochs: 3", "unknown key max_epochs; write train.epochs"),
        ("log", "callbacks: [EarlyStop]", "unknown key callbacks; did you mean 'hooks'?"),
        ("log", "gradient_clip_val: 1", "unknown key gradient_clip_val; write optim.clip_norm"),
        ("log", "resume_from_checkpoint: x", "unknown key resume_from_checkpoint; write `etude train CONFIG --resume`"),
        ("log", "hooks: [ModelCheckpoint]", "no hook is called 'ModelCheckpoint'; did you mean 'Checkpoint'?"),
        ("optim", "optim: {type: AdamW, lr: -1}", "lr is -1"),
        ("val", "  val: {dataset: {type: ImageFolder, folder: nowhere}, batch_size: 4}", "warning: ImageFolder: there is no folder nowhere"),
    ],
)  # fmt: skip
def test_check_knows_what_was_meant(mistaken, old, new, message):
    said = mistaken("check", "m.yaml", **{old: new})
    assert message in said.out + said.err
    assert said.code == (0 if "warning" in message else 2)


@pytest.mark.parametrize("schedule", [
    "[{type: Linear, until: 1epp}, {type: Cosine}]",
    "[{type: Linear, until: 1ep}, {type: Cosine, until: 1epp}]",
    "[{type: Linear, until: 1ep}, {type: Cosine, begin: 1epp, until: end}]",
    "[{type: Linear, until: [1]}, {type: Cosine}]",
])  # fmt: skip
def test_a_phase_that_cannot_be_read_is_one_mistake(mistaken, schedule):
    said = mistaken("check", "m.yaml", lr=f"  lr: {schedule}")
    first, *rest = [line for line in said.out.splitlines() if "runs that code" not in line]
    assert said.code == 2 and re.fullmatch(r"m.yaml:\d+: schedule.lr.\d.\w+: .* is not an amount; write [^;]+", first)
    assert rest == ["m.yaml: 1 mistake"]


def test_a_misspelt_metric_leaves_the_line_that_names_its_result_alone(mistaken):
    said = mistaken("check", "m.yaml", metrics="metrics: [Acuracy]")
    assert said.out.splitlines() == [
        "m.yaml:1: imports: parts.py: a run of this config runs that code",
        "m.yaml:11: no metric is called 'Acuracy'; did you mean 'Accuracy'?",
        "m.yaml: 1 mistake",
    ]


def test_an_argument_of_the_type_before_an_override_is_left_out_on_the_command_line(command: Commands):
    words = ("check", "c.yaml", "data.train.dataset.type=Csv", "data.train.dataset.file=t.csv")
    said = command(*words, t_csv="label,a\n0,1\n")
    assert said.code == 2 and "'~data.train.dataset.split' leaves it out" in said.out and "_replace_" not in said.out
    assert command(*words, "~data.train.dataset.split").code == 0


@pytest.mark.parametrize(
    ("file", "text", "first"),
    [
        ("empty.yaml", "", "empty.yaml: the section `model` is missing; write model: "),
        ("empty.py", "", "empty.py:1: the section `model` is missing; write model: "),
        (
            "some.yaml",
            "model: {type: MLP, sizes: [4, 2]}\ndata: {}\n",
            "some.yaml:1: the section `train` is missing; write train: ",
        ),
    ],
)
def test_each_section_that_is_missing_is_told_in_the_same_way(command: Commands, file, text, first):
    Path(file).write_text(text)
    *said, last = [line for line in command("check", file).out.splitlines() if "Étude runs" not in line]
    assert said[0].startswith(first) and last.startswith(f"{file}: {len(said)} mistakes")
    assert all(line.startswith(file) and "` is missing; write " in line for line in said)
    assert ("data.train" in "".join(said)) == (file == "some.yaml")


@pytest.mark.parametrize("name", ["nope.csv", "other/nope.csv"])
def test_a_file_of_data_that_is_missing_is_told_once(mistaken, name):
    Path("nop.csv").touch()
    train = f"  train: {{dataset: {{type: Csv, file: {name}}}, batch_size: 4}}"
    hint = "; did you mean 'nop.csv'?" if name == "nope.csv" else ""
    assert f"m.yaml:5: warning: Csv: there is no file {name}{hint}\n" in mistaken("check", "m.yaml", train=train).out
    for word in ("train", "plan"):
        said = mistaken(word, "m.yaml", train=train)
        assert (said.code, said.err) == (2, f"etude: error: m.yaml:5: Csv: there is no file {name}{hint}\n")


@pytest.mark.parametrize("text", [
    "import etude.compat\n\netude.compat.install()\n\nfrom mmengine.runner import Runner\n\nRunner.from_cfg({})\n",
    "from etude import compat\n\ncompat.install()\nimport mmcv\nmodel = mmcv\n",
    "from mmengine.runner import Runner\n\nif __name__ == '__main__':\n    Runner.from_cfg({}).train()\n",
])  # fmt: skip
@pytest.mark.parametrize("word", ["check", "train", "plan"])
def test_a_script_is_no_config(command: Commands, word, text):
    said = command(word, "probe.py", probe_py=text)
    assert said.code == 2
    assert "probe.py:3: this is a script, not a config; run it by `etude exec probe.py`" in said.out + said.err


def test_a_config_may_try_itself_out(command: Commands):
    text = "model = 'MLPP'\nif __name__ == '__main__':\n    print(model)\n"
    assert "no model is called 'MLPP'" in command("check", "own.py", own_py=text).out


def test_a_flag_that_is_like_no_other_gets_no_suggestion(command: Commands):
    said = command("train", "c.yaml", "--best")
    assert said.code == 2 and "did you mean" not in said.err
    assert "did you mean '--restart'?" in command("train", "c.yaml", "--restat").err


def test_a_broken_import_is_the_only_mistake_told(command: Commands):
    said = command("check", "b.yaml", b_yaml="imports: [bad.py]\n" + CONFIG.replace("MLP", "Thing"), bad_py="def f(:\n")
    assert said.code == 2 and "bad.py:1: imports: bad.py cannot be read" in said.out + said.err
    assert "Thing" not in said.out + said.err


def test_an_error_is_printed_once(mistaken):
    said = mistaken("train", "m.yaml", "--folder", "run", loss="loss: PerSample")
    assert said.err.count("returned a tensor of shape") == 1
    log = Path("run/log.txt")
    assert not log.exists() or "returned a tensor of shape" in log.read_text()


def test_a_run_that_has_nothing_left_to_do_offers_no_resume(command: Commands):
    config = CONFIG + "hooks: [{type: EarlyStop, metric: accuracy, patience: 1}]\n"
    said = command("train", "e.yaml", "optim.lr=0", "train.epochs=9", "--folder", "run", e_yaml=config)
    assert said.code == 0 and "has not improved" in said.err and "resume" not in said.err


def test_two_checkpoint_hooks_share_the_store(command: Commands):
    config = CONFIG.replace("keep: 2", "keep: 9") + "hooks: [{type: Checkpoint, every: 5step}]\n"
    assert command("check", "k.yaml", k_yaml=config).code == 0
    assert command("train", "k.yaml", "-q", "--folder", "run").code == 0
    steps = sorted(int(path.name[5:]) for path in Path("run/checkpoints").glob("step-*"))
    assert steps == [5, 6, 10, 12]
    other = CONFIG + "hooks: [{type: Checkpoint, every: 5step, keep: 7}]\n"
    said = command("check", "k.yaml", k_yaml=other)
    assert said.code == 2 and "keep of a second Checkpoint has no effect" in said.out + said.err


def test_slow_runs_are_told_in_seconds_per_step():
    from etude.events.console import speed

    assert [speed(rate) for rate in (812.4, 2.54, 0.25)] == ["812 steps/s", "2.5 steps/s", "4.0 s/step"]
