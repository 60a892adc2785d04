"""Records which names of mmcv, MMEngine, LiBai … the real projects use: ``python -m tests.projects.record_names``.

It scans the pinned releases of the package index, and checkouts that have no release there, which are named with the
folder where they lie: ``python -m tests.projects.record_names libai=../libai detectron2=../detectron2``. What was recorded of
a checkout that is not named is kept. ``--never`` only writes down anew which of the names Étude does not serve.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.dialects import imports
from tests.projects import fetch
from tests.projects.scan_names import scan

RECORDED = Path(__file__).with_name("names.json")
SOURCES = sorted(Path(__file__).parents[2].glob("packages/*/src"))
RESOLVE = Path(__file__).with_name("resolve_names.py")


@dataclass(frozen=True)
class Family:
    """Projects on one engine, and what their users have installed."""

    #: The packages whose names are recorded.
    packages: tuple[str, ...]
    #: Releases, as ``pip download`` takes them, or folders of ``fetch.SOURCES``.
    releases: tuple[str, ...]
    #: Folders of ``fetch`` to resolve the names with.
    pins: tuple[str, ...]
    #: Folders with the original, for attributes of objects: those that it does not have, either, are the project's.
    original: tuple[str, ...] = ()
    checkouts: tuple[str, ...] = ()
    #: What a process imports first.
    first: tuple[str, ...] = ()


FAMILIES = {
    "mmcv1": Family(
        ("mmcv", "mmengine"),
        (
            "mmcls==0.25.0", "mmdet==2.28.2", "mmtrack==0.14.0", "mmsegmentation==0.30.0", "mmpose==0.29.0",
            "mmaction2==0.24.1", "mmselfsup==0.11.0", "mmocr==0.6.3", "mmrotate==0.3.4", "mmedit==0.16.1",
            "mmfewshot==0.1.0", "mmflow==0.5.2", "mmgen==0.7.1", "mmhuman3d==0.11.0", "mmrazor==0.3.1",
        ),
        ("mmcv-lite-2.2.0", "opencv", "mmtrack-0.14.0"),
        ("mmcv-1.7.2", "opencv", "mmtrack-0.14.0", "mmengine-needs"),
    ),
    "mmengine": Family(
        ("mmengine", "mmcv"),
        (
            "mmcls==1.0.0rc6", "mmdet==3.3.0", "mmtrack==1.0.0rc1", "mmsegmentation==1.2.2", "mmpose==1.3.2",
            "mmaction2==1.2.0", "mmselfsup==1.0.0", "mmpretrain==1.2.0", "mmyolo==0.6.0", "mmocr==1.0.1",
            "mmrotate==1.0.0rc1", "mmagic==1.2.0", "mmdet3d==1.4.0", "mmrazor==1.0.0", "mmdeploy==1.3.1",
            "mmcv-lite==2.2.0",
        ),
        ("mmcv-lite-2.2.0", "mmengine-0.10.7", "mmengine-needs", "opencv", "mmpretrain-needs"),
        ("mmcv-lite-2.2.0", "mmengine-0.10.7", "mmengine-needs", "opencv", "mmpretrain-needs"),
        first=("mmengine",),
    ),
    "libai": Family(
        ("libai", "oneflow", "detectron2"),
        ("libai-0.1.1", "flowvision-0.2.2"),
        ("libai-0.1.1", "libai-needs", "flowvision-0.2.2"),
        checkouts=("libai", "detectron2"),
    ),
    "mcquic": Family(
        ("mcquic", "vlutils"),
        ("mcquic-0.1.40",),
        ("mcquic-0.1.40", "mcquic-needs", "torchvision-0.15.2"),
    ),
}  # fmt: skip

#: Module → name or use in it → the numbers of the projects that have it.
Uses = dict[str, dict[str, str]]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--never", action="store_true", help="scan nothing; find out what Étude does not serve")
    options = parser.parse_args(words)
    checkouts = {name: Path(folder) for name, _, folder in (one.partition("=") for one in options.checkouts)}
    recorded: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.is_file() else {}
    for name in FAMILIES:
        if not options.never:
            recorded[name] = _record(name, recorded.get(name, {}), checkouts)
    for name in FAMILIES:
        missing = resolve(name, listed(recorded[name]))
        recorded[name]["never"] = sorted({parts[0] for parts in missing.values()})
    RECORDED.write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n")


def _record(name: str, before: Mapping[str, Any], checkouts: Mapping[str, Path]) -> dict[str, Any]:
    family, found = FAMILIES[name], {}
    for release in family.releases:
        with tempfile.TemporaryDirectory() as made:
            found[re.sub(r"==|-(?=\d)", " ", release)] = _scan(release, _unpacked(release, made), family)
    for checkout in family.checkouts:
        if checkout in checkouts:
            found[checkout] = _scan(checkout, checkouts[checkout], family)
        elif checkout in before.get("projects", ()):
            number = before["projects"].index(checkout)
            found[checkout] = {use for use, numbers in listed(before).items() if number in numbers}
    foreign = _of_the_projects(name, {use for some in found.values() for use in some})
    uses: Uses = {}
    for number, some in enumerate(found.values()):
        for use in sorted(some - foreign):
            module, _, rest = use.partition(":")
            known = uses.setdefault(module, {})
            known[rest] = f"{known[rest]} {number}" if rest in known else str(number)
    return {"projects": list(found), "uses": uses}


def _scan(project: str, folder: Path, family: Family) -> set[str]:
    """Return what a project uses. Its own modules count where Étude replaces them; mmcv-lite itself comes from the disk."""
    if project.startswith("mmcv-lite"):
        return scan(folder, [one for one in family.packages if one != "mmcv"], lambda module: False)
    used = scan(folder, family.packages, imports.is_owned)
    own = re.split("[-=]", project)[0]
    return {use for use in used if use.partition(".")[0] != own or imports.is_owned(use.partition(":")[0])}


def _of_the_projects(name: str, uses: set[str]) -> set[str]:
    """Return those attributes of objects that a project's own classes add: neither Étude nor the original has them."""
    some = [use for use in uses if "#" in use]
    lacking = set(resolve(name, some))
    if FAMILIES[name].original:
        lacking &= set(resolve(name, some, original=True))
    return lacking


def _unpacked(release: str, folder: str) -> Path:
    """Return the folder with the sources of a release."""
    if release in fetch.SOURCES:
        return fetch.fetch(release)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, release]
    subprocess.run(command, check=True)
    (wheel,) = Path(folder).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(Path(folder, "sources"))
    return Path(folder, "sources")


def listed(family: Mapping[str, Any]) -> dict[str, list[int]]:
    """Map each recorded use to the numbers of the projects that have it."""
    return {
        f"{module}:{rest}": [int(number) for number in numbers.split()]
        for module, rests in family["uses"].items()
        for rest, numbers in rests.items()
    }


def resolve(name: str, uses: Iterable[str], *, original: bool = False) -> dict[str, list[str]]:
    """Return use → what of it is missing on Étude, and Python's words for that; found in a process of its own."""
    family = FAMILIES[name]
    folders = [fetch.fetch(pin) for pin in (family.original if original else family.pins)]
    path = os.pathsep.join(map(str, [*folders, *SOURCES]))
    command = [sys.executable, str(RESOLVE), "originals" if original else "etude", *family.first]
    with tempfile.TemporaryDirectory() as cwd:
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, cwd=cwd,
            input=json.dumps(list(uses)), capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    main()
