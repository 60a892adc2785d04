"""``etude train old_config.py``: wired as the train scripts of mmclassification and mmtracking do it."""

from __future__ import annotations

import importlib
import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.api import train_config as train
from etude.building.options import Options
from etude.checkpoint.formats import foreign
from etude.cli import main
from etude.errors import ConfigError, EtudeError, OutOfScope
from etude_openmm.shared.config.config_v1 import ConfigDict
from tests.mmcv1.toys import assert_same_bits, weights
from tests.sampling import sample

PARTS = """
import os, signal
import torch
from mmcv.runner import HOOKS, BaseModule, Hook
from mmcls.datasets import DATASETS, BaseDataset
from mmcls.models import CLASSIFIERS
from mmtrack.datasets import DATASETS as TRACK_DATASETS
from mmtrack.models import MODELS as TRACK_MODELS
from tests.mmcv1.toys import Net, Noisy

@DATASETS.register_module(force=True)
@TRACK_DATASETS.register_module(force=True)
class ToyData(Noisy):
    CLASSES = ('a', 'b')
    def __init__(self, size=22, test_mode=False):
        super().__init__(size)
        self.test_mode = test_mode

@CLASSIFIERS.register_module(force=True)
@TRACK_MODELS.register_module(force=True)
class ToyModel(Net):
    pass

@HOOKS.register_module(force=True)
class SignalHook(Hook):
    def after_train_iter(self, runner):
        if runner.iter == 8:
            os.kill(os.getpid(), signal.SIGTERM)

@HOOKS.register_module(force=True)
class RaisingHook(Hook):
    def after_train_iter(self, runner):
        if runner.iter == 3:
            raise RuntimeError('hook says no')

@DATASETS.register_module(force=True)
class BrokenData(ToyData):
    def __getitem__(self, index):
        if index == 7:
            raise ValueError('broken sample')
        return super().__getitem__(index)

@DATASETS.register_module(force=True)
class RaisingData(ToyData):
    def __init__(self):
        {'train': 1}['tran']

@DATASETS.register_module(force=True)
class BareData(ToyData):
    evaluate = None

@DATASETS.register_module(force=True)
class StrictData(ToyData):
    def evaluate(self, results, metric='accuracy', logger=None):
        return dict(accuracy=0.5)

@DATASETS.register_module(force=True)
class ListedData(BaseDataset):
    CLASSES = ('a', 'b')
    def load_annotations(self):
        return [dict(img=torch.zeros(4), gt_label=0)]

@CLASSIFIERS.register_module(force=True)
class NoLossModel(ToyModel):
    def train_step(self, data, optimizer=None, **kwargs):
        return dict(log_vars=dict(a=1.0), num_samples=1)

@CLASSIFIERS.register_module(force=True)
class NoCountModel(ToyModel):
    def train_step(self, data, optimizer=None, **kwargs):
        return dict(loss=self(**data), log_vars=dict(a=1.0))

@CLASSIFIERS.register_module(force=True)
class WideModel(ToyModel):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 9)

@CLASSIFIERS.register_module(force=True)
class OtherModel(ToyModel):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = self.fc1, self.bn, self.fc2
        del self.fc1, self.bn, self.fc2

@CLASSIFIERS.register_module(force=True)
class NotingModel(BaseModule, ToyModel):
    def __init__(self):
        BaseModule.__init__(self)
        ToyModel.__init__(self)

@TRACK_MODELS.register_module(force=True)
class Tracker(ToyModel):
    def forward(self, x, y=None, return_loss=True):
        found = super().forward(x, y, return_loss)
        return found if return_loss else dict(track_bboxes=found, frames=len(x))

@TRACK_DATASETS.register_module(force=True)
class Frames(ToyData):
    def evaluate(self, results, **kwargs):
        assert set(results) == {'track_bboxes', 'frames'}
        return dict(frames=sum(results['frames']))

SEEN = []

@HOOKS.register_module(force=True)
class SeenHook(Hook):
    def before_run(self, runner):
        SEEN[:] = [[type(hook).__name__, hook.priority] for hook in runner.hooks]
"""

