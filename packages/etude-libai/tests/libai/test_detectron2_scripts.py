"""detectron2's two kinds of train scripts run unchanged: a lazy config with hooks, and a loop of one's own with yacs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.cli import main
from tests import zygote
from tests.libai import project

PARTS = """
import torch
from torch import nn
from detectron2.evaluation import DatasetEvaluator
from detectron2.modeling import META_ARCH_REGISTRY

def images(n=30):
    return [{"index": i, "width": 4 + i % 3, "height": 5} for i in range(n)]

def mapper(entry):
    return {**entry, "x": torch.tensor([entry["index"] / 30.0])}

class Line(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.fc, self.scale = nn.Linear(1, 1), scale
    def forward(self, batch):
        from detectron2.utils.events import get_event_storage
        x = torch.stack([s["x"] for s in batch])
        if not self.training:
            return [{"error": float((self.fc(x) - 2 * x).abs().mean())} for _ in batch]
        get_event_storage().put_scalar("norm", self.fc.weight.norm())
        return {"loss_mse": ((self.fc(x) - 2 * x) ** 2).mean()}

@META_ARCH_REGISTRY.register()
class YacsLine(Line):
    def __init__(self, cfg):
        super().__init__()

class Error(DatasetEvaluator):
    def reset(self): self.errors = []
    def process(self, inputs, outputs): self.errors += [o["error"] for o in outputs]
    def evaluate(self): return {"line": {"error": sum(self.errors) / len(self.errors)}}
"""

CONFIG = """
from detectron2.config import LazyCall as L
from detectron2.data import build_detection_test_loader, build_detection_train_loader
from detectron2.model_zoo import get_config
from detectron2.solver import WarmupParamScheduler
from fvcore.common.param_scheduler import CosineParamScheduler
import d2_script_parts as parts

train = get_config("common/train.py").train
train.max_iter, train.log_period, train.eval_period, train.seed, train.device = 12, 4, 4, 3, "cpu"
train.checkpointer = dict(period=4, max_to_keep=3)
model = L(parts.Line)()
optimizer = get_config("common/optim.py").SGD
optimizer.lr = 0.1
lr_multiplier = L(WarmupParamScheduler)(
    scheduler=L(CosineParamScheduler)(start_value=1.0, end_value=0.1), warmup_factor=0.1, warmup_length=0.25
)
dataloader = dict(
    train=L(build_detection_train_loader)(
        dataset=parts.images(), mapper=parts.mapper, total_batch_size=4, num_workers=0,
        aspect_ratio_grouping=False,
    ),
    test=L(build_detection_test_loader)(dataset=parts.images(8), mapper=parts.mapper),
    evaluator=L(parts.Error)(),
)
"""

YACS = """
MODEL:
  META_ARCHITECTURE: YacsLine
  DEVICE: cpu
  WEIGHTS: ""
DATASETS:
  TEST: ("line",)
SOLVER:
  IMS_PER_BATCH: 4
  BASE_LR: 0.1
  MAX_ITER: 10
  STEPS: (8,)
  CHECKPOINT_PERIOD: 4
  WARMUP_ITERS: 2
TEST:
  EVAL_PERIOD: 5
OUTPUT_DIR: ./plain
"""

LAZY_SCRIPT = """
from detectron2.checkpoint import DetectionCheckpointer
from detectron2.config import LazyConfig, instantiate
from detectron2.engine import AMPTrainer, SimpleTrainer, default_argument_parser, default_setup, default_writers, launch
from detectron2.engine import hooks as on
from detectron2.engine.defaults import create_ddp_model
from detectron2.evaluation import inference_on_dataset, print_csv_format
from detectron2.utils import comm


def looked_at(cfg, model):
    if "evaluator" not in cfg.dataloader:
        return None
    found = inference_on_dataset(model, instantiate(cfg.dataloader.test), instantiate(cfg.dataloader.evaluator))
    print_csv_format(found)
    return found


def hooks_of(cfg, model, checkpointer):
    yield on.IterationTimer()
    yield on.LRScheduler(scheduler=instantiate(cfg.lr_multiplier))
    first = comm.is_main_process()
    yield on.PeriodicCheckpointer(checkpointer, **cfg.train.checkpointer) if first else None
    yield on.EvalHook(cfg.train.eval_period, lambda: looked_at(cfg, model))
    writers = default_writers(cfg.train.output_dir, cfg.train.max_iter) if first else []
    yield on.PeriodicWriter(writers, period=cfg.train.log_period) if first else None


def trained(cfg, resume):
    model = instantiate(cfg.model).to(cfg.train.device)
    cfg.optimizer.params.model = model
    optimizer = instantiate(cfg.optimizer)
    kind = AMPTrainer if cfg.train.amp.enabled else SimpleTrainer
    model = create_ddp_model(model, **cfg.train.ddp)
    trainer = kind(model, instantiate(cfg.dataloader.train), optimizer)
    checkpointer = DetectionCheckpointer(model, cfg.train.output_dir, trainer=trainer)
    trainer.register_hooks(list(hooks_of(cfg, model, checkpointer)))
    checkpointer.resume_or_load(cfg.train.init_checkpoint, resume=resume)
    begun = resume and checkpointer.has_checkpoint()
    trainer.train(trainer.iter + 1 if begun else 0, cfg.train.max_iter)


def main(args):
    cfg = LazyConfig.apply_overrides(LazyConfig.load(args.config_file), args.opts)
    default_setup(cfg, args)
    if not args.eval_only:
        return trained(cfg, args.resume)
    model = create_ddp_model(instantiate(cfg.model).to(cfg.train.device))
    DetectionCheckpointer(model).load(cfg.train.init_checkpoint)
    print(looked_at(cfg, model))


if __name__ == "__main__":
    given = default_argument_parser().parse_args()
    launch(main, given.num_gpus, given.num_machines, given.machine_rank, given.dist_url, args=(given,))
"""

PLAIN_SCRIPT = """
import d2_script_parts as parts
from detectron2.checkpoint import DetectionCheckpointer, PeriodicCheckpointer
from detectron2.config import get_cfg
from detectron2.data import build_detection_test_loader, build_detection_train_loader
from detectron2.engine import default_argument_parser, default_setup, default_writers, launch
from detectron2.evaluation import inference_on_dataset, print_csv_format
from detectron2.modeling import build_model
from detectron2.solver import build_lr_scheduler, build_optimizer
from detectron2.utils import comm
from detectron2.utils.events import EventStorage


def looked_at(cfg, model):
    for name in cfg.DATASETS.TEST:
        loader = build_detection_test_loader(parts.images(8), mapper=parts.mapper)
        print_csv_format(inference_on_dataset(model, loader, parts.Error()))


def batches(cfg):
    return build_detection_train_loader(
        parts.images(), mapper=parts.mapper, total_batch_size=cfg.SOLVER.IMS_PER_BATCH, aspect_ratio_grouping=False
    )


def step(model, batch, optimizer, scheduler, storage):
    losses = model(batch)
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
    told = {name: loss.item() for name, loss in comm.reduce_dict(losses).items()}
    if comm.is_main_process():
        storage.put_scalars(total_loss=sum(told.values()), **told)
    storage.put_scalar("lr", optimizer.param_groups[0]["lr"], smoothing_hint=False)
    scheduler.step()


def trained(cfg, model, resume):
    model.train()
    optimizer = build_optimizer(cfg, model)
    scheduler = build_lr_scheduler(cfg, optimizer)
    checkpointer = DetectionCheckpointer(model, cfg.OUTPUT_DIR, optimizer=optimizer, scheduler=scheduler)
    first = checkpointer.resume_or_load(cfg.MODEL.WEIGHTS, resume=resume).get("iteration", -1) + 1
    last = cfg.SOLVER.MAX_ITER - 1
    saves = PeriodicCheckpointer(checkpointer, cfg.SOLVER.CHECKPOINT_PERIOD, max_iter=last + 1)
    writers = default_writers(cfg.OUTPUT_DIR, last + 1) if comm.is_main_process() else []
    print("first iteration", first)
    with EventStorage(first) as storage:
        for storage.iter, batch in zip(range(first, last + 1), batches(cfg)):
            step(model, batch, optimizer, scheduler, storage)
            if (storage.iter + 1) % cfg.TEST.EVAL_PERIOD == 0 and storage.iter != last:
                looked_at(cfg, model)
                comm.synchronize()
            if storage.iter == last:
                for writer in writers:
                    writer.write()
            saves.step(storage.iter)


def main(args):
    cfg = get_cfg()
    cfg.merge_from_file(args.config_file)
    cfg.merge_from_list(args.opts)
    cfg.freeze()
    default_setup(cfg, args)
    model = build_model(cfg)
    if args.eval_only:
        DetectionCheckpointer(model, save_dir=cfg.OUTPUT_DIR).resume_or_load(cfg.MODEL.WEIGHTS, resume=args.resume)
    else:
        trained(cfg, model, args.resume)
    looked_at(cfg, model)


if __name__ == "__main__":
    given = default_argument_parser().parse_args()
    launch(main, given.num_gpus, given.num_machines, given.machine_rank, given.dist_url, args=(given,))
"""

LAZY = ["exec", "tools/lazyconfig_train_net.py", "--config-file", "config.py"]
PLAIN = ["exec", "tools/plain_train_net.py", "--config-file", "config.yaml"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    Path("tools").mkdir()
    written = {
        "d2_script_parts.py": PARTS, "config.py": CONFIG, "config.yaml": YACS,
        "tools/lazyconfig_train_net.py": LAZY_SCRIPT, "tools/plain_train_net.py": PLAIN_SCRIPT,
    }  # fmt: skip
    for name, text in written.items():
        Path(name).write_text(text)
    yield tmp_path
    from detectron2.modeling import META_ARCH_REGISTRY

    META_ARCH_REGISTRY._obj_map.pop("YacsLine", None)
    sys.modules.pop("d2_script_parts", None)
    project.forget_loggers()


def lines(path: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_script_with_a_lazy_config_trains_resumes_and_evaluates(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(LAZY) == 0
    assert Path("output/last_checkpoint").read_text() == "model_final.pth"
    assert "norm" in lines("output/metrics.json")[0]
    capfd.readouterr()
    assert main([*LAZY, "--eval-only", "train.init_checkpoint=output/model_final.pth"]) == 0
    assert "'line': {'error'" in capfd.readouterr().out
    assert main(["test", "config.py", "output/model_final.pth", "--out", "found.json"]) == 0
    last = [line["line/error"] for line in lines("output/metrics.json") if "line/error" in line][-1]
    assert json.loads(Path("found.json").read_text()) == {"line/error": pytest.approx(last)}
    assert main([*LAZY, "--resume", "train.max_iter=16"]) == 0
    assert "Starting training from iteration 12" in Path("output/log.txt").read_text()
    assert Path("output/model_0000015.pth").exists()


def test_a_script_with_a_loop_of_its_own_trains_resumes_and_evaluates(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(PLAIN) == 0
    assert [line["iteration"] for line in lines("plain/metrics.json")] == [9]
    assert {"norm", "lr", "loss_mse", "total_loss"} <= set(lines("plain/metrics.json")[-1])
    assert main([*PLAIN, "--resume", "--eval-only"]) == 0
    capfd.readouterr()
    assert main([*PLAIN, "--resume", "SOLVER.MAX_ITER", "18"]) == 0
    assert "first iteration 10" in capfd.readouterr().out


@pytest.mark.thorough  # each process imports torch anew; test_processes.py has two of LiBai and of detectron2
def test_a_script_starts_as_many_processes_as_it_is_asked_for() -> None:
    done = zygote.etude(*LAZY, "--num-gpus", "2", "--dist-url", "auto")
    assert done.returncode == 0, done.stderr
    assert "World size: 2" in Path("output/log.txt").read_text()
    assert Path("output/log.txt.rank1").exists()
    assert Path("output/model_final.pth").exists()


MISTAKES = {
    "SOLVER.BASE_LRR 0.3": "Non-existent key: SOLVER.BASE_LRR; did you mean 'BASE_LR'?",
    "SOLVRE.BASE_LR 1": "did you mean 'SOLVER'?",
    "SOLVER.BASE_LR": "it must be a list of pairs; write KEY VALUE KEY VALUE",
    "SOLVER.BASE_LR abc": "for config key: SOLVER.BASE_LR",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_yacs_override_is_told(mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAIN, *mistake.split()]) == 2
    told = capsys.readouterr().err
    assert f"etude: error: override '{mistake}': " in told
    assert MISTAKES[mistake] in told
    assert not Path("plain").exists()


def test_a_mistake_in_a_yacs_file_is_told_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.yaml").write_text(YACS.replace("BASE_LR", "BSE_LR"))
    assert main(PLAIN) == 2
    assert "config.yaml:10: Non-existent config key: SOLVER.BSE_LR; did you mean 'BASE_LR'?" in capsys.readouterr().err
    Path("config.yaml").rename("below.yaml")
    Path("config.yaml").write_text("_BASE_: below.yaml\nOUTPUT_DIR: plain\n")
    assert main(PLAIN) == 2
    assert "error: below.yaml:10: Non-existent config key: SOLVER.BSE_LR" in capsys.readouterr().err
    Path("config.yaml").write_text("OUTPUT_DIR: plain\n_BASE_: blow.yaml\n")
    assert main(PLAIN) == 2
    told = "error: config.yaml:2: _BASE_ names blow.yaml, which is not there; did you mean 'below.yaml'?"
    assert told in capsys.readouterr().err
    Path("config.yaml").write_text(YACS.replace("YacsLine", "YacsLin"))
    assert main(PLAIN) == 2
    assert (
        "No object named 'YacsLin' found in 'META_ARCH' registry!; did you mean 'YacsLine'?" in capsys.readouterr().err
    )


REFUSED = {
    "SOLVER.STEPS (10,)": "SOLVER.STEPS (10,), SOLVER.MAX_ITER 10: Milestone must be smaller than total number of",
    "SOLVER.LR_SCHEDULER_NAME WarmupCosinLR": "Unknown LR scheduler: WarmupCosinLR; did you mean 'WarmupCosineLR'?",
    "SOLVER.WARMUP_METHOD linaer": "SOLVER.WARMUP_METHOD linaer: Unknown warmup method: linaer; did you mean 'linear'?",
    "SOLVER.MAX_ITER 0": "SOLVER.MAX_ITER 0: nothing says how long to train",
    "MODEL.WEIGHTS nope.pth": "MODEL.WEIGHTS (of a lazy config: train.init_checkpoint): Checkpoint nope.pth not found!",
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_a_part_of_a_yacs_config_refuses_is_told_with_its_keys(
    mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PLAIN, *mistake.split()]) == 2
    told = capsys.readouterr().err
    assert REFUSED[mistake] in told
    assert "Traceback" not in told


def test_a_misspelt_override_of_a_lazy_config_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LAZY, "train.max_itr=3"]) == 2
    assert "unknown key train.max_itr; did you mean 'max_iter'?" in capsys.readouterr().err
    assert not Path("output").exists()


TRAINED = {
    "model.scal=2": "takes no argument 'scal'; did you mean 'scale'?",
    "optimizer.lr=-1": "torch.optim.SGD cannot be made: ValueError: Invalid learning rate: -1",
    "lr_multiplier.warmup_length=3": "warmup_length is a share of training, at most 1, not 3",
    "lr_multiplier=null": "`lr_multiplier` is None",
    "lr_multiplier.warmup_method=linaer": "ValueError: Unknown warmup method: linaer",
    "dataloader.train.total_batch_size=0": "Total batch size (0) must be divisible",
    "train.init_checkpoint=nowhere.pth": "Checkpoint nowhere.pth not found!",
    "dataloader.test.dataset=[]": "cannot be made: AssertionError: there is no sample to evaluate on",
}


@pytest.mark.parametrize("override", TRAINED)
def test_a_mistake_in_a_lazy_config_is_told_with_its_place(override: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "config.py", override]) == 2
    told = capsys.readouterr().err
    assert f"etude: error: override '{override}': " in told or "dataloader.t" in told
    assert TRAINED[override] in told
    assert not Path("output").exists()


@pytest.mark.parametrize("words", [LAZY, ["train", "config.py"]])
def test_a_loss_that_is_not_finite_ends_a_run_with_its_iteration_and_the_losses(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "optimizer.lr=1e30", "train.output_dir=lost"]) == 4
    told = capfd.readouterr()
    assert "etude: error: the loss is not finite at iteration 1 (loss_mse inf); a lower learning rate" in told.err
    assert "Traceback" not in told.out + told.err
    assert "FloatingPointError" not in told.err
    assert "Loss became infinite or NaN at iteration=1!" in Path("lost/log.txt").read_text()


def test_a_script_catches_a_loss_that_is_not_finite_as_detectron2_raises_it() -> None:
    from detectron2.engine import SimpleTrainer
    from detectron2.utils.events import EventStorage

    with EventStorage(3), pytest.raises(FloatingPointError, match="at iteration=3!\nloss_dict = {'a': nan}"):
        SimpleTrainer.write_metrics({"a": float("nan")}, 0.0, 3)
