"""Datasets, wrappers, samplers, collate functions and preprocessors."""

from __future__ import annotations

import json
import pickle
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.dialects import imports
from etude.errors import DataError
from mmengine.structures import BaseDataElement

imports.install()

from mmselfsup.models.utils import SelfSupDataPreprocessor  # noqa: E402

from mmengine.dataset import (  # noqa: E402
    BaseDataset,
    ClassBalancedDataset,
    Compose,
    ConcatDataset,
    DefaultSampler,
    InfiniteSampler,
    RepeatDataset,
    default_collate,
    force_full_init,
    pseudo_collate,
    worker_init_fn,
)
from mmengine.model import BaseDataPreprocessor, ImgDataPreprocessor, stack_batch  # noqa: E402


@pytest.fixture
def annotations(tmp_path: Path) -> Path:
    data = [{"img_path": f"{index}.jpg", "label": index} for index in range(6)]
    (tmp_path / "ann.json").write_text(json.dumps({"metainfo": {"task": "toy", "classes": ["a"]}, "data_list": data}))
    return tmp_path


def make(folder: Path, **options: Any) -> BaseDataset:
    return BaseDataset(
        **{"ann_file": "ann.json", "data_root": str(folder), "data_prefix": {"img_path": "imgs"}, **options}
    )


# -- one dataset -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_annotations_are_loaded_prefixed_and_numbered(annotations: Path, packed: bool) -> None:
    dataset = make(annotations, serialize_data=packed, indices=4)
    assert len(dataset) == 4
    assert dataset[1] == {"img_path": str(annotations / "imgs" / "1.jpg"), "label": 1, "sample_idx": 1}
    assert dataset.get_data_info(-1)["sample_idx"] == 3
    dataset.get_data_info(0)["label"] = 99
    assert dataset.get_data_info(0)["label"] == 0
    assert dataset.metainfo == {"task": "toy", "classes": ["a"]}


def test_metainfo_of_the_argument_comes_first(annotations: Path) -> None:
    class Own(BaseDataset):
        METAINFO = {"task": "class", "extra": 1}

    (annotations / "names.txt").write_text("x\ny\n")
    dataset = Own(
        str(annotations / "ann.json"), metainfo={"classes": str(annotations / "names.txt"), "note": "no file"}
    )
    assert dataset.metainfo == {"task": "class", "extra": 1, "classes": ["x", "y"], "note": "no file"}
    with pytest.raises(TypeError):
        Own(metainfo=3, lazy_init=True)


@pytest.mark.parametrize("packed", [True, False])
def test_subsets(annotations: Path, packed: bool) -> None:
    dataset = make(annotations, serialize_data=packed)
    assert [dataset.get_subset(3)[i]["label"] for i in range(3)] == [0, 1, 2]
    assert [dataset.get_subset(-2)[i]["label"] for i in range(2)] == [4, 5]
    chosen = dataset.get_subset([5, 0, -2])
    assert [chosen[i]["label"] for i in range(3)] == [5, 0, 4]
    assert len(dataset) == 6
    dataset.get_subset_([1])
    assert len(dataset) == 1 and dataset[0]["label"] == 1
    with pytest.raises(TypeError):
        dataset.get_subset("a")


def test_a_pipeline_that_gives_none_is_asked_for_another_sample(annotations: Path) -> None:
    seen: list[int] = []

    def picky(info: dict[str, Any]) -> dict[str, Any] | None:
        seen.append(info["label"])
        return info if info["label"] == 5 else None

    assert make(annotations, pipeline=[picky])[0]["label"] == 5
    assert seen[0] == 0
    with pytest.raises(Exception, match="Cannot find valid image"):
        make(annotations, pipeline=[lambda info: None], max_refetch=2)[0]
    with pytest.raises(Exception, match="should not get `None`"):
        make(annotations, pipeline=[lambda info: None], test_mode=True)[0]


def test_a_lazy_dataset_is_loaded_when_it_is_needed(annotations: Path) -> None:
    dataset = make(annotations, lazy_init=True)
    assert not dataset._fully_initialized
    assert len(dataset) == 6 and dataset._fully_initialized

    class Nothing:
        @force_full_init
        def ask(self) -> None: ...

    with pytest.raises(AttributeError):
        Nothing().ask()


