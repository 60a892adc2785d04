"""Config files of every language: values, lines, and what is refused."""

from __future__ import annotations

import os
from typing import Any

import pytest
import yaml

from etude.config import no_code, read
from etude.errors import ConfigError

from .conftest import Write


def complaint(*args: Any, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(*args, **options)
    return str(caught.value).splitlines()


LANGUAGES = {
    "a.yaml": """
        model:
          type: MLP
          sizes: [64, 10]
        optim: {lr: 1e-3}
        """,
    "a.json": """
        {"model": {
            "type": "MLP",
            "sizes": [64, 10]},
         "optim": {"lr": 1e-3}}
        """,
    "a.toml": """
        [model]
        type = "MLP"
        sizes = [64, 10]
        optim.lr = 1e-3
        """,
    "a.py": """
        model = dict(
            type="MLP",
            sizes=[64, 10])
        optim = {"lr": 1e-3}
        """,
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_language_gives_the_same_values_with_their_lines(name: str, write: Write) -> None:
    text = LANGUAGES[name].replace("optim.lr", "[optim]\nlr") if name == "a.toml" else LANGUAGES[name]
    write(name, text)
    tree = read(name)
    assert tree.values == {"model": {"type": "MLP", "sizes": [64, 10]}, "optim": {"lr": 0.001}}
    assert [str(tree.place(*path)) for path in (("model", "type"), ("model", "sizes"))] == [f"{name}:2", f"{name}:3"]
    assert tree.place("optim", "lr").line == (5 if name == "a.toml" else 4)
    assert list(tree.files) == [os.path.abspath(name)]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-3", 0.001), ("1E5", 1e5), (".5", 0.5), ("-1.", -1.0), ("0x10", 16), ("0o17", 15), ("010", 10), ("+3", 3),
        ("12:30", "12:30"), ("1:2:3", "1:2:3"), ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("2024-01-01", "2024-01-01"), ("1_000", "1_000"), ("true", True), ("False", False), ("~", None), ("", None),
        ('"1e-3"', "1e-3"), ("'true'", "true"), ("=", "="), ("-.inf", float("-inf")), ("1e", "1e"), ("!!str 3", "3"),
        ("!!float 3", 3.0), ("'<<'", "<<"),
    ],
)  # fmt: skip
def test_yaml_scalars_mean_what_yaml_1_2_says(written: str, value: Any, write: Write) -> None:
    write("a.yaml", f"x: {written}\n")
    found = read("a.yaml").values["x"]
    assert (found, type(found)) == (value, type(value))


def test_yaml_keys_that_older_yaml_would_turn_into_booleans_stay_words(write: Write) -> None:
    write("a.yaml", "on: 1\nyes: 2\n3: 4\ntrue: 5\n")
    assert read("a.yaml").values == {"on": 1, "yes": 2, 3: 4, "true": 5}


