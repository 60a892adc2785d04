"""What a config refuses, ``Trainer`` refuses too: one set of functions checks both. And what it takes is recorded."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import etude
from etude.cli import main
from etude.data import Digits, TensorData
from etude.data.collate import Mixup
from etude.errors import ConfigError, UserError
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.early_stop import EarlyStop
from etude.metrics import AUROC, Accuracy
from etude.report.compare import compare
from etude.schedules.curves import Cosine, Linear

CONFIG = """
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 64}
  val: {dataset: {type: Digits, split: val}, batch_size: 64}
optim: {type: SGD, lr: 0.1}
train: {epochs: 2}
metrics: [Accuracy]
checkpoint: {every: 1ep}
"""


def data(count=40):
    generator = torch.Generator().manual_seed(1)
    return TensorData(torch.randn(count, 64, generator=generator), torch.arange(count) % 10)


def make(**extra):
    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return etude.Trainer(model, **{"optimizer": optimizer, "loss": nn.CrossEntropyLoss(), "quiet": True, **extra})


#: Overrides of the config; what Trainer and fit get; what both are answered.
WRONG = [
    (["+optim.clip_norm=-1"], {"clip_norm": -1}, {}, "clip_norm must be more than zero, not -1"),
    (["+optim.clip_value=0"], {"clip_value": 0.0}, {}, "clip_value must be more than zero, not 0"),
    (["train.accumulate=0"], {"accumulate": 0}, {}, "accumulate must be more than zero, not 0"),
    (["train.accumulate=1.5"], {"accumulate": 1.5}, {}, "accumulate must be a whole number, not 1.5"),
    (["train.nonfinite=sotp"], {"nonfinite": "sotp"}, {}, "did you mean 'stop'?"),
    (["train.nonfinite_limit=0"], {"nonfinite_limit": 0}, {}, "nonfinite_limit must be more than zero, not 0"),
    (["train.seed=x"], {"seed": "x"}, {}, "seed must be a whole number"),
    (["train.threads=0"], {"threads": 0}, {}, "threads must be more than zero, not 0"),
    (["train.epochs=0"], {}, {"epochs": 0}, "epochs must be more than zero, not 0"),
    (["train.epochs=true"], {}, {"epochs": True}, "epochs must be a whole number"),
    (["train.validate=sometimes"], {}, {"val": data(), "validate": "sometimes"}, "validate: 'sometimes' is not an amount"),
    (["train.limit_batches=0"], {}, {"limit_batches": 0}, "limit_batches must be more than zero, not 0"),
    (["train.overfit=-1"], {}, {"overfit": -1}, "overfit must be more than zero, not -1"),
    (["train.max_time=long"], {}, {"max_time": "long"}, "max_time: 'long' is not an amount"),
    (["data.train.batch_size=0"], {}, {"batch_size": 0}, "batch_size must be more than zero, not 0"),
    (["data.train.workers=-1"], {}, {"workers": -1}, "workers must be zero or more, not -1"),
    (["checkpoint.keep=0"], {}, {"checkpoint": {"keep": 0}}, "keep must be at least 1, not 0"),
    (["checkpoint.mode=up"], {}, {"checkpoint": {"mode": "up"}}, "mode is min or max, not 'up'"),
    (["+checkpoint.best=acuracy"], {"metrics": [Accuracy()]}, {"val": data(), "checkpoint": "1ep", "best": "acuracy"},
     "Checkpoint: no metric gives 'acuracy'; did you mean 'accuracy'?"),
    (["+hooks.0={type: EarlyStop, metric: dice}"], {"hooks": [EarlyStop("dice")], "metrics": [Accuracy()]},
     {"val": data()}, "EarlyStop: no metric gives 'dice'"),
    (["~data.val", "+checkpoint.best=loss"], {}, {"checkpoint": "1ep", "best": "loss"}, "needs an evaluation"),
    (["~data.val"], {"metrics": [Accuracy()]}, {}, "Accuracy measures nothing: metrics need"),
    (["~data.val", "train.validate=1ep", "~metrics"], {}, {"validate": "1ep"}, "is missing"),
    (["metrics=[Accuracy, Accuracy]"], {"metrics": [Accuracy(), Accuracy()]}, {"val": data()},
     "two metrics give a result 'accuracy'"),
    (["+schedule.lr=[{type: Cosine}, {type: Linear}]"], {"schedule": ["Cosine", Linear(0.0, 1.0)]}, {},
     "this phase of lr lasts until the end, but another one follows"),
    (["+schedule.lr=[{type: Linear, until: 9ep}, {type: Cosine}]"], {"schedule": [("Linear", "9ep"), Cosine()]}, {},
     "this phase of lr lasts until 9ep, but the run ends at 2ep"),
    (["+log.to=[wandbb]"], {}, {"log": ["wandbb"]}, "no writer is called 'wandbb'; did you mean 'wandb'?"),
    (["+parallel.strategy=dpp"], {"parallel": "dpp"}, {}, "did you mean 'ddp'?"),
    (["+hooks.0={type: EMAA}"], {"hooks": ["EMAA"]}, {}, "no hook is called 'EMAA'; did you mean 'EMA'?"),
    (["+hooks.0={type: EMA, every: soon}"], {"hooks": [{"type": "EMA", "every": "soon"}]}, {}, "is not an amount"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "own", "fit", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_setting_is_refused_with_the_same_words_both_ways(workdir, overrides, own, fit, message):
    Path("c.yaml").write_text(CONFIG)
    with pytest.raises(ConfigError) as in_config:
        etude.train("c.yaml", overrides, options=etude.Options(folder="config", quiet=True))
    with pytest.raises(ConfigError) as in_python:
        make(folder="python", **own).fit(data(), **{"epochs": 2, **fit})
    assert message in str(in_config.value) and message in str(in_python.value)
    assert "data." not in str(in_python.value) and "train." not in str(in_python.value)
    assert not Path("config").exists() and not Path("python").exists()


@pytest.mark.parametrize(
    ("train", "fit", "message"),
    [
        ([], {}, "train gives no batch: the dataset is empty"),
        (data(), {"val": []}, "val gives no batch: the dataset is empty"),
        (torch.utils.data.DataLoader(data(), 4), {"batch_size": 8}, "batch_size=8 does nothing: the data is a DataLoader"),
        ([next(iter(torch.utils.data.DataLoader(data(), 4)))], {"workers": 2}, "workers=2 does nothing: the data is a list"),
        (torch.utils.data.DataLoader(data(), 4, shuffle=True), {"overfit": 1}, "this DataLoader shuffles; pass its dataset"),
        (data(), {"log": "wandb"}, r"log='wandb' is no interval; write log=\['wandb'\]"),
    ],
)  # fmt: skip
def test_data_and_arguments_that_only_python_can_mix_up_are_refused(train, fit, message):
    with pytest.raises(UserError, match=message):
        make().fit(train, epochs=1, **fit)


def test_two_metrics_of_one_class_with_different_results_are_both_measured():
    trainer = make(metrics=[Accuracy(), Accuracy(top=5)])
    run = trainer.fit(data(), val=data(), epochs=1)
    assert {"accuracy", "accuracy_top5"} <= set(run.metrics)
    assert set(make().evaluate(data(), metrics=[Accuracy()])) == {"loss", "accuracy"}


def test_what_a_trainer_was_given_is_in_its_plan_and_compared(workdir):
    def trained(folder, **changes):
        own = {
            "metrics": [Accuracy()],
            "schedule": [("Linear", "2step"), "Cosine"],
            "seed": 3,
            "clip_norm": 1.0,
        } | changes
        trainer = make(folder=folder, hooks=[{"type": "EMA", "momentum": 0.1}], **own)
        trainer.fit(data(), val=data(20), epochs=2, batch_size=10, checkpoint={"keep": 2, "best": "accuracy"})

    trained("a")
    trained("b", clip_norm=2.0, loss=nn.CrossEntropyLoss(label_smoothing=0.1), seed=4)
    trained("c")
    plan = yaml.safe_load(Path("a/plan.yaml").read_text())
    assert plan["optim"] == {"type": "SGD", "lr": 0.1, "clip_norm": 1.0}
    assert plan["train"] == {"epochs": 2, "seed": 3} and plan["loss"] == {"type": "CrossEntropyLoss"}
    assert plan["data"]["train"] == {"dataset": {"type": "TensorData", "samples": 40}, "batch_size": 10}
    assert plan["checkpoint"] == {"every": "1ep", "keep": 2, "best": "accuracy"}
    assert plan["hooks"] == [{"type": "EMA", "momentum": 0.1}]
    assert plan["schedule"]["lr"] == [{"type": "Linear", "until": "2step"}, {"type": "Cosine"}]
    assert plan["model"]["parameters"] == 650
    found = {one.key: (one.a, one.b) for one in compare(Path("a"), Path("b")) if one.kind == "plan"}
    assert found == {
        "train.seed": (3, 4), "optim.clip_norm": (1.0, 2.0), "loss.label_smoothing": (None, 0.1),
    }  # fmt: skip
    assert not [one for one in compare(Path("a"), Path("c")) if one.kind in ("plan", "metric")]
    for wrong in ("a", "a/plan.yaml"):
        with pytest.raises(UserError, match=r"was not trained from a config; etude.load\(folder, model=…\)"):
            etude.load_plan(wrong)


class Kept:
    """A writer of one's own."""

    def __init__(self):
        self.rows = []

    def write(self, record):
        self.rows.append(dict(record.values))

    def close(self): ...


