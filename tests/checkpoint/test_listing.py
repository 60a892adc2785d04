from __future__ import annotations

from pathlib import Path

from etude.checkpoint.store import Store
from etude.checkpoint.tools.listing import rows

from .conftest import small_state


def test_a_line_has_the_step_the_metrics_and_which_one_is_best(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for step, loss in ((3, 0.5), (6, 0.25)):
        store.save(small_state(step), step=step, epoch=step // 3, metrics={"loss": loss})
    store.close()
    (tmp_path / "best").write_text("step-000000006\n")
    assert [(row[0], row[1], row[2], row[5]) for row in rows(str(tmp_path))] == [
        ("step-000000003", "3", "1", "loss 0.5"),
        ("step-000000006", "6", "2", "loss 0.25  (best)"),
    ]
