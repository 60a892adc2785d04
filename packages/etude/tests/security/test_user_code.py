"""What runs code says so: `check` names it, and `--no-python-config` refuses it before any of it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.ways import PARTS, PLAIN, RAN, WAYS
from tests.zygote import etude


@pytest.fixture
def project(workdir: Path) -> Path:
    Path("parts.py").write_text(PARTS)
    Path("timm.py").write_text(PARTS)
    return workdir


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("verb", ["train", "plan", "check"])
def test_the_switch_refuses_every_way_into_code(project: Path, way: str, verb: str) -> None:
    text, place, what = WAYS[way]
    Path("config.yaml").write_text(text)
    done = etude(verb, "config.yaml", "--no-python-config")
    said = done.stdout + done.stderr
    assert done.returncode == 2 and "runs code, and --no-python-config forbids that" in said
    assert any(line.removeprefix("etude: error: ").startswith(place) and what in line for line in said.splitlines())
    assert not Path(RAN).exists()


@pytest.mark.parametrize("way", ["a file", "a module", "a model", "a metric", "a hook", "an argument"])
def test_check_names_what_a_run_would_run_and_runs_nothing(project: Path, way: str) -> None:
    text, place, what = WAYS[way]
    Path("config.yaml").write_text(text)
    said = etude("check", "config.yaml").stdout
    assert any(line.startswith(place) and what in line and "runs that code" in line for line in said.splitlines()), said
    assert not Path(RAN).exists()


@pytest.mark.parametrize("verb", ["train", "plan", "check"])
def test_a_config_of_data_alone_passes_the_switch(project: Path, verb: str) -> None:
    Path("config.yaml").write_text(PLAIN)
    done = etude(verb, "config.yaml", "--no-python-config")
    assert done.returncode == 0, done.stderr
    assert "runs that code" not in etude("check", "config.yaml").stdout


def test_the_switch_refuses_a_python_base(project: Path) -> None:
    Path("base.py").write_text(f"{PARTS.splitlines()[0]}\nPath('ran').write_text('')\n")
    Path("config.yaml").write_text("_base_: base.py\n" + PLAIN)
    done = etude("plan", "config.yaml", "--no-python-config")
    assert done.returncode == 2 and not Path(RAN).exists()


def test_code_of_other_packages_that_a_config_trusts_is_refused(project: Path) -> None:
    Path("config.yaml").write_text(PLAIN.replace("[64, 10]}", "[64, 10], trust_remote_code: true}"))
    done = etude("train", "config.yaml", "--no-python-config")
    assert done.returncode == 2 and "config.yaml:1: trust_remote_code" in done.stderr
