"""A model that validates and predicts itself, metrics that ask the model, weights of classes, files beside parts.py."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import etude
from etude.data import Digits
from etude.errors import ConfigError, ReturnError
from etude.metrics import Accuracy
from tests.cli.commands import CONFIG, Commands

PARTS = """
import etude
from nets import Own

etude.MODELS.register(Own)

@etude.METRICS.register
class Asks:
    sums = ("differs",)
    def __init__(self): self.reset()
    def reset(self): self.differs = 0.0
    def update(self, output, target, run):
        self.differs += float(run.model.training) + float((run.model(run.batch[0]) - output).abs().max())
    def compute(self): return self.differs
"""
NETS = """
import torch

class Own(torch.nn.Linear):
    def __init__(self): super().__init__(64, 10)

    def validation_step(self, batch):
        inputs, target = batch
        output = self(inputs)
        return {"margin": output.max(1).values.mean(), "count": float(len(target)), "output": output, "target": target}

    def predict_step(self, batch):
        inputs = batch[0] if isinstance(batch, list | tuple) else batch
        return [{"scores": one[: int(one.argmax())], "label": one.argmax()} for one in self(inputs)]
"""
OWN = CONFIG.replace("model: {type: MLP, sizes: [64, 16, 10]}", "imports: [parts.py]\nmodel: Own").replace(
    "*.bias", "bias"
)


@pytest.fixture
def etude_command(workdir, capfd):
    Path("parts.py").write_text(PARTS)
    Path("nets.py").write_text(NETS)
    return Commands(capfd)


def test_a_model_validates_and_predicts_itself(etude_command):
    config = OWN.replace("best: accuracy", "best: margin").replace("metrics: [Accuracy]", "metrics: [Accuracy, Asks]")
    checked = etude_command("check", "c.yaml", c_yaml=config)
    assert checked.code == 0, checked.out + checked.err
    assert etude_command("train", "c.yaml", "--folder", "known", "-q", "train.epochs=1", "metrics=[Accuracy]").code == 0
    said = etude_command("train", "c.yaml", "--folder", "run", "-q")
    assert said.code == 0, said.err
    run = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    last = next(row for row in reversed(run) if row.get("split") == "val" or "val/margin" in row)
    last = {key.removeprefix("val/"): value for key, value in last.items()}
    assert {"margin", "count", "accuracy", "asks"} <= set(last) and "loss" not in last
    assert last["count"] == 90 and last["asks"] == 0.0
    assert etude_command("predict", "run", "val", "-o", "out.jsonl", "--with", "targets,inputs").code == 0
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    digits = Digits("val")
    assert len(rows) == 360 and all(len(row["output"]["scores"]) == row["output"]["label"] for row in rows)
    assert [row["target"] for row in rows] == digits.tensors[1].tolist()
    assert torch.allclose(torch.tensor(rows[7]["input"]), digits.tensors[0][7])
    refused = etude_command("predict", "run", "val", "-o", "out.csv")
    assert refused.code == 2 and "another size for each sample; write a .jsonl file" in refused.err
    assert "did you mean 'targets'" in etude_command("predict", "run", "-o", "o.csv", "--with", "target").err


def test_several_processes_validate_as_one_does(etude_command):
    both = {}
    for name, words in {
        "one": [],
        "two": ["--nproc", "2"],
        "fsdp": ["--nproc", "2", "+parallel.strategy=fsdp"],
    }.items():
        said = etude_command("train", "c.yaml", "--folder", name, "-q", "train.epochs=1", *words, c_yaml=OWN)
        assert said.code == 0, said.err
        rows = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
        both[name] = next(row for row in rows if any("margin" in key for key in row))
    for name in ("two", "fsdp"):
        for key, value in both["one"].items():
            if key.endswith("count"):  # of the samples that a process has
                continue
            assert both[name][key] == value or math.isclose(both[name][key], value, rel_tol=1e-5), key


def test_predictions_as_parquet_have_targets(etude_command):
    import pandas

    config = CONFIG + "train_: 0\n"
    assert etude_command("train", "c.yaml", "--folder", "run", "-q", c_yaml=config.replace("train_: 0\n", "")).code == 0
    assert etude_command("predict", "run", "-o", "out.parquet", "--with", "targets").code == 0
    table = pandas.read_parquet("out.parquet")
    assert list(table.columns[:2]) == ["sample", "label"] and len(table) == 360
    assert table["target"].tolist() == Digits("val").tensors[1].tolist()


class Net(torch.nn.Linear):
    def __init__(self, given):
        super().__init__(64, 10)
        self.given = given

    def validation_step(self, batch):
        return self.given


class TwoArguments(torch.nn.Linear):
    def validation_step(self, batch, index):
        return {}


@pytest.mark.parametrize(
    ("given", "metrics", "message"),
    [
        ({"loss": "high"}, [], r"Net.validation_step \(.*test_own_validation.py:\d+\) returned a str for 'loss'"),
        (None, [], "returned None for 'loss'; it gives numbers"),
        ({"boxes": torch.zeros(3)}, [], r"returned a tensor of shape \(3,\) for 'boxes'"),
        ({"loss": 1.0}, [Accuracy()], "returned no `output` and `target`, which the metric accuracy measures"),
    ],
)
def test_what_a_validation_step_returns_is_looked_at_before_training(given, metrics, message):
    model = Net(given)
    trainer = etude.Trainer(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.CrossEntropyLoss(), metrics=metrics,
        quiet=True, hooks=[lambda run: pytest.fail("a step was done")],
    )  # fmt: skip
    with pytest.raises(ReturnError, match=message):
        trainer.fit(Digits("train"), val=Digits("val"), epochs=1)


def test_a_validation_step_takes_a_batch_alone():
    model = TwoArguments(64, 10)
    with pytest.raises(ConfigError, match="takes a batch, and nothing else"):
        etude.Trainer(
            model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.CrossEntropyLoss(), quiet=True
        ).fit(Digits("train"), val=Digits("val"), epochs=1)


def test_weights_of_classes_are_tensors_in_a_config(etude_command):
    weights = "loss={type: CrossEntropyLoss, weight: [1, 1, 1, 1, 1, 1, 1, 1, 1, 5]}"
    assert etude_command("check", "c.yaml", weights, c_yaml=CONFIG).code == 0
    run = etude.train("c.yaml", [weights], options=etude.Options(folder="run", quiet=True))
    model, digits = run.model.eval(), Digits("val")
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0] * 9 + [5.0]))
    with torch.no_grad():
        parts = [(loss(model(x), y), len(y)) for x, y in torch.utils.data.DataLoader(digits, 90)]
    wanted = sum(float(value) * count for value, count in parts) / len(digits)
    assert run.metrics["loss"] == pytest.approx(wanted, rel=1e-5)
    wrong = etude_command("check", "c.yaml", "loss={type: CrossEntropyLoss, weight: high}")
    assert wrong.code == 2 and "weight must be a number or a list of numbers or null" in wrong.out + wrong.err


def test_another_project_has_its_own_files_of_the_same_names(etude_command):
    for name, size in (("a", 10), ("b", 12)):
        Path(name).mkdir()
        Path(name, "parts.py").write_text("import etude\nimport beside_me\nSIZE = beside_me.SIZE\n")
        Path(name, "beside_me.py").write_text(f"SIZE = {size}\n")
        config = CONFIG.replace("model:", "imports: [parts.py]\nmodel:")
        assert (
            etude_command("train", f"{name}/c.yaml", "-q", "--folder", f"r{name}", **{f"{name}/c_yaml": config}).code
            == 0
        )
        import sys

        assert size == sys.modules["parts"].SIZE
