"""The shape of the house in numbers: each package, its tests, circles of imports, and the way of a step, a save, a resume.

    python bench/shape.py            (`make shape`)

Everything is computed from the sources, and the way of a step from two short trainings.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Package → its folder of sources.
PACKAGES = {
    "etude": ROOT / "packages/etude/src/etude",
    "openmm": ROOT / "packages/etude-openmm/src/etude_openmm",
    "libai": ROOT / "packages/etude-libai/src/etude_libai",
    "mcquic": ROOT / "packages/etude-mcquic/src/etude_mcquic",
}
SOURCE = PACKAGES["etude"]
#: Names of systems that the engine must not know.
_GUESTS = re.compile(r"mmcv|mmengine|libai|mcquic|oneflow|detectron", re.IGNORECASE)
#: Questions that only code which knows of several dialects asks.
_KNOWS = re.compile(
    r"drives_itself|plan\.dialect\s*[!=]=|run\.runner\b|dialect(?:s\.of\(.*\))?\.name\s*[!=]=|== \"native\""
)

#: A plain job of forward, backward and SGD, as other engines are counted with.
_PLAIN = """
model: {type: MLP, sizes: [64, 128, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Digits, split: train}, batch_size: 64, shuffle: true}}
optim: {type: SGD, lr: 0.1, momentum: 0.9}
train: {epochs: 1, threads: 1}
log: {every: 20step}
"""


def names_of(files: list[Path], source: Path) -> dict[Path, str]:
    return {
        path: ".".join(path.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in files
    }


def imports_of(path: Path, known: set[str]) -> tuple[set[str], int]:
    """Modules that ``path`` imports anywhere, those for types alone left out, and how many inside functions."""
    found: set[str] = set()
    deferred = 0
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text(encoding="utf-8")), False)]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        named: set[str] = set()
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            named = {full if (full := f"{node.module}.{a.name}") in known else node.module for a in node.names}
        elif isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        found |= named & known
        deferred += inside and bool(named & known)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found, deferred


def in_circles(graph: dict[str, set[str]]) -> set[str]:
    """The modules that reach themselves."""
    reach = {name: set(others) for name, others in graph.items()}
    changed = True
    while changed:
        changed = False
        for others in reach.values():
            more = set().union(*(reach.get(other, set()) for other in others)) - others
            changed |= bool(more)
            others |= more
    return {name for name, others in reach.items() if name in others}


class Watch:
    """Notes the way down to one ``optimizer.step()`` and what else of the package takes part in that step."""

    def __init__(self, at: int = 3) -> None:
        self.at, self.steps = at, 0
        self.way: list[CodeType] = []
        self.taking_part: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call":
            return
        file = code.co_filename
        if (
            code.co_name == "step"
            and "/torch/optim/" in file
            and not file.endswith(("lr_scheduler.py", "optimizer.py"))
        ):
            self.steps += 1
            if self.steps == self.at:
                self.way = list(_stack(frame))
            elif self.steps > self.at:
                sys.setprofile(None)
        elif self.steps == self.at and _is_ours(code) and code.co_flags & inspect.CO_OPTIMIZED:
            self.taking_part.add(code)

    def report(self) -> str:
        way = [code for code in self.way if _is_ours(code)]
        everyone = self.taking_part.union(way)
        lines = sum(len({line for _, _, line in code.co_lines() if line}) for code in everyone)
        return f"{len({code.co_filename for code in way})} files, {len(way)} frames; {lines} lines take part"


def _stack(frame: FrameType | None) -> Any:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _is_ours(code: CodeType) -> bool:
    """Whether code is Étude's. What optimizers do, ours or torch's, is no part of the way to them."""
    ours = code.co_filename.startswith(tuple(map(str, PACKAGES.values())))
    return ours and not code.co_filename.startswith(str(SOURCE / "optim"))


def step_path(*words: str) -> str:
    """The way of one step of ``etude train WORDS``."""
    from etude.cli import main

    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(watch)
        try:
            main(["train", *words, "--folder", folder, "-q"])
        finally:
            sys.setprofile(None)
    return watch.report() if watch.way else "no optimizer stepped"


def plain_step() -> str:
    """The way of one step of a config without evaluation and checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.yaml"
        plain.write_text(_PLAIN)
        return step_path(str(plain))


