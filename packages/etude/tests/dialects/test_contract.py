"""A dialect of another distribution is found by its entry points, recognises its files, and trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etude import dialects
from etude.cli import main
from etude.errors import UserError
from etude.inspection import entry_points
from tests.places import EXAMPLES

PLUGIN = '''
from etude.config.tree import Tree
from etude.dialects.base import Dialect, Flag
from etude.dialects.native import lower

class Short(Dialect):
    """A config of one line: which hidden size."""
    name, title = "short", "Short"
    flags = (Flag("--shorter", "half the hidden size", {"action": "store_true"}),)
    def recognise(self, path, text): return text.startswith("hidden ")
    def read(self, path, overrides=(), *, options):
        hidden = int(open(path).read().split()[1])
        return Tree({
            "model": {"type": "MLP", "sizes": [64, hidden, 10]}, "loss": "CrossEntropyLoss",
            "data": {"train": {"dataset": {"type": "Digits", "split": "train"}, "batch_size": 256}},
            "optim": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 1},
        }, files={path: ""})
    def lower(self, tree): return lower.lower(tree)
    def schema(self, tree=None): return {"type": "string"}
    def reference(self, tree=None): return "hidden N"
'''


def forget() -> None:
    """Let entry points be read anew."""
    for cached in (entry_points.entry_points, entry_points._metadata, dialects.known, dialects._load):
        cached.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Install a distribution with one dialect, given as its entry point."""

    def installed(value: str) -> None:
        info = tmp_path / "short-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: short\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[etude.dialects]\nshort = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        forget()

    yield installed
    forget()


@pytest.fixture
def plugin(tmp_path: Path, install) -> Path:
    (tmp_path / "short_dialect.py").write_text(PLUGIN)
    install("short_dialect:Short")
    config = tmp_path / "tiny.py"
    config.write_text("hidden 16\n")
    return config


def test_a_dialect_of_another_distribution_is_found_and_trains(plugin: Path, tmp_path: Path) -> None:
    assert dialects.detect(str(plugin)).name == "short"
    assert "short" in dialects.names()
    assert main(["train", str(plugin), "--folder", str(tmp_path / "run"), "-q"]) == 0
    assert (tmp_path / "run" / "metrics.jsonl").is_file()


def test_the_help_of_train_has_the_flags_of_an_installed_dialect(plugin: Path, capsys) -> None:
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "flags of Short:" in shown and "--shorter" in shown


def test_a_flag_of_another_dialect_is_refused(plugin: Path, capsys) -> None:
    assert main(["train", str(EXAMPLES / "native/digits.yaml"), "--shorter"]) == 2
    assert "--shorter does nothing in a native config" in capsys.readouterr().err


def test_a_dialect_that_cannot_be_loaded_is_named(install) -> None:
    install("no_such_module:Thing")
    with pytest.raises(UserError, match="the dialect 'short' .no_such_module:Thing. cannot be loaded"):
        dialects.find("short")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment without any guest."""
    with monkeypatch.context() as patched:
        forget()
        patched.setattr(entry_points, "_metadata", lambda folder: ())
        yield
    forget()


@pytest.mark.parametrize(
    ("file", "text", "extra"),
    [
        ("a.py", "optimizer_config = dict()\nlr_config = dict(policy='step')\n", "openmm"),
        ("a.py", "_base_ = ['./b.py']\n", "openmm"),
        ("a.py", "from libai.config import LazyCall\nmodel = LazyCall(int)()\n", "libai"),
        ("a.yaml", "model:\n  key: Compressor\n  params: {}\n", "mcquic"),
    ],
)
def test_a_config_of_a_guest_that_is_not_installed_names_the_command_that_installs_it(
    file: str, text: str, extra: str, tmp_path: Path, alone: None, capsys
) -> None:
    (tmp_path / file).write_text(text)
    assert main(["check", str(tmp_path / file)]) == 2
    assert f"pip install 'etude[{extra}]'" in capsys.readouterr().out


def test_a_dialect_of_a_guest_that_is_not_installed_is_named(alone: None, capsys) -> None:
    assert main(["check", str(EXAMPLES / "native/digits.yaml"), "--dialect", "mmcv1"]) == 2
    assert "pip install 'etude[openmm]'" in capsys.readouterr().err