CONFIG = """
model = dict(type='ToyModel')
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='ToyData'), val=dict(type='ToyData', size=6))
optimizer = dict(type='SGD', lr=0.1, momentum=0.9)
optimizer_config = dict(grad_clip=None)
lr_config = dict(policy='step', step=[1])
runner = dict(type='EpochBasedRunner', max_epochs=2)
checkpoint_config = dict(interval=1)
log_config = dict(interval=3, hooks=[dict(type='TextLoggerHook')])
evaluation = dict(interval=1, metric='accuracy')
custom_hooks = [dict(type='SeenHook')]
custom_imports = dict(imports=['toy_parts_of_build'], allow_failed_imports=False)
workflow = [('train', 1)]
load_from = None
resume_from = None
seed = 5
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a config (with lines added) into a folder of its own and gives its path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy_parts_of_build.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(extra: str = "", *, base: str = CONFIG, name: str = "toy.py") -> Path:
        path = tmp_path / name
        path.write_text(base + textwrap.dedent(extra))
        return path

    return write


def _train(path: Path, folder: str = "out", **extras: Any) -> Any:
    return train(path, options=Options(folder=Path(folder), quiet=True, extras=extras))


def test_a_run_leaves_what_mmclassification_leaves(config: Any, tmp_path: Path) -> None:
    run = _train(config())
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"epoch_1.pth", "epoch_2.pth", "latest.pth", "toy.py", "plan.yaml"} <= names
    log = next((tmp_path / "out").glob("*.log.json"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"env_info", "seed", "mmcls_version", "config", "CLASSES"} <= set(lines[0])
    assert [line["mode"] for line in lines[1:]] == ["train", "train", "val"] * 2
    assert "Epoch [2][6/6]" in log.with_suffix("").read_text()
    assert run.runner.meta["seed"] == 5


def test_a_run_opens_with_the_lines_of_the_train_script(config: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = config("tracker = dict(api_key='hunter2secret')\n")
    assert main(["train", str(path), "--work-dir", "out", "--seed", "11", "--deterministic"]) == 0
    log = next(Path("out").glob("*.log")).read_text()
    wanted = [
        "Environment info:\n" + "-" * 60 + "\nsys.platform: ",
        "MMClassification: 0.25.0\n" + "-" * 60 + "\n",
        "Distributed training: False",
        "Config:\nmodel = dict(type='ToyModel')",
        "work_dir = 'out'",
        "Set random seed to 11, deterministic: True",
        "Start running, host: ",
    ]
    places = [log.find(line) for line in wanted]
    assert -1 not in places and places == sorted(places), dict(zip(wanted, places, strict=True))
    assert "Distributed training: False" in caplog.messages  # as they go to the console
    meta = torch.load("out/epoch_2.pth", weights_only=False)["meta"]
    assert "sys.platform: " in meta["env_info"] and meta["seed"] == 11
    assert {"work_dir = 'out'", "gpu_ids = [0]", "device = 'cpu'", "seed = 11"} <= set(meta["config"].splitlines())
    written = [path.read_bytes() for path in Path("out").rglob("*") if path.is_file()]
    assert not any(b"hunter2secret" in text for text in written)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False


def test_the_error_that_ends_a_run_stands_in_its_log(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = config("custom_hooks = [dict(type='RaisingHook')]\n")
    assert main(["train", str(path), "--work-dir", "out"]) == 3
    log = next(Path("out").glob("*.log")).read_text()
    assert "mmcls - ERROR - ended by RuntimeError at iteration 3: hook says no" in log
    assert "toy_parts_of_build.py" in log and "Traceback" in log
    told = capsys.readouterr().err
    assert told.count("hook says no") <= 3 and "at after_train_iter, step 4" in told


def test_checkpoints_can_be_read_by_those_whom_the_umask_lets(config: Any) -> None:
    before = os.umask(0o022)
    try:
        _train(config())
    finally:
        os.umask(before)
    files = [Path("out"), *Path("out").rglob("epoch_*")]
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o755", "0o644"}


def test_half_precision_without_cuda_is_told_once(config: Any, caplog: pytest.LogCaptureFixture) -> None:
    _train(config("fp16 = dict(loss_scale='dynamic')\n"))
    told = [message for message in caplog.messages if "half precision needs CUDA" in message]
    assert len(told) == (0 if torch.cuda.is_available() else 1)


def test_a_name_that_a_served_module_lacks_is_answered_with_the_near_one(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("has_a_slip.py").write_text("import torch\nfrom mmcv.runner import Hoook\n")
    path = config("custom_hooks = []\ncustom_imports = dict(imports=['has_a_slip'], allow_failed_imports=False)\n")
    assert main(["train", str(path), "--work-dir", "out"]) == 2
    told = capsys.readouterr().err
    assert "has_a_slip.py:2" in told and "has no 'Hoook'; did you mean 'Hook'?" in told
    assert not Path("out").exists()


def test_a_script_is_shown_the_line_that_led_to_an_error(
    config: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import mmcv.runner, torch\n\nmmcv.runner.build_optimizer(torch.nn.Linear(1, 1), dict(type='SDG', lr=1))\n"
    )
    assert main(["exec", str(script)]) == 2
    told = capsys.readouterr().err
    assert 'script.py", line 3' in told and "SDG is not in the optimizer registry; did you mean 'SGD'?" in told


def test_an_evaluation_that_fails_costs_nothing_that_was_trained(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong ``save_best``, which only the results can tell."""
    rare = "checkpoint_config = dict(interval=5)\n"
    undisturbed = weights(_train(config(rare), folder="whole").runner)
    path = config(rare + "evaluation = dict(interval=1, save_best='acc_x')\n")
    assert main(["train", str(path), "--work-dir", "out", "-q"]) == 2
    told = capsys.readouterr().err
    assert "toy.py:18: save_best='acc_x' is not among the results: acc; did you mean 'acc'?" in told
    assert os.path.realpath("out/latest.pth").endswith("stopped_iter_6.pth")
    mended = str(config(rare + "evaluation = dict(interval=1, save_best='acc')\n"))
    assert main(["train", mended, "--work-dir", "out", "--auto-resume", "-q"]) == 0
    assert_same_bits(torch.load("out/epoch_2.pth", weights_only=False)["state_dict"], undisturbed)
    assert list(Path("out").glob("best_acc_epoch_*.pth"))


