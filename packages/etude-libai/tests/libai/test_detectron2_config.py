"""detectron2's configs as its users write them: yacs nodes, dataclasses in lazy configs, what tests import."""

from __future__ import annotations

import copy
import itertools
import pickle
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from detectron2.checkpoint import Checkpointer
from detectron2.config import CfgNode, LazyConfig, configurable, get_cfg, instantiate
from detectron2.config import LazyCall as L
from detectron2.data import (
    MapDataset,
    build_detection_test_loader,
    build_detection_train_loader,
)
from detectron2.data.samplers import InferenceSampler, TrainingSampler
from detectron2.engine import DefaultTrainer, hooks
from detectron2.model_zoo import get_config
from detectron2.modeling import META_ARCH_REGISTRY, build_model
from torch import nn
from yaml import YAMLError

from etude.errors import OutOfScope, UserError
from tests import zygote


@dataclass
class Point:
    x: int
    y: str = "up"


@dataclass
class Segment:
    start: Point


def same(x: Any) -> Any:
    return x


@pytest.mark.parametrize("saved", [False, True])
def test_dataclasses_in_a_lazy_config_come_back_as_themselves(tmp_path: Path, saved: bool) -> None:
    def again(cfg: Any) -> Any:
        if not saved:
            return cfg
        LazyConfig.save(cfg, str(tmp_path / "saved.yaml"))
        return LazyConfig.load(str(tmp_path / "saved.yaml"))

    assert instantiate(again(L(same)(x=Point(x=1)))) == Point(1)
    assert instantiate(again(L(same)(x=Segment(Point(2, "down"))))) == Segment(Point(2, "down"))
    assert instantiate(again(L(Point)(x=3))) == Point(3)


