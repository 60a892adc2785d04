"""From a run to its model: the best checkpoint, averages, predictions and exports."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import etude
from etude.data import Digits
from etude.errors import UserError
from tests.cli.commands import CONFIG, Commands

RUN = CONFIG.replace("keep: 2", "keep: 9").replace("every: 1ep", "every: 2step").replace("epochs: 2", "epochs: 3")
EMA = "hooks: [{type: EMA, momentum: 0.2}]\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two finished runs: one with an average of its weights."""
    folder = tmp_path_factory.mktemp("runs")
    for name, text in {"plain": RUN, "ema": RUN + EMA}.items():
        (folder / f"{name}.yaml").write_text(text)
        etude.train(folder / f"{name}.yaml", options=etude.Options(folder=str(folder / name), quiet=True))
    return folder


@pytest.fixture
def runs(trained, command: Commands, workdir):
    """Copies of the runs in the current folder: a run may be moved."""
    for path in trained.iterdir():
        shutil.copytree(path, path.name) if path.is_dir() else shutil.copy(path, path.name)
    return command


def best_step(name: str) -> int:
    rows = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "accuracy" in row]
    return max(rows, key=lambda row: row["accuracy"])["step"]


def test_the_best_checkpoint_is_marked_and_measured(runs: Commands):
    best = Path("plain/checkpoints/best").read_text().strip()
    assert best.partition(".")[0] == f"step-{best_step('plain'):09d}"
    listed = runs("ckpt", "ls", "plain").out
    assert [line.split()[0] for line in listed.splitlines() if "(best)" in line] == [best]
    measured = runs("test", "plain", "--best", "-q", "--out", "best.json")
    assert measured.code == 0, measured.err
    value = json.loads(Path("best.json").read_text())["accuracy"]
    stored = json.loads(Path("plain/checkpoints", best, "manifest.json").read_text())["metrics"]["accuracy"]
    assert value == stored
    assert runs("test", "plain", "--best", "los").code == 2
    assert runs("test", "plain.yaml").code == 2


def test_a_model_is_loaded_with_the_weights_that_were_measured(runs: Commands):
    digits = Digits("val")
    inputs, targets = digits.fetch(torch.arange(len(digits)))

    def accuracy(model):
        return float((model(inputs).argmax(1) == targets).double().mean())

    plain, best = etude.load("plain"), etude.load("plain", best=True)
    assert not plain.training and plain.etude.step == 18 and not plain.etude.averaged
    assert best.etude.step == best_step("plain") and accuracy(best) == best.etude.metrics["accuracy"]
    assert etude.load("plain", best="loss").etude.step in range(19) and etude.load("plain", step=4).etude.step == 4
    average, weights = etude.load("ema"), etude.load("ema", ema=False)
    assert average.etude.averaged and accuracy(average) == average.etude.metrics["accuracy"]
    assert not torch.equal(average(inputs), weights(inputs))
    with pytest.raises(UserError, match="no average"):
        etude.load("plain", ema=True)
    with pytest.raises(UserError, match="no checkpoint of step 5"):
        etude.load("plain", step=5)


NORMED = """
imports: [normed.py]
model: Normed
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train, flat: false}, batch_size: 128}
  val:
    dataset: {type: Transformed, dataset: {type: Digits, flat: false, split: val}, TRANSFORM}
    batch_size: 512
optim: {type: SGD, lr: 0.2}
train: {epochs: 2}
metrics: [Accuracy]
hooks: HOOKS
checkpoint: {every: 1ep, best: accuracy}
"""
NORMED = NORMED.replace("TRANSFORM", "transform: {type: Normalize, mean: [0.1], std: [0.9]}")
NORMED_PY = """
import torch, etude

@etude.MODELS.register
class Normed(torch.nn.Sequential):
    def __init__(self):
        norm = torch.nn.BatchNorm1d(16)
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, 16), norm, torch.nn.ReLU(), torch.nn.Linear(16, 10))
"""


