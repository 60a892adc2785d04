"""Names of model zoos have the addresses that the tables of the installed mmengine give."""

from __future__ import annotations

import pytest

from etude_openmm.shared.zoo import address


@pytest.mark.parametrize(
    ("name", "part", "file"),
    [
        ("torchvision://resnet50", "/resnet50-", "resnet50-"),
        ("open-mmlab://detectron2/resnet50_caffe", "resnet50_msra", "detectron2_resnet50_caffe.pth"),
        ("openmmlab://resnet50_v1c", "resnet50_v1c", "resnet50_v1c-"),
        ("mmcls://vgg11", "vgg11", "vgg11.pth"),
    ],
)
def test_a_name_of_a_zoo_has_an_address_and_the_file_that_loading_looks_for(name: str, part: str, file: str) -> None:
    found = address(name)
    assert found is not None
    assert found[0].startswith("https://") and part in found[0] and found[1].startswith(file)


def test_an_unknown_name_has_no_address_and_other_texts_are_no_names() -> None:
    assert address("torchvision://resnet51") == ("", "resnet51.pth")
    assert address("https://example.org/x.pth") is None and address("resnet50") is None
