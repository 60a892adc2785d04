"""Several datasets: mixed by weights, side by side, and several for validation."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

import etude
from etude.data import Digits, Loader, TensorData
from etude.data.datasets.several import Concat, Zip
from etude.data.samplers import Mixture
from etude.errors import ConfigError, UserError
from etude.metrics import Accuracy
from tests.cli.commands import CONFIG, Commands

MIXED = CONFIG.replace(
    "train: {dataset: {type: Digits, split: train}, batch_size: 256}",
    "train:\n    dataset: {type: Concat, datasets: [{type: Digits, split: train}, {type: Digits, split: val}]}\n"
    "    sampler: {type: Mixture, weights: [1, 3], size: 1600}\n    batch_size: 128",
).replace("val: {", "val_all: {dataset: {type: Digits, split: all}, batch_size: 300}\n  val: {")


def small(count, begin):
    return TensorData(torch.arange(begin, begin + count))


def test_a_mixture_has_the_shares_of_its_weights_and_repeats_what_is_short():
    joined = Concat([small(4, 0), small(100, 100)])
    loader = Loader(joined, batch_size=10, sampler=Mixture(joined, [1, 2], 30), seed=3)
    epochs = [[int(one) for batch in loader for one in batch] for _ in range(2)]
    for drawn in epochs:
        seen = Counter(drawn)
        assert sum(count for value, count in seen.items() if value < 100) == 10
        assert {seen[value] for value in range(4)} == {2, 3} and max(seen[v] for v in seen if v >= 100) == 1
    assert epochs[0] != epochs[1]
    resumed = Loader(joined, batch_size=10, sampler=Mixture(joined, [1, 2], 30), seed=3)
    resumed.load_state_dict({"epoch": 1, "batch": 2, "seed": 3, "samples": 104})
    assert [int(one) for batch in resumed for one in batch] == epochs[1][20:]
    shares = [Loader(joined, batch_size=10, sampler=Mixture(joined, [1, 2], 30), seed=3, shard=(r, 2)) for r in (0, 1)]
    halves = [[batch.tolist() for batch in share] for share in shares]
    assert [a + b for a, b in zip(*halves, strict=True)] == [epochs[0][i : i + 10] for i in (0, 10, 20)]


@pytest.mark.parametrize(
    ("weights", "size", "message"),
    [([1], None, "1 weights for 2 datasets"), ([1, -1], None, "must not be negative"), ([1, 1], 0, "size is 0")],
)
def test_a_wrong_mixture_is_refused(weights, size, message):
    with pytest.raises(ConfigError, match=message):
        Mixture(Concat([small(4, 0), small(4, 9)]), weights, size)
    with pytest.raises(ConfigError, match="no Concat of datasets"):
        Mixture(small(4, 0), [1, 1])


def test_samples_come_side_by_side():
    both = Zip({"a": small(3, 0), "b": small(8, 10)})
    loader = Loader(both, batch_size=4, shuffle=True, seed=1)
    first = list(loader)
    assert sorted(one for batch in first for one in batch["b"].tolist()) == list(range(10, 18))
    assert all(value < 3 for batch in first for value in batch["a"].tolist())
    again = Loader(both, batch_size=4, shuffle=True, seed=1, workers=1)
    assert [batch["a"].tolist() for batch in again] == [batch["a"].tolist() for batch in first]
    again.close()
    with pytest.raises(ConfigError, match="maps a name to each dataset"):
        Zip([small(3, 0)])


def test_a_config_mixes_data_and_validates_on_several_sets(workdir, capfd):
    command = Commands(capfd)
    checked = command("check", "c.yaml", "checkpoint.best=val_all/accuracy", c_yaml=MIXED)
    assert checked.code == 0, checked.out + checked.err
    wrong = command("check", "c.yaml", "checkpoint.best=val_all/acuracy")
    assert wrong.code == 2 and "did you mean 'val_all/accuracy'" in wrong.out + wrong.err
    alone = command("check", "c.yaml", "~data.val")
    assert (
        alone.code == 2
        and "data.val_all is measured in addition to data.val, which is missing" in alone.out + alone.err
    )
    said = command("verify-resume", "c.yaml", "train.epochs=1", "checkpoint.every=4step")
    assert said.code == 0, said.out + said.err
    run = etude.train("c.yaml", ["train.epochs=1"], options=etude.Options(folder="run", quiet=True))
    assert run.step == 13 and {"accuracy", "val_all/accuracy"} <= set(run.metrics)
    rows = [json.loads(line) for line in Path("run", "metrics.jsonl").read_text().splitlines()]
    assert any(row.get("split") == "val_all" or "val_all/accuracy" in row for row in rows)


def test_a_trainer_validates_on_several_sets(workdir):
    model = nn.Linear(64, 10)
    trainer = etude.Trainer(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=nn.CrossEntropyLoss(), metrics=[Accuracy()],
        quiet=True, folder="run",
    )  # fmt: skip
    val = {"val": Digits("val"), "val_all": Digits("all")}
    run = trainer.fit(Digits("train"), val=val, epochs=2, checkpoint="1ep", best="val_all/accuracy")
    measured = trainer.evaluate(Digits("all"))
    assert run.metrics["val_all/accuracy"] == measured["accuracy"] != run.metrics["accuracy"]
    with pytest.raises(UserError, match="a mapping with val and others that are called val_"):
        trainer.fit(Digits("train"), val={"clean": Digits("val")}, epochs=1)
