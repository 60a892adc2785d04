from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest
import torch
import yaml

from etude.cli import main
from etude.dialects.mcquic.files import Saver
from etude.dialects.mcquic.live.compressor import Compressor
from etude.dialects.mcquic.live.images import Folder, open_images
from etude.dialects.mcquic.live.losses import msSSIM
from tests.dialects.mcquic import project


@pytest.fixture
def here(workdir):
    project.write(workdir)
    return workdir


def state(path) -> dict:
    return Saver.load(path)["trainer"]


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def test_a_config_trains_and_leaves_the_files_behind(here, capfd):
    assert main(["train", "config.yaml"]) == 0
    names = {path.name for path in Path("saved/latest").iterdir()}
    assert {"config.yaml", "saved.ckpt", "best.ckpt", "last.ckpt", "plan.yaml", "env.json"} <= names
    assert "training runs on the CPU" in capfd.readouterr().err
    assert state("saved/latest/last.ckpt")["_epoch"] == 3
    assert yaml.safe_load(Path("saved/latest/config.yaml").read_text())["train"]["optim"]["key"] == "Adam"


def test_going_on_ends_in_the_same_bits(here):
    assert main(["train", "config.yaml", "--folder", "whole", "-q"]) == 0
    assert main(["train", "config.yaml", "--folder", "parts", "-q", "train.epoch=2"]) == 0
    assert main(["train", "config.yaml", "--folder", "parts", "-q", "--resume"]) == 0
    assert same(state("whole/latest/last.ckpt")["_model"], state("parts/latest/last.ckpt")["_model"])
    assert same(state("whole/latest/last.ckpt")["_optimizer"], state("parts/latest/last.ckpt")["_optimizer"])


LONGER = ["train.epoch=4", "train.batchSize=1"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of sixteen steps that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    project.write(folder)
    assert child("train", "config.yaml", *LONGER, "--folder", "whole", "-q", cwd=folder) == 0
    return folder


def child(*words: str, cwd: Path) -> int:
    return subprocess.run([sys.executable, "-m", "etude", *words], cwd=cwd, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        (["sigterm@step=6"], 143),
        (["sigterm@step=8"], 143),
        (["kill@step=11"], -9),
        (["sigterm@step=3", "kill@step=5"], -9),
    ],
)
def test_a_run_that_was_stopped_or_killed_ends_in_the_same_bits(whole, faults, code):
    """Stopped in mid-epoch, at an epoch's end, killed, and killed again before anything new was saved."""
    name = "-".join(fault.replace("=", "").replace("@", "") for fault in faults)
    for number, fault in enumerate(faults):
        again = ["--resume"] if number else []
        left = child("train", "config.yaml", *LONGER, "--folder", name, "-q", "--chaos", fault, *again, cwd=whole)
    assert left == code
    assert child("train", "config.yaml", *LONGER, "--folder", name, "-q", "--resume", cwd=whole) == 0
    one, other = state(whole / "whole/latest/last.ckpt"), state(whole / name / "latest/last.ckpt")
    assert one["_step"] == other["_step"] == 16
    assert same(one["_model"], other["_model"]) and same(one["_optimizer"], other["_optimizer"])


def test_a_damaged_checkpoint_is_named_and_an_older_one_taken(here, capfd):
    assert main(["train", "config.yaml", "-q", "train.epoch=2"]) == 0
    last = Path("saved/latest/last.ckpt")
    last.write_bytes(last.read_bytes()[:-500])
    assert main(["train", "config.yaml", "-q", "--resume", str(last)]) != 0
    assert main(["train", "config.yaml", "-q", "--resume"]) == 0
    said = capfd.readouterr().err
    assert "last.ckpt" in said and "trying saved.ckpt" in said
    assert state(last)["_epoch"] == 3


def test_the_old_command_works_and_prints_the_registries(here, capfd):
    from etude.cli.mcquic import main as mcquic

    assert mcquic(["train", "-D", "config.yaml"]) == 0
    out = capfd.readouterr().out
    for name in ("OptimizerRegistry", "LrSchedulerRegistry", "LossRegistry", "HookRegistry"):
        assert name in out
    assert "Adam: torch.optim.adam.Adam" in out


