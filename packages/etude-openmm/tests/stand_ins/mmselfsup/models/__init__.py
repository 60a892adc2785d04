"""MMSelfSup's BaseModel and data preprocessor."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.model import BaseModel as EngineBaseModel
from mmengine.model import ImgDataPreprocessor
from torch import nn

from mmselfsup.registry import MODELS


class BaseModel(EngineBaseModel):
    """Builds backbone, neck, head and target generator from their configs; those that are None are left out.

    ``forward`` calls ``extract_feat``, ``loss`` or ``predict`` by mode; ``inputs`` is a list of views.
    """

    def __init__(
        self,
        backbone: dict[str, Any],
        neck: dict[str, Any] | None = None,
        head: dict[str, Any] | None = None,
        target_generator: dict[str, Any] | None = None,
        pretrained: str | None = None,
        data_preprocessor: dict[str, Any] | nn.Module | None = None,
        init_cfg: dict[str, Any] | None = None,
    ) -> None:
        if pretrained is not None:
            init_cfg = {"type": "Pretrained", "checkpoint": pretrained}
        if data_preprocessor is None:
            data_preprocessor = {}
        if isinstance(data_preprocessor, dict):
            data_preprocessor = MODELS.build({"type": "SelfSupDataPreprocessor", **data_preprocessor})
        super().__init__(init_cfg=init_cfg, data_preprocessor=data_preprocessor)
        self.backbone = MODELS.build(backbone)
        parts = {"neck": neck, "head": head, "target_generator": target_generator}
        for name, part in parts.items():
            if part is not None:
                setattr(self, name, MODELS.build(part))

    @property
    def with_neck(self) -> bool:
        return getattr(self, "neck", None) is not None

    @property
    def with_head(self) -> bool:
        return getattr(self, "head", None) is not None

    @property
    def with_target_generator(self) -> bool:
        return getattr(self, "target_generator", None) is not None

    def forward(self, inputs: Any, data_samples: list[Any] | None = None, mode: str = "tensor") -> Any:
        if mode == "tensor":
            return self.extract_feat(inputs, data_samples=data_samples)
        if mode == "loss":
            return self.loss(inputs, data_samples)
        if mode == "predict":
            return self.predict(inputs, data_samples)
        raise RuntimeError(f'Invalid mode "{mode}".')

    def extract_feat(self, inputs: list[torch.Tensor], **kwargs: Any) -> Any:
        """Return the features of the views; to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no extract_feat")

    def loss(self, inputs: list[torch.Tensor], data_samples: list[Any] | None) -> dict[str, torch.Tensor]:
        """Return the losses by name; to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def predict(self, inputs: list[torch.Tensor], data_samples: list[Any] | None, **kwargs: Any) -> Any:
        """Return predictions, for example reconstructed images; to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no predict")


@MODELS.register_module()
class SelfSupDataPreprocessor(ImgDataPreprocessor):
    """Preprocesses batches of ``default_collate``: the first value is the list of views, the second the samples."""

    def forward(self, data: Any, training: bool = False) -> Any:
        assert isinstance(data, dict), "please use default_collate in dataloader: a dict is expected"
        values = list(self.cast_data(data).values())
        views, samples = values[0], values[1] if len(values) > 1 else None
        views = views if isinstance(views, (list, tuple)) else [views]
        return [self._normalised(view, channels=1) for view in views], samples
