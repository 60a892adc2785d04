"""McQuic 0.1.40, unpacked from the index and not compiled: its own model on Étude's trainer."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from etude_mcquic.live.model.losses import MsSSIM, msSSIM
from tests.sampling import sample

REAL = pytest.mark.pins("mcquic-0.1.40", "mcquic-needs")
CONFIG = {
    "model": {"key": "Compressor", "params": {"channel": 4, "m": 2, "k": [8, 4], "permutationRate": 0.0}},
    "train": {
        "batchSize": 1, "epoch": 1, "valFreq": 1, "trainSet": "photos", "valSet": "photos", "saveDir": "saved",
        "target": "PSNR", "optim": {"key": "Adam", "params": {"lr": 0.01}},
        "schdr": {"key": "Exponential", "params": {"gamma": 0.5}}, "gpu": {"gpus": 1, "vRam": -1, "wantsMore": False},
        "hooks": [{"key": "CodebookReassign", "params": {"freq": 1}}],
    },
}  # fmt: skip


def write(folder: Path) -> None:
    (folder / "photos").mkdir()
    rough = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(rough).resize((256, 256)).save(folder / "photos" / "0.png")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))


@REAL
def test_the_real_compressor_trains_validates_and_is_saved_under_its_own_names(projects):
    write(projects.cwd)
    checked = projects.etude("check", "config.yaml")
    assert checked.stdout.strip() == "config.yaml: no mistakes found", checked.stdout + checked.stderr
    trained = projects.etude("train", "config.yaml")
    assert trained.returncode == 0, trained.stderr
    assert "best rate/distortion" in trained.stderr
    code = (
        "import torch; state = torch.load('saved/latest/last.ckpt', weights_only=False)['trainer']['_model']\n"
        "print(sum(name.startswith('module._compressor._quantizer._encoders.1.') for name in state) > 10)"
    )
    assert projects.run("-c", code).stdout.strip() == "True"


#: McQuic's own trainer without Étude, as far as a CPU lets it: one restores a checkpoint, another trains two steps and
#: saves one.
ORIGINAL = """
import logging, sys, types
import torch, yaml
import torch.distributed as dist

rans = types.ModuleType("mcquic.rans")  # the compiled coder, which training does not call
rans.pmfToQuantizedCDF = None
rans.RansEncoder = rans.RansDecoder = object
sys.modules["mcquic.rans"] = rans

def on_cpu(to):
    return lambda self, *args, **kwds: to(self, *("cpu" if type(arg) is int else arg for arg in args), **kwds)

torch.Tensor.to, torch.nn.Module.to = on_cpu(torch.Tensor.to), on_cpu(torch.nn.Module.to)
torch.cuda.set_device = lambda index: None
parallel = torch.nn.parallel.DistributedDataParallel
make = parallel.__init__
parallel.__init__ = lambda self, module, *args, **kwds: make(self, module)  # today's has other arguments

import mcquic.loss
import mcquic.train.trainer as theirs
from mcquic.config import Config
from mcquic.modules.compressor import Compressor
from mcquic.utils.registry import LossRegistry
from vlutils.saver import Saver

class OnCpu:
    device = staticmethod(lambda text: torch.device("cpu"))
    def __getattr__(self, name):
        return getattr(torch, name)

class Silent(Saver):
    def __init__(self):
        self.Logger, self._decorateFn = logging.getLogger("silent"), None

theirs.torch, theirs.Validator = OnCpu(), lambda *args: None
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
config = Config.deserialize(yaml.full_load(open("config.yaml")))
model = lambda: (Compressor(**config.Model.Params), LossRegistry.get(config.Train.Target)())
schedule = torch.optim.lr_scheduler.ExponentialLR
one, other = (theirs.MainTrainer(config, model, torch.optim.Adam, schedule, Silent()) for _ in range(2))
one.progress.stop()
other.progress.stop()
source, target = sys.argv[1:]
one.restoreStates(source)
saved = torch.load(source)["trainer"]["_model"]
assert all(torch.equal(tensor, saved[name]) for name, tensor in one._model.state_dict().items())
print("restored", one._epoch, one._step)
for other._step in (1, 2):
    _, (rate, distortion), *_ = other._model(torch.rand(1, 3, 256, 256))
    (rate + distortion).backward()
    other._optimizer.step()
