from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from etude.cli import main
from etude_mcquic.files import Saver
from etude_mcquic.live.data.images import Folder, open_images
from etude_mcquic.live.model.losses import msSSIM
from tests import zygote
from tests.mcquic import project
from tests.sampling import sample


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
    return zygote.etude(*words, cwd=cwd).returncode


@pytest.mark.parametrize(
    ("faults", "code"),
    sample(
        [
            (["sigterm@step=6"], 143),
            (["sigterm@step=8"], 143),
            (["kill@step=11"], -9),
            (["sigterm@step=3", "kill@step=5"], -9),
        ],
        (1, 3),
    ),
)
def test_a_run_that_was_stopped_or_killed_ends_in_the_same_bits(whole, faults, code):
    """Stopped in mid-epoch, at an epoch's end, killed, and killed again before anything new was saved; a sample of these."""
    name = "-".join(fault.replace("=", "").replace("@", "") for fault in faults)
    for number, fault in enumerate(faults):
        again = ["--resume"] if number else []
        left = child("train", "config.yaml", *LONGER, "--folder", name, "-q", "--chaos", fault, *again, cwd=whole)
    assert left == code
    assert child("train", "config.yaml", *LONGER, "--folder", name, "-q", "--resume", cwd=whole) == 0
    one, other = state(whole / "whole/latest/last.ckpt"), state(whole / name / "latest/last.ckpt")
    assert one["_step"] == other["_step"] == 16
    assert same(one["_model"], other["_model"]) and same(one["_optimizer"], other["_optimizer"])
    recorded = [(whole / run / "latest/metrics.jsonl").read_bytes() for run in ("whole", name)]
    assert recorded[0] == recorded[1]


def test_a_run_is_measured_and_shown_with_its_results(here, capsys):
    assert main(["train", "config.yaml", "-q"]) == 0
    rows = [json.loads(line) for line in Path("saved/latest/metrics.jsonl").read_text().splitlines()]
    best = max((row for row in rows if row["split"] == "val"), key=lambda row: row["PSNR"])
    capsys.readouterr()
    assert main(["test", "config.yaml", "saved/latest", "--best"]) == 0
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    for name in ("PSNR", "MsSSIM", "BPP"):
        assert float(printed[name]) == pytest.approx(best[name], rel=1e-5)
    assert main(["show", "saved/latest"]) == 0
    assert "val/PSNR" in capsys.readouterr().out


def test_weights_of_another_system_are_refused_by_a_measurement(here, capfd):
    torch.save({"state_dict": {}}, "other.ckpt")
    assert main(["test", "config.yaml", "other.ckpt"]) == 7
    assert "other.ckpt is no checkpoint of McQuic" in capfd.readouterr().err


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
    from etude_mcquic.command import main as mcquic

    assert mcquic(["train", "-D", "config.yaml"]) == 0
    out = capfd.readouterr().out
    for name in ("OptimizerRegistry", "LrSchedulerRegistry", "LossRegistry", "HookRegistry"):
        assert name in out
    assert "Adam: torch.optim.adam.Adam" in out


def test_a_checkpoint_alone_is_enough_to_go_on(here):
    from etude_mcquic.command import main as mcquic

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


def test_mistakes_of_every_kind_are_reported_at_once(workdir, capsys):
    project.write(workdir, batchSzie=4, optim={"key": "Adma", "params": {}}, schdr=3, hooks=[None])
    assert main(["check", "config.yaml"]) == 2
    found = capsys.readouterr().out
    assert "unknown key train.batchSzie; did you mean 'batchSize'?" in found
    assert "OptimizerRegistry has no entry 'Adma'; did you mean 'Adam'?" in found
    assert "train.schdr must be a mapping, not 3" in found and "train.hooks.0 may not be empty" in found
    assert "4 mistakes" in found


