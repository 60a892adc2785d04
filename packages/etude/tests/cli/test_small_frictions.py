"""Small things that new users trip over: each is answered in one line, or works as they expect."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from pathlib import Path

import pytest
import torch

import etude
from etude.data import Digits
from tests.cli.commands import Commands

NUMBERS = """
import torch, etude

@etude.DATASETS.register
class Numbers(torch.utils.data.Dataset):
    def __init__(self, kind: str = "float"):
        self.kind = kind
    def __len__(self):
        return 32
    def __getitem__(self, index):
        inputs = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return inputs, inputs.sum() if self.kind == "float" else inputs.sum().double()
"""
REGRESSION = """
imports: [numbers_.py]
model: {type: MLP, sizes: [4, 1]}
loss: MSELoss
data: {train: {dataset: Numbers, batch_size: 8}, val: {dataset: Numbers, batch_size: 8}}
optim: {type: SGD, lr: 0.01}
train: {epochs: 1}
metrics: [Accuracy]
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train c.yaml --epochs 3", "unrecognized: --epochs 3; write train.epochs=3"),
        ("train c.yaml --learning-rate=1e-3", "write optim.lr=1e-3"),
        ("train c.yaml --resum", "unrecognized: --resum; did you mean '--resume'?"),
        ("train c.yaml --resume runs/nope", "runs/nope: no such file or checkpoint"),
        ("train c.yaml optim.lr=fast", "lr must be a number, not the string 'fast'"),
        (
            "train c.yaml imports=[nowhere.py]",
            "override 'imports=[nowhere.py]': imports: no module or file 'nowhere.py'",
        ),
        ("test", "required: CONFIG; see `etude test --help`"),
        ("predict runs/nope -o o.csv", "runs/nope: no such run; `etude runs` lists"),
        ("test runs/nope", "runs/nope: no such run or config; `etude runs` lists"),
        ("trian c.yaml", "no command 'trian'; did you mean 'train'?"),
        ("c.yaml", "no command 'c.yaml'; did you mean `etude train c.yaml`?"),
        ("nowhere.py", "no command 'nowhere.py'; did you mean `etude train nowhere.py`?"),
        ("exec c.yaml", "c.yaml is a config, not a script; train it by `etude train c.yaml`"),
        ("ckpt shwo c", "no command 'shwo'; did you mean 'show'?"),
        ("completion fish", "no shell 'fish'; known: bash, tcsh, zsh; see `etude completion --help`"),
        ("test c.yaml", "name a checkpoint: etude test CONFIG CHECKPOINT, or etude test RUN"),
        ("show", "there is no folder runs; `etude train CONFIG` makes it"),
        ("diff runs/a", "required: B; see `etude diff --help`"),
        ("show runs --tail x", "--tail: 'x' is not a whole number; see `etude show --help`"),
        ("train c.yaml --seed 1.5", "--seed: '1.5' is not a whole number"),
        ("train c.yaml --nproc 0", "--nproc: '0' is not a whole number of at least 1"),
        ("train c.yaml optim.lr", "'optim.lr' is not an override; write optim.lr=VALUE, or ~optim.lr to leave it out"),
        ("train c.yaml optim.lr = 0.1", "'optim.lr = 0.1' is not an override; write optim.lr=0.1 without spaces"),
        ("train c.yaml =", "'=' is not an override; write key=value without spaces"),
        ("check c.yaml optim.lr", "there is no file optim.lr; to change a value, write optim.lr=VALUE"),
        ("train c.yaml model.sizes=[64", "override 'model.sizes=[64': not valid YAML: did not find expected"),
        ("train c.yaml data.train.batch_size=-4", "data.train.batch_size must be more than zero, not -4"),
        ("fit-batch nowhere.yaml", "etude: error: there is no file nowhere.yaml"),
        ("fit-batch c.yaml optim.rl=1", "etude: error: override 'optim.rl=1': AdamW has no parameter 'rl'"),
        ("verify-resume c.yml", "there is no file c.yml; did you mean 'c.yaml'?"),
        ("init c.yaml", "c.yaml is a file; name a folder for the project"),
        ("plan .", ". is a folder; did you mean 'c.yaml'?"),
    ],
)
def test_a_slip_on_the_command_line_is_answered_in_a_line(command: Commands, words: str, said: str):
    done = command(*words.split())
    assert done.code == 2 and said in done.err and len(done.err.splitlines()) == 1


