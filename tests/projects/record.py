"""Records what the original engine makes of the tests' configs: ``python -m tests.projects.record``.

The original is the pure-Python part of mmcv 1.7.2. The recordings of other machines stay: kernels round differently.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.projects.checkout import NAMES, lay_out, machine, result
from tests.projects.conftest import Projects, fetched

RECORDED = Path(__file__).parent / "recorded.json"


#: The original engine and what it imports, before the project and what that imports.
ENGINE = ("mmcv-1.7.2", "mmengine-needs", "mmpretrain-needs")


def record() -> dict[str, object]:
    """Train every config by ``python tools/train.py`` on the original mmcv, and return the results."""
    folders = fetched([*ENGINE, "mmcls-0.25.0", "opencv", "torchvision-0.15.2"])
    found: dict[str, object] = {}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as root:
            lay_out(Path(root), folders[len(ENGINE)])
            projects = Projects((*folders, Path(root)), Path(root))
            done = projects.run("tools/train.py", f"{name}.py", "--seed", "1", "--work-dir", "out")
            assert done.returncode == 0, done.stderr
            found[name] = result(Path(root) / "out")
    return found


if __name__ == "__main__":
    recorded = json.loads(RECORDED.read_text())
    RECORDED.write_text(json.dumps({**recorded, machine(): record()}, indent=1) + "\n")
