"""A model that is shared out over two processes (FSDP, on the CPU): same numbers, and checkpoints in one piece."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import torch

from tests.mmengine import toy
from tests.mmengine.lives import differences, free_port


def train(folder: Path, **options: Any) -> None:
    fork = multiprocessing.get_context("fork").Process
    port = str(free_port())
    processes = [fork(target=_train, args=(folder, rank, port, options)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]


def _train(folder: Path, rank: int, port: str, options: dict[str, Any]) -> None:
    from mmengine.runner import FlexibleRunner

    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    os.environ.update(group, RANK=str(rank), LOCAL_RANK=str(rank))
    given = {
        "launcher": "pytorch",
        "train_dataloader": toy.loader(shuffle=True),
        "optim_wrapper": {"optimizer": {"type": "AdamW", "lr": 0.1}},
    }
    FlexibleRunner(**toy.arguments(folder, **given, **options)).train()
    torch.distributed.destroy_process_group()
    os._exit(0)


def _state(folder: Path) -> dict[str, Any]:
    content = torch.load(folder / "epoch_3.pth", weights_only=True)
    return {"weights": dict(content["state_dict"]), "optimizer": content["optimizer"]["state"]}


def test_shared_out_weights_are_saved_whole_and_resumed(tmp_path: Path) -> None:
    sharded, longer = {"strategy": {"type": "FSDPStrategy"}}, {"train_cfg": {"by_epoch": True, "max_epochs": 3}}
    train(tmp_path / "copies", **longer)
    train(tmp_path / "cut", **sharded)
    train(tmp_path / "cut", **sharded, **longer, resume=True)
    assert differences(_state(tmp_path / "cut"), _state(tmp_path / "copies")) == []


def _is_linear(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear)


def test_activations_that_are_computed_again_change_nothing(tmp_path: Path) -> None:
    again = {"type": "FSDPStrategy", "activation_checkpointing": {"check_fn": _is_linear}}
    longer = {"train_cfg": {"by_epoch": True, "max_epochs": 3}}
    train(tmp_path / "kept", strategy={"type": "FSDPStrategy", "skip_init_weights": True}, **longer)
    train(tmp_path / "again", strategy={**again, "skip_init_weights": True}, **longer)
    assert differences(_state(tmp_path / "again"), _state(tmp_path / "kept")) == []


def test_weights_are_left_alone_where_that_is_asked_for() -> None:
    from mmengine._strategy import FSDPStrategy

    model = toy.Net()
    FSDPStrategy(skip_init_weights=True)._init_model_weights(model)
    assert not model.is_init
    FSDPStrategy()._init_model_weights(model)
    assert model.is_init
