"""A statement about a run holds for honest runs, also resumed ones, and each forgery is found and named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.checkpoint.find import FOLDER
from etude.cli import main
from etude.ledger import rows
from etude.ledger.statement import FILE, attest, verify

CONFIG = """
model: {type: MLP, sizes: [64, 16, 10], dropout: 0.1}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Digits, split: train}, batch_size: 256, shuffle: true}}
optim: {type: AdamW, lr: 0.01}
train: {epochs: 3}
checkpoint: {every: 1ep, keep: null}
log: {every: 3step}
"""


def train(folder: Path, *words: str) -> int:
    command = [
        sys.executable,
        "-m",
        "etude",
        "train",
        str(folder.parent / "config.yaml"),
        "-q",
        "--folder",
        str(folder),
    ]
    return subprocess.run([*command, *words], capture_output=True).returncode


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed and resumed, with its statement; and another run beside it."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    (folder.parent / "config.yaml").write_text(CONFIG)
    assert train(folder, "--chaos", "kill@step=9") == -9
    assert train(folder, "--resume") == 0
    assert train(folder.parent / "other", "train.seed=1") == 0
    attest(folder)
    return folder


def test_an_honest_run_holds_also_when_pieces_are_run_again(honest: Path) -> None:
    found = verify(honest, replays=2)
    assert found.wrong == []
    assert sum("bitwise identical" in line for line in found.right) == 2


def _flip(path: Path, at: int = -9) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _newest(folder: Path) -> Path:
    return sorted((folder / FOLDER).glob("step-*"))[-1]


def _swap(folder: Path) -> None:
    """Put the last checkpoint of another run in place of this run's."""
    shutil.rmtree(_newest(folder))
    other = _newest(folder.parent / "other")
    shutil.copytree(other, folder / FOLDER / other.name)


def _cut(folder: Path) -> None:
    """Cut steps out of the history, and chain the rest anew, as a careful forger would."""
    whole = rows.read(folder)
    kept = [*range(4), *range(6, len(whole))]
    digest, made = 0, b""
    for number, index in enumerate(kept):
        row = whole[index : index + 1].copy()
        row["step"] = number + 1
        row["digest"] = rows.chained(row, digest)
        digest, made = int(row["digest"][0]), made + row.tobytes()
    (folder / rows.FILE).write_bytes(rows.HEADER + made)


def _other_plan(folder: Path) -> None:
    text = (folder / "plan.yaml").read_text()
    (folder / "plan.yaml").write_text(text.replace("lr: 0.01", "lr: 0.02"))


def _other_data(folder: Path) -> None:
    facts = json.loads((folder / "env.json").read_text())
    facts["data"]["train"] = "00000000"
    (folder / "env.json").write_text(json.dumps(facts))


def _other_rows(folder: Path) -> None:
    """Change a loss and chain all rows after it anew."""
    whole = rows.read(folder).copy()
    whole["loss"][5] = 0.001
    whole["digest"] = rows.chained(whole, 0)
    (folder / rows.FILE).write_bytes(rows.HEADER + whole.tobytes())


@pytest.mark.parametrize(
    ("forge", "named", "alone"),
    [
        (lambda folder: _flip(folder / rows.FILE), "ledger.bin: row", True),
        (lambda folder: _flip(_newest(folder) / "model.safetensors"), "model.safetensors", True),
        (lambda folder: _flip(folder / "metrics.jsonl"), "metrics.jsonl has changed", False),
        (_swap, "does not belong to this ledger", True),
        (_cut, "does not belong to this ledger", True),
        (_other_rows, "does not belong to this ledger", True),
        (_other_plan, "made with another plan: optim.lr", True),
        (_other_data, "made with other training data", True),
        (lambda folder: shutil.rmtree(_newest(folder)), "is gone", False),
        (lambda folder: (_newest(folder) / "manifest.json").write_text("{"), "manifest cannot be read", True),
        (lambda folder: (folder / FILE).write_text("{}"), "statement.json cannot be read", False),
        (lambda folder: (folder / FILE).unlink(), "there is no statement.json", False),
    ],
)
def test_a_forgery_is_found_and_named(
    honest: Path, forge: Callable[[Path], object], named: str, alone: bool, tmp_path: Path
) -> None:
    shutil.copytree(honest.parent, tmp_path / "runs")
    folder = tmp_path / "runs" / "run"
    forge(folder)
    found = verify(folder)
    assert any(named in line for line in found.wrong), found
    if alone:  # without the statement the run contradicts itself, too, so it cannot be attested anew
        assert main(["attest", str(folder)]) == 2


def test_a_signature_is_checked(honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(honest.parent, tmp_path / "runs")
    folder, keys = tmp_path / "runs" / "run", {}
    for name in ("mine", "theirs"):
        keys[name] = tmp_path / f"{name}.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", keys[name]], check=True)
    assert main(["attest", str(folder), "--key", str(keys["mine"])]) == 0
    assert main(["verify", str(folder), "--key", str(keys["mine"])]) == 0
    assert main(["verify", str(folder), "--key", str(keys["theirs"])]) == 1
    assert "the signature was not made with this key" in capsys.readouterr().out
    envelope = json.loads((folder / FILE).read_text())
    assert set(envelope) == {"payloadType", "payload", "signatures"}
    assert main(["attest", str(folder)]) == 0
    assert main(["verify", str(folder), "--key", str(keys["mine"])]) == 1
    assert "is not signed" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "no key", "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n"])
def test_a_file_that_is_no_key_is_named(
    honest: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key.pem").write_text(text)
    assert main(["attest", str(honest), "--key", str(tmp_path / "key.pem")]) == 2
    assert "--key" in capsys.readouterr().err
    assert main(["attest", str(honest), "--key", str(tmp_path / "none.pem")]) == 2


def test_the_statement_has_the_form_of_in_toto(honest: Path) -> None:
    body = json.loads((honest / FILE).read_text())
    assert body["_type"] == "https://in-toto.io/Statement/v1"
    assert {"name", "digest"} == set(body["subject"][0])
    assert body["predicate"]["ledger"]["rows"] == 18
    assert [one["step"] for one in body["predicate"]["checkpoints"]] == [6, 12, 18]
