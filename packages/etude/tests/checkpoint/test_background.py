"""Files that are written while training goes on: the same bytes, the same order, nothing seen too early."""

from __future__ import annotations

import io
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.checkpoint.formats import foreign
from etude.checkpoint.formats.background import BackgroundWriter, all_ours, wait
from etude.checkpoint.formats.torch_file import save_file
from etude.checkpoint.write import wait_for
from etude.errors import SaveError
from etude_libai.live.hooks.hooks import CallbackHook


def written(content: Any) -> bytes:
    made = io.BytesIO()
    torch.save(content, made)
    return made.getvalue()


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4), nn.Linear(4, 4))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model[3].weight = model[2].weight
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return model, optimizer


def checkpoint() -> dict[str, Any]:
    model, optimizer = trained()
    shared = torch.arange(6.0)
    return {
        "meta": {"epoch": 3, "names": ("a", ("b", 2)), "raw": b"\0", "steps": Counter([4, 4, 8])},
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "others": [torch.empty(0, 3), torch.tensor(2.5), torch.ones(2, dtype=torch.bool), {"one": shared}],
        "same": OrderedDict(two=shared.view(6)),
    }


class Held:
    """Writes a content when it is allowed to."""

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.bytes: bytes | None = None
        self.thread = ""

    def __call__(self, content: Any) -> None:
        assert self.may_write.wait(60)
        self.bytes, self.thread = written(content), threading.current_thread().name


@pytest.fixture
def later() -> Iterator[BackgroundWriter]:
    made = BackgroundWriter()
    with made.running(print):
        yield made


def deferred(later: BackgroundWriter, write: Callable[[Any], None], content: Any, failed: Any = print) -> None:
    with later.deferring(failed, only_if=True):
        later.write(write, content)


def test_the_bytes_are_those_of_torch_and_nothing_that_changes_meanwhile_is_seen(later: BackgroundWriter) -> None:
    for _ in range(3):  # the memory of the first copy serves the others
        content, held = checkpoint(), Held()
        expected = written(content)
        deferred(later, held, content)
        for tensor in content["state_dict"].values():
            tensor.zero_()
        content["optimizer"]["param_groups"][0]["lr"] = 7.0
        content["meta"]["steps"][4] = 9
        del content["others"][0]
        assert held.bytes is None
        held.may_write.set()
        later.flush()
        assert held.bytes == expected and held.thread == "etude-save"


class Mine:
    pass


@pytest.mark.parametrize(
    "value",
    [Mine(), torch.arange(8)[2:4], torch.ones(3).expand(2, 3), nn.Parameter(torch.ones(2)), {"inside": (torch.ones(1),)}],
    ids=["object", "view", "expanded", "parameter", "tensor in a tuple"],
)  # fmt: skip
def test_what_cannot_be_copied_is_written_at_once(later: BackgroundWriter, value: Any) -> None:
    held = Held()
    held.may_write.set()
    deferred(later, held, {"state_dict": {"weight": torch.ones(2)}, "value": value})
    assert held.bytes is not None and held.thread == threading.main_thread().name


def test_a_save_is_written_at_once_unless_it_may_wait() -> None:
    later, held = BackgroundWriter(), Held()
    held.may_write.set()
    deferred(later, held, {"a": 1})
    assert held.thread == threading.main_thread().name, "no run is under way"
    with later.running(print):
        later.write(held, {"a": 2})
        assert held.thread == threading.main_thread().name, "nobody allows it"
        with later.deferring(print, only_if=False):
            later.write(held, {"a": 3})
        assert held.thread == threading.main_thread().name


def test_code_of_the_users_is_known_by_its_module() -> None:
    assert all_ours([BackgroundWriter()]) and not all_ours([BackgroundWriter(), Held()])
    assert all_ours([CallbackHook()])
    assert not all_ours([CallbackHook(before_step=lambda trainer: None)])
    assert not all_ours([CallbackHook(after_train=partial(print, "done"))])


