"""Changes one token of the package at a time and shows which tests notice.

    python bench/mutations.py --seed 1 --count 24 [--rooms core,data] [--list]

Every mutation is made in a copy of the package; the tree stays as it is. The tests of the room run first, then those of the
other rooms that are drawn from. A mutation that no test notices is worth a test, unless it changes nothing (``equivalent``).
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / "packages/etude/src/etude"
ROOMS = ("core", "checkpoint", "data", "hooks", "schedules", "optim")
#: Token → what it becomes. Numbers grow by one.
SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "//": "*", "%": "*",
    "+=": "-=", "-=": "+=", "and": "or", "or": "and", "True": "False", "False": "True", "min": "max", "max": "min",
    "break": "continue", "continue": "break", "any": "all", "all": "any", "not": "", "is": "is not", "in": "not in",
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    path: Path
    line: int
    column: int
    old: str
    new: str

    @property
    def room(self) -> str:
        return self.path.relative_to(ENGINE).parts[0]

    def __str__(self) -> str:
        return f"{self.path.relative_to(ENGINE)}:{self.line} {self.old} → {self.new or 'nothing'}"

    def apply(self, package: Path) -> None:
        target = package / self.path.relative_to(ENGINE)
        lines = target.read_text(encoding="utf-8").splitlines(keepends=True)
        text = lines[self.line - 1]
        assert text[self.column :].startswith(self.old)
        lines[self.line - 1] = text[: self.column] + self.new + text[self.column + len(self.old) :]
        target.write_text("".join(lines), encoding="utf-8")


def mutations(path: Path) -> Iterator[Mutation]:
    """Every mutation of the statements inside functions: what is outside is definitions, and annotations do nothing."""
    text = path.read_text(encoding="utf-8")
    lines = set(_lines_that_run(ast.parse(text)))
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        new = str(int(token.string) + 1) if token.string.isdecimal() else SWAPS.get(token.string)
        # `not in`, `is not`, `for … in` and `*args` are written with the same tokens as what is swapped here.
        # `strict=True` of zip changes nothing while nothing else is wrong.
        strict = token.line[: token.start[1]].endswith("strict=")
        odd = strict or before in ("not", "is") or (token.string in ("not", "in", "is", "*") and _is_syntax(token))
        if token.string == "is" and token.line[token.end[1] :].startswith(" not "):
            token, new = token._replace(string="is not"), "is"
        if token.start[0] in lines and new is not None and not odd:
            yield Mutation(path, *token.start, token.string, new)
        before = token.string.partition(" ")[0]


def _is_syntax(token: tokenize.TokenInfo) -> bool:
    after = token.line[token.end[1] :].lstrip()
    ahead = token.line[: token.start[1]]
    if token.string == "not":
        return after.startswith("in ")
    if token.string == "*":
        return not ahead.endswith(" ") or not token.line[token.end[1] :].startswith(" ")
    return token.string == "in" and "for " in ahead


def _lines_that_run(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                    yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def draw(rooms: tuple[str, ...], count: int, seed: int) -> list[Mutation]:
    """Draw ``count`` mutations, as many from each room as from the others."""
    dice = random.Random(seed)
    drawn = []
    for number in range(count):
        files = sorted((ENGINE / rooms[number % len(rooms)]).rglob("*.py"))
        found = [mutation for file in files for mutation in mutations(file)]
        drawn.append(dice.choice(found))
    return drawn


def noticed(mutation: Mutation, rooms: tuple[str, ...]) -> str:
    """Return the room whose tests fail with the mutation; an empty string if none does."""
    with tempfile.TemporaryDirectory(prefix="etude-mutation-") as folder:
        shutil.copytree(ENGINE, Path(folder, "etude"), ignore=shutil.ignore_patterns("__pycache__"))
        mutation.apply(Path(folder, "etude"))
        for room in (mutation.room, *(room for room in rooms if room != mutation.room)):
            command = [
                sys.executable,
                "-m",
                "pytest",
                f"packages/etude/tests/{room}",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
            ]
            env = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1", "CI": "1"}
            try:
                done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=600, check=False)
            except subprocess.TimeoutExpired:
                return f"{room} (never ends)"
            if done.returncode:
                return room
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--own", action="store_true", help="run the tests of the mutated room alone")
    parser.add_argument("--list", action="store_true", help="print the mutations and run nothing")
    args = parser.parse_args()
    rooms, found = tuple(args.rooms.split(",")), 0
    drawn = draw(rooms, args.count, args.seed)
    for mutation in drawn:
        began = time.monotonic()
        who = "" if args.list else noticed(mutation, () if args.own else ROOMS)
        found += bool(who)
        print(f"{who or '-':12} {mutation!s:60} {time.monotonic() - began:4.0f} s", flush=True)
    if not args.list:
        print(f"noticed {found} of {len(drawn)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
