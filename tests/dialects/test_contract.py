"""A dialect is an object behind one contract: found by entry points, loaded alone, and not missed when it is gone."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from etude import dialects
from etude.cli import main
from etude.errors import UserError
from tests.sampling import sample

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "native": "examples/native/digits.yaml", "mmcv1": "examples/mmcv1/digits.py",
    "mmengine": "examples/mmengine/mae_adamw.py", "libai": "examples/libai/char_transformer.py",
    "mcquic": "examples/mcquic/photos.yaml",
}  # fmt: skip
PATH = os.pathsep.join(filter(None, sys.path))
#: What the two dialects of OpenMMLab share, and the modules of the room itself.
SHARED = {"base", "imports", "name_tables", "ownership"}


@functools.cache
def modules_of_dialects(code: str, *argv: str) -> set[str]:
    """The folders and modules of ``etude.dialects`` that a new interpreter has after running ``code``."""
    show = 'print(json.dumps(sorted({m.split(".")[2] for m in sys.modules if m.startswith("etude.dialects.")})))'
    command = [sys.executable, "-c", f"import json, sys\n{code}\n{show}", *argv]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_packages_entry_points_are_the_dialects_that_come_with_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][dialects.GROUP] == dialects.BUILT_IN


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_file_of_a_dialect_is_told_from_those_of_all_others(name: str) -> None:
    assert dialects.detect(str(ROOT / EXAMPLES[name])).name == name


@pytest.mark.parametrize("name", ["native", "mmcv1", "mmengine", "mcquic"])
def test_checking_a_config_imports_no_other_dialect(name: str) -> None:
    light = modules_of_dialects("from etude import dialects; dialects.built_in()")
    heavy = {"native", "mmcv1", "mmengine", "libai", "mcquic"} - {name}
    code = (
        "from etude.cli.configs.check import inspect; inspect(sys.argv[1])\n"
        "names = [m for m in sys.modules if m.startswith('etude.dialects.')]\n"
        f"other = [m for m in names if m.split('.')[2] in {sorted(heavy)!r} and m.count('.') > 2]\n"
        "allowed = ('dialect', 'names', 'yacs', 'overlay')\n"
        "assert all(m.split('.')[3].startswith(allowed) for m in other), other"
    )
    assert modules_of_dialects(code, EXAMPLES[name]) <= light | SHARED | {"openmm", "config_errors"}


def test_a_native_config_imports_nothing_of_the_others() -> None:
    code = "from etude.cli.configs.check import inspect; inspect(sys.argv[1])"
    assert modules_of_dialects(code, EXAMPLES["native"]) <= {"base", "native"}


#: How many of Étude's modules a check imports at most. Each one costs time at every start.
MODULES = {"native": 41, "mmcv1": 81, "mmengine": 82, "libai": 55, "mcquic": 37}


@pytest.mark.parametrize("name", MODULES)
def test_checking_a_config_imports_few_modules(name: str) -> None:
    code = (
        "import sys\nfrom etude.cli import main\nmain(['check', sys.argv[1]])\n"
        "own = sorted(m for m in sys.modules if m.partition('.')[0] == 'etude')\n"
        f"assert len(own) <= {MODULES[name]}, own"
    )
    done = subprocess.run([sys.executable, "-c", code, EXAMPLES[name]], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="modules of newer Pythons import them themselves")
@pytest.mark.parametrize("name", ["native", "mmcv1", "mmengine", "libai"])
def test_checking_a_config_without_mistakes_imports_no_slow_modules_of_python(name: str) -> None:
    code = (
        "import sys\nfrom etude.cli import main\nmain(['check', sys.argv[1]])\n"
        "slow = {'dataclasses', 'difflib', 'importlib.abc', 'inspect', 'pathlib', 'tempfile', 'traceback'}\n"
        "assert not slow & set(sys.modules), slow & set(sys.modules)"
    )
    command = [sys.executable, "-S", "-c", code, EXAMPLES[name]]  # -S: what .pth files import is not ours
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": PATH})
    assert done.returncode == 0, done.stderr


WITHOUT = """\
import os, sys
import torch  # once for all
config, *dialects_gone = sys.argv[1:]

def work(gone):
    sys.path.insert(0, os.path.abspath(gone))
    import etude; assert etude.__file__.startswith(sys.path[0]), etude.__file__
    from etude import dialects; from etude.cli import main
    assert gone not in dialects.names()
    assert main(["check", config]) == 0
    assert main(["train", config, "--fast-dev-run", "-q"]) == 0
    assert main(["train", "--help"]) == 0
    assert main(["check", config, "--dialect", gone]) == 2

for gone in dialects_gone:
    child = os.fork()
    if child == 0:
        work(gone)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, gone
"""


def test_the_rest_works_without_the_folder_of_a_dialect(tmp_path: Path) -> None:
    gone = sample(("mmcv1", "mmengine", "libai", "mcquic"), (1, 3))
    for name in gone:
        shutil.copytree(ROOT / "src" / "etude", tmp_path / name / "etude")  # what is compiled is not compiled again
        shutil.rmtree(tmp_path / name / "etude" / "dialects" / name)
    command = [sys.executable, "-c", WITHOUT, str(ROOT / EXAMPLES["native"]), *gone]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in gone:
        assert f"no dialect is called '{name}'" in done.stderr


def test_the_help_of_train_has_the_flags_of_each_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for dialect in dialects.built_in():
        assert all(flag.name in shown for flag in dialect.flags if not flag.help.startswith("=="))
    assert "flags of mmcv 1.x:" in shown


def test_a_flag_that_a_dialect_does_not_know_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(ROOT / EXAMPLES["native"])
    assert main(["train", config, "--auto-resume"]) == 2
    assert "--auto-resume does nothing in a native config; --resume does" in capsys.readouterr().err
    assert main(["train", config, "--cfg-options", "train.epochs=1"]) == 2
    assert "--cfg-options does nothing in a native config; key=value does" in capsys.readouterr().err


# -- a dialect of someone else ---------------------------------------------------------------------------------------

PLUGIN = '''
from etude.config.tree import Tree
from etude.dialects.base import Dialect
from etude.dialects.native import lower

class Short(Dialect):
    """A config of one line: which hidden size."""
    name, title = "short", "Short"
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


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "short_dialect.py").write_text(PLUGIN)
    info = tmp_path / "short-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: short\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[etude.dialects]\nshort = short_dialect:Short\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    dialects._installed.cache_clear()
    dialects._load_installed.cache_clear()
    config = tmp_path / "tiny.py"
    config.write_text("hidden 16\n")
    yield config
    dialects._installed.cache_clear()
    dialects._load_installed.cache_clear()


def test_a_dialect_of_another_distribution_is_found_and_trains(plugin: Path, tmp_path: Path) -> None:
    assert dialects.detect(str(plugin)).name == "short"
    assert "short" in dialects.names()
    assert main(["train", str(plugin), "--folder", str(tmp_path / "run"), "-q"]) == 0
    assert (tmp_path / "run" / "metrics.jsonl").is_file()


def test_a_dialect_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "no_such_module:Thing", dialects.GROUP)
    monkeypatch.setattr(dialects, "_installed", lambda: {"broken": broken})
    dialects._load_installed.cache_clear()
    with pytest.raises(UserError, match="the dialect 'broken' .no_such_module:Thing. cannot be loaded"):
        dialects.find("broken")
