"""Names are resolved as the live registries would, and signatures are those of the installed packages."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

from etude import builtins
from etude.config.imports import locate
from etude.errors import ConfigError
from etude.inspection import index
from etude.inspection import signatures as scan
from etude.inspection.index import Index
from etude.plan import NOWHERE
from etude.registry import HOOKS, MODELS, OPTIMIZERS, TABLES, resolve

from .conftest import Write


def test_every_signature_equals_the_live_one() -> None:
    known = Index()
    wrong = []
    for table in [table for word, table in TABLES.items() if word != "builders"]:
        for entry in known.entries(table):
            live = inspect.signature(resolve(entry.origin))
            if entry.signature is None:
                wrong.append(f"{entry.origin}: not found")
            elif (message := difference(entry.signature, live)) is not None:
                wrong.append(f"{entry.origin}: {message}")
    assert wrong == []


def difference(found: scan.Signature, live: inspect.Signature) -> str | None:
    named = [p for p in live.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    ours = {p.name: p for p in found.parameters}
    missing = [p.name for p in named if p.name not in ours]
    if missing:
        return f"misses {missing}"
    takes_more = any(p.kind is p.VAR_KEYWORD for p in live.parameters.values())
    extra = set(ours) - {p.name for p in named}
    if extra and not takes_more:
        return f"has {sorted(extra)} too many"
    for parameter in named:
        own = ours[parameter.name]
        if own.required != (parameter.default is parameter.empty):
            return f"{parameter.name}: required differs"
        if own.default is not None and _literal(own.default, parameter.default) != parameter.default:
            return f"{parameter.name}: default {own.default} is {parameter.default!r}"
    return None


def _literal(text: str, otherwise: object) -> object:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return otherwise


def test_asking_for_signatures_imports_no_torch() -> None:
    code = (
        "import sys; from etude import builtins, registry; from etude.inspection.index import Index; from etude.registry import TABLES\n"
        "registry.load_builtins(); known = Index(); assert sum(len(known.entries(t)) for t in TABLES.values()) > 50\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_imports_add_to_the_tables_without_being_imported(write: Write) -> None:
    path = write(
        "own_nets.py",
        "from etude import MODELS\n@MODELS.register\nclass Own:\n    def __init__(self, width: int): ...\n",
    )
    entry = locate("own_nets.py", NOWHERE, str(path.parent))
    assert entry is not None
    known = Index([entry], [str(path.parent)])
    assert "Own" in known.names(MODELS)
    assert str(known.signature(known.origin(MODELS, "Own"))) == "(width: int)"
    assert "Own" not in MODELS


def test_tables_are_asked_for_by_word_or_kind() -> None:
    assert index.tables_asked("hooks") == index.tables_asked("hook") == {"hooks": HOOKS}
    assert index.table_of("optimizer") is OPTIMIZERS
    assert len(index.tables_asked(None)) == len(builtins.ENTRIES)
    with pytest.raises(ConfigError, match="did you mean 'hooks'"):
        index.tables_asked("hoks")
