"""Records what the original engine makes of the tests' configs: ``python -m tests.projects.record [NAME …]``.

The original is the pure-Python part of mmcv 1.7.2. The recordings of other machines stay: kernels round differently.
For MMTracking, ops that nothing here calls stand for mmcv's compiled ones, and names that numpy and torch have dropped
since are put back.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.projects.checkout import NAMES, TRACKING, lay_out, lay_out_tracking, machine, result
from tests.projects.conftest import Projects, fetched

RECORDED = Path(__file__).parent / "recorded.json"


#: The original engine and what it imports, before the project and what that imports.
ENGINE = ("mmcv-1.7.2", "mmengine-needs", "mmpretrain-needs")
REST = ("mmcls-0.25.0", "opencv", "torchvision-0.15.2")
ORIGINAL = """\
import importlib.machinery, runpy, sys, types
import numpy as np
from torch.utils.data import Sampler

class Ops(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: "none"

sys.modules["mmcv._ext"] = Ops("mmcv._ext")
sys.modules["mmcv._ext"].__spec__ = importlib.machinery.ModuleSpec("mmcv._ext", None)
for kind in (int, float, bool, object):
    vars(np).setdefault(kind.__name__, kind)
Sampler.__init__ = lambda self, *args, **kwargs: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def record(name: str) -> dict[str, Any]:
    """Train the config called ``name`` by the project's script on the original mmcv, and return the result."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        if name in NAMES:
            folders = fetched([*REST, *ENGINE])
            lay_out(root, folders[0])
            command = ["tools/train.py", f"{name}.py"]
        else:
            folders = fetched(["mmtrack-0.14.0", "mmdet-2.28.2", *REST, *ENGINE])
            lay_out_tracking(root, *folders[:2])
            (root / "original.py").write_text(ORIGINAL)
            tools = "det_tools" if name in ("retinanet", "yolox") else "tools"
            # Evaluations need compiled ops, and take no part in training. MMDetection 2.28 wants a device, which the
            # script of MMTracking does not set.
            options = ["--no-validate", "--cfg-options", "device=cpu"]
            command = ["original.py", f"{tools}/train.py", f"{name}.py", *options]
        projects = Projects((*folders[-len(ENGINE) :], *folders[: -len(ENGINE)], root), root)
        done = projects.run(*command, "--seed", "1", "--work-dir", "out")
        assert done.returncode == 0, done.stderr
        return result(root / "out", trusted=True)


if __name__ == "__main__":
    recorded = json.loads(RECORDED.read_text())
    for one in sys.argv[1:] or [*NAMES, *TRACKING]:
        recorded.setdefault(machine(), {})[one] = record(one)
        RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")
