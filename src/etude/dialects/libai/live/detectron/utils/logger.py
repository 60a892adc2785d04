"""detectron2's logger: the same as LiBai's under its own name."""

from __future__ import annotations

import logging

from etude.dialects.libai.live.events import logger as shared
from etude.dialects.libai.live.events.logger import log_every_n, log_every_n_seconds, log_first_n

__all__ = ["log_every_n", "log_every_n_seconds", "log_first_n", "setup_logger"]


def setup_logger(
    output: str | None = None,
    distributed_rank: int = 0,
    *,
    color: bool = True,
    name: str = "detectron2",
    abbrev_name: str | None = None,
) -> logging.Logger:
    return shared.setup_logger(output, distributed_rank, color=color, name=name, abbrev_name=abbrev_name)