def test_workers_that_outlive_an_epoch_are_resumed_exactly(config: Any) -> None:
    """They give what workers give that are started anew each epoch, also after a resume in the middle of one."""
    lasting = "data['workers_per_gpu'] = 2\ndata['persistent_workers'] = True\nrunner['max_epochs'] = 3\n"
    whole = weights(_train(config(lasting), folder="whole").runner)
    anew = _train(config(lasting.replace("True", "False")), folder="anew")
    assert_same_bits(whole, weights(anew.runner))
    stopped = config(lasting + "custom_hooks = [dict(type='SignalHook')]\n")
    assert _train(stopped, folder="stopped").exit_code == 143
    _train(config(lasting.replace("3", "2")), folder="parts")
    for file in sample(("parts/epoch_1.pth", "parts/epoch_2.pth", "stopped/stopped_iter_9.pth"), (0, 2)):
        rest = _train(config(lasting), folder=f"rest-{Path(file).stem}", resume_from=file)
        assert_same_bits(whole, weights(rest.runner))


@pytest.mark.parametrize(
    ("lines", "code", "told"),
    [
        ("data['train']['type'] = 'BrokenData'", 5, "epoch 1, batch "),
        ("data['train']['type'] = 'BrokenData'\ndata['workers_per_gpu'] = 1", 5, "broken sample ("),
        ("data['train']['type'] = 'BrokenData'\nrunner = dict(type='IterBasedRunner', max_iters=9)", 5, "pass 1 over"),
        ("data['train']['type'] = 'BrokenData'", 5, "toy_parts_of_build.py:40)"),
        ("data['train']['type'] = 'RaisingData'", 3, "toy_parts_of_build.py:46: RaisingData: 'tran'"),
        ("data['val']['type'] = 'BareData'", 2, "BareData has no method evaluate(results, …)"),
        (
            "data['val'] = dict(type='StrictData')\nevaluation = dict(metric_options=dict(topk=1))",
            2,
            "toy.py:18: StrictData.evaluate() takes no argument 'metric_options'; did you mean 'metric'?",
        ),
        (
            "data['val'] = dict(type='ListedData', data_prefix='', pipeline=[])\nevaluation = dict(metric=['acuracy'])",
            2,
            "toy.py:18: metric acuracy is not supported; did you mean 'accuracy'?",
        ),
        (
            "data['val'] = dict(type='ListedData', data_prefix='', pipeline=[])\n"
            "evaluation = dict(metric='recall', save_best='auto')",
            2,
            "toy.py:18: metric recall is not supported; pip install mmcls==0.25.0",
        ),
        ("load_from = 'nowhere.pth'", 2, "toy.py:17: load_from: there is no file 'nowhere.pth'"),
        ("_base_ = ['toyy.py']", 2, "toyy.py\" does not exist; did you mean 'toy.py'?"),
        ("del data['val']", 2, "there is no data.val to evaluate on; give it, or train with --no-validate"),
        ("model = dict(type='NoLossModel')", 3, "train_step of NoLossModel returned no 'loss' to minimise"),
        ("model = dict(type='NoCountModel')", 3, "must return num_samples, too"),
        ("optimizer = dict(type='SGD', lr=0.1, nesterov=True)", 2, "toy.py:17: SGD: Nesterov momentum requires"),
    ],
)
def test_what_goes_wrong_is_told_with_its_kind(
    config: Any, capsys: pytest.CaptureFixture[str], lines: str, code: int, told: str
) -> None:
    assert main(["train", str(config(f"{lines}\n")), "--work-dir", "out", "-q"]) == code
    assert told in capsys.readouterr().err