@pytest.mark.parametrize(
    ("content", "error"),
    [([1], TypeError), ({"data_list": []}, ValueError), ({"metainfo": {}, "data_list": [{}]}, AssertionError)],
)
def test_annotation_files_of_another_form_are_refused(tmp_path: Path, content: Any, error: type) -> None:
    (tmp_path / "ann.json").write_text(json.dumps(content))
    with pytest.raises(error):
        make(tmp_path)


class Evil:
    def __reduce__(self) -> Any:
        return print, ("code of the file ran",)


def test_a_pickle_of_annotations_runs_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = [{"img_path": "a", "box": np.arange(4.0), "size": np.int64(3)}]
    (tmp_path / "ann.json").with_suffix(".pkl").write_bytes(pickle.dumps({"metainfo": {"k": 1}, "data_list": data}))
    dataset = make(tmp_path, ann_file="ann.pkl")
    assert dataset.metainfo == {"k": 1} and dataset[0]["box"].tolist() == [0, 1, 2, 3] and dataset[0]["size"] == 3
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"metainfo": {}, "data_list": [Evil()]}))
    with pytest.raises(DataError, match="refused: global builtins.print"):
        make(tmp_path, ann_file="evil.pkl")
    assert capsys.readouterr().out == ""


def test_a_subclass_filters_and_names_classes(annotations: Path) -> None:
    class Even(BaseDataset):
        def filter_data(self) -> list[dict[str, Any]]:
            return [info for info in self.data_list if info["label"] % 2 == self.filter_cfg["rest"]]

    dataset = Even(str(annotations / "ann.json"), filter_cfg={"rest": 0})
    assert [dataset[i]["label"] for i in range(len(dataset))] == [0, 2, 4]
    with pytest.raises(NotImplementedError):
        dataset.get_cat_ids(0)


def test_compose_stops_at_none() -> None:
    calls: list[str] = []
    steps = [lambda data: calls.append("a"), lambda data: calls.append("b")]
    assert Compose(steps)({}) is None and calls == ["a"]
    with pytest.raises(TypeError):
        Compose([3])


# -- wrappers ----------------------------------------------------------------------------------------------------------


def test_concatenated_datasets_agree_on_their_metainfo(annotations: Path) -> None:
    one, other = make(annotations), make(annotations, metainfo={"task": "another"})
    assert len(ConcatDataset([one, one])) == 12
    with pytest.raises(ValueError, match="does not match"):
        ConcatDataset([one, other])
    both = ConcatDataset([one, other], ignore_keys="task", lazy_init=True)
    assert both[7]["label"] == 1 and both[-1]["label"] == 5
    assert both.get_data_info(6)["label"] == 0
    assert both.metainfo["task"] == "toy"
    with pytest.raises(ValueError):
        both._get_ori_dataset_idx(-100)
    for wrong in ({"datasets": [3]}, {"datasets": [one], "ignore_keys": 3}):
        with pytest.raises(TypeError):
            ConcatDataset(**wrong)
    with pytest.raises(NotImplementedError):
        both.get_subset(1)


def test_a_repeated_dataset(annotations: Path) -> None:
    repeated = RepeatDataset(make(annotations), times=3)
    assert len(repeated) == 18 and repeated[7]["label"] == 1 and repeated.get_data_info(13)["label"] == 1
    with pytest.raises(NotImplementedError):
        repeated.get_subset_(1)
    with pytest.raises(TypeError):
        RepeatDataset(3, times=1)


def test_rare_classes_come_more_often(annotations: Path) -> None:
    class Classes(BaseDataset):
        def get_cat_ids(self, idx: int) -> list[int]:
            return [] if idx == 5 else [1] if idx == 0 else [0]

    balanced = ClassBalancedDataset(Classes(str(annotations / "ann.json")), oversample_thr=0.9)
    assert balanced.repeat_indices == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert balanced.get_cat_ids(1) == [1] and balanced[3]["label"] == 1 and len(balanced) == 12


# -- samplers ----------------------------------------------------------------------------------------------------------


def test_samplers_draw_a_common_seed_when_given_none() -> None:
    assert 0 <= DefaultSampler(range(4)).seed < 2**31
    assert sorted(DefaultSampler(range(4))) == [0, 1, 2, 3]