other._epoch = 1
other._scheduler.step()
other.save(target)
"""
OWN = """
import etude.compat
etude.compat.install()
from mcquic.train.cli import main
main(False, True, None, "config.yaml")
"""


@pytest.mark.pins("mcquic-0.1.40", "mcquic-needs", "vlutils-0.1.28", "torchvision-0.15.2")
def test_every_way_trains_the_same_bits_and_the_original_and_etude_restore_each_other(projects):
    write(projects.cwd)
    (projects.cwd / "own.py").write_text(OWN)
    (projects.cwd / "original.py").write_text(ORIGINAL)
    saved, made = projects.cwd / "saved/latest/last.ckpt", []
    ways = [("-m", "etude", "train", "config.yaml"), ("own.py",), ("-m", "etude", "exec", "-m", "mcquic.train", "config.yaml")]  # fmt: skip
    for words in sample(ways, (0, 2)):
        done = projects.run(*words)
        assert done.returncode == 0, done.stderr
        made.append(torch.load(saved)["trainer"]["_model"])
    assert all(torch.equal(one[name], tensor) for one in made for name, tensor in made[0].items())
    done = projects.run("original.py", str(saved), "theirs.ckpt")
    assert done.returncode == 0 and done.stdout.strip().splitlines()[-1] == "restored 1 1", done.stderr
    resumed = projects.etude("train", "config.yaml", "--resume", "theirs.ckpt", "train.epoch=2")
    assert resumed.returncode == 0 and "Resume training at     2 steps / 1 epochs." in resumed.stderr, resumed.stderr
    state = torch.load(saved)["trainer"]
    assert (state["_step"], state["_epoch"]) == (3, 2)


@REAL
def test_the_source_of_the_real_compressor_shows_a_wrong_argument_and_is_listed(projects):
    write(projects.cwd)
    text = (projects.cwd / "config.yaml").read_text().replace("permutationRate", "permutationRat")
    (projects.cwd / "config.yaml").write_text(text)
    checked = projects.etude("check", "config.yaml")
    assert checked.returncode == 2
    assert "Compressor has no parameter 'permutationRat'; did you mean 'permutationRate'?" in checked.stdout
    listed = projects.etude("list", "model", "--config", "config.yaml")
    assert listed.stdout.rstrip() == "model\tCompressor\tmcquic.modules.compressor.Compressor"


@pytest.mark.pins()
@pytest.mark.parametrize("verb", ["check", "train"])
def test_without_mcquic_its_model_is_refused_with_what_to_do(projects, verb):
    write(projects.cwd)
    done = projects.etude(verb, "config.yaml")
    assert done.returncode == 2
    assert "no model is called 'Compressor'; install McQuic, run in a checkout of it" in done.stdout + done.stderr


@REAL
def test_the_image_pipeline_gives_the_pixels_of_the_original(projects):
    """The originals need torchvision for two functions; both are given here as torchvision has them."""
    code = """
import random, sys, types
import torch

def compose(steps):
    def call(x):
        for step in steps:
            x = step(x)
        return x
    return call

vision = types.ModuleType("torchvision"); vision.transforms = T = types.ModuleType("torchvision.transforms")
T.functional = types.ModuleType("torchvision.transforms.functional")
T.Compose = compose
class Normalize(torch.nn.Module):
    def __init__(self, mean, std): super().__init__()
    def forward(self, x): return (x - 0.5) / 0.5
T.Normalize = Normalize
T.ConvertImageDtype = lambda dtype: (lambda x: x.to(dtype) / 255)
T.RandomCrop = lambda size, pad_if_needed: (lambda x: x)
sys.modules.update({"torchvision": vision, "torchvision.transforms": T, "torchvision.transforms.functional": T.functional})
import importlib.util
def real(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec); sys.modules[name] = module; spec.loader.exec_module(module)
    return module
root = next(p for p in sys.path if p.rstrip("/").endswith("py311") or "mcquic-0.1.40" in p)
for package in ("mcquic", "mcquic.utils", "mcquic.datasets"):
    sys.modules[package] = types.ModuleType(package); sys.modules[package].__path__ = []
real("mcquic.utils.vision", root + "/mcquic/utils/vision.py")
theirs = real("mcquic.datasets.transforms", root + "/mcquic/datasets/transforms.py")
from etude_mcquic.live.data import transforms as ours
image = torch.randint(0, 256, (3, 512, 512), dtype=torch.uint8)
for seed in range(8):
    answers = []
    for pipeline in (theirs, ours):
        random.seed(seed); torch.manual_seed(seed)
        batch = torch.stack([pipeline.getTrainingPreprocess()(image) for _ in range(2)])
        batch = pipeline.getTrainingTransform()(batch)
        answers.append(pipeline.getTraingingPostprocess()(batch))
    assert torch.equal(*answers), seed
