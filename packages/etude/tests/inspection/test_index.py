"""The kept signatures are those of the installed packages."""

from __future__ import annotations

import ast
import inspect
import json
import os
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


def test_what_is_kept_of_torch_is_what_the_installed_one_says() -> None:
    with open(index.FILE, encoding="utf-8") as file:
        kept = json.load(file)
    made = index.make()
    assert kept["versions"] == made["versions"]
    for target, signature in made["signatures"].items():
        if target.startswith("torch."):
            assert kept["signatures"][target] == signature, "write it anew: python -m etude.inspection.index"


def test_what_is_kept_of_our_own_is_used_only_while_its_source_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = index.make()
    target = "etude.schedules.curves:Cosine"
    forged = json.loads(json.dumps(made))
    forged["signatures"][target]["parameters"] = [["forged", "", None, True]]
    monkeypatch.setattr(index, "_kept", lambda *_: forged)
    index._unchanged.cache_clear()
    assert str(index.kept(target)) == "(forged)"
    forged["sources"]["etude/schedules/curves.py"] += 1
    index._unchanged.cache_clear()
    assert index.kept(target) is None
    index._unchanged.cache_clear()


@pytest.mark.parametrize(
    "module", ["etude_openmm.mmcv1", "etude_openmm.mmengine", "etude_openmm.shared", "etude_libai", "etude_mcquic"]
)
def test_what_is_kept_of_a_dialect_is_what_its_sources_say(module: str) -> None:
    file = os.path.join(os.path.dirname(pytest.importorskip(module).__file__), "index.json")
    with open(file, encoding="utf-8") as stream:
        targets = json.load(stream)["signatures"]
    assert len(targets) > 20
    wrong = [target for target in targets if index.kept(target) not in (None, scan.signature(target))]
    assert wrong == []


def test_every_kept_or_scanned_signature_equals_the_live_one() -> None:
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


def test_another_version_of_torch_is_read_from_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "installed", lambda package: "0.0.1")
    index._same_versions.cache_clear()
    try:
        assert index.kept("torch.optim:SGD") is None
        assert "momentum" in str(Index().signature("torch.optim:SGD"))
    finally:
        monkeypatch.undo()
        index._same_versions.cache_clear()


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
