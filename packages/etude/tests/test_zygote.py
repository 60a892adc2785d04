"""The forks that stand for fresh interpreters behave like them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import zygote

PROGRAM = """\
import os, sys, threading
print(sys.argv, os.getcwd(), os.environ.get("MARK"), sys.path[:2], threading.active_count(), __name__)
print("shadow" in sys.modules, len(sys.stdin.read()))
sys.exit("gone" if len(sys.argv) > 1 else 0)
"""


@pytest.mark.parametrize("words", [("-c", PROGRAM), ("-c", PROGRAM, "x"), ("program.py",), ("-m", "program", "x")])
def test_a_fork_sees_what_a_fresh_interpreter_sees(workdir, words):
    Path("program.py").write_text(PROGRAM)
    env = os.environ | {"MARK": "here", "PYTHONPATH": "a:b"}
    fresh = subprocess.run([sys.executable, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    forked = zygote.run(*words, env=env)
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_forks_draw_different_numbers_and_run_at_the_same_time(workdir):
    code = "import random, pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\n"
    code += "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)\nprint(random.random())"
    children = [zygote.start("-c", code, "a", "b"), zygote.start("-c", code, "b", "a")]
    drawn = [child.communicate()[0] for child in children]
    assert drawn[0] != drawn[1] and [child.returncode for child in children] == [0, 0]


def test_an_error_is_shown_and_a_kill_is_a_kill(workdir):
    failed = zygote.run("-c", "1 / 0")
    assert failed.returncode == 1 and "ZeroDivisionError" in failed.stderr
    child = zygote.start("-c", "import time; print(1, flush=True); time.sleep(1000)")
    while not child.output(0):
        assert child.poll() is None
        time.sleep(0.01)
    child.kill()
    assert child.wait() == -signal.SIGKILL


ENDING = """\
import atexit, sys, threading, time
sys.stdout.write("not flushed, ")
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.05), print("thread, ", end=""))).start()
"""


@pytest.mark.parametrize("last", ["", "sys.exit(300)", "raise SystemExit(True)", "raise KeyboardInterrupt"])
def test_a_fork_ends_like_a_fresh_interpreter(workdir, last):
    fresh = subprocess.run([sys.executable, "-c", ENDING + last], capture_output=True, text=True)
    forked = zygote.run("-c", ENDING + last)
    assert fresh.stdout == "not flushed, thread, at exit\n"
    assert (forked.returncode, forked.stdout) == (fresh.returncode, fresh.stdout)
    assert forked.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


def test_another_version_of_a_loaded_package_gets_a_fresh_interpreter(workdir):
    Path("other").mkdir()
    Path("other/yaml.py").write_text("version = 'mine'")
    code = "import sys, yaml; print(yaml.version, 'torch' in sys.modules)"
    assert zygote.run("-c", code, env=os.environ | {"PYTHONPATH": "other"}).stdout == "mine False\n"
    assert zygote.run("-c", "import sys; print('torch' in sys.modules)").stdout == "True\n"


@pytest.mark.thorough  # imports a project
def test_a_zygote_that_has_imported_more_does_it_once_for_all_its_forks(workdir):
    Path("more").mkdir()
    Path("more/slow.py").write_text("import os\nmaker = os.getpid()")
    after = zygote.Imports((str(workdir / "more"),), "import slow")
    env = os.environ | {"PYTHONPATH": f"{workdir}/more"}
    code = "import os, slow, sys; print(slow.maker, slow.maker != os.getpid(), sys.path[:2])"
    said = {zygote.run("-c", code, env=env, after=after, check=True).stdout for _ in range(2)}
    assert len(said) == 1 and said.pop().endswith(f"True ['', '{workdir}/more']\n")
    assert zygote.run("-c", "import sys; print('slow' in sys.modules)", env=env).stdout == "False\n"
