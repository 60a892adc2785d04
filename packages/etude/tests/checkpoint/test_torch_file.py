"""One file of torch is written completely or not at all, and a few failures in a row are borne."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from etude.checkpoint.formats.torch_file import Patience, reported, save_file
from etude.errors import SaveError


def test_a_file_is_written_for_its_owner_alone_unless_others_may_read_it() -> None:
    save_file("a.pth", {"w": torch.ones(2)})
    save_file("b.pth", {}, mode=0o640)
    assert torch.equal(torch.load("a.pth")["w"], torch.ones(2))
    assert [Path(name).stat().st_mode & 0o777 for name in ("a.pth", "b.pth")] == [0o600, 0o640]


def test_a_disk_that_refuses_is_named_with_the_target() -> None:
    with pytest.raises(SaveError, match=r"^none/a\.pth could not be written: No such file or directory$"):
        save_file("none/a.pth", {})
    with pytest.raises(SaveError, match="could not be written: without a number"), reported("a.pth"):
        raise OSError("without a number")


def test_the_reason_is_the_disk_s_also_where_torch_stumbles_over_it() -> None:
    with pytest.raises(SaveError, match=r"a\.pth could not be written: full"), reported("a.pth"):
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError:
            raise RuntimeError("unexpected position")
    with pytest.raises(RuntimeError, match="something else"), reported("a.pth"):
        raise RuntimeError("something else")


def test_failures_in_a_row_are_borne_until_there_are_too_many() -> None:
    patience, said, error = Patience(), [], SaveError("no space")
    for _ in range(2):
        patience.forgive(error, said.append)
    assert said == ["no space; training continues"] * 2
    with pytest.raises(SaveError, match="^no space; 3 saves in a row have failed$"):
        patience.forgive(error, said.append)
    patience.renew()
    patience.forgive(error, said.append)
    patience.forgive(error, said.append)
    assert len(said) == 4


def test_the_last_save_is_not_forgiven() -> None:
    with pytest.raises(SaveError, match="^no space$"):
        Patience().forgive(SaveError("no space"), print, last=True)
    with pytest.raises(SaveError, match="^no space; 1 saves"):
        Patience(most=1).forgive(SaveError("no space"), print)
