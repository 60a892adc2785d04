"""What holds for every guest package: its modules form no circle, and what reads configs imports no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import SOURCES

GUESTS = [source / source.parent.name.replace("-", "_") for source in SOURCES if source.parent.name != "etude"]
#: Where a circle is known: LiBai's distributed utilities install global tensors when a size asks for them, and global
#: tensors ask the utilities for their meshes; a file holds whole tensors, and updates read files.
KNOWN = {
    "etude_libai.live.distributed": "etude_libai.live.split",
    "etude_libai.live.split.boxing": "etude_libai.live.split.stages",
    "etude_libai.live.split.files": "etude_libai.live.split.updates",
}
READERS = ("etude_openmm.mmcv1.lower", "etude_openmm.mmengine.lower", "etude_libai.lower", "etude_mcquic.lower")


def imports(path: Path, package: str) -> set[str]:
    """Return the names below ``package`` that a module imports, at once or inside a function; not those for types alone."""
    found: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            nodes += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith(f"{package}.")}
        nodes += [
            one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case)
        ]
    return found


@pytest.mark.parametrize("guest", GUESTS, ids=lambda guest: guest.name)
def test_no_modules_import_each_other_in_a_circle(guest: Path) -> None:
    files = {
        ".".join(path.relative_to(guest.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in guest.rglob("*.py")
    }
    graph = {name: {one for one in imports(path, guest.name) if one in files} - {name} for name, path in files.items()}
    for name in KNOWN:
        graph[name] = {one for one in graph.get(name, ()) if not one.startswith(KNOWN[name])}
    # `from package.folder import module` names the folder, too: what counts is the module.
    graph = {
        name: {one for one in others if not any(other.startswith(f"{one}.") for other in others)}
        for name, others in graph.items()
    }
    while leaves := {name for name, others in graph.items() if not others}:
        graph = {name: others - leaves for name, others in graph.items() if name not in leaves}
    assert not graph, f"modules in circles, or above some: {', '.join(sorted(graph))}"


@pytest.mark.parametrize("guest", GUESTS, ids=lambda guest: guest.name)
def test_a_guest_imports_no_other_guest(guest: Path) -> None:
    others = [other.name for other in GUESTS if other != guest]
    wrong = {
        str(path): sorted(found)
        for path in guest.rglob("*.py")
        if (found := set().union(*(imports(path, other) for other in others)))
    }
    assert wrong == {}


def test_reading_configs_imports_no_torch() -> None:
    code = "import importlib, sys\nfor name in {names!r}:\n    importlib.import_module(name)\n    assert 'torch' not in sys.modules, name"
    done = subprocess.run([sys.executable, "-c", code.format(names=READERS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
