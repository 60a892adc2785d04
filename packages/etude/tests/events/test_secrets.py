"""Checks that secrets in configs, overrides, the environment, git remotes and changed code stay where they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from etude.board.app import make_app
from tests import zygote
from tests.cli.commands import CONFIG
from tests.places import REPOSITORY

HUB = """
from etude import HOOKS
from etude.core.hook import Hook


@HOOKS.register
class Upload(Hook):
    def __init__(self, api_key: str = "", url: str = "", mirror: str = "") -> None: ...
"""
UPLOAD = """hooks:
  - {type: Upload, api_key: planted-config, url: "${env:ETUDE_UPLOAD_URL}", mirror: "https://me:planted-url@example.org"}
"""
PLANTED = b"planted-"


def git(*words: str) -> None:
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True)


@pytest.fixture
def project(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with secrets everywhere, and uncommitted changes that hold some."""
    log = "log: {every: 3step, to: [csv, tensorboard, {type: wandb, mode: offline, checkpoint: true}]}"
    Path("hub.py").write_text(HUB)
    Path("c.yaml").write_text("imports: [hub]\n" + CONFIG.replace("log: {every: 3step}", log))
    git("init", "-q", ".")
    git("add", "-A")
    git("commit", "-qm", "first")
    git("remote", "add", "origin", "https://me:planted-remote@example.org/x.git")
    Path("hub.py").write_text(HUB + 'TOKEN = "planted-code"\nprint(dict(password="planted-argument") and "")\n')
    Path("c.yaml").write_text(Path("c.yaml").read_text() + UPLOAD)
    monkeypatch.setenv("ETUDE_UPLOAD_URL", "planted-environment")
    monkeypatch.setenv("HUB_TOKEN", "planted-token")
    for home in ("HOME", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(home, str(workdir / "home"))
    return workdir


def test_no_secret_reaches_the_run_folder_the_log_a_tracker_the_report_or_the_board(project: Path) -> None:
    words = ["train", "c.yaml", "hooks.0.api_key=planted-override", "--folder", "out/r"]
    said = zygote.etude(*words, check=True)
    zygote.etude("report", "out/r", "-o", "out/report.html", check=True)
    shown = [zygote.etude(*verb).stdout.encode() for verb in (["show", "out/r"], ["runs", "out", "--json"])]
    with TestClient(make_app(Path("out")), base_url="http://127.0.0.1") as board:
        name = board.get("/api/runs").json()["runs"][0]["name"]
        shown += [
            board.get(address).content for address in ("/api/runs", f"/api/run?run={name}", f"/api/curves?run={name}")
        ]
    assert all(b"accuracy" in text for text in shown) and PLANTED not in (
        said.stdout + said.stderr
    ).encode() + b"".join(shown)
    files = [path for folder in ("out", "home") for path in Path(folder).rglob("*") if path.is_file()]
    assert [str(path) for path in files if PLANTED in path.read_bytes()] == []
    assert "REDACTED" in Path("out/r/plan.yaml").read_text() and "REDACTED" in Path("out/r/code.diff").read_text()
    assert json.loads(Path("out/r/env.json").read_text())["git"]["commit"]
    assert list(Path("out/r/wandb").rglob("*.wandb")) and b"REDACTED" in Path("out/report.html").read_bytes()


MMENGINE_HOOK = """
from mmengine.hooks import Hook
from mmengine.registry import HOOKS


@HOOKS.register_module()
class Upload(Hook):
    def __init__(self, api_key="", mirror=""): ...
"""
MMENGINE = """
custom_imports = dict(imports=["ssl_digits", "upload"], allow_failed_imports=False)
custom_hooks = [dict(type="Upload", api_key="planted-config", mirror="https://me:planted-url@example.org")]
visualizer = dict(type="Visualizer", vis_backends=[dict(type="LocalVisBackend"), dict(type="TensorboardVisBackend")])
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=1)
"""


@pytest.mark.thorough  # the native run above has the same redaction
def test_no_secret_reaches_what_an_mmengine_run_writes(workdir: Path) -> None:
    examples = REPOSITORY / "examples" / "mmengine"
    shutil.copytree(examples, workdir, dirs_exist_ok=True)
    Path("upload.py").write_text(MMENGINE_HOOK)
    Path("c.py").write_text(Path("simclr_lars.py").read_text() + MMENGINE)
    said = zygote.etude("train", "c.py", "--work-dir", "w", env={**os.environ, "PYTHONPATH": "."}, check=True)
    files = [path for path in Path("w").rglob("*") if path.is_file()]
    assert PLANTED not in (said.stdout + said.stderr).encode()
    assert files and [str(path) for path in files if PLANTED in path.read_bytes()] == []
    assert "REDACTED" in Path("w/c.py").read_text()
