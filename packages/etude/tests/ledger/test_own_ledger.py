"""The ledger of a run that another system drives finds its place with the first step, and waits for late norms."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.core.run import Run
from etude.errors import UserError
from etude.ledger import rows
from etude.ledger.rebuild import untouched
from etude.ledger.writer import DrivenLedger


def driven(step: int = 0, state: Any = None) -> Run:
    run = Run(model=torch.nn.Identity(), update=lambda run, batch: None, loop=lambda run: None)  # type: ignore[arg-type]
    run.step, run.history_state = step, state
    return run


def note(ledger: DrivenLedger, run: Run, steps: int) -> None:
    for _ in range(steps):
        run.loss, run.samples = torch.tensor(float(run.step)), [run.step, 7]
        ledger.note(run)
        run.norm = torch.tensor(run.step + 0.5)  # a hook after the step computes it
        ledger.finish(run)
        run.step += 1


def test_a_norm_that_a_hook_computes_after_the_step_is_in_its_row(tmp_path: Path) -> None:
    ledger, run = DrivenLedger(tmp_path / rows.FILE), driven()
    note(ledger, run, 3)
    ledger.close()
    found = rows.read(tmp_path)
    assert found["norm"].tolist() == [0.5, 1.5, 2.5] and found["loss"].tolist() == [0.0, 1.0, 2.0]


def test_a_save_between_the_step_and_its_last_hook_has_the_row(tmp_path: Path) -> None:
    ledger, run = DrivenLedger(tmp_path / rows.FILE), driven()
    run.loss = torch.tensor(1.0)
    ledger.note(run)
    assert ledger.state_dict()["rows"] == 1
    ledger.close()


def test_a_resume_cuts_the_ledger_at_the_step_of_its_checkpoint(tmp_path: Path) -> None:
    ledger, run = DrivenLedger(tmp_path / rows.FILE), driven()
    note(ledger, run, 4)
    state = ledger.state_dict()
    note(ledger, run, 3)
    ledger.close()
    whole = (tmp_path / rows.FILE).read_bytes()
    again, run = DrivenLedger(tmp_path / rows.FILE), driven(4, state)
    note(again, run, 3)
    again.close()
    assert (tmp_path / rows.FILE).read_bytes() == whole


@pytest.mark.parametrize(("step", "state"), [(9, None), (2, {"rows": 2, "digest": "0" * 16})])
def test_a_ledger_that_does_not_fit_is_set_aside(tmp_path: Path, step: int, state: Any) -> None:
    ledger = DrivenLedger(tmp_path / rows.FILE)
    note(ledger, driven(), 4)
    ledger.close()
    again = DrivenLedger(tmp_path / rows.FILE)
    with pytest.warns(UserWarning, match="a new one begins"):
        note(again, driven(step, state), 1)
    again.close()
    assert rows.read(tmp_path)["step"].tolist() == [step + 1]
    assert len(list(tmp_path.glob("ledger.bin.*"))) == 1


def test_a_new_run_in_an_old_folder_begins_anew_without_a_warning(tmp_path: Path, recwarn: Any) -> None:
    ledger = DrivenLedger(tmp_path / rows.FILE)
    note(ledger, driven(), 4)
    ledger.close()
    again = DrivenLedger(tmp_path / rows.FILE)
    note(again, driven(), 2)
    again.close()
    assert len(rows.read(tmp_path)) == 2 and not [one for one in recwarn if "ledger" in str(one.message)]


def test_files_of_a_run_cannot_be_changed_while_it_is_replayed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "a").write_text("old")
    with untouched(run):
        for change in (
            lambda: (run / "a").write_text("new"),
            lambda: os.remove(run / "a"),
            lambda: os.rename(run / "a", run / "b"),
            lambda: os.mkdir(run / "c"),
            lambda: os.symlink(tmp_path, run / "d"),
        ):
            with pytest.raises(UserError, match="writes nothing into the run"):
                change()
        assert (run / "a").read_text() == "old"
        os.symlink(run / "a", tmp_path / "link")
        os.remove(tmp_path / "link")  # the link, not what it stands for
    (run / "a").write_text("new")
