from __future__ import annotations

from pathlib import Path

from etude.cli import main

CONFIG = """\
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 512}}
optim: {type: SGD, lr: 0.1}
train: {epochs: 1, threads: 1}
"""


def test_a_secret_on_the_command_line_is_not_printed_back(workdir: Path, capfd):
    Path("c.yaml").write_text(CONFIG)
    assert main(["train", "c.yaml", "+extra.api_token=SESAME42"]) == 0
    said = "".join(capfd.readouterr())
    written = "".join(path.read_text(errors="replace") for path in Path("runs").rglob("*") if path.is_file())
    assert "SESAME42" not in said and "SESAME42" not in written