def test_a_run_that_is_missing_is_named_with_the_near_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "runs/digits/20260101-1200").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(etude.ConfigError.__base__, match="did you mean 'runs/digits/20260101-1200'"):
        etude.load("runs/digits/20260101-120")


def test_a_metric_of_classes_is_refused_where_targets_are_numbers(command: Commands):
    said = command("check", "n.yaml", n_yaml=REGRESSION, numbers__py=NUMBERS)
    assert said.code == 0 and "n.yaml:8: warning: Accuracy compares classes, and the loss MSELoss" in said.out
    said = command("train", "n.yaml", "--folder", "run")
    assert said.code == 2 and "n.yaml:8: metric accuracy, of (8,) and (8,): a target is" in said.err
    assert "RMSE and R2 measure numbers" in said.err
    assert "Log acts every" not in said.err, "nobody wrote that interval"


def test_a_loss_that_refuses_its_target_is_named_and_not_the_model(command: Commands):
    config = REGRESSION.replace("MSELoss", "CrossEntropyLoss")
    said = command("train", "n.yaml", "metrics=[]", n_yaml=config, numbers__py=NUMBERS)
    message = "n.yaml:5: Numbers.__getitem__ (numbers_.py:10) gives targets of (8,) float32; the loss CrossEntropyLoss"
    assert said.code == 2 and message in said.err and "model MLP" not in said.err


def test_results_and_predictions_say_what_they_belong_to(command: Commands):
    assert command("train", "c.yaml", "-q", "--folder", "run").code == 0
    said = command("test", "run", "--best")
    assert "etude: run/checkpoints/step-" in said.err and "on the val data" in said.err
    assert [line.split()[0] for line in said.out.splitlines()] == ["loss", "accuracy"]
    assert command("predict", "run", "val", "-o", "o.jsonl").code == 0
    rows = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    assert [row["sample"] for row in rows] == list(range(len(rows)))
    assert command("report", "run").code == 0 and list(Path().glob("*.html"))


def test_one_number_per_sample_is_written_as_a_number(command: Commands):
    config = REGRESSION.replace("[Accuracy]", "[RMSE]")
    assert command("train", "n.yaml", "-q", "--folder", "run", n_yaml=config, numbers__py=NUMBERS).code == 0
    assert command("predict", "run", "val", "-o", "o.jsonl").code == 0
    row = json.loads(Path("o.jsonl").read_text().splitlines()[3])
    assert row["sample"] == 3 and isinstance(row["output"], float)


def test_a_finished_run_that_is_resumed_keeps_its_time(command: Commands):
    assert command("train", "c.yaml", "-q", "--folder", "run").code == 0
    before = json.loads(Path("run/status.json").read_text())
    said = command("train", "c.yaml", "--folder", "run", "--resume")
    assert said.code == 0 and "nothing is left to do" in said.err
    after = json.loads(Path("run/status.json").read_text())
    assert [after[key] for key in ("began", "seconds", "time")] == [before[key] for key in ("began", "seconds", "time")]
    assert command("train", "c.yaml", "-q", "--folder", "run", "--resume", "train.epochs=3").code == 0
    longer = json.loads(Path("run/status.json").read_text())
    assert longer["began"] == before["began"] and longer["seconds"] > before["seconds"]


@pytest.mark.parametrize(("name", "end"), [("SIGINT", KeyboardInterrupt), ("SIGTERM", SystemExit)])
def test_a_signal_ends_a_script_after_the_save(name: str, end: type[BaseException], tmp_path: Path):
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = etude.Trainer(
        model, optimizer=optimizer, loss=torch.nn.CrossEntropyLoss(), folder=tmp_path / "run", quiet=True
    )

    @trainer.on("after_step")
    def interrupt(run: etude.Run) -> None:
        if run.step == 2:
            os.kill(os.getpid(), getattr(signal, name))

    with pytest.raises(end):
        trainer.fit(Digits("train"), epochs=1, batch_size=64, checkpoint="1ep")
    assert (tmp_path / "run/checkpoints/step-000000003/manifest.json").is_file()