def test_yaml_anchors_and_merge_keys_work_and_keep_their_lines(write: Write) -> None:
    write("a.yaml", "base: &b {lr: 1, eps: 2}\nmine:\n  <<: *b\n  lr: 3\nagain: *b\nboth: {<<: [*b, {eps: 9, z: 1}]}\n")
    tree = read("a.yaml")
    assert tree.values["mine"] == {"lr": 3, "eps": 2}
    assert tree.values["both"] == {"lr": 1, "eps": 2, "z": 1}
    assert (tree.place("mine", "eps").line, tree.place("mine", "lr").line, tree.place("again").line) == (1, 4, 5)
    tree.values["again"]["lr"] = 7
    assert tree.values["base"]["lr"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb:\n\tc: 2\n",
            "a.yaml:3: a tab in the indentation; YAML allows spaces only: replace each tab by spaces",
        ),
        ("a: 1\nb: {c: 1, c: 2}\n", "a.yaml:2: the key b.c is written twice; first at line 2"),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            "the tag tag:yaml.org,2002:python/object/apply:os.system is not allowed",
        ),
        ("a: !mine 3\n", "the tag !mine is not allowed"),
        ("a: b: c\n", "a value that holds ': ' needs quotes"),
        ("a: [1, 2\nb: 3\n", "a.yaml:2: not valid YAML"),
        ("a: *b\n", "a.yaml:1: *b is undefined"),
        ("a: &b [*b]\n", "a.yaml:1: *b is a part of itself"),
        ("a: 1\n---\nb: 2\n", "a second document begins here"),
        ("- 1\n- 2\n", "a config is a mapping of keys to values"),
        ("{[1]: 2}\n", "a key must be a string or a number"),
        ("a: !!int x\n", "'x' is not a int"),
        ("a: " + "[" * 200 + "]" * 200, "nested deeper than 100 levels"),
        ("a: \x07\n", "a character that YAML does not allow"),
    ],
)
def test_bad_yaml_is_refused_with_its_line(text: str, message: str, write: Write) -> None:
    write("a.yaml", text)
    assert message in "\n".join(complaint("a.yaml"))


def test_an_alias_bomb_is_refused(write: Write) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    write("a.yaml", "\n".join(lines))
    assert "values" in complaint("a.yaml")[0]


def test_all_doubled_keys_are_told_at_once(write: Write) -> None:
    write("a.yaml", "a: 1\na: 2\nb: 3\nb: 4\n")
    assert complaint("a.yaml") == [
        "a.yaml:2: the key a is written twice; first at line 1",
        "a.yaml:4: the key b is written twice; first at line 3",
    ]


def test_windows_line_ends_and_marks_do_not_matter(write: Write) -> None:
    write("a.yaml", "").write_bytes(b"\xef\xbb\xbfa:\r\n  b: 1\r\n")
    write("a.json", "").write_bytes(b'\xef\xbb\xbf{"a":\r\n {"b": 1}}')
    for name in ("a.yaml", "a.json"):
        tree = read(name)
        assert tree.values == {"a": {"b": 1}}
        assert tree.place("a", "b").line == 2


def test_the_slower_parser_reads_the_same(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.yaml", "a: &x {b: [1e-3, 'c']}\nd: *x\n")
    fast = read("a.yaml")
    monkeypatch.setattr("etude.config.formats.from_yaml._Loader", yaml.SafeLoader)
    slow = read("a.yaml")
    assert (slow.values, slow.places) == (fast.values, fast.places)
    write("a.yaml", "a:\n\tb: 1\n")
    assert "a.yaml:2: a tab in the indentation" in complaint("a.yaml")[0]


def test_an_empty_file_is_an_empty_config(write: Write) -> None:
    write("a.yaml", "# nothing\n")
    assert read("a.yaml").values == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "a": 2}', "a.json:2: the key a is written twice; first at line 1"),
        ('{"a": 1,\n}', "a.json:2: not valid JSON"),
        ("[1]", "a.json:1: a config is an object"),
        ('{"a": ' + "[" * 100000 + "]" * 100000 + "}", "a.json: nested too deeply"),
    ],
)
def test_bad_json_is_refused_with_its_line(text: str, message: str, write: Write) -> None:
    write("a.json", text)
    assert complaint("a.json")[0].startswith(message)


def test_json_strings_may_hold_what_looks_like_structure(write: Write) -> None:
    write("a.json", '{"a": "{[,]}\\n\\"",\n "b": [{"c": 1},\n {"c": 2}]}')
    tree = read("a.json")
    assert tree.values["a"] == '{[,]}\n"'
    assert (tree.place("b", 0, "c").line, tree.place("b", 1, "c").line) == (2, 3)