def test_writers_are_given_by_name_by_mapping_and_as_objects(workdir):
    own = Kept()
    make(folder="run").fit(data(), epochs=1, batch_size=10, log={"every": "1step", "to": ["csv", own]})
    assert len(own.rows) == 4 and "loss" in own.rows[0]
    assert list(Path("run").glob("*.csv"))
    assert yaml.safe_load(Path("run/plan.yaml").read_text())["log"] == {"every": "1step", "to": ["csv"]}
    with pytest.raises(UserError, match="writers and trackers need a folder"):
        make().fit(data(), epochs=1, log=["csv"])


def test_a_short_run_in_python_takes_what_the_command_line_takes(workdir):
    run = make(folder="fast").fit(data(), val=data(), epochs=9, batch_size=4, fast_dev_run=True, checkpoint="1ep")
    assert run.step == 2 and "loss" in run.metrics and not Path("fast").exists()
    run = make(folder="limit").fit(data(), epochs=2, batch_size=4, limit_batches=3)
    assert run.step == 6 and yaml.safe_load(Path("limit/plan.yaml").read_text())["train"]["limit_batches"] == 3
    seen = []
    learnt = make(hooks=[lambda run: seen.append(run.batch[1].tolist())])
    learnt.fit(data(), val=data(), epochs=2, batch_size=4, overfit=1)
    assert len(seen) == 20 and all(labels == seen[0] for labels in seen)
    run = make(folder="time").fit(data(), epochs=10_000, batch_size=4, max_time="1s", checkpoint="1ep")
    assert run.exit_code == 75 and "time is up" in run.stopping


