"""What the replayers of mmcv 1.x share: everything goes through the import names that users write."""

from __future__ import annotations

import builtins
import copy
import itertools
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.dialects import imports
from tests.golden.goldens import untag
from tests.golden.mmcv1 import fixtures

imports.install()

import mmcv  # noqa: E402, F401
from mmcv.runner import EvalHook, Hook, build_optimizer, build_runner  # noqa: E402

_names = itertools.count()


class Listener(logging.Handler):
    """Keeps every record."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, *starts: str) -> list[str]:
        return [r.getMessage() for r in self.records if r.getMessage().startswith(starts or ("",))]

    def warnings(self) -> list[str]:
        return [r.getMessage() for r in self.records if r.levelno == logging.WARNING]


def make_logger() -> tuple[logging.Logger, Listener]:
    logger = logging.getLogger(f"mmcv1-{next(_names)}")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    listener = Listener()
    logger.addHandler(listener)
    return logger, listener


def watched(net: type[torch.nn.Module] = fixtures.ToyNet) -> Any:
    """A toy net that calls ``net.seen(name)`` at the start of every step."""

    class Watched(net):  # type: ignore[misc,valid-type]
        seen: Callable[[str], Any] | None = None

        def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> Any:
            if self.seen is not None:
                self.seen("train")
            return super().train_step(data, optimizer, **kwargs)

        def val_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> Any:
            if self.seen is not None:
                self.seen("val")
            return super().train_step(data, optimizer, **kwargs)

    return Watched()


def make_optimizer(net: torch.nn.Module, config: Any) -> Any:
    config = untag(config)
    if "type" in config:
        return build_optimizer(net, config)
    return {name: build_optimizer(getattr(net, name), one) for name, one in config.items()}


def make_runner(
    case: dict[str, Any],
    folder: Path,
    *,
    net: Any = None,
    runner: str = "runner",
    optimizer: Any = None,
    meta: Any = None,
    no_meta: bool = False,
) -> tuple[Any, Listener]:
    net = watched() if net is None else net
    config = optimizer or case.get("optimizer") or {"type": "SGD", "lr": 0.1, "momentum": 0.9}
    logger, listener = make_logger()
    args = {
        "model": net,
        "optimizer": make_optimizer(net, config),
        "work_dir": str(folder),
        "logger": logger,
        "meta": None if no_meta else dict(meta or {}),
    }
    return build_runner(untag(case[runner]), args), listener


def register(runner: Any, **configs: Any) -> None:
    """``register_training_hooks`` of either runner, with copies: it changes what it is given."""
    runner.register_training_hooks(**{"lr_config": None, **copy.deepcopy(untag(configs))})


def flow_of(case: dict[str, Any]) -> list[tuple[str, int]]:
    return [tuple(entry) for entry in case.get("workflow", [["train", 1]])]


def run(runner: Any, case: dict[str, Any], train: Any, val: Any = None) -> None:
    flow = flow_of(case)
    runner.run([train if mode == "train" else val if val is not None else train for mode, _ in flow], flow)


def val_loader(case: dict[str, Any], default: int = 2) -> Any:
    """The validation data of a case, as long as it says."""
    return fixtures.loader(case.get("val_iters", case.get("val_iters_per_epoch", default)), offset=3)


class Recorder(EvalHook):
    """An evaluation that tells when it happened."""

    def __init__(self, *args: Any, after: Callable[[Any], None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.after = after

    def _do_evaluate(self, runner: Any) -> None:
        super()._do_evaluate(runner)
        if self.after is not None:
            self.after(runner)


class Last(Hook):
    """Calls a function after every training iteration, after all others."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self.function = function

    def after_train_iter(self, runner: Any) -> None:
        self.function(runner)


@contextmanager
def expected(case: dict[str, Any]) -> Iterator[list[str]]:
    """Runs the body; its stages are appended to the list. A case with ``error`` must fail, in that stage."""
    stages: list[str] = []
    error = case.get("error")
    if error is None:
        yield stages
        return
    wanted = getattr(builtins, error["type"])
    try:
        yield stages
    except wanted:
        if "stage" in error:
            assert stages[-1] == error["stage"]
    else:
        assert case.get("lenient"), f"{error['type']} was expected"


def close(got: Any, wanted: Any, *, rel: float = 1e-9) -> bool:
    """Whether two structures of numbers agree; numbers within ``rel``."""
    wanted = untag(wanted)
    if isinstance(wanted, dict):
        return (
            isinstance(got, dict) and set(got) == set(wanted) and all(close(got[k], wanted[k], rel=rel) for k in wanted)
        )
    if isinstance(wanted, list | tuple):
        return len(got) == len(wanted) and all(close(g, w, rel=rel) for g, w in zip(got, wanted, strict=True))
    if isinstance(wanted, float) and not isinstance(got, str | None):
        return (math.isnan(got) and math.isnan(wanted)) or got == pytest.approx(wanted, rel=rel, abs=1e-12)
    return bool(got == wanted)


def saved(folder: Path) -> list[str]:
    """Names of checkpoints and of the link."""
    return sorted(path.name for path in folder.glob("*.pth"))


def loaded(path: Path) -> dict[str, Any]:
    return torch.load(path, weights_only=False)


def base_names(messages: Any) -> Any:
    if messages is None:
        return None
    return {k: Path(v).name if k.endswith("_ckpt") else v for k, v in messages.items()}


def described(path: Path) -> dict[str, Any]:
    """A checkpoint as the recordings describe it; Étude's own part beside mmcv's layout is left out."""
    found = loaded(path)
    meta = found["meta"]
    told = {
        "keys": [key for key in found if key != "etude"],
        "epoch": meta["epoch"],
        "iter": meta["iter"],
        "meta_keys": sorted(meta),
        "n_state": len(found["state_dict"]),
    }
    if "hook_msgs" in meta:
        told["hook_msgs"] = base_names(meta["hook_msgs"])
    return told
