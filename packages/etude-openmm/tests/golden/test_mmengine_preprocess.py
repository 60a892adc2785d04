"""Batches: the image preprocessor and the two collate functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.golden.goldens import params
from tests.golden.mmengine import toys

import mmengine.registry  # isort: skip  # served by toys' import
from mmengine.model import ImgDataPreprocessor  # isort: skip

__all__ = ["toys"]


def decoded(value: Any) -> Any:
    """Tensors and tuples back from their JSON form."""
    if isinstance(value, dict):
        if set(value) == {"tensor", "dtype"}:
            return torch.tensor(value["tensor"], dtype=getattr(torch, value["dtype"]))
        if set(value) == {"tuple"}:
            return tuple(decoded(item) for item in value["tuple"])
        return {key: decoded(item) for key, item in value.items()}
    return [decoded(item) for item in value] if isinstance(value, list) else value


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.allclose(found, expected, rtol=1e-5, atol=1e-6)
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], value) for key, value in expected.items())
    if isinstance(expected, (list, tuple)):
        return (
            type(found) is type(expected)
            and len(found) == len(expected)
            and all(same(a, b) for a, b in zip(found, expected, strict=True))
        )
    return bool(found == expected)


def preprocessed(case: dict[str, Any]) -> Any:
    images = [torch.tensor(image, dtype=torch.uint8) for image in case["inputs_uint8"]]
    return ImgDataPreprocessor(**case["kwargs"])({"inputs": torch.stack(images) if case["stacked"] else images})


def collated(case: dict[str, Any]) -> Any:
    return mmengine.registry.FUNCTIONS.get(case["fn"])(decoded(case["batch"]))


KINDS = {"ImgDataPreprocessor": preprocessed, "collate": collated}


@pytest.mark.parametrize("case", params("mmengine", "preprocess"))
def test_batches_are_the_recorded_ones(case: dict[str, Any]) -> None:
    make = KINDS[case["kind"]]
    if isinstance(case["expect"], dict) and "error" in case["expect"]:
        with pytest.raises((AssertionError, TypeError, ValueError, RuntimeError)):
            make(case)
        return
    made, expected = make(case), decoded(case["expect"])
    assert same(made, expected), f"{made} is not {expected}"