def test_a_limit_holds_for_validation_batches_of_any_kind():
    batches = list(torch.utils.data.DataLoader(data(), 10))
    seen = []
    trainer = make()
    trainer.on("after_eval_step")(lambda run: seen.append(len(run.batch[0])))
    trainer.fit(data(), val=batches, epochs=1, limit_batches=2)
    trainer.fit(data(), val=torch.utils.data.DataLoader(data(), 20), epochs=1, limit_batches=1)
    assert seen == [10, 10, 20]


def test_weights_to_start_from_and_the_way_to_compute(workdir):
    first = make(folder="first")
    first.fit(data(), epochs=1, batch_size=10, checkpoint="1ep")
    torch.save(first.model.state_dict(), "weights.pth")
    before, threads = first.model.weight.detach().clone(), torch.get_num_threads()
    torch.manual_seed(5)
    model = nn.Linear(64, 10)
    seen = []
    trainer = etude.Trainer(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0), loss=nn.CrossEntropyLoss(), quiet=True,
        init_from="weights.pth", threads=1, deterministic="warn", folder="second",
    )  # fmt: skip
    trainer.on("before_step")(lambda run: seen.append(torch.are_deterministic_algorithms_enabled()))
    try:
        trainer.fit(data(), epochs=1, batch_size=40)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    assert torch.equal(model.weight, before) and seen == [True]
    assert yaml.safe_load(Path("second/plan.yaml").read_text())["init_from"] == "weights.pth"
    with pytest.raises(ConfigError, match="init_from.path is missing"):
        make(init_from={"best": True})


