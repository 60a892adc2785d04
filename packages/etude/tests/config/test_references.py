"""References between values and to the environment."""

from __future__ import annotations

from typing import Any

import pytest

from etude.config import read
from etude.config.tree import Tree
from etude.errors import ConfigError

from .conftest import Write


@pytest.fixture
def resolved(write: Write) -> Any:
    def reader(text: str, *overrides: str, **environment: str) -> Tree:
        write("a.yaml", text)
        return read("a.yaml", overrides, environment=environment)

    return reader


def test_a_reference_is_the_value_itself_and_inside_a_text_it_is_written_out(resolved: Any) -> None:
    tree = resolved("a: {b: 3, c: [1, 2]}\nd: ${a.b}\ne: ${a}\nf: run-${a.b}-${a.c.1}\ng: $${a.b}\nh: ['${d}']\n")
    assert tree.values["d"] == 3
    assert tree.values["e"] == {"b": 3, "c": [1, 2]}
    assert tree.values["f"] == "run-3-2"
    assert tree.values["g"] == "${a.b}"
    assert tree.values["h"] == [3]
    assert tree.place("d").line == 2
    tree.values["e"]["b"] = 9
    assert tree.values["a"]["b"] == 3


def test_references_see_overrides_and_are_followed_through(resolved: Any) -> None:
    tree = resolved("a: ${b}\nb: ${c}\nc: 1\nd: {x: '${a}'}\ne: ${d}\n", "c=5")
    assert tree.values == {"a": 5, "b": 5, "c": 5, "d": {"x": 5}, "e": {"x": 5}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optim: {lr: 1}\na: ${optim.rl}\n", "a.yaml:2: ${optim.rl} is undefined; did you mean 'optim.lr'?"),
        ("a: ${b}\nb: ${a}\n", "references go in a circle: a → b → a"),
        ("a: {b: '${a}'}\n", "references go in a circle: a.b → a → a.b"),
        (
            "a: ${env:HOME}\n",
            "a.yaml:1: the config may not read HOME from the environment; list it: env: [HOME], or call it ETUDE_HOME",
        ),
        ("a: ${env:ETUDE_X}\n", "a.yaml:1: the environment has no ETUDE_X; ${env:ETUDE_X,default} gives a default"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(resolved: Any, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(text, HOME="/home/me")
    assert message in str(caught.value)


def test_all_references_that_lead_nowhere_are_told_at_once(resolved: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved("a: ${x1}\nb: ${x2}\n")
    assert len(caught.value.findings) == 2


def test_listed_names_of_the_environment_are_read_as_values(resolved: Any) -> None:
    tree = resolved(
        "env: [DATA, LR]\na: ${env:DATA}/train\nb: ${env:LR}\nc: ${env:LR,3}\nd: ${env:ETUDE_N, 4}\n",
        DATA="/d",
        LR="1e-3",
    )
    assert [tree.values[key] for key in "abcd"] == ["/d/train", 0.001, 0.001, 4]
    assert tree.secrets[("b",)] == "${env:LR}"
