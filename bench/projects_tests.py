"""Runs a project's own tests on Étude and on the original engine: ``python bench/projects_tests.py PROJECT CHECKOUT [TEST …]``.

``CHECKOUT`` is a checkout of the release that ``make projects`` installs: MMClassification 0.25.0, MMDetection 2.28.2,
MMTracking 0.14.0, MMPretrain 1.2.0 or MMSelfSup 1.0.0. It prints how many tests pass on either engine, and each test whose
result differs. The original mmcv 1.x has no compiled ops here: on its side, tests that call one fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYERS = ("mmcv-lite-2.2.0", "opencv", "torchvision-0.15.2")
NEW = ("mmcv-lite-2.0.1", "mmpretrain-needs", "opencv", "torchvision-0.15.2", "mmengine-0.10.7", "mmengine-needs")
#: Project → the folders of ``tests/projects/fetch.py`` behind the checkout.
PINS = {
    "mmcls": (*LAYERS, "mmpretrain-needs"),
    "mmdet": ("mmcls-0.25.0", *LAYERS, "mmdet-2.28.2", "mmtrack-0.14.0"),
    "mmtrack": ("mmdet-2.28.2", "mmcls-0.25.0", *LAYERS, "mmtrack-0.14.0"),
    "mmpretrain": ("mmpretrain-1.2.0", *NEW),
    "mmselfsup": ("mmselfsup-1.0.0", *NEW),
}
#: The engine of mmcv 1.x; that of the others is among their folders.
OLD_ENGINE = ("mmcv-1.7.2", "mmengine-needs", "mmpretrain-needs")
RUN = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
#: Names for the compiled ops, and what numpy and torch have dropped since, so that the original can be imported.
OLD = """
import importlib.machinery, sys, types
import numpy as np
from torch.utils.data import Sampler

def refuse(*args, **kwargs):
    raise NotImplementedError("a compiled op")

class Ops(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return (lambda: "n/a") if name.startswith("get_compil") else refuse  # what the log says of the compiler

sys.modules["mmcv._ext"] = Ops("mmcv._ext")
sys.modules["mmcv._ext"].__spec__ = importlib.machinery.ModuleSpec("mmcv._ext", None)
for kind in (int, float, bool, object):
    vars(np).setdefault(kind.__name__, kind)
Sampler.__init__ = lambda self, *args, **kwargs: None
"""
STARTS = {
    "Étude": f"import etude.compat; etude.compat.install(); {RUN}",
    # MMSelfSup's registries name a module that does not exist, at which mmengine 0.10.7 stops.
    "original": "import sys, types; sys.modules['mmselfsup.engine.runner'] = types.ModuleType('runner'); " + RUN,
}


def results(engine: str, project: str, checkout: Path, tests: list[str]) -> dict[str, str]:
    """Run the tests in a process of its own, and return the outcome of each."""
    sys.path.insert(0, str(ROOT))
    from tests.projects.fetch import fetch

    names = [name for name in PINS[project] if engine == "Étude" or name != "mmcv-lite-2.2.0"]
    start = STARTS[engine]
    if engine == "original" and project in ("mmcls", "mmdet", "mmtrack"):
        names = [*OLD_ENGINE, *names]
        start = OLD + start
    paths = os.pathsep.join([str(checkout), *(str(fetch(name)) for name in names)])
    with tempfile.TemporaryDirectory() as made:
        command = [sys.executable, "-c", start, "-q", "-p", "no:cacheprovider", "-o", "addopts=", *tests]
        options = ["--continue-on-collection-errors", f"--junitxml={made}/found.xml", "-W", "ignore"]
        subprocess.run(
            [*command, *options], cwd=checkout, env={**os.environ, "PYTHONPATH": paths}, stdout=sys.stderr, check=False
        )
        cases = xml.parse(f"{made}/found.xml").iter("testcase")
        return {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: xml.Element) -> str:
    found = {child.tag for child in case}
    return "failed" if found & {"failure", "error"} else "skipped" if "skipped" in found else "passed"


def main() -> None:
    project, checkout, *tests = sys.argv[1:]
    found = {engine: results(engine, project, Path(checkout).resolve(), tests or ["tests"]) for engine in STARTS}
    for engine, outcomes in found.items():
        counts = Counter(outcomes.values())
        print(f"{engine:10} {', '.join(f'{counts[word]} {word}' for word in ('passed', 'failed', 'skipped'))}")
    for test in sorted({*found["Étude"], *found["original"]}):
        ours, theirs = (found[engine].get(test, "absent") for engine in STARTS)
        if ours != theirs:
            print(f"{test}: {ours}, {theirs} by the original")


if __name__ == "__main__":
    main()
