"""Records what the original engine makes of the tests' configs: ``python -m tests.projects.record FOLDER``.

FOLDER holds the pure-Python part of mmcv 1.7.2 (``tar xzf mmcv-1.7.2.tar.gz mmcv-1.7.2/mmcv``) and what it imports:
``pip install --no-deps --target FOLDER addict yapf platformdirs``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.projects.checkout import NAMES, lay_out, machine, result
from tests.projects.conftest import Projects, fetched

RECORDED = Path(__file__).parent / "recorded.json"


def record(folder: Path) -> dict[str, object]:
    """Train every config by ``python tools/train.py`` on the original mmcv, and return the results."""
    site, *rest = fetched(["mmcls-0.25.0", "opencv", "torchvision-0.15.2"])
    found: dict[str, object] = {"machine": machine()}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as root:
            lay_out(Path(root), site)
            projects = Projects((folder, site, *rest, Path(root)), Path(root))
            done = projects.run("tools/train.py", f"{name}.py", "--seed", "1", "--work-dir", "out")
            assert done.returncode == 0, done.stderr
            found[name] = result(Path(root) / "out")
    return found


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(Path(sys.argv[1]).resolve()), indent=1) + "\n")
