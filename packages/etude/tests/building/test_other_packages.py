"""Models and datasets of other packages by dotted name, where these packages are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import etude
from etude.cli import main
from etude.errors import ConfigError

CONFIG = """\
model: MODEL
loss: CrossEntropyLoss
data: {train: {dataset: {type: Images}, batch_size: 4}, val: {dataset: {type: Images}, batch_size: 4}}
imports: [images.py]
optim: {type: AdamW, lr: 1e-3}
train: {epochs: 1}
metrics: [Accuracy]
checkpoint: false
"""
IMAGES = """
import torch, etude
from etude.data import TensorData

@etude.DATASETS.register
class Images(TensorData):
    def __init__(self):
        super().__init__(torch.rand(8, 3, 32, 32), torch.arange(8) % 2)
"""
MODELS = {
    "timm": "{type: timm.create_model, model_name: resnet10t, num_classes: 2, pretrained: false}",
    "torchvision": "{type: torchvision.models.resnet18, num_classes: 2}",
    "transformers": "{type: transformers.AutoModelForImageClassification.from_config, config: {type: transformers.ViTConfig, "
    "hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16, image_size: 32, num_labels: 2}}",
}


@pytest.mark.parametrize("package", MODELS)
def test_a_model_of_another_package_trains(package, workdir):
    pytest.importorskip(package)
    Path("images.py").write_text(IMAGES)
    Path("c.yaml").write_text(CONFIG.replace("MODEL", MODELS[package]))
    assert main(["check", "c.yaml"]) == 0
    run = etude.train("c.yaml", options=etude.Options(folder="run", quiet=True))
    assert run.step == 2 and 0 <= run.metrics["accuracy"] <= 1


def test_a_dataset_of_torchvision_is_read(workdir):
    pytest.importorskip("torchvision")
    fake = "{type: torchvision.datasets.FakeData, size: 8, image_size: [3, 8, 8], num_classes: 2, transform: TRANSFORM}"
    text = CONFIG.replace("{type: Images}", fake.replace("TRANSFORM", "{type: torchvision.transforms.ToTensor}"))
    Path("images.py").write_text(IMAGES)
    Path("c.yaml").write_text(text.replace("MODEL", "{type: ConvNet, classes: 2, in_channels: 3}"))
    assert etude.train("c.yaml", options=etude.Options(folder="run", quiet=True)).step == 2


def test_a_package_that_is_not_there_is_named(workdir, capfd):
    Path("images.py").write_text(IMAGES)
    Path("c.yaml").write_text(CONFIG.replace("MODEL", "{type: no_such_package.create_model, name: x}"))
    assert main(["check", "c.yaml"]) == 2
    said = "".join(capfd.readouterr())
    assert "c.yaml:1: 'no_such_package.create_model': the package 'no_such_package' is not installed" in said
    assert "pip install no_such_package" in said and "MLP" not in said


def test_a_function_of_any_other_package_is_still_refused(workdir):
    Path("images.py").write_text(IMAGES)
    Path("c.yaml").write_text(CONFIG.replace("MODEL", "{type: torch.load, f: x}"))
    with pytest.raises(ConfigError, match="is a function|is not a model"):
        etude.train("c.yaml", options=etude.Options(folder="run", quiet=True))


def test_a_dataset_of_hugging_face_is_read(workdir):
    datasets = pytest.importorskip("datasets")
    rows = [{"inputs": [x / 10, x % 3], "label": x % 2} for x in range(20)]
    datasets.Dataset.from_list(rows).with_format("torch").save_to_disk("rows")
    Path("c.yaml").write_text(
        """\
model: {type: Mlp}
imports: [parts.py]
loss: CrossEntropyLoss
data: {train: {dataset: {type: datasets.load_from_disk, dataset_path: rows}, batch_size: 5}}
optim: {type: SGD, lr: 0.1}
train: {epochs: 2}
checkpoint: false
"""
    )
    Path("parts.py").write_text(
        "import torch, etude\n@etude.MODELS.register\nclass Mlp(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = torch.nn.Linear(2, 2)\n"
        "    def forward(self, inputs): return self.layer(inputs.float())\n"
    )
    run = etude.train("c.yaml", options=etude.Options(folder="run", quiet=True))
    assert run.step == 8


@pytest.mark.parametrize(
    ("package", "section", "said"),
    [
        ("timm", "model={type: timm.create_model, model_name: resnett18}", "timm has no model 'resnett18'; did you mean"),
        ("timm", "model={type: timm.create_model, model_name: resnet18, num_clases: 2}", "did you mean 'num_classes'?"),
        ("torchvision", "model={type: torchvision.models.resnett18}", "did you mean 'resnet18'?"),
        ("torchvision", "model={type: torchvision.models.resnet18, num_clases: 2}", "did you mean 'num_classes'?"),
        ("torchvision", "data.train.dataset={type: torchvision.datasets.FashionMNISST, root: x}", "'FashionMNIST'?"),
        ("torchvision", "data.train.dataset={type: torchvision.datasets.MNIST, root: x, trian: true}", "'train'?"),
        ("transformers", "model={type: transformers.AutoModel.from_confg, config: x}", "AutoModel.from_config'?"),
        ("transformers", "model={type: transformers.ViTModel, config: {type: transformers.ViTConfg}}", "ViTConfig'?"),
        ("transformers", "model={type: transformers.ViTModel, config: {type: transformers.ViTConfig, num_labls: 2}}", "'num_labels'?"),
        ("datasets", "data.train.dataset={type: datasets.load_dataset, path: csv, spilt: train}", "'split'?"),
    ],
)  # fmt: skip
def test_a_misspelt_name_or_argument_of_another_package_is_found_in_its_sources(package, section, said, workdir, capfd):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    Path("images.py").write_text(IMAGES)
    Path("c.yaml").write_text(CONFIG.replace("MODEL", "{type: MLP, sizes: [2, 2]}"))
    assert main(["check", "c.yaml", section]) == 2
    assert said in "".join(capfd.readouterr())
