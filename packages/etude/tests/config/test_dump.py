"""Snapshots: what may lie in a run's folder."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from etude.config import read
from etude.config.dump import public_files, redact, snapshot, to_yaml
from etude.config.formats.from_yaml import parse_value
from etude.config.tree import Tree

from .conftest import Write

MARKER = "s3cr3t-m4rk3r"


def test_no_secret_reaches_a_snapshot(write: Write) -> None:
    write(
        "a.yaml",
        f"""
        env: [WANDB, DATA]
        log: {{api_key: {MARKER}, password: {MARKER}, hf_token: {MARKER}, client_secret: {MARKER}, sign_key: {MARKER}}}
        tokens: [{MARKER}]
        a: ${{env:WANDB}}
        b: ${{a}}
        c: {{d: "https://x?k=${{env:WANDB}}"}}
        e: ${{c}}
        repeated: "{MARKER}-from-elsewhere"
        """,
    )
    write("b.json", f'{{"_base_": "a.yaml", "pass_key": "{MARKER}2", "hf_token": "x"}}')
    tree = read("b.json", environment={"WANDB": MARKER})
    assert [MARKER in text for text in public_files(tree).values()] == [False, False]
    assert '"hf_token": "REDACTED"' in next(iter(public_files(tree).values()))
    text = snapshot(read("a.yaml", environment={"WANDB": MARKER}))
    assert MARKER not in text
    again = parse_value(text, "snapshot")
    assert again["a"] == "${env:WANDB}"
    assert again["e"] == {"d": "https://x?k=${env:WANDB}"}
    assert again["log"]["api_key"] == "REDACTED"


def test_what_only_sounds_like_a_secret_stays() -> None:
    values = {"max_tokens": 512, "tokenizer": "bert", "keys": ["img"], "monkey": "x", "token_dim": 3}
    assert redact(values) == values


def test_a_snapshot_of_a_python_config_is_data(write: Write) -> None:
    write(
        "a.py",
        "from collections import OrderedDict\nmodel = dict(type=OrderedDict, sizes=(1, 2), f=math_like)\n".replace(
            "math_like", "print"
        ),
    )
    assert parse_value(snapshot(read("a.py")), "snapshot") == {
        "model": {"type": "collections.OrderedDict", "sizes": [1, 2], "f": "builtins.print"}
    }


def test_a_snapshot_keeps_the_order_of_keys() -> None:
    assert snapshot(Tree({"z": 1, "a": [1, 2], "m": {"x": None}})) == "z: 1\na: [1, 2]\nm:\n  x: null\n"


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")))
)
keys = st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


@given(values)
def test_what_is_written_is_read_back_the_same(value: object) -> None:
    again = parse_value(to_yaml({"x": value}), "text")["x"]
    assert repr(again) == repr(value)


def test_numbers_that_are_none_are_written_so_that_yaml_reads_them() -> None:
    again = parse_value(to_yaml([math.inf, -math.inf, math.nan]), "text")
    assert again[:2] == [math.inf, -math.inf]
    assert math.isnan(again[2])