def test_toml_tables_arrays_and_long_values_keep_their_lines(write: Write) -> None:
    write(
        "a.toml",
        '''
        title = """
        [not.a.table]
        x = 1
        """  # really
        sizes = [
          1,  # ]
          2,
        ]
        [[hooks]]
        type = "EMA"
        [[hooks]]
        "my type" = "Log"
        [hooks.deep]
        x.y = 1
        ''',
    )
    tree = read("a.toml")
    assert tree.values["hooks"][1] == {"my type": "Log", "deep": {"x": {"y": 1}}}
    lines = {path: place.line for path, place in tree.places.items()}
    assert lines[("sizes",)] == 5
    assert lines[("hooks", 0, "type")] == 10
    assert lines[("hooks", 1, "my type")] == 12
    assert lines[("hooks", 1, "deep", "x", "y")] == 14
    assert ("not",) not in lines


def test_bad_toml_is_refused_with_its_line(write: Write) -> None:
    write("a.toml", "a = 1\na = 2\n")
    assert complaint("a.toml")[0].startswith("a.toml:2: not valid TOML")


def test_a_python_config_keeps_what_it_assigns_and_nothing_else(write: Write) -> None:
    write("beside.py", "WIDTH = 5\n")
    write(
        "a.py",
        """
        import math
        from beside import WIDTH
        _helper = 3
        def make(): return 1
        class Net: pass
        if True:
            model = dict(type=Net, sizes=[WIDTH, _helper])
        for index in range(2):
            pass
        model["extra"] = {
            "deep": make(),
        }
        """,
    )
    tree = read("a.py")
    assert list(tree.values) == ["model"]
    assert tree.values["model"]["sizes"] == [5, 3]
    assert [tree.place("model", key).line for key in ("sizes", "extra")] == [7, 10]
    assert tree.place("model", "extra", "deep").line == 11


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = missing\n", "a.py:2: the config raised NameError: name 'missing' is not defined"),
        ("def f():\n    raise ValueError('no\\nway')\n\na = f()\n", "a.py:2: the config raised ValueError: no\\nway"),
        ("import json\na = json.loads('{')\n", "a.py:2: the config raised JSONDecodeError"),
        ("a = (\n", "a.py:1: not valid Python: '(' was never closed"),
        ("raise SystemExit\n", "a.py:1: the config raised SystemExit"),
    ],
)
def test_a_python_config_that_fails_is_told_with_its_own_line(text: str, message: str, write: Write) -> None:
    write("a.py", text)
    assert complaint("a.py")[0].startswith(message)


def test_python_configs_can_be_forbidden_also_as_bases(write: Write) -> None:
    write("a.py", "a = 1\n")
    write("b.yaml", "_base_: a.py\n")
    message = "a.py: a Python config runs code, and --no-python-config forbids that"
    with no_code.forbidden():
        assert complaint("a.py") == [message]
        assert complaint("b.yaml") == [message]


def test_a_missing_file_is_answered_with_the_near_one(write: Write) -> None:
    write("train.yaml", "a: 1\n")
    assert complaint("trian.yaml") == ["there is no file trian.yaml; did you mean 'train.yaml'?"]
    assert complaint("nope.yaml") == ["there is no file nope.yaml; files here: train.yaml"]  # the ending is no likeness
    assert complaint("nowhere/a.yaml") == ["there is no file nowhere/a.yaml; there is no folder nowhere either"]


def test_what_is_no_config_is_refused(write: Write) -> None:
    write("a.txt", "a: 1\n")
    write("folder/a.yaml", "a: 1\n")
    write("b.yaml", "").write_bytes(b"a: \xff\n")
    assert complaint("a.txt") == ["a.txt: a config ends in .yaml, .yml, .json, .toml, .py, not in '.txt'"]
    assert complaint("folder") == ["folder is a folder; did you mean 'folder/a.yaml'?"]
    write("folder/b.yaml", "b: 1\n")
    assert complaint("folder") == ["folder is a folder; name a config file in it"]
    assert complaint("b.yaml") == ["b.yaml is not UTF-8 text (byte 3)"]
