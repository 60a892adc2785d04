"""Counts what of the real projects works: ``python bench/projects_libai.py PATH`` (a checkout, or an unpacked sdist).

Prints how many of its configs pass ``etude check``, how many of the OneFlow names that the project's own code uses are
answered, how many of its modules import, and how many of its own tests pass. The configs of ``projects/`` count too; one
that only holds a part (a model without ``train``) is left out.
"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("oneflow", "flowvision")
#: Runs pytest with Étude in OneFlow's place.
RUN = "import sys, pytest, etude.compat; etude.compat.install(); sys.exit(pytest.main(sys.argv[1:]))"


def used_names(folder: Path) -> set[str]:
    """Return the dotted names of OneFlow's packages in the Python files below ``folder``."""
    return {name for file in sorted(folder.rglob("*.py")) for name in _names_in(file)}


def _names_in(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    known = dict(_imported(tree))
    yield from known.values()
    for node in ast.walk(tree):
        parts, inner = [], node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name) and inner.id in known:
            yield ".".join([known[inner.id], *reversed(parts)])


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in PACKAGES:
                    yield (
                        alias.asname or alias.name.split(".")[0],
                        alias.name if alias.asname else alias.name.split(".")[0],
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def resolves(name: str) -> bool:
    parts = name.split(".")
    try:
        found = importlib.import_module(parts[0])
        for depth, part in enumerate(parts[1:], 1):
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(".".join(parts[: depth + 1]))
    except Exception:
        return False
    return found is not None


def count_names(title: str, folders: list[Path]) -> None:
    names = sorted(set().union(*(used_names(folder) for folder in folders)))
    missing = [name for name in names if not resolves(name)]
    print(
        f"{title:<32} {len(names) - len(missing)} of {len(names)} OneFlow names",
        *missing,
        sep="\n    " if missing else " ",
    )


def count_modules(package: str) -> None:
    found = [
        info.name
        for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.", lambda _: None)
    ]
    failed = {}
    for name in found:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    print(f"{package:<32} {len(found) - len(failed)} of {len(found)} modules import")
    for name, why in failed.items():
        print(f"    {name}: {why}")


def count_configs(title: str, files: list[Path]) -> None:
    """Check each config in a process of its own: projects have modules of the same names (``modeling``, ``utils``)."""
    wrong = []
    for file in files:
        command = [sys.executable, "-m", "etude", "check", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("note")]
            wrong.append(said[0] if said else str(file))
    print(
        f"{title:<32} {len(files) - len(wrong)} of {len(files)} configs pass etude check",
        *wrong,
        sep="\n    " if wrong else " ",
    )


def whole_configs(folder: Path) -> list[Path]:
    """Return the configs below ``folder`` that say how to train, and not only a part of it."""
    files = sorted(file for file in folder.glob("*/config*/**/*.py"))
    return [file for file in files if {"train", "dataloader"} <= _assigned(file)]


def _assigned(file: Path) -> set[str]:
    """Return the top-level names that a config assigns or imports."""
    found: set[str] = set()
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in statement.names}
        elif isinstance(statement, ast.Assign):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return found


def count_tests(root: Path) -> None:
    """Run the project's own tests; those that ask for four devices or a download skip themselves."""
    with tempfile.TemporaryDirectory() as made:
        options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junitxml={made}/found.xml"]
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-c", RUN, *options, "-W", "ignore", "tests"]
        subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": path}, stdout=sys.stderr, check=False)
        cases = list(xml.parse(f"{made}/found.xml").iter("testcase"))
    by_folder: dict[str, Counter[str]] = {}
    for case in cases:
        name, tags = str(case.get("classname")).split(".")[1], {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        by_folder.setdefault(name, Counter())[outcome] += 1
    for name, counts in [*sorted(by_folder.items()), ("all", sum(by_folder.values(), Counter[str]()))]:
        shown = ", ".join(f"{counts[word]} {word}" for word in ("passed", "failed", "skipped"))
        print(f"tests/{name:<26} {shown}")


def libai(root: Path) -> None:
    os.chdir(root)
    sys.path.insert(0, str(root))
    if (root / "configs").is_dir():
        count_configs("configs", sorted((root / "configs").glob("*.py")))
    if (root / "projects").is_dir():
        count_configs("projects", whole_configs(root / "projects"))
    from etude import compat

    compat.install()
    count_names("libai, tools, configs", [root / name for name in ("libai", "tools", "configs")])
    if (root / "projects").is_dir():
        count_names("projects", [root / "projects"])
    count_modules("libai")
    if (root / "tests").is_dir():
        count_tests(root)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "libai").is_dir():
        sys.exit("usage: python bench/projects_libai.py PATH    (PATH: a folder with the package libai)")
    libai(Path(sys.argv[1]).resolve())