def test_a_launcher_that_was_not_there_is_named(
    config: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert main(["train", str(config()), "--work-dir", "out", "-q", "--launcher", "pytorch"]) == 2
    assert "--launcher pytorch needs a run that torchrun has started: RANK is not set" in capsys.readouterr().err


def test_another_model_is_not_resumed(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _train(config())
    wider = str(config("model = dict(type='WideModel')\n"))
    assert main(["train", wider, "--work-dir", "more", "--resume-from", "out/epoch_1.pth", "-q"]) == 7
    assert "fc1.weight has the shape (9, 4), in the checkpoint (8, 4)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "lines",
    [
        "checkpoint_config['meta'] = dict(made=dict(by='me', tags=[dict(a=1)]))\n",
        "del runner\ntotal_epochs = 2\nUSE_MMDET = False\ncheckpoint_config['meta'] = dict(made=dict(by='me'))\n",
    ],
    ids=["mmcls", "mmtrack"],
)
def test_a_label_in_the_config_leaves_plain_files(config: Any, lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    """mmcv has to read them as well, so no class of ours may stand in them."""
    path = str(config(lines))
    assert main(["train", path, "--work-dir", "out", "-q"]) == 0
    assert foreign.read("out/epoch_1.pth")["meta"]["epoch"] == 1
    assert b"ConfigDict" not in Path("out/epoch_1.pth").read_bytes()
    assert main(["train", path, "--work-dir", "more", "--resume-from", "out/epoch_1.pth", "-q"]) == 0
    capsys.readouterr()
    assert main(["ckpt", "ls", "out"]) == 0
    told = capsys.readouterr()
    assert "epoch_2.pth" in told.out and "refused" not in told.out + told.err


def test_a_checkpoint_without_a_weight_of_the_model_is_not_resumed(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(config())
    other = str(config("model = dict(type='OtherModel')\n"))
    assert main(["train", other, "--work-dir", "more", "--resume-from", "out/epoch_1.pth", "-q"]) == 7
    assert "epoch_1.pth is of another model" in capsys.readouterr().err
    assert not Path("more").exists()


def test_parts_that_a_script_has_registered_are_known(config: Any) -> None:
    """As in a script that imports its own modules and then calls ``etude.train``."""
    importlib.import_module("toy_parts_of_build")
    assert _train(config("del custom_imports\n")).exit_code == 0


def test_results_of_frames_are_collected_by_their_kind(config: Any) -> None:
    lines = "del runner\ntotal_epochs = 1\nUSE_MMDET = False\nmodel = dict(type='Tracker')\n"
    _train(config(lines + "data['val'] = dict(type='Frames', size=6)\n"))
    log = next(Path("out").glob("*.log.json")).read_text().splitlines()
    assert json.loads(log[-1])["frames"] == 6


def test_how_weights_began_stands_in_the_log_alone(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    title = "Name of parameter - Initialization information"
    path = str(config("model = dict(type='NotingModel')\n"))
    assert main(["train", path, "--work-dir", "out"]) == 0
    told = capsys.readouterr()
    assert "The value is the same before" not in told.out + told.err
    (log,) = Path("out").glob("*.log")
    assert log.read_text().count(title) == 1 and "\nfc1.weight - torch.Size([8, 4]): \n" in log.read_text()


def test_a_module_written_like_a_file_is_answered_with_its_name(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own").mkdir()
    Path("own/my_optimizer.py").write_text("")
    path = str(config("custom_imports = dict(imports=['own.my_optimizer.py'])\n"))
    assert main(["check", path]) == 2
    assert "did you mean 'own.my_optimizer'?" in capsys.readouterr().out


def test_files_with_a_config_in_them_can_be_read(tmp_path: Path) -> None:
    """As earlier releases have written them."""
    torch.save({"meta": ConfigDict(epoch=1, made={"by": [{"name": "me"}]})}, tmp_path / "old.pth")
    meta = foreign.read(tmp_path / "old.pth")["meta"]
    assert type(meta) is dict and meta == {"epoch": 1, "made": {"by": [{"name": "me"}]}}
    assert type(meta["made"]["by"][0]) is dict


@pytest.mark.parametrize("lines", ["", "USE_MMDET = False\n"], ids=["mmcls", "mmtrack"])
def test_a_runner_of_none_is_none_at_all(config: Any, lines: str) -> None:
    path = str(config(f"runner = None\ntotal_epochs = 1\n{lines}"))
    assert main(["check", path]) == 0
    assert main(["train", path, "--work-dir", "out", "-q"]) == 0
    assert Path("out/epoch_1.pth").exists() and not Path("out/epoch_2.pth").exists()


def test_hooks_stand_as_mmclassification_registers_them(config: Any) -> None:
    _train(config())
    import toy_parts_of_build

    assert toy_parts_of_build.SEEN == [
        ["StepLrUpdaterHook", 10],
        ["OptimizerHook", 40],
        ["CheckpointHook", 50],
        ["SeenHook", 50],
        ["IterTimerHook", 70],
        ["EvalHook", 70],
        ["TextLoggerHook", 90],
    ]


def test_hooks_stand_as_mmtracking_registers_them(config: Any) -> None:
    extra = """
    del runner
    total_epochs = 2
    USE_MMDET = False
    """
    run = _train(config(extra))
    import toy_parts_of_build

    order = [name for name, _ in toy_parts_of_build.SEEN]
    assert (
        order.index("CheckpointHook") < order.index("EvalHook") < order.index("SeenHook") < order.index("IterTimerHook")
    )
    assert run.runner.epoch == 2
    assert type(run.runner.model).__name__ == "MMDataParallel"
    assert torch.load("out/epoch_2.pth", weights_only=False)["meta"]["mmtrack_version"] == "0.14.0"


def test_the_flags_of_the_train_script_work(config: Any, tmp_path: Path) -> None:
    path = str(config())
    assert (
        main(["train", path, "--work-dir", "one", "--no-validate", "--cfg-options", "runner.max_epochs=1", "-q"]) == 0
    )
    assert not (tmp_path / "one" / "epoch_2.pth").exists()
    assert '"mode": "val"' not in next((tmp_path / "one").glob("*.log.json")).read_text()
    assert main(["train", path, "--work-dir", "two", "--resume-from", "one/epoch_1.pth", "-q"]) == 0
    assert torch.load("two/epoch_2.pth", weights_only=False)["meta"]["iter"] == 12
    assert (
        main(["train", path, "--work-dir", "two", "--auto-resume", "-q", "--cfg-options", "runner.max_epochs=3"]) == 0
    )
    assert (tmp_path / "two" / "epoch_3.pth").exists()
    assert main(["train", path, "--work-dir", "three", "--load-from", "two/epoch_3.pth", "-q", "--seed", "9"]) == 0
    assert torch.load("three/epoch_1.pth", weights_only=False)["meta"]["seed"] == 9


def test_without_a_folder_the_config_names_it(config: Any, tmp_path: Path) -> None:
    train(config("runner = dict(type='IterBasedRunner', max_iters=4)"), options=Options(quiet=True))
    assert (tmp_path / "work_dirs" / "toy" / "iter_4.pth").exists()


def test_the_same_seed_gives_the_same_run_and_a_resume_goes_on(config: Any) -> None:
    path = config("custom_hooks = [dict(type='EMAHook', momentum=0.1, warm_up=2, priority='ABOVE_NORMAL')]")
    whole, same = _train(path, "whole"), _train(path, "same")
    assert_same_bits(weights(whole.runner), weights(same.runner))
    again = _train(path, "again", resume_from="whole/epoch_1.pth")
    assert_same_bits(weights(whole.runner), weights(again.runner))


def test_a_resume_evaluates_only_where_the_whole_run_does(config: Any) -> None:
    """``start`` evaluates once when a run begins; a run that goes on has begun before."""
    path = config("evaluation = dict(interval=1, start=0, metric='accuracy', save_best='auto')")
    whole = _train(path, "whole")
    again = _train(path, "again", resume_from="whole/epoch_1.pth")
    assert_same_bits(weights(whole.runner), weights(again.runner))
    assert whole.runner.meta["hook_msgs"]["best_score"] == again.runner.meta["hook_msgs"]["best_score"]


def test_a_signal_ends_the_run_after_a_save_and_nothing_is_lost(config: Any) -> None:
    path = config()
    whole = _train(path, "whole")
    config("custom_hooks = [dict(type='SignalHook')]", name="killed.py")
    assert main(["train", "killed.py", "--work-dir", "killed", "-q"]) == 143
    assert Path("killed/latest.pth").readlink() == Path("stopped_iter_9.pth")
    again = _train(path, "killed", auto_resume=True)
    assert_same_bits(weights(whole.runner), weights(again.runner))


def test_a_workflow_with_validation_uses_the_val_data(config: Any) -> None:
    run = _train(config("workflow = [('train', 1), ('val', 1)]"))
    log = next(Path("out").glob("*.log.json"))
    losses = [json.loads(line) for line in log.read_text().splitlines() if '"val"' in line and "loss" in line]
    assert len(losses) == 2
    assert run.runner.epoch == 2


def test_a_short_trial_leaves_nothing(config: Any, tmp_path: Path) -> None:
    assert main(["train", str(config()), "--fast-dev-run", "-q"]) == 0
    assert not (tmp_path / "work_dirs").exists()


def test_a_look_at_the_plan_writes_nothing(config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in tmp_path.iterdir()} | {"toy.py", "__pycache__"}
    assert main(["plan", str(config())]) == 0
    told = capsys.readouterr().out
    assert "12 steps" in told
    assert "OptimizerHook (40, 12 times)" in told
    assert {path.name for path in tmp_path.iterdir()} <= before


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("model = dict(type='ToyModle')", "ToyModel"),
        ("optimizer = dict(type='SDG', lr=0.1)", "SGD"),
        ("optimizer = dict(type='SGD', lr=0.1, momentun=0.9)", "momentun"),
        ("lr_config = dict(policy='stpe', step=[1])", "step"),
        ("checkpoint_config = dict(intervall=1)", "interval"),
        ("evaluation = dict(save_best=True)", "auto"),
        ("custom_hooks = [dict(type='EMAHok')]", "EMAHook"),
        ("custom_imports = dict(imports=['toy_parts_of_build.py'], allow_failed_imports=False)", "toy_parts_of_build"),
        ("data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='ToyDta'))", "ToyDta"),
        ("lr_config = dict(policy='CosineAnnealing')", "min_lr"),
    ],
)
def test_a_mistake_is_told_with_its_file(config: Any, extra: str, message: str) -> None:
    with pytest.raises((ConfigError, EtudeError)) as caught:
        _train(config(extra))
    assert message in str(caught.value)
    assert "toy.py" in str(caught.value)


def test_a_hook_out_of_scope_says_so(config: Any) -> None:
    with pytest.raises((OutOfScope, ConfigError), match="RFSearchHook"):
        _train(config("custom_hooks = [dict(type='RFSearchHook')]"))


def test_two_runs_in_one_folder_are_refused(config: Any) -> None:
    from etude.checkpoint.storage.lock import FolderInUse, Lock

    Path("out").mkdir()
    with Lock("out"), pytest.raises(FolderInUse):
        _train(config())


def test_code_in_a_checkpoint_is_refused(config: Any) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return (Path.touch, (Path("executed"),))

    torch.save({"state_dict": {}, "meta": {"epoch": 1, "iter": 1, "x": Payload()}}, "evil.pth")
    with pytest.raises(EtudeError, match="refused"):
        _train(config(), resume_from="evil.pth")
    assert not Path("executed").exists()