@pytest.mark.parametrize(
    "hooks",
    [
        "[{type: EMA, momentum: 0.05}]",
        "[{type: EMA, momentum: 0.05, buffers: true}]",
        "[{type: SWA, every: 4step}]",
        "[{type: SWA, every: 4step}, {type: EMA, momentum: 0.9, evaluate: false}]",
    ],
)
def test_an_average_is_loaded_with_the_batch_norms_it_was_evaluated_with(command: Commands, hooks: str):
    said = command("train", "n.yaml", "--folder", "run", n_yaml=NORMED.replace("HOOKS", hooks), normed_py=NORMED_PY)
    assert said.code == 0 and f"weights averaged by {hooks[8:11]}; the results are theirs" in said.err
    model = etude.load("run", best=True, ema=True)
    inputs, targets = Digits("val", flat=False).fetch(torch.arange(360))
    with torch.no_grad():
        scores = model(model.etude.transform(inputs))
    loss = float(torch.nn.functional.cross_entropy(scores, targets))
    assert float((scores.argmax(1) == targets).double().mean()) == model.etude.metrics["accuracy"]
    assert loss == pytest.approx(model.etude.metrics["loss"], rel=1e-6)
    trained = etude.load("run", best=True, ema=False)
    assert not torch.equal(trained(model.etude.transform(inputs)), scores) and not trained.etude.averaged
    assert f"on the val data, with the average of {hooks[8:11].capitalize()}" in command("test", "run").err


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npz"])
def test_predictions_of_a_split_are_written(runs: Commands, suffix):
    said = runs("predict", "plain", "-o", f"out.{suffix}", "--best")
    assert said.code == 0 and "360 samples" in said.out, said.err
    digits = Digits("val")
    inputs, _ = digits.fetch(torch.arange(len(digits)))
    wanted = etude.load("plain", best=True)(inputs).detach()
    if suffix == "npz":
        found = np.load("out.npz")
        assert np.allclose(found["output"], wanted.numpy()) and (found["label"] == wanted.argmax(1).numpy()).all()
        return
    if suffix == "csv":
        rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
        values = [[float(row[f"output_{number}"]) for number in range(10)] for row in rows]
    else:
        rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
        values = [row["output"] for row in rows]
    assert torch.allclose(torch.tensor(values), wanted, atol=1e-5)
    assert [int(row["label"]) for row in rows] == wanted.argmax(1).tolist()


TABLE = """\
model: {type: MLP, sizes: [2, 1]}
loss: MSELoss
data:
  train: {dataset: {type: Csv, file: rows.csv, target: y}, batch_size: 8}
  val: {dataset: {type: Csv, file: rows.csv, target: y}, batch_size: 8}
optim: {type: SGD, lr: 0.05}
train: {epochs: 20}
metrics: [RMSE]
"""


def test_a_table_without_targets_is_predicted(command: Commands):
    rows = [(x / 10, x % 3, 2 * x / 10 - x % 3) for x in range(40)]
    project = Path("project")
    project.mkdir()
    (project / "rows.csv").write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
    (project / "t.yaml").write_text(TABLE)
    Path("new.csv").write_text("a,b\n1,0\n2,1\n")
    said = command("train", "project/t.yaml", "--folder", "run", "-q")
    assert said.code == 0, said.err
    found = command("predict", "run", "new.csv", "-o", "out.csv")
    assert found.code == 0, found.err
    values = [float(row["output"]) for row in csv.DictReader(Path("out.csv").read_text().splitlines())]
    assert values == pytest.approx([2.0, 3.0], abs=0.2)
    wrong = command("predict", "run", "nowhere.csv", "-o", "out.csv")
    assert wrong.code == 2 and "no such file" in wrong.err
    assert command("predict", "run", "new.csv", "-o", "out.txt").code == 2
    Path("turned.csv").write_text("b,a\n0,1\n1,2\n")
    assert command("predict", "run", "turned.csv", "-o", "turned_out.csv").code == 0
    assert Path("turned_out.csv").read_text() == Path("out.csv").read_text()
    Path("short.csv").write_text("a\n1\n")
    short = command("predict", "run", "short.csv", "-o", "short_out.csv")
    assert short.code == 2 and "no column is called 'b'" in short.err
    config = command("predict", "project/t.yaml", "-o", "out2.csv")
    assert config.code == 2 and "project/t.yaml is a config; give the folder of a run" in config.err


def test_a_folder_of_images_is_predicted(command: Commands):
    image = pytest.importorskip("PIL.Image")
    for name, shade in (("dark", 20), ("light", 220)):
        Path("pictures", name).mkdir(parents=True)
        for number in range(6):
            image.new("L", (8, 8), shade + number).save(f"pictures/{name}/{number}.png")
    config = """\
model: {type: ConvNet, classes: 2}
loss: CrossEntropyLoss
data: {train: {dataset: {type: ImageFolder, folder: pictures, mode: L}, batch_size: 6}}
optim: {type: AdamW, lr: 1e-2}
train: {epochs: 10}
"""
    said = command("train", "i.yaml", "--folder", "run", "-q", i_yaml=config)
    assert said.code == 0, said.err
    assert command("predict", "run", "pictures/light", "-o", "out.jsonl").code == 0
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["sample"] for row in rows] == [f"pictures/light/{number}.png" for number in range(6)]


