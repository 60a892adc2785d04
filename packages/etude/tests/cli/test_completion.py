from __future__ import annotations

import subprocess

import pytest

from etude.cli import VERBS


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_the_script_knows_every_verb_and_its_flags(command, shell):
    said = command("completion", shell)
    assert said.code == 0
    assert [verb for verb in VERBS if verb not in said.out] == []
    assert "fast-dev-run" in said.out


def test_bash_takes_the_script_and_completes(command, workdir):
    (workdir / "script").write_text(command("completion", "bash").out)
    ask = "source ./script; COMP_WORDS=(etude pl); COMP_CWORD=1; _shtab_etude; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("plan", "")


def test_another_shell_is_refused(command):
    said = command("completion", "cmd.exe")
    assert said.code == 2 and "bash" in said.err
