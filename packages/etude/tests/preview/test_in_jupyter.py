"""A real kernel runs a notebook, where one is installed."""

from __future__ import annotations

import re

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
    assert "<svg" in shown[0].data["text/html"] and "<svg" in plotted[0].data["image/svg+xml"]
    assert "epoch 1/3" in (workdir / "r" / "log.txt").read_text()


WRONG = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def forward(self, inputs):
        return self.layer(inputs[:, :63])
net = Net()
trainer = etude.Trainer(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.nn.CrossEntropyLoss())
trainer.fit(Digits("train"), epochs=1)
"""


def test_an_error_in_a_notebook_ends_at_the_line_of_the_user(workdir):
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install ipykernel")
    from nbformat.v4 import new_code_cell, new_notebook

    cells = [CELL, "trainer", WRONG, "trainer.fit(Digits('train'), epochs=0)"]
    book = new_notebook(cells=[new_code_cell(text) for text in cells])
    settings = {"timeout": 600, "allow_errors": True, "resources": {"metadata": {"path": str(workdir)}}}
    nbclient.NotebookClient(book, **settings).execute()
    _, shown, raised, refused = [cell.outputs for cell in book.cells]
    assert "Linear (650 parameters)" in shown[0].data["text/html"]
    frames = _plain(next(one for one in raised if one.output_type == "error").traceback)
    assert "inputs[:, :63]" in frames and "mat1 and mat2" in frames
    assert "core/loop.py" not in frames and "torch/nn" not in frames
    told = _plain(next(one for one in refused if one.output_type == "error").traceback)
    assert "ConfigError: epochs must be more than zero, not 0" in told and "trainer.py" not in told


def _plain(lines):
    """The text without colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(lines))
