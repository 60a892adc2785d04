"""Data elements: fields, metainfo, indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from etude.dialects import imports

imports.install()

from mmengine.structures import BaseDataElement, InstanceData, LabelData, PixelData  # noqa: E402


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
    inner = InstanceData(scores=torch.ones(2, requires_grad=True))
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


class Polygons:
    """A container of the user's with ``cat``."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: slice) -> Polygons:
        return Polygons(self.items[index])

    @staticmethod
    def cat(several: list[Polygons]) -> Polygons:
        return Polygons([item for one in several for item in one.items])


def make_instances() -> InstanceData:
    fields = {"t": torch.arange(4), "a": np.arange(4), "text": "abcd", "many": [[0], [1], [2], [3]]}
    return InstanceData(metainfo={"k": 1}, polygons=Polygons([0, 1, 2, 3]), **fields)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (1, [1]),
        (-1, [3]),
        (slice(1, 3), [1, 2]),
        ([0, 2], [0, 2]),
        (np.array([3, 0]), [3, 0]),
        (torch.tensor([True, False, False, True]), [0, 3]),
        (torch.tensor([2], dtype=torch.int64), [2]),
        ([False] * 4, []),
        ([], []),
    ],
)
def test_instances_are_chosen_in_all_fields(index: Any, expected: list[int]) -> None:
    chosen = make_instances()[index]
    assert len(chosen) == len(expected) and chosen.metainfo == {"k": 1}
    assert chosen.t.tolist() == chosen.a.tolist() == chosen.polygons.items == expected
    assert chosen.text == "".join("abcd"[i] for i in expected)
    assert chosen.many == [[i] for i in expected]


def test_instances_refuse_what_does_not_fit() -> None:
    instances = make_instances()
    with pytest.raises(AssertionError):
        instances.more = torch.ones(3)
    with pytest.raises(AssertionError):
        instances.number = 3
    with pytest.raises(IndexError):
        instances[4]
    with pytest.raises(AssertionError):
        instances[torch.ones(2, 2)]
    with pytest.raises(AssertionError):
        instances[torch.ones(3, dtype=torch.bool)]
    with pytest.raises(AssertionError):
        instances[torch.ones(2)]
    with pytest.raises(IndexError):
        InstanceData()[0]
    assert len(InstanceData(t=torch.ones(0))[torch.zeros(0, dtype=torch.bool)]) == 0
    assert instances["text"] == "abcd"


def test_instances_are_concatenated() -> None:
    both = InstanceData.cat([make_instances(), make_instances()[:1]])
    assert both.t.tolist() == [0, 1, 2, 3, 0] and both.text == "abcda" and both.polygons.items == [0, 1, 2, 3, 0]
    with pytest.raises(AssertionError):
        InstanceData.cat([])
    with pytest.raises(AssertionError):
        InstanceData.cat([make_instances(), InstanceData(t=torch.ones(2))])
    with pytest.raises(ValueError):
        InstanceData.cat([InstanceData(x={1}), InstanceData(x={2})])


def test_labels_and_one_hot() -> None:
    onehot = LabelData.label_to_onehot(torch.tensor([0, 3]), num_classes=5)
    assert onehot.tolist() == [1, 0, 0, 1, 0]
    assert LabelData.onehot_to_label(onehot).tolist() == [0, 3]
    assert LabelData.label_to_onehot(torch.tensor([], dtype=torch.int64), 3).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="input is not one-hot and can not convert to label"):
        LabelData.onehot_to_label(torch.tensor([2]))
    for wrong in ("text", torch.tensor([11])):
        with pytest.raises(AssertionError):
            LabelData.label_to_onehot(wrong, num_classes=10)


def test_pixels_are_sliced_together() -> None:
    pixels = PixelData(metainfo={"k": 1}, image=np.zeros((3, 20, 40)))
    assert pixels.shape == (20, 40)
    with pytest.warns(UserWarning, match="3-dimensional"):
        pixels.map = torch.ones(20, 40)
    window = pixels[10:12, 5]
    assert (window.image.shape, tuple(window.map.shape), window.metainfo) == ((3, 2, 1), (1, 2, 1), {"k": 1})
    with pytest.raises(TypeError):
        pixels[3]
    with pytest.raises(TypeError):
        pixels[[1], 2]
    for wrong in (torch.ones(3, 20, 41), torch.ones(1, 1, 20, 40), [1, 2]):
        with pytest.raises(AssertionError):
            pixels.wrong = wrong
    assert PixelData().shape is None