def test_a_checkpoint_hook_is_saved_by_once(workdir):
    run = make(folder="run").fit(data(), epochs=2, batch_size=10, checkpoint=Checkpoint(keep=1))
    assert sum(isinstance(hook, Checkpoint) for hook in run.hooks) == 1
    status = json.loads(Path("run/status.json").read_text())
    assert status["plan"]["hooks.0.type"] == "Checkpoint"


def test_a_usual_run_warns_of_nothing(workdir):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer = make(metrics=[Accuracy()], folder="run", schedule=lambda at: 1 - at, hooks=["EMA"])
        trainer.fit(Digits("train"), val=Digits("val"), epochs=1, checkpoint="1ep", best="accuracy")


@pytest.mark.parametrize(
    ("overrides", "own", "fit", "message"),
    [
        (["+log.every=20"], {}, {"log": 20}, "20 has no unit; write 20step or 20ep"),
        (["checkpoint.every=1"], {}, {"checkpoint": {"every": 1}}, "1 has no unit; write 1step or 1ep"),
        (["train.validate=2"], {}, {"val": data(), "validate": 2}, "2 has no unit; write 2step or 2ep"),
        (["train.max_time=3600"], {}, {"max_time": 3600}, "3600 has no unit; write 3600s, 20min or 3h"),
        (
            ["schedule.lr=[{type: Linear, until: 5}]"],
            {"schedule": [("Linear", 5)]},
            {},
            "5 has no unit; write 5step or",
        ),
        (
            ["hooks=[{type: EMA, every: 5}]"],
            {"hooks": [{"type": "EMA", "every": 5}]},
            {},
            "5 has no unit; write 5step or",
        ),
        (["checkpoint.forever=10"], {}, {"checkpoint": {"forever": 10}}, "10 has no unit"),
    ],
)
def test_a_number_without_a_unit_is_refused_both_ways(workdir, overrides, own, fit, message):
    Path("c.yaml").write_text(CONFIG)
    with pytest.raises(ConfigError) as in_config:
        etude.train("c.yaml", overrides, options=etude.Options(folder="config", quiet=True))
    with pytest.raises(ConfigError) as in_python:
        make(folder="python", **own).fit(data(), **{"epochs": 2, **fit})
    assert message in str(in_config.value) and message in str(in_python.value)
    with pytest.raises(ConfigError, match="50 has no unit"):
        make().on("after_step", every=50)(print)


def test_what_stands_where_something_else_is_due_is_told_with_its_place():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for name in ("update", "loop", "loss"):
        for given in (scheduler, scheduler.step):
            with pytest.raises(
                UserError, match=rf"{name}: StepLR is a scheduler of torch; pass it as Trainer\(schedule="
            ):
                make(**{name: given})
        with pytest.raises(UserError, match=rf"{name}: SGD is an optimizer; pass it as Trainer\(optimizer=…\)"):
            make(**{name: optimizer})
    for several in ({"clean": data(), "noisy": data()}, [data(), data()], (data(),)):
        with pytest.raises(UserError, match="and measure others with trainer.evaluate"):
            make().fit(data(), val=several, epochs=1)
        with pytest.raises(UserError, match="and measure others with trainer.evaluate"):
            make().evaluate(several)
    for word, advice in {"logger": r"log=\['wandb'\]", "profiler": "hooks=", "lr_scheduler": "schedule="}.items():
        with pytest.raises(TypeError, match=f"has no parameter '{word}'; write .*{advice}"):
            make(**{word: "wandb"})


