"""Imports point one way: a line of the drawing imports from itself and from lower lines. What has to know no torch, knows none."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import zygote
from tests.places import ENGINE, REPOSITORY

SOURCE = ENGINE
#: Highest first, as in the drawing of CONTRIBUTING.md. The longest matching prefix of a module decides.
LAYERS = [
    [
        "cli",
        "board",
        "report",
        "sweep",
        "ledger.replay",
        "ledger.rebuild",
        "ledger.code",
        "ledger.trace",
        "ledger.bisect",
        "ledger.statement",
        "dialect_api",
        "testing",
        "__main__",
    ],
    ["inference"],
    ["api", "trainer", "script", "debug_options", "compat"],
    ["session"],
    ["build", "building"],
    ["hooks", "dialects", "ledger"],
    ["core"],
    ["checkpoint", "data", "events", "metrics", "losses", "models", "optim", "dist", "ledger.rows"],
    ["inspection", "preview", "schedules"],
    ["config", "plan"],
    ["registry", "units", "builtins", "checkpoint.storage.chaos", "checkpoint.storage.trust", "checkpoint.__init__"],
    ["errors", "fast_dataclass", "torch_private", "__init__"],
]
TORCH_FREE = (
    "errors", "fast_dataclass", "units", "registry", "builtins", "checkpoint.storage.trust", "plan", "inspection", "preview.explain", "preview.draw",
    "config", "schedules", "dialects.__init__", "dialects.base", "dialects.imports", "dialects.native.lower", "cli", "report", "metrics.__init__",
    "metrics.direction",
)  # fmt: skip
TORCH_FREE = tuple(f"{name}." for name in TORCH_FREE)


@functools.cache
def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in sorted(SOURCE.rglob("*.py"))}


@functools.cache
def layer_of(module: str) -> int:
    best, level = -1, -1
    for index, names in enumerate(LAYERS):
        for name in names:
            wanted, parts = name.split("."), module.split(".")
            fits = all(w in ("*", p) for w, p in zip(wanted, parts, strict=False)) and len(wanted) <= len(parts)
            if fits and len(wanted) > best:
                best, level = len(wanted), index
    assert level >= 0, f"{module} stands in no layer: add it to LAYERS and to the drawing of CONTRIBUTING.md"
    return level


@functools.cache
def imports(path: Path) -> set[str]:
    """Names below ``etude`` that a module imports, at once or inside a function; those for types alone do not count."""
    found = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            nodes += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "etude":
            inner = (node.module or "").split(".")[1:]
            named = {".".join([*inner, alias.name]) for alias in node.names}
            found |= {name if not inner or _is_module(name) else ".".join(inner) for name in named}
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("etude.") for a in node.names if a.name.startswith("etude.")}
        nodes += _statements_in(node)
    return found - {"__version__"}


def _statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly below one, handlers and cases: no expression holds an import."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, name, ())
        yield from inner if isinstance(inner, list) else ()


@functools.cache
def _is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("package", sorted({module.partition(".")[0] for module in modules()}))
def test_a_module_imports_only_from_its_own_layer_and_below(package):
    for module in [name for name in modules() if name.partition(".")[0] == package]:
        own = layer_of(module)
        wrong = {name for name in imports(modules()[module]) if layer_of(name) < own}
        assert not wrong, f"{module} reaches up to {', '.join(sorted(wrong))}"


def test_what_runs_before_training_does_not_import_torch():
    names = [f"etude.{name}".removesuffix(".__init__") for name in modules() if f"{name}.".startswith(TORCH_FREE)]
    code = f"import importlib, sys\nfor name in {names!r}:\n    importlib.import_module(name)\n    assert 'torch' not in sys.modules, name"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_modules_import_each_other_in_a_circle_even_inside_functions():
    known = {name.removesuffix(".__init__"): path for name, path in modules().items()}
    graph = {name: {other for other in imports(path) if other in known} - {name} for name, path in known.items()}
    while leaves := {name for name, others in graph.items() if not others}:
        graph = {name: others - leaves for name, others in graph.items() if name not in leaves}
    assert not graph, f"modules in circles, or above some: {', '.join(sorted(graph))}"


def test_a_plain_step_goes_through_five_files_and_270_lines():
    """Counted as `make shape` does: what you read to know what one step does."""
    code = "from shape import plain_step; print(plain_step())"
    done = zygote.run("-c", code, cwd=REPOSITORY / "bench", check=True)
    found = re.match(r"(\d+) files, \d+ frames; (\d+) lines", done.stdout)
    assert found and int(found[1]) <= 5 and int(found[2]) <= 270, done.stdout
