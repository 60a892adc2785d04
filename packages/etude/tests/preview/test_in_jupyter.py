"""A real kernel runs a notebook, where one is installed."""

from __future__ import annotations

import pytest

CELL = """
import torch, etude
from etude.data import Digits
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = etude.Trainer(model, optimizer=optimizer, loss=torch.nn.CrossEntropyLoss(), folder="r")
run = trainer.fit(Digits("train"), val=Digits("val"), epochs=3, batch_size=128)
"""


def test_a_notebook_shows_progress_curves_and_tables(workdir):
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install ipykernel")
    from nbformat.v4 import new_code_cell, new_notebook

    book = new_notebook(cells=[new_code_cell(text) for text in (CELL, "run", "run.plot()", "run.plan")])
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(workdir)}}).execute()
    trained, shown, plotted, _ = [cell.outputs for cell in book.cells]
    pictures = [output.data["text/html"] for output in trained if output.output_type == "display_data"]
    assert len(pictures) == 1 and "<progress" in pictures[0] and "<svg" in pictures[0] and "val/loss" in pictures[0]
    text = "".join(output.text for output in trained if output.output_type == "stream")
    assert "finished: " in text and "epoch 1/3" not in text
    assert not [output for output in trained if output.get("name") == "stderr"]
    assert "<table" in shown[0].data["text/html"] and "application/vnd.plotly.v1+json" in plotted[0].data
    assert "epoch 1/3" in (workdir / "r" / "log.txt").read_text()
