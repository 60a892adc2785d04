"""What runs code says so: `check` names it, and `--no-python-config` refuses it before any of it runs."""

from __future__ import annotations

import os
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


#: The other verbs that read a config: what is typed.
OTHER_VERBS = {
    "config": "config.yaml", "list": "models --config config.yaml", "schema": "--config config.yaml",
    "convert": "config.yaml", "lr-find": "config.yaml --steps 2", "fit-batch": "config.yaml --most 16",
    "sweep": "config.yaml optim.lr=0.1,0.2 --folder sweep", "test": "config.yaml run",
    "submit": "config.yaml --local --folder job", "verify-resume": "config.yaml",
}  # fmt: skip
#: The verbs that read a run's plan.
OF_RUNS = {
    "test": "run", "predict": "run val -o out.csv", "export": "run -o out.safetensors", "replay": "run --step 1",
    "verify": "run --replay 1",
}  # fmt: skip
VAL = PLAIN.replace("batch_size: 512}}", "batch_size: 512}, val: {dataset: Digits, batch_size: 512}}")


@pytest.mark.parametrize("verb", OTHER_VERBS)
def test_every_verb_that_reads_a_config_has_the_switch(project: Path, verb: str) -> None:
    Path("base.py").write_text(f"{PARTS.splitlines()[0]}\nPath('ran').write_text('')\n")
    Path("config.yaml").write_text("_base_: base.py\nimports: [parts.py]\n" + VAL)
    done = etude(verb, *OTHER_VERBS[verb].split(), "--no-python-config")
    assert done.returncode == 2 and "runs code, and --no-python-config forbids that" in done.stderr, done
    assert not Path(RAN).exists()


@pytest.mark.parametrize("verb", ["sweep", "lr-find", "test"])
def test_a_config_of_data_alone_passes_the_switch_of_every_verb(project: Path, verb: str) -> None:
    Path("config.yaml").write_text(VAL)
    if verb == "test":
        etude("train", "config.yaml", "--folder", "run", check=True)
    done = etude(verb, *OTHER_VERBS[verb].split(), "--no-python-config")
    assert done.returncode == 0, done.stderr


def test_the_switch_guards_what_a_run_s_plan_names(project: Path) -> None:
    Path("config.yaml").write_text(VAL)
    etude("train", "config.yaml", "--folder", "run", "--no-python-config", check=True)
    plan = Path("run/plan.yaml").read_text()
    for verb, words in OF_RUNS.items():
        Path("run/plan.yaml").write_text("imports: [../parts.py]\n" + plan)
        done = etude(verb, *words.split(), "--no-python-config")
        assert done.returncode == 2 and "--no-python-config forbids that" in done.stderr, (verb, done)
        assert not Path(RAN).exists(), verb


def test_the_plan_of_a_run_builds_on_no_program(project: Path) -> None:
    Path("config.yaml").write_text(VAL)
    etude("train", "config.yaml", "--folder", "run", check=True)
    Path("run/base.py").write_text(f"{PARTS.splitlines()[0]}\nPath('ran').write_text('')\n")
    plan = Path("run/plan.yaml").read_text()
    Path("run/plan.yaml").write_text("_base_: base.py\n" + plan)
    for verb in ("attest", "verify", "test", "show"):
        said = etude(verb, "run")
        assert not Path(RAN).exists(), verb
        assert verb == "show" or "the plan of a run is data" in said.stdout + said.stderr, (verb, said)


def test_the_environment_may_forbid_code_for_every_command(project: Path) -> None:
    Path("config.yaml").write_text(WAYS["a file"][0])
    done = etude("train", "config.yaml", env={**os.environ, "ETUDE_NO_PYTHON_CONFIG": "1"})
    assert done.returncode == 2 and not Path(RAN).exists()


def test_code_of_other_packages_that_a_config_trusts_is_refused(project: Path) -> None:
    Path("config.yaml").write_text(PLAIN.replace("[64, 10]}", "[64, 10], trust_remote_code: true}"))
    done = etude("train", "config.yaml", "--no-python-config")
    assert done.returncode == 2 and "config.yaml:1: trust_remote_code" in done.stderr