def test_a_checkpoint_alone_is_enough_to_go_on(here):
    from etude.cli.mcquic import main as mcquic

    assert main(["train", "config.yaml", "-q"]) == 0
    assert mcquic(["train", "-q", "-r", "saved/latest/saved.ckpt"]) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batchSzie": 4}, "did you mean 'batchSize'"),
        ({"valFreq": 0}, "at least 1"),
        ({"batchSize": "16"}, "type integer"),
        ({"target": "PSRN"}, "did you mean 'PSNR'"),
        ({"optim": {"key": "Adma", "params": {}}}, "did you mean 'Adam'"),
        ({"optim": {"key": "Adam", "params": {"lrr": 1}}}, "did you mean 'lr'"),
        ({"optim": {"key": "Adam"}}, "train.optim.params is missing"),
        ({"schdr": {"key": "Exponential", "params": {}}}, "needs the parameter 'gamma'"),
        ({"hooks": [{"key": "CodebookReasign", "params": {"freq": 1}}]}, "did you mean 'CodebookReassign'"),
        ({"externalLib": ["nowhere.py"]}, "there is no file nowhere.py"),
        ({"trainSet": "nowhere"}, "no folder of images"),
    ],
)
def test_mistakes_are_told_with_their_place(workdir, capfd, change, said):
    project.write(workdir, **change)
    assert main(["train", "config.yaml"]) == 2
    err = capfd.readouterr().err
    assert said in err and "Traceback" not in err
    assert said == "no folder of images" or "config.yaml:" in err
    assert not Path("saved").exists()


def test_the_schema_is_published_for_editors_and_for_people(capsys):
    assert main(["schema", "--dialect", "mcquic"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$defs"]["Train"]["properties"]["batchSize"]["minimum"] == 1
    assert main(["schema", "--dialect", "mcquic", "--markdown"]) == 0
    assert "| `batchSize` |" in capsys.readouterr().out


def test_what_a_config_can_name_is_listed(capsys):
    assert main(["list", "--dialect", "mcquic"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert ["OptimizerRegistry", "Adam"] in [row[:2] for row in rows]
    assert main(["list", "hooks", "--dialect", "mcquic"]) == 0
    assert all(line.startswith("HookRegistry\t") for line in capsys.readouterr().out.splitlines())
    assert main(["list", "hoks", "--dialect", "mcquic"]) == 2
    assert "HookRegistry" in capsys.readouterr().err


def test_a_model_of_ones_own_by_dotted_path(workdir, monkeypatch):
    monkeypatch.syspath_prepend(str(workdir))
    (workdir / "my_nets.py").write_text(
        "import torch\n"
        "class Plain(torch.nn.Module):\n"
        "    PostProcessEnabled = True\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Conv2d(3, 3, width, padding=width // 2)\n"
        "    def forward(self, image):\n"
        "        out = self.layer(image)\n"
        "        return {'restored': out, 'postProcessed': out, 'codes': [], 'logits': None}\n"
    )
    project.pictures(workdir / "photos")
    values = project.config() | {"model": {"key": "my_nets.Plain", "params": {"width": 3}}}
    Path("config.yaml").write_text(yaml.safe_dump(values))
    assert main(["train", "config.yaml", "-q"]) == 0


def test_the_converted_config_trains_the_same_bits(here, capsys):
    assert main(["convert", "config.yaml", "-o", "native.yaml"]) == 0
    assert main(["train", "config.yaml", "-q", "--folder", "old"]) == 0
    assert main(["train", "native.yaml", "-q", "--folder", "new"]) == 0
    from safetensors.torch import load_file

    old = state("old/latest/last.ckpt")["_model"]
    newest = sorted(Path("new/checkpoints").glob("step-*"))[-1]
    new = {name.partition("composition.")[2]: value for name, value in load_file(newest / "model.safetensors").items()}
    assert old.keys() == new.keys()
    for name, value in old.items():
        assert torch.equal(value, new[name]), name


def test_codes_alone_give_the_picture_back():
    torch.manual_seed(0)
    model = Compressor(channel=8, m=2, k=[16, 8]).eval()
    image = torch.rand(2, 3, 32, 32) * 2 - 1
    outputs = model(image)
    assert torch.allclose(model.decompress(outputs["codes"]), outputs["postProcessed"], atol=1e-5)
    assert [tuple(codes.shape) for codes in outputs["codes"]] == [(2, 2, 4, 4), (2, 2, 2, 2)]
    assert 0 < model.bits(outputs["codes"]) <= model.fixed_bits(outputs["codes"])


def test_ms_ssim_is_one_for_the_same_and_less_for_another():
    torch.manual_seed(0)
    image = torch.rand(1, 3, 96, 96)
    assert float(msSSIM(image, image)) == pytest.approx(1.0, abs=1e-5)
    assert float(msSSIM(image, torch.rand_like(image))) < 0.5


def test_an_lmdb_gives_the_same_images_as_its_folder(workdir):
    project.pictures(workdir / "photos")
    with lmdb.open("photos.lmdb", map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        for path in sorted(Path("photos").iterdir()):
            transaction.put(path.name.encode(), path.read_bytes())
    one, other = open_images("photos"), open_images("photos.lmdb")
    assert isinstance(one, Folder) and len(one) == len(other) == 4
    assert all(torch.equal(one[i], other[i]) for i in range(4))
