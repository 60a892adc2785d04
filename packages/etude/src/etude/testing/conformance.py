"""A suite of tests that any dialect can run: what Étude's own guests promise, checked through the command line.

.. code-block:: python

    from etude.testing.conformance import DialectConformance

    class TestMine(DialectConformance):
        dialect = "mine"                      # its name, as in --dialect
        config = "tests/tiny.mine"            # trains in seconds on the CPU, and saves checkpoints
        mistakes = {"hiden = 8": "hidden"}    # a line to add → a word that the message must have

Every command runs in a separate process, in an empty folder with a copy of the config's folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

#: Seconds that a command may take; a machine may be very busy.
PATIENCE = 600


class DialectConformance:
    """Derive a class named ``Test…`` from this one and set ``dialect`` and ``config``."""

    dialect: ClassVar[str]
    #: A config that trains in a few seconds on the CPU and saves checkpoints.
    config: ClassVar[str]
    #: Lines that, added to the config, are mistakes → a word that the message must have.
    mistakes: ClassVar[Mapping[str, str]] = {}
    #: Whether reading a config runs code, as Python configs do.
    runs_code: ClassVar[bool] = False
    #: Whether a killed run continues bitwise identically.
    resumes_exactly: ClassVar[bool] = True
    #: The step at which a run is killed, after its first checkpoint.
    kill_at: ClassVar[int] = 7

    @pytest.fixture
    def here(self, tmp_path: Path) -> Path:
        """Return a copy of the config, with the other files of its folder next to it."""
        source = Path(self.config).absolute()
        shutil.copytree(source.parent, tmp_path / "work", ignore=shutil.ignore_patterns("__pycache__", "runs"))
        return tmp_path / "work" / source.name

    def etude(self, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run ``etude WORDS`` in ``cwd``."""
        command = [sys.executable, "-m", "etude", *map(str, words)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def python(self, code: str, *words: str | Path, cwd: Path) -> Any:
        """Run ``code`` in a new interpreter and return what it prints, read as JSON."""
        command = [sys.executable, "-c", code, *map(str, words)]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    # -- finding and reading -----------------------------------------------------------------------------------------

    def test_it_is_found_by_its_entry_point(self, here: Path) -> None:
        code = "import json; from etude import dialects; print(json.dumps(dialects.names()))"
        assert self.dialect in self.python(code, cwd=here.parent)

    def test_its_config_is_recognised_as_its_own(self, here: Path) -> None:
        code = "import json, sys; from etude import dialects; print(json.dumps(dialects.detect(sys.argv[1]).name))"
        assert self.python(code, here, cwd=here.parent) == self.dialect

    def test_other_configs_are_not_taken_for_its_own(self, here: Path) -> None:
        native = here.parent / "native.yaml"
        native.write_text("model: {type: MLP, sizes: [2, 2]}\nloss: CrossEntropyLoss\noptimizers: {}\n")
        empty = here.parent / "empty.py"
        empty.write_text("")
        code = (
            "import json, sys; from etude import dialects; mine = dialects.find(sys.argv[1])\n"
            "print(json.dumps([mine.recognise(path, open(path).read()) for path in sys.argv[2:]]))"
        )
        assert self.python(code, self.dialect, native, empty, cwd=here.parent) == [False, False]

    def test_checking_a_config_imports_no_torch(self, here: Path) -> None:
        code = (
            "import json, sys; from etude.cli.configs.check import inspect; found, *_ = inspect(sys.argv[1])\n"
            "errors = [str(one) for one in found if one.severity == 'error']\n"
            "print(json.dumps({'torch': 'torch' in sys.modules, 'errors': errors}))"
        )
        assert self.python(code, here, cwd=here.parent) == {"torch": False, "errors": []}

    def test_a_sound_config_passes_check_and_plan(self, here: Path) -> None:
        for verb in ("check", "plan"):
            done = self.etude(verb, here, cwd=here.parent)
            assert done.returncode == 0, done.stdout + done.stderr

    def test_a_mistake_is_a_message_with_its_line_and_exit_code_2(self, here: Path) -> None:
        text = here.read_text()
        for line, word in self.mistakes.items():
            here.write_text(f"{text.rstrip()}\n{line}\n")
            done = self.etude("check", here, cwd=here.parent)
            output = done.stdout + done.stderr
            assert done.returncode == 2 and "Traceback" not in output, output
            place = f"{here.name}:{here.read_text().rstrip().count(chr(10)) + 1}"
            assert word in output and place in output, f"{line!r}: no {word!r} or {place} in {output}"

    def test_code_of_a_config_can_be_forbidden(self, here: Path) -> None:
        done = self.etude("check", here, "--no-python-config", cwd=here.parent)
        assert done.returncode == (2 if self.runs_code else 0), done.stdout + done.stderr

    def test_its_flags_are_in_the_help_and_refused_elsewhere(self, here: Path) -> None:
        code = (
            "import json, sys; from etude import dialects; mine = dialects.find(sys.argv[1])\n"
            "print(json.dumps([flag.name for flag in mine.flags if not flag.help.startswith('==')]))"
        )
        flags = self.python(code, self.dialect, cwd=here.parent)
        shown = self.etude("train", "--help", cwd=here.parent).stdout
        assert [flag for flag in flags if flag not in shown] == []

    # -- running -----------------------------------------------------------------------------------------------------

    def test_a_run_leaves_records_and_checkpoints_that_the_tools_can_read(self, here: Path) -> None:
        done = self.etude("train", here, "--folder", "run", cwd=here.parent)
        assert done.returncode == 0, done.stdout + done.stderr
        shown = self.etude("show", "run", cwd=here.parent)
        assert shown.returncode == 0 and self.dialect in shown.stdout + shown.stderr, shown.stdout + shown.stderr
        listed = self.etude("ckpt", "ls", "run", cwd=here.parent)
        assert listed.returncode == 0 and len(listed.stdout.splitlines()) > 1, listed.stdout + listed.stderr
        verified = self.etude("ckpt", "verify", "run", cwd=here.parent)
        assert verified.returncode == 0, verified.stdout + verified.stderr

    def test_a_killed_run_continues_bitwise_identically(self, here: Path) -> None:
        if not self.resumes_exactly:
            pytest.skip(f"{self.dialect} says that it does not")
        calm = self.etude("train", here, "--folder", "calm", cwd=here.parent)
        assert calm.returncode == 0, calm.stderr
        killed = self.etude("train", here, "--folder", "cut", "--chaos", f"kill@step={self.kill_at}", cwd=here.parent)
        assert killed.returncode == -9, killed.stdout + killed.stderr
        resumed = self.etude("train", here, "--folder", "cut", "--resume", cwd=here.parent)
        assert resumed.returncode == 0, resumed.stdout + resumed.stderr
        code = (
            "import json, sys; from pathlib import Path; from etude.checkpoint.tools.same_runs import compare_runs\n"
            "print(json.dumps(compare_runs(*map(Path, sys.argv[1:]))))"
        )
        assert self.python(code, here.parent / "calm", here.parent / "cut", cwd=here.parent) is None

    def test_a_stop_saves_and_says_how_to_resume(self, here: Path) -> None:
        words = ("train", here, "--folder", "stopped", "--chaos", f"sigterm@step={self.kill_at}")
        done = self.etude(*words, cwd=here.parent)
        assert done.returncode == 143 and "--resume" in done.stdout + done.stderr, done.stdout + done.stderr
