"""The name of an experiment, under which its logger, hub and visualizer are found."""

from __future__ import annotations

import os

from etude.dialects.mmengine.live.logging.message_hub import MessageHub


def unique_name(given: str | None, config_file: str | None, timestamp: str) -> str:
    """``<name>_<timestamp>``; two runs that start within one second do not share a hub."""
    stem = given if given is not None else config_file and os.path.splitext(os.path.basename(config_file))[0]
    name = f"{stem}_{timestamp}" if stem else timestamp
    count = 1
    free = name
    while MessageHub.check_instance_created(free):
        count += 1
        free = f"{name}_{count}"
    return free