@pytest.mark.parametrize(
    ("overrides", "train", "own", "fit", "message"),
    [
        (["+data.val.shuffle=true"], None, {}, {"val": torch.utils.data.DataLoader(data(), 4, shuffle=True)},
         "val is shuffled: results do not depend on the order"),
        (["+data.train.shuffle=false"], torch.utils.data.DataLoader(data(), 4), {}, {}, "train is not shuffled"),
        (["optim.lr=0"], None, {"lr": 0.0}, {}, "lr is 0: nothing will be learnt"),
        (["optim.lr=1000", "train.nonfinite=skip", "train.nonfinite_limit=9"], None,
         {"lr": 1000.0, "nonfinite": "skip", "nonfinite_limit": 9}, {}, "lr is 1000; SGD learns nothing with more than 100"),
        (["train.accumulate=99"], None, {"accumulate": 99}, {}, "accumulate is 99, and an epoch has"),
        (["train.precision=fp16"], None, {"precision": "fp16"}, {}, "precision: fp16 on a CPU is slower"),
        (["train.limit_batches=500"], None, {}, {"limit_batches": 500}, "limit_batches is 500, and an epoch has"),
        (["train.overfit=500"], None, {}, {"overfit": 500}, "overfit is 500, and an epoch has"),
        (["metrics=[AUROC]"], None, {"metrics": [AUROC()]}, {"val": data()}, "AUROC of 10 classes is the mean over each"),
        (["model.sizes=[64, 20]"], None, {"classes": 20}, {}, "the model gives 20 scores, and the training data has 10 classes"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_setting_that_runs_and_does_something_else_is_told_both_ways(
    workdir, capfd, overrides, train, own, fit, message
):
    Path("c.yaml").write_text(CONFIG)
    assert main(["train", "c.yaml", "--folder", "config", "-q", "train.epochs=1", *overrides]) == 0
    said = capfd.readouterr().err
    assert message in said and ("c.yaml" in said or "override" in said)
    own = dict(own)
    model = nn.Linear(64, own.pop("classes", 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=own.pop("lr", 0.01))
    trainer = etude.Trainer(model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), quiet=True, **own)
    with pytest.warns(UserWarning, match=message):
        trainer.fit(data() if train is None else train, epochs=1, **{"batch_size": None if train else 4, **fit})


def test_validation_that_mixes_samples_and_two_optimizers_for_one_parameter_are_refused_both_ways(workdir):
    Path("c.yaml").write_text(CONFIG)
    with pytest.raises(ConfigError, match=r"c.yaml.*|override.*Mixup mixes the samples of data.val"):
        etude.load_plan("c.yaml", ["+data.val.collate={type: Mixup, classes: 10}"])
        etude.train("c.yaml", ["+data.val.collate={type: Mixup, classes: 10}"], options=etude.Options(folder="a"))
    with pytest.raises(ConfigError, match=r"Mixup mixes the samples of val"):
        make().fit(data(), val=torch.utils.data.DataLoader(data(), 4, collate_fn=Mixup(10)), epochs=1)
    several = [
        "~optim",
        "optim.a={type: SGD, lr: 0.1, params: ['*']}",
        "optim.b={type: SGD, lr: 0.1, params: ['*.bias']}",
    ]
    message = "the optimizers 'a' and 'b' hold the same parameter, of shape"
    with pytest.raises(ConfigError, match=message):
        etude.train("c.yaml", several, options=etude.Options(folder="b"))
    model = nn.Linear(64, 10)
    both = {name: torch.optim.SGD(model.parameters(), lr=0.1) for name in "ab"}
    with pytest.raises(ConfigError, match=message):
        etude.Trainer(model, optimizer=both, loss=nn.CrossEntropyLoss())
    assert not Path("a").exists() and not Path("b").exists()


def test_rules_of_groups_that_claim_the_same_parameters_for_different_values_are_told(workdir):
    rules = "groups: [{match: 'layers.0.*', lr_mult: 0.1}, {kind: bias, weight_decay: 0.5}]"
    Path("c.yaml").write_text(CONFIG.replace("lr: 0.1", f"lr: 0.1, {rules}").replace("[64, 10]", "[64, 8, 10]"))
    message = r"c.yaml:7: layers.0.bias fits .*kind 'bias': the first rule counts, without weight_decay 0.5"
    with pytest.warns(UserWarning, match=message):
        etude.train("c.yaml", options=etude.Options(folder="a", quiet=True))


def test_the_first_beta_is_scheduled_by_its_name(workdir):
    Path("c.yaml").write_text(CONFIG.replace("SGD", "AdamW"))
    run = etude.train(
        "c.yaml", ["+schedule.beta1=[{type: Linear, from: 1, to: 0.5}]"], options=etude.Options(folder="a", quiet=True)
    )
    assert run.optimizers[""].param_groups[0]["betas"][0] < 0.5
