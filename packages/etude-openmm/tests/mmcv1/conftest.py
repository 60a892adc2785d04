"""The import names of mmcv, and small things to train."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from etude.dialects import imports

imports.install()


@pytest.fixture
def logger(request: pytest.FixtureRequest) -> logging.Logger:
    found = logging.getLogger(f"test-{request.node.nodeid}")
    found.setLevel(logging.INFO)
    return found


@pytest.fixture
def make_runner(logger: logging.Logger, tmp_path: Any) -> Any:
    """``make_runner(net, max_epochs=2)``: a runner with SGD, in a folder of its own unless one is given."""
    from mmcv.runner import build_optimizer, build_runner

    def make(net: Any, *, runner: Any = None, folder: Any = None, meta: Any = None, **length: Any) -> Any:
        kind = runner or ("IterBasedRunner" if "max_iters" in length else "EpochBasedRunner")
        settings = {
            "model": net,
            "optimizer": build_optimizer(net, {"type": "SGD", "lr": 0.1, "momentum": 0.9}),
            "work_dir": str(folder or tmp_path),
            "logger": logger,
            "meta": {} if meta is None else meta,
        }
        return build_runner({"type": kind, **length}, settings)

    return make