def test_a_config_builds_on_no_program(here, capsys):
    (here / "base.py").write_text("open('ran', 'w').write('')\n")
    (here / "config.yaml").write_text("_base_: base.py\n" + (here / "config.yaml").read_text())
    assert main(["check", "config.yaml"]) == 2 and not (here / "ran").exists()
    assert "base.py: a config of McQuic is data, and builds on no Python file" in capsys.readouterr().out


def test_the_schema_is_published_for_editors_and_for_people(capsys):
    assert main(["schema", "--dialect", "mcquic"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$defs"]["Train"]["properties"]["batchSize"]["minimum"] == 1
    assert main(["schema", "--dialect", "mcquic", "--markdown"]) == 0
    assert "| `batchSize` |" in capsys.readouterr().out


def test_the_schema_of_a_config_knows_what_its_library_registers(workdir, capsys):
    Path("watch.py").write_text(
        "from mcquic.utils.registry import HookRegistry\n\n\n@HookRegistry.register\n"
        "class Watch:\n    def __init__(self, often=3):\n        pass\n"
    )
    project.write(workdir, externalLib=["watch.py"], hooks=[{"key": "Watch", "params": {}}])
    assert main(["schema", "--config", "config.yaml"]) == 0
    hooks = json.loads(capsys.readouterr().out)["$defs"]["Train"]["properties"]["hooks"]["items"]["anyOf"]
    (watch,) = [one["properties"] for one in hooks if one["properties"]["key"].get("const") == "Watch"]
    assert watch["params"]["properties"] == {"often": {}} and not watch["params"]["additionalProperties"]
    assert main(["schema", "--dialect", "mcquic"]) == 0
    assert "anyOf" not in capsys.readouterr().out


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


def test_codes_are_written_with_no_more_bits_than_their_books_ask_for():
    torch.manual_seed(0)
    model = runpy.run_path(str(project.MODEL))["Compressor"](channel=8, m=2, k=[16, 8]).eval()
    codes = model(torch.rand(2, 3, 32, 32) * 2 - 1)["codes"]
    assert [tuple(places.shape) for places in codes] == [(2, 2, 4, 4), (2, 2, 2, 2)]
    assert 0 < model.bits(codes) <= 64 * 4 + 16 * 3  # 64 codes of 4 bits, 16 of 3


def test_ms_ssim_is_one_for_the_same_and_less_for_another():
    torch.manual_seed(0)
    image = torch.rand(1, 3, 96, 96)
    assert float(msSSIM(image, image).mean()) == pytest.approx(1.0, abs=1e-5)
    assert float(msSSIM(image, torch.rand_like(image)).mean()) < 0.5


def test_an_lmdb_gives_the_same_images_as_its_folder(workdir):
    project.pictures(workdir / "photos")
    with lmdb.open("photos.lmdb", map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        for path in sorted(Path("photos").iterdir()):
            transaction.put(path.name.encode(), path.read_bytes())
    one, other = open_images("photos"), open_images("photos.lmdb")
    assert isinstance(one, Folder) and len(one) == len(other) == 4
    assert all(torch.equal(one[i], other[i]) for i in range(4))


LIBRARY = """
from mcquic.utils.registry import HookRegistry, LossRegistry, ModuleRegistry, OptimizerRegistry
from mcquic.train.hooks import StepFinishHook
from mcquic.loss import Distortion
import shutil
import torch

@LossRegistry.register
class L1(Distortion):
    def distortion(self, restored, image):
        return (restored - image).abs().mean()

@ModuleRegistry.register
class Tiny(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, width, 1), torch.nn.Conv2d(width, 3, 1))
    def forward(self, images):
        return {"postProcessed": self.body(images)}

class Own(torch.optim.SGD):
    pass

class Count(StepFinishHook):
    def __init__(self, fail=0, delete=0):
        self.count, self.fail, self.delete = 0, fail, delete
    def stepFinish(self, step, epoch, trainer, *args, logger, **kwds):
        self.count += 1
        if self.count == self.delete:
            shutil.rmtree("saved")
        if self.count == self.fail:
            raise RuntimeError("oops")
    def state_dict(self):
        return {"count": self.count}
    def load_state_dict(self, state):
        self.count = state["count"]
        print("count was", self.count)

OptimizerRegistry.register("mine")(Own)
for name in ("counter", "another"):
    HookRegistry.register(name)(Count)
"""


@pytest.fixture
def own(workdir, monkeypatch):
    """A project with a loss, a model, an optimizer and a hook of its own, one of them registered in a loop."""
    from etude import compat
    from etude_mcquic.live.registry import REGISTRIES

    compat.install()
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_map", dict(registry._map))
    (workdir / "library.py").write_text(LIBRARY)
    monkeypatch.setitem(project.CONFIG, "model", {"key": "Tiny", "params": {"width": 4}})

    def write(**changes):
        given = {"externalLib": ["library.py"], "target": "L1", "optim": {"key": "mine", "params": {"lr": 0.01}}}
        project.write(workdir, **given | {"hooks": [{"key": "counter", "params": {}}]} | changes)

    return write


def test_everything_may_be_ones_own(own, capfd):
    own()
    assert main(["check", "config.yaml"]) == 0
    assert main(["list", "optimizers", "--config", "config.yaml"]) == 0
    assert "OptimizerRegistry\tmine\tlibrary.Own" in capfd.readouterr().out
    assert main(["train", "config.yaml", "-q"]) == 0
    assert "L1" in torch.load("saved/latest/last.ckpt", weights_only=False)["config"]["train"]["target"]
    assert main(["train", "config.yaml", "-q", "--resume", "train.epoch=4"]) == 0
    said = capfd.readouterr()
    assert "count was 3" in said.out and "changed since the checkpoint: train.epoch: 3 → 4" in said.err


def test_a_hook_that_raises_is_named_with_its_file(own, capfd):
    own(hooks=[{"key": "counter", "params": {"fail": 2}}])
    assert main(["train", "config.yaml", "-q"]) == 3
    said = capfd.readouterr().err
    assert "hook Count" in said and "library.py" in said and "after_step" in said


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_a_run_whose_folder_is_deleted_says_so(own, capfd):
    own(hooks=[{"key": "counter", "params": {"delete": 2}}], epoch=40)
    assert main(["train", "config.yaml", "-q"]) == 6
    assert "saved/latest was deleted, emptied or moved while the run trained" in capfd.readouterr().err


def test_dotted_paths_work_wherever_a_key_does(here):
    project.write(here, optim={"key": "torch.optim.SGD", "params": {"lr": 0.01}},
                  schdr={"key": "torch.optim.lr_scheduler.StepLR", "params": {"step_size": 1}},
                  hooks=[{"key": "etude_mcquic.live.hooks.CodebookReassign", "params": {"freq": 1}}])  # fmt: skip
    assert main(["train", "config.yaml", "-q"]) == 0


def test_another_rate_is_refused_unless_it_is_allowed_and_then_used(here, capfd):
    assert main(["train", "config.yaml", "-q"]) == 0
    before = Path("saved/latest/config.yaml").read_bytes()
    change = ["train.optim.params.lr=0.5", "train.epoch=4"]
    assert main(["train", "config.yaml", "-q", "--resume", *change]) == 2
    assert "--allow-change train.optim.params.lr accepts it" in capfd.readouterr().err
    assert Path("saved/latest/config.yaml").read_bytes() == before
    assert main(["train", "config.yaml", "-q", "--resume", "--allow-change", "lr", *change]) == 0
    (group,) = state("saved/latest/last.ckpt")["_optimizer"]["param_groups"]
    assert group["initial_lr"] == pytest.approx(0.125) and group["lr"] == pytest.approx(0.125 / 16)


def test_another_model_is_refused_with_what_does_not_fit(here, capfd):
    assert main(["train", "config.yaml", "-q"]) == 0
    words = ["--resume", "model.params.channel=16", "--allow-change", "channel"]
    assert main(["train", "config.yaml", "-q", *words]) == 7
    assert "does not fit the model" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words", [["--resume", "bad.ckpt"], ["model.params.channel=-3"], ["train.valSet=nowhere"], ["model.params.k=[]"]]
)
def test_a_start_that_fails_leaves_the_folder_as_it_was(here, words, capfd):
    assert main(["train", "config.yaml", "-q"]) == 0
    Path("bad.ckpt").write_text("nothing")
    before = contents("saved")
    assert main(["train", "config.yaml", "-q", *words]) in (2, 7)
    assert "Traceback" not in capfd.readouterr().err
    assert contents("saved") == before


def contents(folder: str) -> dict:
    files = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.read_bytes() for path in files}


def test_a_folder_in_use_is_refused_and_left_alone(here, capfd):
    from etude.checkpoint.storage.lock import Lock

    assert main(["train", "config.yaml", "-q"]) == 0
    with Lock("saved/latest"):
        before = sorted(Path("saved").rglob("*"))
        for words in ([], ["--resume"]):
            assert main(["train", "config.yaml", "-q", *words]) == 2
            assert "in use" in capfd.readouterr().err
        assert sorted(Path("saved").rglob("*")) == before


def test_a_short_try_leaves_nothing_behind(here, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of the model beside the config
    before = sorted(Path().rglob("*"))
    assert main(["train", "config.yaml", "-q", "--fast-dev-run"]) == 0
    assert sorted(Path().rglob("*")) == before
    assert main(["train", "config.yaml", "-q", "--limit-batches", "1", "train.batchSize=1"]) == 0
    assert state("saved/latest/last.ckpt")["_step"] == 3


@pytest.mark.parametrize(("most", "left"), [(0, 4), (-1, 4), (2, 2), (1, 1)])
def test_a_saver_keeps_so_many_runs_the_latest_among_them(tmp_path, most, left):
    for name in ("20200101-000000", "20200102-000000", "20200103-000000"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    Saver(tmp_path / "runs", maxItems=most, tensorboard=False)
    assert len(list((tmp_path / "runs").iterdir())) == left
    assert (tmp_path / "runs" / "latest").is_dir()


def test_a_module_that_cannot_be_run_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("nowhere.at.all", "mcquic.modules"):
        assert main(["exec", "-m", name]) == 2
        assert f"there is no module {name} to run" in capsys.readouterr().err


def test_a_config_of_data_alone_runs_no_code_of_its_own(here, capfd):
    values = project.config() | {"model": {"key": "MLP", "params": {"sizes": [4, 2]}}}
    Path("config.yaml").write_text(yaml.safe_dump(values))
    assert main(["check", "config.yaml", "--no-python-config"]) == 0
    assert "runs that code" not in capfd.readouterr().out


def test_a_training_set_is_packed_from_the_large_pictures_of_a_folder(workdir, capsys):
    from etude_mcquic.command import main as mcquic

    project.pictures(workdir / "photos")
    assert mcquic(["dataset", "photos", "set"]) == 2
    assert "none has 512 pixels" in capsys.readouterr().err
    for number in range(3):
        Image.fromarray(np.full((512, 600, 3), 40 * number, np.uint8)).save(workdir / f"photos/large{number}.png")
    assert mcquic(["dataset", "photos", "set"]) == 0
    assert len(open_images("set")) == 3
    assert yaml.safe_load(Path("set/metadata.json").read_text())["length"] == 3
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("keep")
    assert mcquic(["dataset", "photos", "mine"]) == 2 and Path("mine/notes.txt").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nix.png"], "there is no nix.png"),
        (["-qp", "77", "a.png"], "invalid choice: 77"),
        (["validate", "nix.ckpt", "."], "there is no nix.ckpt"),
        (["notes.txt"], "neither a picture"),
    ],
)
def test_mistakes_in_the_words_of_mcquic_are_told(workdir, capsys, words, said):
    from etude_mcquic.command import main as mcquic

    Path("notes.txt").write_text("x")
    assert mcquic(words) == 2
    assert said in capsys.readouterr().err
