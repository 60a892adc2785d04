"""What is known about one image in self-supervised training."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.structures import BaseDataElement, InstanceData, LabelData


def _field(name: str, kind: type) -> property:
    private = f"_{name}"

    def read(self: BaseDataElement) -> Any:
        return getattr(self, private)

    def write(self: BaseDataElement, value: Any) -> None:
        self.set_field(value, private, dtype=kind)

    def remove(self: BaseDataElement) -> None:
        delattr(self, private)

    return property(read, write, remove, f"A {kind.__name__}.")


class SelfSupDataSample(BaseDataElement):
    """Typed fields for labels, indices, masks, predictions and pseudo labels."""

    gt_label = _field("gt_label", LabelData)
    sample_idx = _field("sample_idx", InstanceData)
    mask = _field("mask", BaseDataElement)
    pred_label = _field("pred_label", BaseDataElement)
    pseudo_label = _field("pseudo_label", BaseDataElement)
