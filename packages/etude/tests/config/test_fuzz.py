"""Damaged config files are told about or read; they never bring the reader down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.config.formats.from_json import parse_json
from etude.config.formats.from_toml import parse_toml
from etude.config.formats.from_yaml import parse_yaml
from etude.config.overrides import override
from etude.config.references import resolve_references
from etude.config.tree import Tree
from etude.errors import ConfigError
from tests.sampling import examples

YAML = """\
_base_: base.yaml
model: &net {type: MLP, sizes: [64, 10], act: !!str relu}
data: {<<: *net, train: "a\\tb", val: 'c', w: ${model.type}}
list:
  - 1e-3
  - |
    text
  - {a: [1, {b: ~}]}
"""
JSON = json.dumps(
    {"model": {"type": "MLP", "sizes": [64, 10], "x": 'a"b\\n'}, "b": [1, {"c": None}, -1.5e3, True]}, indent=1
)
TOML = '''\
title = "x"
[model]
type = 'MLP'
sizes = [64,
  10]
deep.er = """
[no]
"""
[[hooks]]
"a b" = {c = 1, d = 2024-01-01}
'''
READERS: dict[str, tuple[Any, str]] = {
    "yaml": (parse_yaml, YAML),
    "json": (parse_json, JSON),
    "toml": (parse_toml, TOML),
}
damage = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from(["drop", "insert", "double", "cut"]), st.text(st.sampled_from("[]{}:,&*!|>'\"\t\n -#%@`=.\\~\x00é1a$"), max_size=3)),
    min_size=1,
    max_size=4,
)  # fmt: skip


@pytest.mark.parametrize("language", READERS)
@settings(max_examples=examples(150))
@given(damage=damage)
def test_a_damaged_file_is_read_or_refused(language: str, damage: list[tuple[int, str, str]]) -> None:
    reader, text = READERS[language]
    for position, kind, extra in damage:
        at = position % (len(text) + 1)
        if kind == "cut":
            text = text[:at]
        else:
            text = (
                text[:at]
                + {"drop": "", "insert": extra + text[at : at + 1], "double": text[at : at + 1] * 2}[kind]
                + text[at + 1 :]
            )
    try:
        tree = reader(text, f"a.{language}")
        assert isinstance(tree, Tree)
        assert all(place.file == f"a.{language}" for place in tree.places.values())
        for path, _ in tree.walk():
            assert tree.place(*path).line >= 1
        resolve_references(tree, {})
    except ConfigError as error:
        assert error.findings


@settings(max_examples=examples(200))
@given(st.text(st.sampled_from("ab.=+~-0123[]{}:, \"'$\n"), max_size=15))
def test_any_text_is_an_override_or_refused(text: str) -> None:
    tree = Tree({"a": {"b": 1}, "b": [1, {"a": 2}], "ab": "x"})
    try:
        override(tree, [text])
    except ConfigError as error:
        assert error.findings
    else:
        assert all(tree.place(*path) for path, _ in tree.walk())
