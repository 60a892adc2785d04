"""Hooks of mmcv that Étude does not serve; a config that names one gets an error."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmcv1.live.hooks.hook import HOOKS, Hook
from etude.errors import OutOfScope


@HOOKS.register_module()
class RFSearchHook(Hook):
    """The search of receptive fields of convolutions."""

    def __init__(
        self,
        mode: str = "search",
        config: dict[str, Any] = {},  # noqa: B006
        rfstructure_file: str | None = None,
        by_epoch: bool = True,
        verbose: bool = True,
    ) -> None:
        raise OutOfScope("RFSearchHook is out of Étude's scope: search dilations with mmcv and train the result here")
