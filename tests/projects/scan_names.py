"""Finds the names of other packages that Python sources use: imports, attributes, methods and keyword arguments.

Only what the text of one file shows is found: a name that is imported, attributes of imported names, calls on them, and
methods of an object whose class is visible (``cfg = Config(…)``, ``def f(runner: Runner)``, ``class Mine(Hook)``).

A use is written as ``module:name``, ``module:Class#attribute`` or ``module:Class#method()`` for those of an object, and
``module:function(keyword)``; ``module:`` alone is the module.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

#: Names that look like classes, whose calls make objects.
_CLASS = re.compile(r"_?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*$")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def scan(folder: Path, packages: Sequence[str], is_replaced: Callable[[str], bool]) -> set[str]:
    """Return the uses of ``packages`` in all Python files below ``folder`` but those of modules that are replaced."""
    found: set[tuple[str, ...]] = set()
    modules: set[str] = set(packages)
    for file in sorted(folder.rglob("*.py")):
        module = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        one = _File(module, file.name == "__init__.py", packages)
        if not is_replaced(module) and one.read(file):
            found |= one.uses
            modules |= one.modules
    return {f"{module}:" for module in modules} | {_written(use, modules) for use in found}


def _written(use: tuple[str, ...], modules: set[str]) -> str:
    """Split the dotted name of a use behind the longest module that is imported somewhere."""
    name, *rest = use
    parts = name.split(".")
    length = next(n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in modules)
    return f"{'.'.join(parts[:length])}:{'.'.join(parts[length:])}{''.join(rest)}"


class _File(ast.NodeVisitor):
    """Collects the uses in one file."""

    def __init__(self, module: str, is_package: bool, packages: Sequence[str]) -> None:
        self.module = module
        self.is_package = is_package
        self.packages = packages
        self.uses: set[tuple[str, ...]] = set()
        self.modules: set[str] = set()
        #: Imported name → what it is.
        self.names: dict[str, str] = {}
        #: Inside functions: local name → the class of its object, or nothing that is known.
        self.scopes: list[dict[str, str]] = [{}]
        #: The classes around: the one base that is imported ("" for none or several), and own attributes.
        self.classes: list[tuple[str, set[str]]] = []
        self.called: set[int] = set()

    def read(self, file: Path) -> bool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # a template
            return False
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
        self.visit(tree)
        return True

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if self._is_ours(alias.name):
                    self.modules |= set(_parents(alias.name))
                    self.names[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            return
        module = self._absolute(node)
        if not self._is_ours(module):
            return
        self.modules |= set(_parents(module))
        for alias in node.names:
            if alias.name != "*":
                self.uses.add((f"{module}.{alias.name}",))
                self.names[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        kept = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*kept, *filter(None, [node.module])])

    def _is_ours(self, name: str) -> bool:
        return name.partition(".")[0] in self.packages

    def _full(self, node: ast.AST) -> str:
        """Return the full name of an expression like ``mmcv.runner.Hook``; empty if it is none."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return ""
        if any(node.id in scope for scope in self.scopes):
            return ""
        return ".".join([self.names[node.id], *reversed(parts)])

    def _class_of(self, node: ast.AST | None) -> str:
        """Return the class of the object that an expression or an annotation means; empty if it is not visible."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = _parsed(node.value)
        if isinstance(node, ast.Call):
            node = node.func
        full = self._full(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        return full if _CLASS.match(full.rpartition(".")[2]) else ""

    def _owner(self, node: ast.AST) -> str:
        """Return the class of the object ``node``: a local name, ``self``, or ``super()``."""
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in reversed(self.scopes) if node.id in scope), "")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
            return self.classes[-1][0] if self.classes else ""
        return self._class_of(node) if isinstance(node, ast.Call) else ""

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full = self._full(node)
        if full:
            self.uses.add((full,))
            return
        owner = self._owner(node.value)
        if owner and isinstance(node.ctx, ast.Load) and not self._is_own(node):
            self.uses.add((owner, "#", node.attr, "()" if id(node) in self.called else ""))
        self.generic_visit(node)

    def _is_own(self, node: ast.Attribute) -> bool:
        is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        return is_self and any(node.attr in own for _, own in self.classes)

    def visit_Call(self, node: ast.Call) -> None:
        self.called.add(id(node.func))
        callee = (self._full(node.func),) if self._full(node.func) else ()
        if not callee and isinstance(node.func, ast.Attribute):
            owner = self._owner(node.func.value)
            if owner and not self._is_own(node.func):
                callee = (owner, "#", node.func.attr)
        if callee:
            self.uses |= {(*callee, f"({one.arg})") for one in node.keywords if one.arg}
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        base = self._class_of(node.bases[0]) if len(node.bases) == 1 else ""
        self.classes.append((base, set(_own_attributes(node))))
        self.generic_visit(node)
        self.classes.pop()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        outer, self.scopes = self.scopes, [*self.scopes]
        scope: dict[str, str] = dict.fromkeys(_assigned(node), "")
        for one in _arguments(node):
            scope[one.arg] = self._class_of(one.annotation)
        if self.classes and not isinstance(node, ast.Lambda) and "self" in scope:
            scope["self"] = self.classes[-1][0]
        for name, classes in _made(node).items():
            kinds = {self._class_of(one) for one in classes}
            if name not in {one.arg for one in _arguments(node)} and len(kinds) == 1:
                scope[name] = kinds.pop()
        self.scopes.append(scope)
        self.generic_visit(node)
        self.scopes = outer

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function


def _parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _parsed(text: str) -> ast.AST | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    args = node.args
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]


def _assigned(node: ast.AST) -> Iterator[str]:
    """Yield the names that a function binds, other than by importing."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id
        elif isinstance(one, (*_FUNCTIONS[:2], ast.ClassDef)) and one is not node:
            yield one.name


def _made(node: ast.AST) -> Mapping[str, list[ast.AST | None]]:
    """Map the local names of a function to everything that is assigned to them; None where that is not visible."""
    made: dict[str, list[ast.AST | None]] = {}
    for one in ast.walk(node):
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            made.setdefault(one.targets[0].id, []).append(one.value if isinstance(one.value, ast.Call) else None)
    stored = list(_assigned(node))
    return {name: some for name, some in made.items() if stored.count(name) == len(some)}


def _own_attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that a class gives itself and its objects."""
    for one in ast.walk(node):
        if isinstance(one, (*_FUNCTIONS[:2], ast.ClassDef)):
            yield one.name
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id
        elif isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
            yield one.attr
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.args:
            first = one.args[0]  # register_buffer("x", …), add_module("x", …)
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value