def test_counts_are_printed_as_they_are():
    from etude.events.console import number

    assert [number(value) for value in (48.0, 0.5, 1.0, 12.5, 3e-5)] == [
        "48",
        "0.5000",
        "1.0000",
        "12.5000",
        "3.00e-05",
    ]


TABLE = """
model: {type: MLP, sizes: [2, 3]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Csv, file: train.csv, target: kind}, batch_size: 2}
  val: {dataset: {type: Csv, file: val.csv, target: kind}, batch_size: 2}
optim: {type: SGD, lr: 0.01}
train: {epochs: 1}
"""
ROWS = "a,b,kind\n1,2,cat\n3,4,dog\n5,6,owl\n"


def test_columns_and_classes_of_a_table_go_by_the_names_of_the_training_data(command: Commands):
    """Another order of columns, or a class less, would give other numbers to the same things without a word."""
    files = {"t_yaml": TABLE, "train_csv": ROWS, "val_csv": "b,kind,a\n2,cat,1\n6,owl,5\n"}
    assert command("train", "t.yaml", "-q", "--folder", "run", **files).code == 0
    from etude.build import build

    val = build(etude.load_plan("t.yaml")[0]).data["val"].dataset
    assert [(x.tolist(), int(y)) for x, y in (val[0], val[1])] == [([1.0, 2.0], 0), ([5.0, 6.0], 2)]
    assert command("predict", "run", "new.csv", "-o", "o.csv", new_csv="b,a\n2,1\n").code == 0
    assert Path("o.csv").read_text().splitlines()[1].split(",")[1] in ("cat", "dog", "owl")
    said = command("train", "t.yaml", val_csv="a,b,kind\n1,2,cow\n")
    assert said.code == 2 and "'cow' is not a class of the training data" in said.err


def test_pictures_have_the_classes_of_the_training_data(tmp_path: Path):
    image = pytest.importorskip("PIL.Image", reason="pictures need the extra [image]")
    from etude.building.data import make_dataset

    for name in ("train/cat/1.png", "train/dog/1.png", "val/dog/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (2, 2)).save(tmp_path / name)
    text = TABLE.replace("Csv, file: train.csv, target: kind", "ImageFolder, folder: train")
    (tmp_path / "p.yaml").write_text(text.replace("Csv, file: val.csv, target: kind", "ImageFolder, folder: val"))
    plan, _ = etude.load_plan(tmp_path / "p.yaml")
    train = make_dataset(plan, plan.data["train"].dataset)
    assert make_dataset(plan, plan.data["val"].dataset, train).samples[0][1] == 1


def test_check_looks_into_tables_and_for_the_packages_of_trackers(command: Commands):
    files = {"t_yaml": TABLE, "train_csv": ROWS, "val_csv": "b,kind\n2,cat\n"}
    said = command("check", "t.yaml", **files)
    assert said.code == 2 and "t.yaml:6: Csv: val.csv has no column 'a', which the training data has" in said.out
    said = command("check", "t.yaml", "data.train.dataset.target=knd")
    assert said.code == 2 and "train.csv has no column 'knd'; did you mean 'kind'?" in said.out
    said = command("check", "c.yaml", "log.to=[aim]")
    if importlib.util.find_spec("aim") is None:
        assert said.code == 2 and "writing to aim needs the package 'aim'; pip install aim" in said.out


def test_predictions_go_into_a_folder_that_is_not_there_yet(command: Commands):
    assert command("train", "c.yaml", "-q", "--folder", "run").code == 0
    assert command("predict", "run", "val", "-o", "new/folder/o.csv").code == 0
    assert Path("new/folder/o.csv").is_file()
