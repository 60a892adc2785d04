"""Prints how much of each real project works on Étude: ``python bench/projects.py [mmcls mmpretrain …]``.

Columns: modules that import, here and on the original engine; configs that load; configs that ``etude check`` finds nothing
wrong with; models that build. The packages are those of ``make projects``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Project → the folders of ``tests/projects/fetch.py`` on its path.
PINS = {
    "mmcls": ("mmcls-0.25.0", "mmcv-lite-2.2.0", "mmengine-0.10.7", "opencv"),
    "mmdet": ("mmdet-2.28.2", "mmcls-0.25.0", "mmcv-lite-2.2.0", "opencv"),
    "mmtrack": (
        "mmtrack-0.14.0", "mmdet-2.28.2", "mmcls-0.25.0", "mmcv-lite-2.2.0", "opencv", "torchvision-0.15.2",
    ),
    "mmpretrain": (
        "mmpretrain-1.2.0", "mmcv-lite-2.0.1", "mmengine-0.10.7", "mmpretrain-needs", "opencv", "torchvision-0.15.2",
    ),
    "mmselfsup": (
        "mmselfsup-1.0.0", "mmcv-lite-2.0.1", "mmengine-0.10.7", "mmpretrain-needs", "opencv", "torchvision-0.15.2",
    ),
}  # fmt: skip
#: Project → the original engine's folders, where it runs without compiled code. They come first on the path.
CONTROLS = {
    "mmcls": ("mmcv-1.7.2", "mmengine-needs", "mmpretrain-needs", "torchvision-0.15.2"),
    "mmpretrain": ("mmengine-0.10.7", "mmengine-needs"),
    "mmselfsup": ("mmengine-0.10.7", "mmengine-needs"),
}
#: Those whose models are built by the code below; the others' need many packages more.
BUILT = ("mmcls", "mmdet", "mmtrack")
MODULES = """
import importlib, pkgutil, sys, types, warnings

warnings.filterwarnings("ignore")
if "control" in sys.argv:  # MMSelfSup's registries name a module that does not exist, at which mmengine 0.10.7 stops
    sys.modules["mmselfsup.engine.runner"] = types.ModuleType("runner")
else:
    import etude.compat
    etude.compat.install()
package, good, names = importlib.import_module(sys.argv[1]), 0, []
for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".", onerror=lambda name: None):
    names.append(found.name)
    try:
        importlib.import_module(found.name)
        good += 1
    except Exception as error:
        print(found.name, type(error).__name__, str(error)[:200], file=sys.stderr)
print(good, len(names))
"""
CONFIGS = """
import glob, sys
from etude import dialects
from etude.dialects import ownership

root = ownership.original(sys.argv[1]) + "/.mim/configs"
files = [file for file in sorted(glob.glob(root + "/**/*.py", recursive=True)) if "/_base_/" not in file]
loaded = clean = 0
for file in files:
    try:
        dialect, tree = dialects.read(file)
    except Exception as error:
        print(file[len(root):], error, file=sys.stderr)
        continue
    loaded += 1
    errors = [one for one in dialect.check(tree) if one.severity == "error"]
    clean += not errors
    for one in errors:
        print(file[len(root):], one.message, file=sys.stderr)
print(loaded, clean, len(files))
"""
MODELS = """
import glob, sys, warnings
import etude.compat

warnings.filterwarnings("ignore")
etude.compat.install()
from mmcv import Config
from etude.dialects import ownership
from etude_openmm.mmcv1.live.originals import Original
from etude_openmm.mmcv1.projects import PROJECTS

project = Original(next(one for one in PROJECTS if one.package == sys.argv[1]))
root = ownership.original(sys.argv[1]) + "/.mim/configs"
inside = "/_base_/models/**/*.py" if sys.argv[1] == "mmcls" else "/**/*.py"
files = [f for f in sorted(glob.glob(root + inside, recursive=True)) if sys.argv[1] == "mmcls" or "/_base_/" not in f]
good = count = 0
for file in files:
    try:
        cfg = Config.fromfile(file)
        if cfg.get("model") is None:
            continue
        count += 1
        project.model(cfg)
        good += 1
    except Exception as error:
        print(file[len(root):], type(error).__name__, str(error)[:200], file=sys.stderr)
print(good, count)
"""


def measured(project: str, code: str, *, control: bool = False) -> list[str]:
    """Run ``code`` for one project in a process of its own, and return the numbers of its last line."""
    sys.path.insert(0, str(ROOT))
    from tests.projects.fetch import fetch

    paths = os.pathsep.join(str(fetch(name)) for name in (*(CONTROLS[project] if control else ()), *PINS[project]))
    done = subprocess.run(
        [sys.executable, "-c", code, project, *(["control"] if control else [])],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1].split()


def main() -> None:
    print(
        "| project | modules that import | configs that load | check clean | models that build |\n|---|---|---|---|---|"
    )
    for project in sys.argv[1:] or PINS:
        modules, configs = measured(project, MODULES), measured(project, CONFIGS)
        models = " of ".join(measured(project, MODELS)) if project in BUILT else "–"
        theirs = f" (control: {measured(project, MODULES, control=True)[0]})" if project in CONTROLS else ""
        row = (
            f"{modules[0]} of {modules[1]}{theirs}",
            f"{configs[0]} of {configs[2]}",
            f"{configs[1]} of {configs[0]}",
        )
        print(f"| {project} | {' | '.join(row)} | {models} |", flush=True)


if __name__ == "__main__":
    main()
