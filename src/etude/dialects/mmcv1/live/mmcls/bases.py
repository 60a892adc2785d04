"""Base classes of mmclassification that users' own backbones and heads derive from."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import Any

from etude.dialects.openmm.init.module_v1 import BaseModule


class BaseBackbone(BaseModule, metaclass=ABCMeta):
    """What turns images into features; ``train`` is there to be extended, by freezing stages for example."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Features of ``x``, usually a tuple with those of each stage."""

    def train(self, mode: bool = True) -> Any:
        return super().train(mode)


class BaseHead(BaseModule, metaclass=ABCMeta):
    """What turns features into losses."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)

    @abstractmethod
    def forward_train(self, *args: Any, **kwargs: Any) -> Any:
        """The losses of features and labels, by name."""
