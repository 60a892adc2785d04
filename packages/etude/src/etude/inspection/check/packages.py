"""Checks models and datasets of timm, torchvision, transformers and datasets against their sources, without importing
them.

These packages pass ``**kwargs`` through several functions, so that no signature shows what a model takes. An argument
that occurs nowhere in the source of the model is a mistake. One that occurs may still be wrong; building it shows that.
"""

from __future__ import annotations

import ast
import glob
import importlib.util
import os
import re
from collections.abc import Iterator
from functools import lru_cache

from etude.errors import Finding
from etude.errors.spelling import is_slip, nearest, suggest
from etude.inspection import signatures as scan
from etude.plan import Plan, Spec
from etude.registry import WRITERS

#: Files that every model of a package goes through, below the package's folder.
_SHARED: dict[str, tuple[str, ...]] = {
    "timm": ("models/_factory.py", "models/_builder.py", "models/_features.py"),
    "torchvision": ("models/_utils.py", "models/_api.py"),
    "transformers": ("configuration_utils.py", "modeling_rope_utils.py", "backbone_utils.py"),
    "datasets": (),
}
#: Old words that torchvision still takes.
_LEGACY = {"torchvision": ("pretrained", "pretrained_backbone")}


def check_package(spec: Spec) -> Iterator[Finding]:
    """Yield what is wrong with a model, its config or a dataset that another package makes."""
    root = spec.name.partition(".")[0]
    folder = _folder(root) if root in _SHARED else ""
    if not folder:
        return
    if spec.name == "timm.create_model":
        yield from _timm(spec, folder)
    elif match := re.fullmatch(r"torchvision\.models\.(?:\w+\.)*([a-z]\w*)", spec.name):
        models = _definitions(os.path.join(folder, "models", "**", "*.py"), r"^(?:def|class) ([a-zA-Z]\w*)\b")
        yield from _named(spec, folder, models, match[1], spec.name)
    elif match := re.fullmatch(r"torchvision\.datasets\.(\w+)", spec.name):
        known = _definitions(os.path.join(folder, "datasets", "*.py"))
        if match[1] not in known:  # its arguments are known from its signature
            yield Finding(str(spec.at), f"torchvision has no dataset {match[1]!r}", suggest(match[1], known))
    elif spec.name.startswith("transformers."):
        yield from _transformers(spec, folder)
    elif spec.name == "datasets.load_dataset":  # whatever else it is given goes to the format's own reader
        takes = _parameters_of(os.path.join(folder, "load.py"), "load_dataset")
        for argument in spec.args:
            near = nearest(argument, takes) if argument not in takes else None
            if near and is_slip(argument, near):
                text = f"{spec.name} has no parameter {argument!r}"
                yield Finding(str(spec.place(argument)), text, f"did you mean {near!r}?")


def _transformers(spec: Spec, folder: str) -> Iterator[Finding]:
    configs = _definitions(os.path.join(folder, "models", "*", "configuration_*.py"))
    name, _, method = spec.name.removeprefix("transformers.").partition(".")
    near = nearest(method, ("from_config", "from_pretrained")) if method else None
    slip = next((one for one in configs if is_slip(name.casefold(), one.casefold())), None)
    if near and near != method:
        yield Finding(
            str(spec.at), f"transformers.{name} has no {method!r}", f"did you mean 'transformers.{name}.{near}'?"
        )
    elif slip is not None and name not in configs:
        yield Finding(str(spec.at), f"transformers has no {name!r}", f"did you mean 'transformers.{slip}'?")
    elif not method and name in configs:
        yield from _named(spec, folder, configs, name, spec.name, strict=False)


def missing_trackers(plan: Plan) -> Iterator[Finding]:
    """Report trackers of ``log.to`` whose package is not installed; the tracker's class names it."""
    for spec in plan.writers:
        found = scan.class_of(WRITERS.origin(spec.name))
        package = _assigned(found[1], "package") if found is not None else ""
        if package and importlib.util.find_spec(package) is None:
            text = f"writing to {spec.name} needs the package {package!r}"
            yield Finding(str(spec.at), text, f"pip install {package}")


def _assigned(node: ast.ClassDef, name: str) -> str:
    """Return the string that a class body assigns to ``name``."""
    for item in node.body:
        if isinstance(item, ast.Assign) and name in map(ast.unparse, item.targets):
            return str(ast.literal_eval(item.value))
    return ""


def _timm(spec: Spec, folder: str) -> Iterator[Finding]:
    given = spec.args.get("model_name")
    if not isinstance(given, str) or ":" in given or "/" in given:  # a model of a hub
        return
    name = given.partition(".")[0]
    models = _definitions(os.path.join(folder, "models", "*.py"), r"^@register_model\s+def (\w+)\(")
    yield from _named(spec, folder, models, name, f"the model {name!r} of timm", key="model_name")


def _named(
    spec: Spec, folder: str, files: dict[str, str], name: str, title: str, *, key: str = "", strict: bool = True
) -> Iterator[Finding]:
    """Report unknown names. ``files`` maps the package's names to their definitions; with ``strict``, unknown
    arguments are errors."""
    root = spec.name.partition(".")[0]
    if name not in files:
        what = f"{root} has no {name!r}" if not key else f"timm has no model {name!r}"
        yield Finding(str(spec.place(key)), what, suggest(name, files))
        return
    sources = [files[name], *(os.path.join(folder, file) for file in _SHARED[root])]
    words = frozenset[str]().union(*map(_words, sources), _LEGACY.get(root, ()))
    for argument in spec.args:
        if argument in words:
            continue
        near = nearest(argument, sorted(frozenset[str]().union(*map(_parameters, sources))))
        if near or strict:
            hint = f"did you mean {near!r}?" if near else ""
            yield Finding(str(spec.place(argument)), f"{title} has no parameter {argument!r}", hint)


def _folder(package: str) -> str:
    spec = importlib.util.find_spec(package)
    return next(iter(spec.submodule_search_locations or ()), "") if spec is not None else ""


@lru_cache(maxsize=16)
def _definitions(files: str, pattern: str = r"^class ([A-Z]\w*)\b") -> dict[str, str]:
    """Map what ``pattern`` finds, by default classes, to the file that defines it; ``files`` is a glob pattern."""
    found = sorted(glob.glob(files, recursive=True))
    return {name: file for file in found for name in re.findall(pattern, _text(file), re.MULTILINE)}


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError):
        return ""


@lru_cache(maxsize=64)
def _words(file: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", _text(file)))


@lru_cache(maxsize=64)
def _parameters(file: str) -> frozenset[str]:
    """Return names of parameters and fields, for suggestions."""
    try:
        nodes = list(ast.walk(ast.parse(_text(file))))
    except (SyntaxError, ValueError):
        return frozenset()
    fields = [node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return frozenset([*(node.arg for node in nodes if isinstance(node, ast.arg)), *fields])


def _parameters_of(file: str, function: str) -> list[str]:
    tree = ast.parse(_text(file))
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return [argument.arg for node in nodes for argument in (*node.args.args, *node.args.kwonlyargs)]