PHOTOS = """
import pathlib, numpy, torch, etude
from PIL import Image

@etude.DATASETS.register
class Photos(torch.utils.data.Dataset):
    def __init__(self, root: str = "pictures/dark", wanted: int = 0, names: str = ""):
        self.paths, self.wanted = sorted(pathlib.Path(root).glob("*.png")), wanted
        if not self.paths:
            raise ValueError(f"nothing in {root}")
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        pixels = numpy.asarray(Image.open(self.paths[index]), dtype=numpy.float32)
        return torch.from_numpy((pixels - 127) / 50).reshape(-1), self.wanted
"""


def test_new_pictures_go_through_the_dataset_class_that_the_config_names(command: Commands):
    image = pytest.importorskip("PIL.Image")
    for name, shade in (("dark", 20), ("new", 220)):
        Path("pictures", name).mkdir(parents=True)
        for number in range(6):
            image.new("L", (8, 8), shade + 5 * number).save(f"pictures/{name}/{number}.png")
    config = """\
imports: [photos.py]
model: {type: torch.nn.Linear, in_features: 64, out_features: 2}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Photos, root: pictures/dark}, batch_size: 6}}
optim: {type: AdamW, lr: 1e-2}
train: {epochs: 2}
"""
    said = command("train", "p.yaml", "--folder", "run", "-q", p_yaml=config, photos_py=PHOTOS)
    assert said.code == 0, said.err
    model = etude.load("run")
    pixels = [(np.asarray(image.open(f"pictures/new/{n}.png"), dtype=np.float32) - 127) / 50 for n in range(6)]
    wanted = model(torch.from_numpy(np.stack(pixels)).reshape(6, -1)).detach().numpy()
    assert command("predict", "run", "pictures/new", "-o", "out.npz").code == 0
    assert np.array_equal(np.load("out.npz")["output"], wanted)

    Path("empty").mkdir()
    none = command("predict", "run", "empty", "-o", "no.npz")
    assert none.code == 3 and "empty: Photos(root=…) cannot read it" in none.err and "nothing in empty" in none.err
    # With a path that is not in the config, the name of the parameter tells.
    bare = config.replace("{type: Photos, root: pictures/dark}", "Photos")
    assert command("train", "b.yaml", "--folder", "bare", "-q", b_yaml=bare).code == 0
    assert command("predict", "bare", "pictures/new", "-o", "bare.npz").code == 0
    # Of two paths nobody knows which one is meant.
    two = config.replace("root: pictures/dark", "root: pictures/dark, names: photos.py")
    assert command("train", "t.yaml", "--folder", "two", "-q", t_yaml=two).code == 0
    both = command("predict", "two", "pictures/new", "-o", "no.npz")
    assert both.code == 2 and "dataset Photos reads several files (root, names)" in both.err
    assert not Path("no.npz").exists()


def test_data_without_a_path_cannot_read_new_files(runs: Commands):
    said = runs("predict", "plain", "plain.yaml", "-o", "out.csv")
    assert said.code == 2 and "the config's dataset Digits reads no file" in said.err


def test_a_file_of_another_kind_is_answered_with_those_that_can_be_written(runs: Commands):
    said = runs("export", "plain", "-o", "model.pth")
    assert said.code == 2 and "model.pth: a model is exported as .pt2, .onnx or .safetensors" in said.err
    said = runs("predict", "plain", "-o", "out.txt")
    assert said.code == 2 and "out.txt: predictions are written as .csv, .npz, .jsonl or .parquet" in said.err


@pytest.mark.parametrize("suffix", ["pt2", "onnx", "safetensors"])
def test_an_export_gives_the_answers_of_the_model(runs: Commands, suffix):
    if suffix == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    said = runs("export", "plain", "-o", f"out/model.{suffix}", "--best")
    assert said.code == 0, said.err
    model, inputs = etude.load("plain", best=True), torch.randn(5, 64)
    wanted = model(inputs).detach()
    path = f"out/model.{suffix}"
    if suffix == "pt2":
        found = torch.export.load(path).module()(inputs)
    elif suffix == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: inputs.numpy()})[0])
    else:
        from safetensors.torch import load_file

        torch.nn.Module.load_state_dict(model, load_file(path))
        found = model(inputs)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert [one.name for one in Path("out").iterdir()] == [f"model.{suffix}"]
    assert runs("export", "plain", "-o", "model.zip").code == 2
