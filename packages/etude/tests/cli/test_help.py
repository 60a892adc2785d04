from __future__ import annotations

import subprocess
import sys

import pytest

import etude
from etude.cli import VERBS, main


def test_help_lists_every_verb_first_steps_and_exit_codes(command):
    said = command("--help")
    assert said.code == 0
    for part in (*VERBS, "first steps", "exit codes", "130"):
        assert part in said.out
    assert command().out == said.out


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_explains_itself(command, verb):
    said = command(verb, "--help")
    assert said.code == 0 and said.out.startswith(f"usage: etude {verb}")


def test_a_key_that_a_config_does_not_have_yet_is_shown_without_a_plus(command):
    assert "etude train digits.yaml train.accumulate=2 " in command("train", "--help").out
    assert command("check", "c.yaml", "train.accumulate=2").code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_a_flag_that_does_not_exist_is_a_mistake(command, verb):
    said = command(verb, "--no-such-flag")
    assert said.code == 2 and "Traceback" not in said.err and said.err.count("etude: error:") == 1


def test_the_version(command):
    assert command("--version").out.strip() == f"etude {etude.__version__}"


@pytest.mark.parametrize("words", [["train"], ["check"], ["plan"], ["config"], ["init"], ["exec"]])
def test_what_is_missing_is_told(command, words):
    said = command(*words)
    assert said.code == 2 and "etude: error:" in said.err


def test_help_and_check_do_without_torch(workdir):
    code = "import sys; from etude.cli import main; code = main(['--help']); assert 'torch' not in sys.modules; sys.exit(code)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_a_closed_pipe_is_no_failure(workdir):
    words = f"{sys.executable} -m etude list | head -1"
    done = subprocess.run(words, shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


def test_main_returns_the_exit_code_instead_of_leaving():
    assert main(["trian"]) == 2


def test_help_is_a_word_too(command):
    assert command("help", "train").out == command("train", "--help").out
    assert "first steps" in command("help").out


def test_a_flag_before_any_command_is_answered(command):
    said = command("-v")
    assert said.code == 2 and "see `etude --help`" in said.err