def test_what_follows_comes_in_order_after_the_file(later: BackgroundWriter) -> None:
    held, done = Held(), []
    later.then(lambda: done.append("at once"))
    deferred(later, held, {"a": 1})
    later.then(lambda: done.append(("pointer", held.bytes is not None)))
    later.then(lambda: done.append("removed"))
    assert done == ["at once"]
    held.may_write.set()
    later.flush()
    assert done == ["at once", ("pointer", True), "removed"]
    later.then(lambda: done.append("nothing is pending"))
    assert done[-1] == "nothing is pending"


def test_one_save_is_in_flight_at_most(later: BackgroundWriter) -> None:
    first, second = Held(), Held()
    second.may_write.set()
    deferred(later, first, {"a": 1})
    threading.Timer(0.1, first.may_write.set).start()
    deferred(later, second, {"a": 2})
    assert first.bytes is not None


def fail(error: Exception) -> Callable[[Any], None]:
    def write(content: Any) -> None:
        raise error

    return write


def test_a_failure_is_told_to_the_one_who_saves_next(later: BackgroundWriter) -> None:
    told, done, held = [], [], Held()
    held.may_write.set()
    deferred(later, fail(SaveError("no space")), {"a": 1}, told.append)
    later.then(lambda: done.append("the pointer"))
    later.write(held, {"a": 2})
    assert [str(error) for error in told] == ["no space"] and done == []
    assert held.bytes is not None
    deferred(later, fail(ZeroDivisionError("a mistake")), {"a": 3}, told.append)
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        later.flush()


def test_the_end_of_a_run_waits_and_its_error_is_the_one_that_is_raised() -> None:
    later, held, said = BackgroundWriter(), Held(), []
    threading.Timer(0.1, held.may_write.set).start()
    with later.running(said.append):
        deferred(later, held, {"a": 1})
    assert held.bytes is not None

    def refuse(error: SaveError) -> None:
        raise error

    with pytest.raises(SaveError, match="no space"), later.running(said.append):
        deferred(later, fail(SaveError("no space")), {"a": 1}, refuse)
    with pytest.raises(ZeroDivisionError), later.running(said.append):
        deferred(later, fail(SaveError("no space")), {"a": 1}, refuse)
        raise ZeroDivisionError
    assert said == ["no space"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_waits_for_nobody(later: BackgroundWriter, tmp_path: Path) -> None:
    save_file(tmp_path / "samples.pth", {"a": 1})
    held = Held()
    deferred(later, held, {"a": 1})
    child = os.fork()
    if not child:
        os._exit(foreign.read(tmp_path / "samples.pth")["a"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    held.may_write.set()


def test_a_file_in_the_making_is_read_when_it_is_whole(later: BackgroundWriter, tmp_path: Path) -> None:
    may_write = threading.Event()

    def write(content: Any) -> None:
        assert may_write.wait(60)
        save_file(tmp_path / "epoch_1.pth", content)

    deferred(later, write, {"a": torch.ones(2)})
    threading.Timer(0.1, may_write.set).start()
    assert torch.equal(foreign.read(tmp_path / "epoch_1.pth")["a"], torch.ones(2))


def test_a_save_is_waited_for_no_longer_than_patience_lasts() -> None:
    said: list[str] = []
    done = threading.Event()
    with pytest.raises(SaveError, match=r"^the save has been waited for 0 s, at .*; giving up$"):
        wait_for(done, "the save", patience=0.01, say=said.append)
    done.set()
    wait_for(done, "the save", patience=0.0, say=said.append)
    assert said == []


def test_what_comes_after_a_save_that_is_over_is_done_at_once_unless_the_save_failed(later: BackgroundWriter) -> None:
    held, done, told = Held(), [], []  # type: ignore[var-annotated]
    held.may_write.set()
    deferred(later, held, {"a": 1})
    wait()
    later.then(lambda: done.append("pointer"))
    assert done == ["pointer"]
    deferred(later, fail(SaveError("no space")), {"a": 2}, told.append)
    wait()
    later.then(lambda: done.append("never"))
    later.flush()
    assert done == ["pointer"] and len(told) == 1


def test_a_save_after_the_run_is_written_at_once() -> None:
    later, held = BackgroundWriter(), Held()
    held.may_write.set()
    with later.running(print):
        pass
    deferred(later, held, {"a": 1})
    assert held.thread == threading.main_thread().name
