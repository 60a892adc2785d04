"""What a public host runs is what `make` runs: the versions of the matrix, the linters, the release."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "packages/etude/pyproject.toml").read_text())["project"]


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def recipe(target: str) -> list[str]:
    """Return the commands of a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(rf"^(?:[\w-]+ )*{target}(?: [\w-]+)*:[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE)
    assert found, f"there is no target {target}"
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_the_matrix_has_the_oldest_torch_that_the_package_allows_and_the_newest(tmp_path):
    matrix = workflow("tests")["jobs"]["matrix"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"] and PROJECT["requires-python"] == ">=3.11"
    assert matrix["torch"] == ["oldest", "newest"]
    (allowed,) = [one for one in PROJECT["dependencies"] if one.startswith("torch>=")]
    for target, asked in (("oldest", allowed.replace(">=", "==")), ("newest", allowed)):
        words = ["make", "--dry-run", f"VENV={tmp_path / 'none'}", f"matrix-{target}"]
        said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert f'"{asked}"' in said and f"none-{target}/bin/python -m pytest" in said


def test_a_commit_is_checked_by_the_linters_of_make():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == [command.removesuffix(" .") for command in recipe("lint")]


def test_every_workflow_calls_targets_that_exist():
    texts = "".join(path.read_text() for path in (ROOT / ".github/workflows").iterdir())
    texts = "".join(texts.replace("${{ matrix.torch }}", torch) for torch in ("oldest", "newest"))
    called = set(re.findall(r"\bmake ([\w-]+)", texts))
    assert {"test", "test-all", "matrix-oldest", "matrix-newest", "docs", "release"} <= called
    assert all(recipe(target) for target in called)


def test_a_release_is_tried_in_a_fresh_environment_before_it_is_published():
    commands = recipe("release")
    built = next(number for number, command in enumerate(commands) if "-m build" in command)
    tried = next(number for number, command in enumerate(commands) if "etude train" in command)
    assert any("-m venv" in command for command in commands[built:tried])
    steps = [step.get("run") or step["uses"] for step in workflow("release")["jobs"]["publish"]["steps"]]
    assert steps.index("make release") < next(n for n, step in enumerate(steps) if "pypi-publish" in step)