def files_down(module: str, qualname: str, *words: str) -> str:
    """The files on the way from the command to the first call of a function, in a run of ``etude train WORDS``."""
    from etude.cli import main

    way: list[CodeType] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and not way and code.co_qualname == qualname and code.co_filename.endswith(module):
            way.extend(_stack(frame))

    with tempfile.TemporaryDirectory() as folder:
        for more in ((), ("--resume",)):
            sys.setprofile(watch if more or "load" not in module else None)
            try:
                main(["train", *words, "--folder", folder, "-q", *more])
            finally:
                sys.setprofile(None)
    return f"{len({code.co_filename for code in way if _is_ours(code)})} files"


def code_lines(path: Path) -> int:
    """Lines with code: neither blank, nor comment, nor docstring."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found: set[int] = set()
    with open(path, "rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in skipped and token.type != tokenize.ENCODING:
                found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            found -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def functions(path: Path) -> int:
    return sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(ast.parse(path.read_text())))


def package_row(name: str, source: Path) -> tuple[str, ...]:
    """Sizes, coupling and tests of one package."""
    files = sorted(source.rglob("*.py"))
    names = names_of(files, source)
    engine = names_of(sorted(SOURCE.rglob("*.py")), SOURCE)
    known = {*names.values(), *engine.values()}
    found = {names[path]: imports_of(path, known)[0] - {names[path]} for path in files}
    code = sum(map(code_lines, files))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    tests = {path.stem.removeprefix("test_") for path in (source.parents[1] / "tests").rglob("test_*.py")}
    untested = [path for path in files if path.stem != "__init__" and path.stem not in tests]
    circles = in_circles({one: {other for other in others if other in found} for one, others in found.items()})
    busy = sum(len(others) > 20 for others in found.values())
    many = 1000 * sum(map(functions, files)) / code
    return (
        name,
        str(len(files)),
        str(lines),
        str(code),
        str(busy),
        f"{many:.0f}",
        str(len(circles)),
        f"{len(untested)}",
    )


def main() -> None:
    head = (
        "package",
        "files",
        "lines",
        "code",
        "imports > 20",
        "functions per 1,000",
        "in circles",
        "untested by name",
    )
    rows = [head, *(package_row(name, source) for name, source in PACKAGES.items())]
    rows.append(
        (
            "all",
            *(str(sum(int(row[i]) for row in rows[1:])) for i in (1, 2, 3, 4)),
            "",
            *(str(sum(int(row[i]) for row in rows[1:])) for i in (6, 7)),
        )
    )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print(
            "  ".join(
                cell.ljust(width) if not i else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )
    files = sorted(SOURCE.rglob("*.py"))
    text = {path: path.read_text(encoding="utf-8") for path in files}
    rooms = Counter(str(path.parent.relative_to(SOURCE)) for path in files)
    lines: Counter[str] = Counter()
    for path in files:
        parts = path.relative_to(SOURCE).parts[:-1]
        lines["/".join(parts[: 2 if parts[:1] == ("dialects",) else 1]) or "(top)"] += len(text[path].splitlines())
    places = [
        f"{path.relative_to(SOURCE)}:{text[path][: one.start()].count(chr(10)) + 1}"
        for path in files if "dialects" not in path.parts for one in _KNOWS.finditer(text[path])
    ]  # fmt: skip
    guests = [str(path.relative_to(SOURCE)) for path in files if path.stem != "guests" and _GUESTS.search(text[path])]
    print(f"modules at the top            {rooms['.']}")
    print(f"rooms with more than 15 files {', '.join(f'{k} {v}' for k, v in rooms.most_common() if v > 15) or 'none'}")
    print(f"places that know of dialects  {len(places)} {' '.join(places)}".rstrip())
    print(f"engine files that name guests {len(guests)} {' '.join(guests)}".rstrip())
    print("lines per room                " + ", ".join(f"{room} {count}" for room, count in lines.most_common()))
    sys.path.insert(0, str(ROOT / "examples" / "mmcv1"))
    digits = [str(ROOT / "examples/native/digits.yaml"), "train.epochs=1"]
    print(f"a plain native step, down     {plain_step()}")
    print(f"a step of digits.yaml, down   {step_path(*digits)}")
    print(f"a save, down                  {files_down('checkpoint/snapshot.py', 'Arena.take', *digits)}")
    print(f"a resume, down                {files_down('checkpoint/load.py', 'load', *digits)}")
    mmcv1 = [str(ROOT / "examples/mmcv1/digits.py"), "runner.max_epochs=1", "--no-validate"]
    print(f"a step of mmcv 1.x, down      {step_path(*mmcv1)}")


if __name__ == "__main__":
    main()