big = torch.randint(0, 256, (3, 300, 517), dtype=torch.uint8)
assert torch.equal(theirs.getEvalTransform()(big), ours.getEvalTransform()(big))
float_image = torch.rand(1, 3, 130, 250)
assert torch.equal(theirs.AlignedPadding()(float_image), ours.AlignedPadding()(float_image))
print("same")
"""
    (projects.cwd / "same.py").write_text(code)
    done = projects.run("same.py")
    assert done.stdout.strip() == "same", done.stderr


@REAL
def test_the_value_tuners_have_the_arguments_and_the_values_of_the_original(projects):
    code = """
import importlib.util, inspect, sys, types

def real(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec); sys.modules[name] = module; spec.loader.exec_module(module)
    return module

from etude_mcquic.live import tuners as ours
from etude_mcquic.files import Restorable
root = next(p for p in sys.path if "mcquic-0.1.40" in p)
for name in ("mcquic", "mcquic.utils", "vlutils", "vlutils.base"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["vlutils.base"].Restorable = Restorable
sys.modules["mcquic.utils"].ValueTunerRegistry = types.SimpleNamespace(register=lambda kind: kind)
base = real("mcquic.baseClass", root + "/mcquic/baseClass.py")
theirs = real("mcquic.train.valueTuners", root + "/mcquic/train/valueTuners.py")
kinds = [kind for kind in vars(theirs).values() if inspect.isclass(kind) and issubclass(kind, base.ValueTuner)]
for kind in kinds:
    twin = getattr(ours, kind.__name__)
    arguments = [[(p.name, p.default) for p in inspect.signature(each).parameters.values()] for each in (kind, twin)]
    assert arguments[0] == arguments[1], kind
    first, second = kind(), twin()
    for _ in range(3000):
        assert abs(first.Value - second.Value) < 1e-12, kind
        first.step(); second.step()
print(len(kinds))
"""
    (projects.cwd / "tuners.py").write_text(code)
    done = projects.run("tuners.py")
    assert done.stdout.strip() == "8", done.stderr


@REAL
def test_ms_ssim_has_the_bits_of_mcquic_in_value_and_gradient(projects):
    source = projects.folders[0] / "mcquic/validate/metrics.py"
    spec = importlib.util.spec_from_file_location("metrics", source)
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    torch.manual_seed(0)
    for shape in ((2, 3, 161, 203), (1, 3, 176, 256)):
        image = torch.rand(shape)
        restored = (image + 0.2 * torch.rand(shape)).clamp(0, 1)
        measured = 1 - msSSIM(image * 255, restored * 255, dataRange=255.0).mean(1)
        assert torch.equal(measured, theirs.MsSSIM(sizeAverage=False)(image * 255, restored * 255))
        one, other = (image * 2 - 1).requires_grad_(), (image * 2 - 1).requires_grad_()
        loss = MsSSIM()(one, restored * 2 - 1)[1]
        wanted = theirs.MsSSIM(data_range=2.0, sizeAverage=True)(other + 1, restored * 2 - 1 + 1)
        loss.backward()
        wanted.backward()
        assert torch.equal(loss, wanted) and torch.equal(one.grad, other.grad)


@REAL
def test_the_commands_of_mcquic_measure_export_compress_and_restore(projects):
    write(projects.cwd)
    (projects.cwd / "out").mkdir()
    Image.fromarray(np.zeros((140, 150, 3), np.uint8) + 90).save(projects.cwd / "odd.png")

    def mcquic(*words):
        done = projects.etude("exec", "-m", "mcquic", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    mcquic("train", "-q", "config.yaml")
    said = mcquic("validate", "-e", "out", "saved/latest/last.ckpt", "photos", "out")
    assert "PSNR: " in said and "IdealBPP: " in said and (projects.cwd / "out/0.png").is_file()
    (model,) = (projects.cwd / "out").glob("qp_2_psnr_*.mcquic")
    assert model.stem.endswith(hashlib.sha256(model.read_bytes()).hexdigest()[:8])
    assert "Compression ratio" in mcquic("--local", str(model), "odd.png", "odd.mcq")
    mcquic("odd.mcq", "back.png")
    assert Image.open(projects.cwd / "back.png").size == (150, 140)
    told = projects.etude("exec", "-m", "mcquic", "odd.png", "odd.mcq")
    assert told.returncode == 2 and "etude fetch https://" in told.stderr
