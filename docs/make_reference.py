"""Writes the pages that are made from registries and docstrings: reference.md and api.md.

python docs/make_reference.py
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import FunctionType
from typing import Any

import etude
from etude import builtins, registry
from etude.dialects.native import schema
from etude.inspection.index import Index
from etude.registry import TABLES, Registry

HERE = Path(__file__).parent
MADE = "<!-- made by docs/make_reference.py from the sources: change those, then run it again -->\n\n"
REFERENCE = """\
# Components

```console
$ etude list                          # every component, with its arguments
$ etude list hooks --config c.yaml    # with those of your own project
$ etude schema > schema.json          # the same for an editor
```

This page lists the keys of a native config, then the components that it can name. Any dotted path
(`my_pkg.nets.Tiny`) works wherever a name does.

"""
API = """\
# Python API

`import etude` gives you these names. Each is loaded on first use, and everything is typed.
[Training from Python](python.md) shows them at work.

"""
#: Methods that a reader of the page is not looking for.
_QUIET = {"state_dict", "load_state_dict"}


def reference() -> str:
    """Sections and components of the native config; those of Étude's own with all that their docstrings say."""
    registry.load_builtins()
    tables = schema.markdown(Index()).partition("\n")[2].strip()
    return (
        MADE
        + REFERENCE
        + tables
        + "\n\n## In full\n"
        + "".join(_in_full(word) for word in TABLES if word != "builders")
    )


def _in_full(word: str) -> str:
    entries = []
    for name in builtins.ENTRIES[word]:
        module, _, attribute = builtins.ENTRIES[word][name].partition(":")
        if module.startswith("etude."):
            found = getattr(importlib.import_module(module), attribute)
            entries.append(f"\n**`{name}`**\n\n{prose(inspect.getdoc(found) or '')}\n")
    return f"\n### {word.capitalize()} of Étude\n" + "".join(entries) if entries else ""


def api() -> str:
    """The names of ``etude.__all__`` with signatures and docstrings."""
    names = {name: getattr(etude, name) for name in etude.__all__ if not name.startswith("__")}
    tables = {name: value for name, value in names.items() if isinstance(value, Registry)}
    parts = [_section(name, value) for name, value in names.items() if name not in tables]
    return MADE + API + "\n".join([*parts, _registries(tables)])


def _section(name: str, value: Any) -> str:
    lines = [
        f"## `etude.{name}`",
        "",
        f"```text\n{name}{_signature(value)}\n```",
        "",
        prose(inspect.getdoc(value) or ""),
    ]
    if inspect.isclass(value):
        for method, function in vars(value).items():
            doc = inspect.getdoc(function) if isinstance(function, FunctionType) else None
            if doc and not method.startswith("_") and method not in _QUIET:
                lines += [
                    "",
                    f"`{method}{_signature(function)}`",
                    "",
                    *(f"> {line}".rstrip() for line in prose(doc).splitlines()),
                ]
    return "\n".join(lines) + "\n"


def _registries(tables: dict[str, Registry]) -> str:
    rows = [
        f"| `etude.{name}` | {table.kind} | {len(builtins.ENTRIES[name.lower()])} |" for name, table in tables.items()
    ]
    head = [
        "## Registries",
        "",
        prose(inspect.getdoc(Registry) or ""),
        "",
        "| table | holds | come with Étude |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _signature(value: Any) -> str:
    """The signature, a parameter per line when it is long; defaults that are objects as ``…``."""
    signature = inspect.signature(value)
    words = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(_parameter(parameter))
    answer = "" if signature.return_annotation is signature.empty else f" -> {_type(signature.return_annotation)}"
    short = f"({', '.join(words)}){answer}"
    return short if len(short) < 90 else "(\n" + "".join(f"    {word},\n" for word in words) + f"){answer}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        shown = repr(parameter.default)
        text += f" = {shown if not shown.startswith(('<', 'functools', 'Ellipsis')) else '…'}"
    return text


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def prose(doc: str) -> str:
    """A docstring as Markdown: ``code``, roles, literal blocks and examples."""
    doc = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", doc).replace("``", "`")
    doc = re.sub(r"^\.\. code-block:: (\w+)\n\n((?:    .*\n?|\n)+)", _fenced, doc, flags=re.MULTILINE)
    return re.sub(
        r"(?:^>>> .*\n?(?:^(?!$).*\n?)*)+", lambda m: f"```text\n{m[0].rstrip()}\n```\n", doc, flags=re.MULTILINE
    ).strip()


def _fenced(found: re.Match[str]) -> str:
    body = "\n".join(line[4:] for line in found[2].rstrip().splitlines())
    return f"```{found[1]}\n{body}\n```\n"


PAGES = {"reference.md": reference, "api.md": api}


def main() -> None:
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
