"""A LiBai project to train, in a folder of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.libai import project

#: These modules use detectron2's yacs configs, which need fvcore (in the extra `test`).
_YACS = ("detectron2", "detectron2_config", "detectron2_scripts", "insides")
collect_ignore = [] if importlib.util.find_spec("fvcore") else [f"test_{name}.py" for name in _YACS]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The config of a fresh project, with the working directory beside it."""
    path = project.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop("line_parts", None)
    project.forget_loggers()


@pytest.fixture
def trainer_of(config: Path) -> Callable[..., Any]:
    """``trainer_of("train.train_iter=3", resume=True)``: a trainer as ``tools/train_net.py`` makes it."""
    from argparse import Namespace

    from etude.data.seeds import seed_everywhere
    from libai.config import LazyConfig
    from libai.engine import DefaultTrainer, default_setup

    def make(*overrides: str, resume: bool = False, kind: type[Any] = DefaultTrainer) -> Any:
        cfg = LazyConfig.apply_overrides(LazyConfig.load(str(config)), list(overrides))
        default_setup(cfg, Namespace(config_file="", resume=resume))
        seed_everywhere(cfg.train.seed)
        return kind(cfg)

    return make
