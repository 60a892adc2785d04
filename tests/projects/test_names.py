"""Every name that the real projects use resolves on Étude, as recorded in ``names.json``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.projects import record_names
from tests.projects.conftest import fetched
from tests.projects.scan_names import scan

AGAIN = "python -m tests.projects.record_names --never"


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(record_names.RECORDED.read_text())


def missing(family: str, recorded: Any) -> dict[str, tuple[str, set[str]]]:
    """Return what is missing → Python's words for it, and the projects that use it."""
    fetched(record_names.FAMILIES[family].pins)
    uses, projects = record_names.listed(recorded[family]), recorded[family]["projects"]
    found: dict[str, tuple[str, set[str]]] = {}
    for use, (lost, *reason) in record_names.resolve(family, uses).items():
        users = found.setdefault(lost, (" ".join(reason), set()))[1]
        users |= {projects[number] for number in uses[use]}
    return found


@pytest.mark.parametrize("family", record_names.FAMILIES)
def test_the_names_that_real_projects_use_resolve(family: str, recorded: Any) -> None:
    found, never = missing(family, recorded), set(recorded[family]["never"])
    lost = [
        f"{name} is used by {', '.join(sorted(users))}: {reason or 'it is missing'}"
        for name, (reason, users) in sorted(found.items())
        if name not in never
    ]
    assert not lost, "these names were served:\n" + "\n".join(lost)
    served = sorted(never - set(found))
    assert not served, f"these names are served now, so note it with `{AGAIN}`:\n" + "\n".join(served)


def test_a_lost_name_method_or_argument_is_reported_with_its_projects(recorded: Any) -> None:
    uses = {
        "mmengine": {"Nothing": "0 1", "Nothing.below": "1", "Config.fromfile(wrong)": "1"},
        "mmengine.hooks": {"Hook#gone()": "0", "Hook#gone()(key)": "0", "Hook#every_n_epochs()": "0"},
        "mmengine.gone": {"": "0", "Something": "1"},
    }
    found = missing("mmengine", {"mmengine": {"projects": ["first", "second"], "uses": uses}})
    assert {name: users for name, (_, users) in found.items()} == {
        "mmengine:Nothing": {"first", "second"},
        "mmengine:Config.fromfile(wrong)": {"second"},
        "mmengine.hooks:Hook#gone": {"first"},
        "mmengine.gone:": {"first", "second"},
    }


SOURCE = """\
import mmcv.runner
import mmcv.runner.hooks as h
from mmcv.utils import Config as C, build_from_cfg
from .near import thing


@h.HOOKS.register_module(name="x")
class Mine(h.Hook):
    def before_run(self, runner: mmcv.runner.BaseRunner):
        self.own = self.every_n_iters(runner, n=2) + self.own
        runner.call_hook("x")
        super().before_run(runner)


def make(build_from_cfg):
    cfg = C.fromfile("x", use=1)
    made = C(dict())
    made.dump(file="x")
    return build_from_cfg(cfg, key=1)


other = C
"""


def test_the_scanner_sees_imports_attributes_methods_and_keyword_arguments(tmp_path: Any) -> None:
    (tmp_path / "mmcv").mkdir()
    (tmp_path / "mmcv/file.py").write_text(SOURCE)
    assert scan(tmp_path, ["mmcv"], lambda module: module != "mmcv.file") == {
        "mmcv:", "mmcv.runner:", "mmcv.runner.hooks:", "mmcv.utils:", "mmcv.near:", "mmcv.near:thing",
        "mmcv.utils:Config", "mmcv.utils:build_from_cfg", "mmcv.utils:Config.fromfile", "mmcv.utils:Config.fromfile(use)",
        "mmcv.utils:Config#dump()", "mmcv.utils:Config#dump(file)",
        "mmcv.runner:BaseRunner", "mmcv.runner:BaseRunner#call_hook()",
        "mmcv.runner.hooks:Hook", "mmcv.runner.hooks:HOOKS.register_module", "mmcv.runner.hooks:HOOKS.register_module(name)",
        "mmcv.runner.hooks:Hook#every_n_iters()", "mmcv.runner.hooks:Hook#every_n_iters(n)",
        "mmcv.runner.hooks:Hook#before_run()",
    }  # fmt: skip
    assert scan(tmp_path, ["mmcv"], lambda module: True) == {"mmcv:"}
