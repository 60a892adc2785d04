"""NVIDIA's apex, which torch's own mixed precision replaced."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper
from etude.errors import OutOfScope


class ApexOptimWrapper(OptimWrapper):
    """Known by name only, so that an error can say what to write instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise OutOfScope("apex is no longer maintained; use type='AmpOptimWrapper', which takes the same loss_scale")
