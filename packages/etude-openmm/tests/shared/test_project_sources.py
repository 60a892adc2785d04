"""What a project registers is found in its sources, quickly where it is written in the plain way."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude_openmm.shared.checks.project_sources import registered

PLAIN = """\
from .builder import MODELS

@MODELS.register_module()
class First:
    pass

@MODELS.register_module()
@decorated(1)
def second():
    pass
"""
OTHERS = {
    "named": '@MODELS.register_module("Other")\nclass First:\n    pass\n',
    "several": "@A.register_module()\n@B.register_module()\nclass First:\n    pass\n",
    "renamed": "from x import A as B\n@B.register_module()\nclass First:\n    pass\n",
    "quoted": "'''\n@A.register_module()\nclass No:\n    pass\n'''\n",
    "inside": "if True:\n    @A.register_module()\n    class First:\n        pass\n",
    "called": "A.register_module(module=First)\n",
}
FOUND = {
    "named": {("MODELS", "Other"): "First"},
    "several": {("A", "First"): "First", ("B", "First"): "First"},
    "renamed": {("A", "First"): "First"},
    "quoted": {},
    "inside": {("A", "First"): "First"},
    "called": {("A", "First"): "First"},
}


@pytest.mark.parametrize("name", ["plain", *OTHERS])
def test_registrations_are_found_in_the_source(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = f"project_{name}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / package / "models.py").write_text(PLAIN if name == "plain" else OTHERS[name])
    monkeypatch.syspath_prepend(tmp_path)
    plain = {("MODELS", "First"): "First", ("MODELS", "second"): "second"}
    expected = plain if name == "plain" else FOUND[name]
    assert registered(package) == {key: f"{package}.models:{to}" for key, to in expected.items()}
