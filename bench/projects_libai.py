"""Counts what of the real projects works: ``python bench/projects_libai.py PATH`` (a checkout, or an unpacked sdist).

Prints how many of the OneFlow names that the project's own code uses are answered, how many of its modules import, and
how many of its configs pass ``etude check``.
"""

from __future__ import annotations

import ast
import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

PACKAGES = ("oneflow", "flowvision")


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


def count_configs(folder: Path) -> None:
    from etude.cli import main

    files = sorted(folder.glob("*.py"))
    wrong = []
    for file in files:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            code = main(["check", str(file)])
        wrong += [file.name] if code else []
    print(f"{folder.name:<32} {len(files) - len(wrong)} of {len(files)} configs pass etude check", *wrong)


def libai(root: Path) -> None:
    os.chdir(root)
    sys.path.insert(0, str(root))
    if (root / "configs").is_dir():  # first: a check imports nothing, and nothing must be imported before it
        count_configs(root / "configs")
    from etude import compat

    compat.install()
    count_names("libai, tools, configs", [root / name for name in ("libai", "tools", "configs")])
    if (root / "projects").is_dir():
        count_names("projects", [root / "projects"])
    count_modules("libai")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "libai").is_dir():
        sys.exit("usage: python bench/projects_libai.py PATH    (PATH: a folder with the package libai)")
    libai(Path(sys.argv[1]).resolve())
