"""A dialect is an object behind one contract: found by entry points, loaded alone, and not missed when it is gone."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude import dialects
from etude.cli import main

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
def modules_imported(code: str, *argv: str) -> set[str]:
    """Return the modules of guests that a new interpreter has after running ``code``."""
    show = "print(json.dumps(sorted(m for m in sys.modules if m.startswith('etude_'))))"
    command = [sys.executable, "-c", f"import json, sys\n{code}\n{show}", *argv]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_file_of_a_dialect_is_told_from_those_of_all_others(name: str) -> None:
    assert dialects.detect(str(ROOT / EXAMPLES[name])).name == name


OWN = {
    "mmcv1": "etude_openmm.mmcv1",
    "mmengine": "etude_openmm.mmengine",
    "libai": "etude_libai",
    "mcquic": "etude_mcquic",
}


@pytest.mark.parametrize("name", ["mmcv1", "mmengine", "mcquic"])
def test_checking_a_config_imports_no_other_dialect(name: str) -> None:
    code = "from etude.cli.configs.check import inspect; inspect(sys.argv[1])"
    found = modules_imported(code, EXAMPLES[name])
    packages = [own for other, own in OWN.items() if other != name]
    others = [one for one in found if one.startswith(tuple(f"{own}." for own in packages))]
    assert {one.rpartition(".")[2] for one in others} <= {"dialect", "names", "overlay", "yacs"}


def test_a_native_config_imports_nothing_of_the_others() -> None:
    code = "from etude.cli.configs.check import inspect; inspect(sys.argv[1])"
    assert modules_imported(code, EXAMPLES["native"]) == set()


#: How many of Étude's modules a check imports at most. Each one costs time at every start.
MODULES = {"native": 52, "mmcv1": 95, "mmengine": 95, "libai": 80, "mcquic": 66}


@pytest.mark.parametrize("name", MODULES)
def test_checking_a_config_imports_few_modules(name: str) -> None:
    code = (
        "import sys\nfrom etude.cli import main\nmain(['check', sys.argv[1]])\n"
        "own = sorted(m for m in sys.modules if m.partition('.')[0].partition('_')[0] == 'etude')\n"
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


def test_the_help_of_train_has_the_flags_of_each_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for dialect in dialects.known():
        assert all(flag.name in shown for flag in dialect.flags if not flag.help.startswith("=="))
    assert "flags of mmcv 1.x:" in shown


def test_a_flag_that_a_dialect_does_not_know_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(ROOT / EXAMPLES["native"])
    assert main(["train", config, "--auto-resume"]) == 2
    assert "--auto-resume does nothing in a native config; --resume does" in capsys.readouterr().err
    assert main(["train", config, "--cfg-options", "train.epochs=1"]) == 2
    assert "--cfg-options does nothing in a native config; key=value does" in capsys.readouterr().err