def test_an_endless_sampler_goes_on_where_it_was() -> None:
    sampler = InfiniteSampler(range(3), shuffle=False)
    sampler.set_epoch(3)
    first = iter(sampler)
    assert [next(first), next(first)] == [0, 1]
    assert next(iter(sampler)) == 2


def test_workers_are_seeded_differently() -> None:
    drawn = set()
    for rank in range(2):
        for worker in range(2):
            worker_init_fn(worker, num_workers=2, rank=rank, seed=5)
            drawn.add((int(np.random.randint(1 << 30)), float(torch.rand(()))))
    assert len(drawn) == 4


# -- batches -----------------------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "x y")


def test_collate_functions_turn_samples_inside_out() -> None:
    sample = BaseDataElement()
    batch = [{"inputs": torch.ones(2), "pair": Pair(1, "a"), "list": [1, (2, 3)], "sample": sample}] * 2
    kept = pseudo_collate(batch)
    assert kept["pair"] == Pair((1, 1), ("a", "a")) and kept["sample"] == [sample, sample]
    assert kept["list"] == [(1, 1), [(2, 2), (3, 3)]] and len(kept["inputs"]) == 2
    stacked = default_collate(batch)
    assert stacked["inputs"].shape == (2, 2) and stacked["pair"].x.tolist() == [1, 1]
    assert stacked["sample"] == [sample, sample]
    for collate in (pseudo_collate, default_collate):
        with pytest.raises(RuntimeError):
            collate([[1, 2], [3]])


def test_data_is_moved_through_all_containers() -> None:
    preprocessor = BaseDataPreprocessor()
    assert preprocessor.device == torch.device("cpu")
    preprocessor.to("meta")
    data = {
        "a": [torch.ones(1)],
        "b": Pair(torch.ones(1), "x"),
        "c": BaseDataElement(t=torch.ones(1)),
        "d": None,
        "e": 3,
    }
    moved = preprocessor(data)
    assert moved["a"][0].device.type == moved["b"].x.device.type == moved["c"].t.device.type == "meta"
    assert (moved["b"].y, moved["d"], moved["e"]) == ("x", None, 3)
    assert preprocessor.cpu().device.type == "cpu"


def test_images_are_checked_before_they_are_normalised() -> None:
    images = ImgDataPreprocessor(mean=[0, 0, 0], std=[1, 1, 1], rgb_to_bgr=True)
    assert images({"inputs": [torch.arange(3).view(3, 1, 1)]})["inputs"].flatten().tolist() == [2, 1, 0]
    with pytest.raises(AssertionError):
        images({"inputs": [torch.ones(1, 2, 2)]})
    with pytest.raises(AssertionError):
        images({"inputs": torch.ones(3, 2, 2)})
    with pytest.raises(TypeError):
        images({"inputs": "a"})
    with pytest.raises(AssertionError):
        ImgDataPreprocessor(bgr_to_rgb=True, rgb_to_bgr=True)
    with pytest.raises(AssertionError):
        ImgDataPreprocessor(mean=[1, 2], std=[1, 2])
    assert images.state_dict() == {}


def test_tensors_of_unlike_sizes_are_stacked() -> None:
    batch = stack_batch([torch.ones(3, 2, 5), torch.ones(3, 4, 1)], pad_size_divisor=4, pad_value=7)
    assert batch.shape == (2, 3, 4, 8) and batch[0, 0, 3, 0] == 7 and batch[1, 0, 3, 0] == 1
    for wrong in ([], torch.ones(2), [torch.ones(1, 1), torch.ones(1)]):
        with pytest.raises(AssertionError):
            stack_batch(wrong)


def test_views_and_samples_of_self_supervised_batches() -> None:
    preprocessor = SelfSupDataPreprocessor(mean=[1, 1, 1], std=[2, 2, 2])
    views, samples = preprocessor(
        {"inputs": [torch.ones(2, 3, 4, 4), torch.zeros(2, 3, 4, 4)], "data_samples": ["a", "b"]}
    )
    assert [view.unique().tolist() for view in views] == [[0.0], [-0.5]] and samples == ["a", "b"]
