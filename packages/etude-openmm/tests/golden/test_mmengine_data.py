"""Orders of samplers, batches that runs saw, and wrappers of datasets."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import options_for, params
from tests.golden.mmengine import toys

import mmengine.registry  # isort: skip  # served by toys' import
from mmengine.dataset import BaseDataset  # isort: skip


class Classes(BaseDataset):
    """Samples that have nothing but classes."""

    def __init__(self, cats: list[list[int]]) -> None:
        self.cats = cats
        super().__init__()

    def load_data_list(self) -> list[dict[str, Any]]:
        return [{"cats": cats} for cats in self.cats]

    def get_cat_ids(self, idx: int) -> list[int]:
        return self.cats[idx]


class Batches(toys.Hook):
    """Notes the indices of every batch."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        self.seen.append([int(index) for index in data_batch["idx"]])


def _check_sampler(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = mmengine.registry.DATA_SAMPLERS.get(case["sampler"])
    for expected in case["expect"]:
        info = (expected["rank"], case["world_size"])
        monkeypatch.setattr("mmengine.dataset.sampler.get_dist_info", lambda info=info: info)
        sampler = kind(range(case["dataset_len"]), **case.get("kwargs", {}), **options_for(kind, case))
        assert len(sampler) == expected["len"]
        if "first" in expected:
            assert list(itertools.islice(sampler, case["take"])) == expected["first"]
            continue
        for epoch, order in zip(case["epochs"], expected["epochs"], strict=True):
            sampler.set_epoch(epoch)
            assert list(sampler) == order


def _check_run(case: dict[str, Any], folder: Path) -> None:
    given, batches = case["run"], Batches()
    runner = toys.runner(
        folder,
        model=toys.ToyNet(),
        train_dataloader={**given["train_dataloader"], "dataset": toys.ToyData(given["dataset_len"])},
        train_cfg=toys.train_cfg(given["train_cfg"]),
        **{key: given[key] for key in ("val_cfg", "auto_scale_lr") if key in given},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.01}},
        randomness=given.get("randomness", {"seed": given.get("seed", 11)}),
    )
    runner.register_hook(batches)
    runner.train()
    assert batches.seen == case["expect"]["batches"]
    assert len(runner.train_dataloader) == case["expect"]["epoch_length"]


def _check_wrapper(case: dict[str, Any]) -> None:
    kind, expect = mmengine.registry.DATASETS.get(case["dataset"]), case["expect"]
    given = options_for(kind, case)
    if case["dataset"] == "ConcatDataset":
        lengths = case.get("lens") or case.get("lengths") or case["dataset_lens"]
        wrapped: Any = [_numbered(length) for length in lengths]
        given.pop("datasets", None)
    else:
        wrapped = (
            Classes(_classes(case["cats"])) if "cats" in case else _numbered(case.get("dataset_len", case.get("n", 3)))
        )
        given.pop("dataset", None)
    if "error" in expect:
        with pytest.raises(Exception):
            kind(wrapped, **given)
        return
    dataset = kind(wrapped, **given)
    for name, value in expect.items():
        assert _shown(dataset, name, value) == value, name


def _classes(cats: str | list[Any]) -> list[list[int]]:
    texts = cats.split(",") if isinstance(cats, str) else [str(one) for one in cats]
    return [[int(number) for number in re.findall(r"\d+", one)] for one in texts]


def _numbered(length: int) -> Classes:
    return Classes([[number] for number in range(length)])


def _shown(dataset: Any, name: str, value: Any) -> Any:
    """What a recording calls a property of a wrapper: its length, an attribute, or the samples in their order."""
    if name == "len":
        return len(dataset)
    if hasattr(dataset, name):
        return getattr(dataset, name)
    assert isinstance(value, list), f"nobody replays {name!r} of a wrapper"
    return [dataset.get_data_info(index)["cats"][0] for index in range(len(value))]


@pytest.mark.parametrize("case", params("mmengine", "data"))
def test_samples_come_in_the_recorded_order(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sampler" in case:
        _check_sampler(case, monkeypatch)
    elif "run" in case:
        _check_run(case, tmp_path)
    else:
        _check_wrapper(case)