def test_objects_that_are_no_dataclasses_are_still_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("x: !!python/object:collections.Counter {}\n")
    with pytest.raises(YAMLError, match="refused"):
        LazyConfig.load(str(path))
    path.write_text("x: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(YAMLError):
        LazyConfig.load(str(path))


# -- yacs --------------------------------------------------------------------------------------------------------------


def test_files_build_on_others(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("SOLVER: {BASE_LR: 0.5, MAX_ITER: 7}\n")
    (tmp_path / "top.yaml").write_text("_BASE_: base.yaml\nSOLVER: {MAX_ITER: 9, STEPS: [3, 6]}\n")
    cfg = get_cfg()
    cfg.merge_from_file(str(tmp_path / "top.yaml"))
    assert (cfg.SOLVER.BASE_LR, cfg.SOLVER.MAX_ITER, cfg.SOLVER.STEPS) == (0.5, 9, (3, 6))
    with pytest.raises(AssertionError, match="does not exist"):
        cfg.merge_from_file(str(tmp_path / "nowhere.yaml"))
    with pytest.raises(AssertionError, match="only be used in files"):
        cfg.merge_from_other_cfg(CfgNode({"_BASE_": "base.yaml"}))


def test_values_keep_their_types_and_keys_their_names() -> None:
    cfg = CfgNode({"A": 1, "B": {"C": (1, 2), "D": None}})
    cfg.merge_from_list(["A", "3", "B.C", "[4]", "B.D", "word"])
    assert cfg == CfgNode({"A": 3, "B": {"C": (4,), "D": "word"}})
    with pytest.raises(ValueError, match="Type mismatch"):
        cfg.merge_from_list(["A", "2.5"])
    with pytest.raises(KeyError, match=r"B\.E"):
        cfg.merge_from_other_cfg(CfgNode({"B": {"E": 1}}))
    with pytest.raises(AssertionError, match="valid types"):
        cfg.A = {1, 2}
    cfg.register_renamed_key("OLD", "B.C")
    with pytest.raises(KeyError, match="renamed to B.C"):
        cfg.merge_from_list(["OLD", 1])
    cfg.freeze()
    cfg.COMPUTED_SUM = 5
    with pytest.raises(KeyError, match="different value"):
        cfg.COMPUTED_SUM = 6
    for copied in (copy.deepcopy(cfg), pickle.loads(pickle.dumps(cfg))):
        assert copied == cfg
        assert copied.is_frozen()
    assert str(CfgNode({"B": {"C": 1}, "A": 2})) == "A: 2\nB:\n  C: 1"


def test_keys_of_earlier_versions_need_detectron2(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("MODEL: {WEIGHT: mine.pth}\nVERSION: 1\n")
    with pytest.raises(ValueError, match="VERSION: 1 of the keys is read by detectron2, which is not installed"):
        get_cfg().merge_from_file(str(path))
    with pytest.raises(ImportError, match="it comes with detectron2, which is not installed here"):
        exec("from detectron2.config import upgrade_config")
    path.write_text("VERSION: 3\n")
    with pytest.raises(AssertionError, match="Cannot merge a v3 config"):
        get_cfg().merge_from_file(str(path))


#: A checkout as far as these tests need it: earlier keys, and a hook that is no part of training.
DETECTRON2 = {
    "__init__.py": "",
    "modeling/meta_arch/build.py": "",
    "config/compat.py": """
        def guess_version(cfg, filename):
            return 1 if "WEIGHT" in cfg.MODEL else 2
        def downgrade_config(cfg, to_version):
            cfg = cfg.clone()
            cfg.MODEL.WEIGHT, cfg.VERSION = cfg.MODEL.pop("WEIGHTS"), to_version
            return cfg
        def upgrade_config(cfg):
            cfg = cfg.clone()
            cfg.MODEL.WEIGHTS, cfg.VERSION = cfg.MODEL.pop("WEIGHT"), 2
            return cfg
    """,
    "engine/hooks.py": """
        from .train_loop import HookBase
        class TorchMemoryStats(HookBase):
            pass
    """,
}


def test_an_installed_detectron2_has_what_is_no_part_of_training(tmp_path: Path) -> None:
    for name, text in DETECTRON2.items():
        file = tmp_path / "detectron2" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    (tmp_path / "old.yaml").write_text("MODEL: {WEIGHT: mine.pth}\n")
    code = """
        from etude import compat
        compat.install()
        from detectron2.config import get_cfg
        from detectron2.engine import HookBase, hooks
        cfg = get_cfg()
        cfg.merge_from_file("old.yaml")
        assert (cfg.MODEL.WEIGHTS, cfg.VERSION) == ("mine.pth", 2)
        assert isinstance(hooks.TorchMemoryStats(), HookBase)
        assert HookBase.__module__.startswith("etude_libai.")
    """
    done = zygote.run("-c", textwrap.dedent(code), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_profiler_names_the_package_that_it_comes_with() -> None:
    with pytest.raises(ImportError, match=r"detectron2.engine.hooks.TorchProfiler comes with detectron2, which is not"):
        hooks.TorchProfiler(lambda trainer: True, "out")


def test_a_detection_model_is_refused_with_the_reason() -> None:
    with pytest.raises(OutOfScope, match="GeneralizedRCNN"):
        build_model(get_cfg())


def test_files_may_name_the_keys_of_detection_models(tmp_path: Path) -> None:
    path = tmp_path / "detection.yaml"
    path.write_text("MODEL: {RESNETS: {DEPTH: 101}}\nINPUT: {MIN_SIZE_TRAIN: [640, 672]}\nTEST: {AUG: {FLIP: false}}\n")
    cfg = get_cfg()
    cfg.merge_from_file(str(path))
    assert (cfg.MODEL.RESNETS.DEPTH, cfg.INPUT.MIN_SIZE_TRAIN, cfg.TEST.AUG.FLIP) == (101, (640, 672), False)


# -- trainer, data, checkpoints ----------------------------------------------------------------------------------------


def test_a_default_trainer_can_be_given_another_model(tmp_path: Path) -> None:
    class Tiny(nn.Linear):
        @configurable
        def __init__(self, size: int = 1) -> None:
            super().__init__(size, 1)

        @classmethod
        def from_config(cls, cfg: Any) -> dict[str, Any]:
            return {"size": 2}

    class Trainer(DefaultTrainer):
        @classmethod
        def build_train_loader(cls, cfg: Any) -> Any:
            return [torch.zeros(1, 2)]

    META_ARCH_REGISTRY.register(Tiny)
    cfg = get_cfg()
    cfg.OUTPUT_DIR, cfg.MODEL.META_ARCHITECTURE, cfg.MODEL.DEVICE = str(tmp_path), "Tiny", "cpu"
    trainer = Trainer(cfg)
    assert trainer.model.in_features == 2
    trainer.model = other = Tiny(size=3)
    assert trainer._trainer.model is other


def test_training_draws_without_end_and_inference_once() -> None:
    sampler = TrainingSampler(5, seed=1)
    drawn = list(itertools.islice(sampler, 12))
    assert sorted(drawn[:5]) == sorted(drawn[5:10]) == list(range(5))
    assert drawn == list(itertools.islice(TrainingSampler(5, seed=1), 12))
    shares = []
    for rank in range(3):
        with (
            mock.patch("detectron2.utils.comm.get_world_size", return_value=3),
            mock.patch("detectron2.utils.comm.get_rank", return_value=rank),
        ):
            shares.append(list(InferenceSampler(7)))
    assert shares == [[0, 1, 2], [3, 4], [5, 6]]


def test_loaders_map_and_pass_over_what_a_mapper_refuses() -> None:
    images = [{"number": n, "width": 1 + n % 2, "height": 1.5} for n in range(6)]
    with pytest.raises(UserError, match="aspect_ratio_grouping needs detectron2, which is not installed"):
        build_detection_train_loader(images, mapper=lambda image: image, total_batch_size=2)
    drawn = build_detection_train_loader(
        images, mapper=lambda image: image["number"], total_batch_size=2, aspect_ratio_grouping=False
    )
    first = [number for batch in itertools.islice(drawn, 3) for number in batch]
    assert sorted(first) == list(range(6))
    whole = build_detection_test_loader(images, mapper=lambda image: image["number"], batch_size=4)
    assert list(whole) == [[0, 1, 2, 3], [4, 5]]
    odd = MapDataset(list(range(6)), lambda n: n if n % 2 else None)
    assert all(odd[n] % 2 for n in (1, 3, 5))


def test_a_checkpointer_lets_its_subclasses_change_what_is_loaded(tmp_path: Path) -> None:
    class Quiet(Checkpointer):
        def _load_model(self, checkpoint: Any) -> None:
            super()._load_model({"model": {key: value + 1 for key, value in checkpoint.pop("model").items()}})

    model = nn.Linear(1, 1)
    Checkpointer(model, str(tmp_path)).save("one")
    other = nn.Linear(1, 1)
    Quiet(other, str(tmp_path)).load(str(tmp_path / "one.pth"))
    assert torch.equal(other.weight, model.weight + 1)


def test_the_schedules_of_papers_are_there() -> None:
    common = get_config("common/coco_schedule.py")
    for times, drops in ((1, (2 / 3, 8 / 9)), (3, (1 - 60 / 270, 1 - 20 / 270))):
        curve = instantiate(common[f"lr_multiplier_{times}x"])
        assert curve(0.0) == 0.001
        assert [curve(drop + side) for drop in drops for side in (-1e-3, 1e-3)] == [1.0, 0.1, 0.1, 0.01]


def test_a_file_may_compute_the_sizes_of_anchors_and_nothing_else(tmp_path: Path) -> None:
    line = 'MODEL:\n  ANCHOR_GENERATOR:\n    SIZES: !!python/object/apply:eval ["{}"]\n'
    file = tmp_path / "retinanet.yaml"
    file.write_text(line.format("[[x, x * 2**(1.0/2)] for x in [32, 64]]"))
    cfg = get_cfg()
    cfg.merge_from_file(str(file))
    assert cfg.MODEL.ANCHOR_GENERATOR.SIZES == [[32, 32 * 2**0.5], [64, 64 * 2**0.5]]
    file.write_text(line.format("__import__('os').getcwd()"))
    with pytest.raises(ValueError, match="is no arithmetic: a YAML config is read as data"):
        cfg.merge_from_file(str(file))
