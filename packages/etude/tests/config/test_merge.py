"""Inheritance over several files."""

from __future__ import annotations

import pytest

from etude.config import read
from etude.errors import ConfigError

from .conftest import Write


def test_mappings_merge_and_lists_are_replaced(write: Write) -> None:
    write("base.yaml", "optim: {type: AdamW, lr: 1}\nhooks: [A, B]\n")
    write("child.yaml", "_base_: base.yaml\noptim:\n  lr: 2\nhooks: [C]\n")
    tree = read("child.yaml")
    assert tree.values == {"optim": {"type": "AdamW", "lr": 2}, "hooks": ["C"]}
    assert [str(tree.place(*path)) for path in (("optim", "type"), ("optim", "lr"), ("hooks", 0))] == [
        "base.yaml:1",
        "child.yaml:3",
        "child.yaml:4",
    ]
    assert [(str(place), value) for place, value in tree.history["optim", "lr"]] == [
        ("base.yaml:1", 1),
        ("child.yaml:3", 2),
    ]


@pytest.mark.parametrize("mark", ["_replace_", "_delete_"])
def test_a_marked_mapping_replaces_what_the_base_says(mark: str, write: Write) -> None:
    write("base.yaml", "optim: {type: AdamW, betas: [0, 1]}\n")
    write("child.yaml", f"_base_: base.yaml\noptim: {{{mark}: true, type: SGD}}\nnew: {{{mark}: true, x: 1}}\n")
    tree = read("child.yaml")
    assert tree.values == {"optim": {"type": "SGD"}, "new": {"x": 1}}
    assert ("optim", "betas") not in tree.places


def test_a_mark_that_is_false_merges_and_leaves_no_trace(write: Write) -> None:
    write("base.yaml", "a: {x: 1}\n")
    write("child.yaml", "_base_: base.yaml\na: {_replace_: false, y: 2}\n")
    assert read("child.yaml").values == {"a": {"x": 1, "y": 2}}


def test_the_later_of_several_bases_wins_and_bases_lie_beside_the_file_that_names_them(write: Write) -> None:
    write("parts/deep/one.json", '{"a": 1, "b": 1, "c": 1}')
    write("parts/two.yaml", "_base_: deep/one.json\nb: 2\nc: 2\n")
    write("parts/three.toml", "c = 3\n")
    write("main.py", "_base_ = ['parts/two.yaml', 'parts/three.toml']\nd = 4\n")
    tree = read("main.py")
    assert tree.values == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert [path.rsplit("/", 1)[1] for path in tree.files] == ["main.py", "two.yaml", "one.json", "three.toml"]


def test_several_configs_on_the_command_line_merge_in_order(write: Write) -> None:
    write("a.yaml", "x: {one: 1, two: 1}\n")
    write("b.yaml", "x: {two: 2}\n")
    assert read(["a.yaml", "b.yaml"]).values == {"x": {"one": 1, "two": 2}}


def complaint(path: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(path)
    return str(caught.value)


def test_a_circle_of_bases_is_told_with_the_whole_way(write: Write) -> None:
    write("a.yaml", "_base_: b.yaml\n")
    write("b.yaml", "x: 1\n_base_: c.yaml\n")
    write("c.yaml", "_base_: [b.yaml]\n")
    assert complaint("a.yaml") == "c.yaml:1: the bases go in a circle: b.yaml → c.yaml → b.yaml"


def test_a_missing_base_is_told_with_who_asked_for_it(write: Write) -> None:
    write("a.yaml", "_base_: b.yaml\n")
    write("b.yaml", "x: 1\n_base_: [basse.yaml]\n")
    write("base.yaml", "")
    assert complaint("a.yaml") == (
        "b.yaml:2 (by way of a.yaml → b.yaml): there is no file basse.yaml; did you mean 'base.yaml'?"
    )


def test_a_base_that_is_no_name_is_refused(write: Write) -> None:
    write("a.yaml", "_base_: [3]\n")
    assert complaint("a.yaml") == "a.yaml:1: _base_ takes the names of files, not 3"


def test_a_mark_counts_in_every_file_of_a_list_of_bases(write: Write) -> None:
    write("a.yaml", "optim: {type: AdamW, betas: [0, 1]}\n")
    write("b.yaml", "optim: {_replace_: true, type: SGD}\n")
    write("child.yaml", "_base_: [a.yaml, b.yaml]\noptim: {lr: 1}\n")
    tree = read("child.yaml")
    assert tree.values == {"optim": {"type": "SGD", "lr": 1}}
    assert not [path for path in tree.places if "_replace_" in path or "betas" in path]


def test_defaults_pick_a_file_from_a_folder_of_groups(write: Write) -> None:
    write("optim/adamw.yaml", "type: AdamW\nlr: 1\n")
    write("optim/sgd.yaml", "type: SGD\nlr: 2\n")
    write("main.yaml", "defaults: {optim: adamw}\noptim: {lr: 3}\n")
    tree = read("main.yaml")
    assert tree.values == {"optim": {"type": "AdamW", "lr": 3}}
    assert str(tree.place("optim", "type")) == "optim/adamw.yaml:1"
    assert read("main.yaml", ["defaults.optim=sgd"]).values["optim"] == {"type": "SGD", "lr": 3}


def test_a_group_that_is_not_there_is_answered_with_the_near_one(write: Write) -> None:
    write("optim/adamw.yaml", "type: AdamW\n")
    write("main.yaml", "defaults: {optim: adamv}\n")
    assert complaint("main.yaml") == "main.yaml:1: defaults.optim: optim has no 'adamv'; did you mean 'adamw'?"
    with pytest.raises(ConfigError, match=r"there is no folder optimm"):
        write("other.yaml", "defaults: {optimm: adamw}\n")
        read("other.yaml")


def test_a_choice_stands_for_the_alternative_it_uses(write: Write) -> None:
    write("main.yaml", "model:\n  use: small\n  oneof:\n    small: {width: 1}\n    large: {width: 9}\n")
    tree = read("main.yaml")
    assert tree.values == {"model": {"width": 1}}
    assert str(tree.place("model", "width")) == "main.yaml:4"
    assert read("main.yaml", ["model.use=large"]).values == {"model": {"width": 9}}
    with pytest.raises(ConfigError, match=r"model\.use: no choice is called 'lage'; did you mean 'large'\?"):
        read("main.yaml", ["model.use=lage"])


def test_a_group_that_no_file_picks_cannot_be_chosen(write: Write) -> None:
    write("optim/sgd.yaml", "type: SGD\n")
    write("main.yaml", "defaults: {optim: sgd}\n")
    with pytest.raises(ConfigError, match="no config picks a group 'optm'; did you mean 'optim'"):
        read("main.yaml", ["defaults.optm=sgd"])
