"""Data elements: fields, metainfo, indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from etude.dialects import imports

imports.install()

from mmengine.structures import BaseDataElement  # noqa: E402


def make(**data: Any) -> BaseDataElement:
    return BaseDataElement(metainfo={"img_id": 3, "img_shape": (8, 9)}, **data)


def test_fields_are_data_or_metainfo_and_not_both() -> None:
    element = make(bboxes=torch.rand(2, 4))
    element.scores = torch.rand(2)
    assert (element.keys(), element.metainfo_keys()) == (["bboxes", "scores"], ["img_id", "img_shape"])
    assert element.all_keys() == ["img_id", "img_shape", "bboxes", "scores"]
    assert element.metainfo == {"img_id": 3, "img_shape": (8, 9)}
    assert "bboxes" in element and "img_id" in element and "other" not in element
    with pytest.raises(AttributeError):
        element.img_id = 4
    with pytest.raises(AttributeError):
        element.set_metainfo({"bboxes": 1})
    with pytest.raises(AttributeError):
        element._data_fields = set()
    with pytest.raises(AssertionError):
        element.set_data(3)
    element.set_metainfo({"img_id": 4})
    assert element.img_id == 4


def test_fields_are_read_removed_and_typed() -> None:
    element = make(a=1, b=2)
    assert (element.get("a"), element.get("z", 5), element.pop("a"), element.pop("z", 6)) == (1, 5, 1, 6)
    with pytest.raises(KeyError):
        element.pop("z")
    with pytest.raises(AssertionError):
        element.pop("z", 1, 2)
    del element.b
    del element["img_id"]
    assert element.all_keys() == ["img_shape"]
    with pytest.raises(AttributeError):
        del element._data_fields
    with pytest.raises(AssertionError):
        element.set_field(3, "number", dtype=str)


def test_new_clone_and_update() -> None:
    element = make(a=torch.ones(2))
    assert element.new(b=1).keys() == ["b"]
    assert element.new(metainfo={"x": 1}).metainfo == {"x": 1}
    clone = element.clone()
    clone.a = 2
    assert (clone.a, element.a.tolist()) == (2, [1, 1])
    element.update(BaseDataElement(metainfo={"y": 2}, c=3))
    assert element.all_keys() == ["img_id", "img_shape", "y", "a", "c"]


def test_tensors_inside_are_moved_and_cast_together() -> None:
    inner = BaseDataElement(scores=torch.ones(2, requires_grad=True))
    element = make(gt=inner, array=np.zeros(2), name="x")
    assert element.to(torch.float64).gt.scores.dtype == torch.float64
    assert not element.detach().gt.scores.requires_grad
    assert isinstance(element.numpy().gt.scores, np.ndarray)
    assert isinstance(element.to_tensor().array, torch.Tensor)
    assert element.cpu().name == "x"
    assert element.to_dict()["gt"]["scores"] is inner.scores


def test_the_text_of_an_element() -> None:
    inner = BaseDataElement(metainfo={"shape": (1, 2)}, labels=torch.LongTensor([0, 1]))
    outer = BaseDataElement(metainfo={"shape": (1, 2)}, inner=inner)
    assert repr(outer) == (
        "<BaseDataElement(\n\n    META INFORMATION\n    shape: (1, 2)\n\n    DATA FIELDS\n"
        "    inner: <BaseDataElement(\n        \n            META INFORMATION\n            shape: (1, 2)\n"
        "        \n            DATA FIELDS\n            labels: tensor([0, 1])\n"
        f"        ) at {hex(id(inner))}>\n) at {hex(id(outer))}>"
    )
