"""``Config`` of both systems: files, bases, substitutions, access, options, dumps."""

from __future__ import annotations

import argparse
import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from etude.errors import ConfigError
from etude_openmm.shared.config import config_v1
from etude_openmm.shared.config import config_v2 as config
from etude_openmm.shared.config.pretty import pretty
from etude_openmm.shared.reading.places import places_in
from etude_openmm.shared.reading.text_style import base_file
from etude_openmm.shared.reading.text_style import scoped as with_scope

BOTH = [pytest.param(config, id="mmengine"), pytest.param(config_v1, id="mmcv1")]


@pytest.fixture
def write(tmp_path: Path):
    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize("dialect", BOTH)
class TestBothFlavours:
    def test_an_empty_config_has_no_name_text_or_keys(self, dialect: Any) -> None:
        made = dialect.Config()
        assert (made.filename, made.text, len(made), made._cfg_dict) == (None, "", 0, {})

    def test_only_a_dict_makes_a_config(self, dialect: Any) -> None:
        with pytest.raises(TypeError, match="cfg_dict must be a dict"):
            dialect.Config([0, 1])

    def test_reserved_keys_are_refused_by_name(self, dialect: Any) -> None:
        with pytest.raises(KeyError, match="filename is reserved for config file"):
            dialect.Config({"filename": "x"})

    def test_text_of_a_named_file_is_read(self, dialect: Any, write: Any) -> None:
        file = write(c_DOT_py="a = 1\n") / "c.py"
        assert dialect.Config({"a": 1}, filename=file).text == "a = 1\n"

    @pytest.mark.parametrize("suffix", [".py", ".json", ".yaml"])
    def test_fromstring_equals_fromfile(self, dialect: Any, write: Any, suffix: str) -> None:
        text = {".py": "a = dict(b=[1, 2])\n", ".json": '{"a": {"b": [1, 2]}}', ".yaml": "a:\n  b: [1, 2]\n"}[suffix]
        folder = write(**{f"c_DOT_{suffix[1:]}": text})
        read = dialect.Config.fromfile(folder / f"c{suffix}")
        assert read._cfg_dict == dialect.Config.fromstring(text, suffix)._cfg_dict == {"a": {"b": [1, 2]}}

    def test_other_formats_are_refused(self, dialect: Any, write: Any) -> None:
        with pytest.raises(OSError, match="py/yml/yaml/json"):
            dialect.Config.fromstring("a = 1", ".xml")
        with pytest.raises(OSError):
            dialect.Config.fromfile(write(c_DOT_xml="x") / "c.xml")
        with pytest.raises(FileNotFoundError):
            dialect.Config.fromfile("no_such_file.py")

    def test_access_by_attribute_item_and_get(self, dialect: Any) -> None:
        made = dialect.Config({"item1": [1, 2], "item2": {"a": 0}, "item3": True})
        assert made.item1 == made["item1"] == made.get("item1") == [1, 2]
        assert made.item2.a == 0
        assert made.get("none") is None
        assert made.get("none", 0) == 0
        assert set(made.keys()) == {"item1", "item2", "item3"}
        assert [value for _, value in made.items()] == list(made.values())
        assert "item1" in made
        assert list(made) == ["item1", "item2", "item3"]
        made.update({"item1": 0, "item2": {"b": 1}})
        assert made.item1 == 0
        assert made.item2 == {"a": 0, "b": 1}

    def test_a_missing_attribute_is_answered_with_the_near_one(self, dialect: Any) -> None:
        made = dialect.Config({"optimizer": {"momentum": 1}})
        with pytest.raises(AttributeError, match="did you mean 'optimizer'"):
            made.optimzer
        with pytest.raises(AttributeError, match="did you mean 'momentum'"):
            made.optimizer.momentun
        with pytest.raises(KeyError):
            made["optimzer"]

    def test_assigned_dicts_become_config_dicts(self, dialect: Any) -> None:
        made = dialect.Config()
        made.a = {"b": {"c": 1}}
        made["d"] = [{"e": 2}]
        made.a.f = {"g": ({"h": 3},)}
        assert (made.a.b.c, made.d[0].e, made.a.f.g[0].h) == (1, 2, 3)
        del made.a
        assert "a" not in made

    def test_copies_and_pickles(self, dialect: Any) -> None:
        made = dialect.Config({"a": {"b": 1}}, cfg_text="text", filename="f.py")
        shallow, deep, again = copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))
        shallow.c = 2
        deep.a.b = 9
        assert ("c" in made) == (dialect is config_v1)  # there a shallow copy shares all values
        assert made.a.b == 1
        assert (again._cfg_dict, again.filename, again.text) == ({"a": {"b": 1}}, "f.py", "text")
        assert type(again.a) is dialect.ConfigDict

    def test_a_script_may_set_what_lies_behind_the_keys(self, dialect: Any) -> None:
        """As ``copy_config`` does in the ``kfold-cross-valid.py`` of MMClassification and MMPretrain."""
        old, new = dialect.Config({"a": {"b": 1}}), dialect.Config()
        super(dialect.Config, new).__setattr__("_cfg_dict", copy.deepcopy(old._cfg_dict))
        new.a.b = 2
        new._text = "a key"
        assert (new["a"]["b"], old.a.b, new["_text"], new._filename) == (2, 1, "a key", None)

    def test_repr_tells_the_path(self, dialect: Any) -> None:
        assert repr(dialect.Config({"a": 1})) == "Config (path: None): {'a': 1}"

    def test_options_reach_into_lists(self, dialect: Any) -> None:
        made = dialect.Config({"item": [{"a": 0}, {"b": 0, "c": 0}]})
        made.merge_from_dict({"item.0.a": 1, "item.1.b": 1, "new.x": 2})
        assert made.item == [{"a": 1}, {"b": 1, "c": 0}]
        assert made.new.x == 2
        with pytest.raises(TypeError, match="item"):
            made.merge_from_dict({"item.0.a": 1}, allow_list_keys=False)
        with pytest.raises(KeyError, match="exceeds the length"):
            made.merge_from_dict({"item.2.a": 1})

    def test_dumps_in_three_formats(self, dialect: Any, tmp_path: Path) -> None:
        made = dialect.Config({"a": 1, "b": (1, 2)})
        for suffix in (".py", ".json", ".yaml"):
            file = tmp_path / f"d{suffix}"
            made.dump(file)
            read = dialect.Config.fromfile(file)
            assert read.a == 1
            assert tuple(read.b) == (1, 2)
        assert (tmp_path / "d.json").read_text() == '{"a": 1, "b": [1, 2]}'
        assert dialect.Config({"a": 1, "b": 2}).dump() == "a = 1\nb = 2\n"

    def test_a_dict_over_another_kind_of_value_says_what_to_do(self, dialect: Any, write: Any) -> None:
        folder = write(base_DOT_py="a = dict(b=None)\n", c_DOT_py="_base_ = 'base.py'\na = dict(b=dict(c=1))\n")
        with pytest.raises(TypeError, match="_delete_=True"):
            dialect.Config.fromfile(folder / "c.py")

    def test_a_base_that_inherits_from_itself_is_told(self, dialect: Any, write: Any) -> None:
        folder = write(a_DOT_py="_base_ = 'b.py'\n", b_DOT_py="_base_ = 'a.py'\n")
        with pytest.raises(RuntimeError, match="inherits from itself"):
            dialect.Config.fromfile(folder / "a.py")

    def test_syntax_errors_name_the_file(self, dialect: Any, write: Any) -> None:
        with pytest.raises(SyntaxError, match=r"c\.py"):
            dialect.Config.fromfile(write(c_DOT_py="a = dict(a=1, b=2.c=3)\n") / "c.py")

    def test_custom_imports_run_before_the_config_is_used(self, dialect: Any, write: Any, monkeypatch: Any) -> None:
        folder = write(
            c_DOT_py="custom_imports = dict(imports=['side_effect_of_config'])\n",
            side_effect_of_config_DOT_py="import os\nos.environ['SIDE_EFFECT'] = 'yes'\n",
        )
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setenv("SIDE_EFFECT", "no")
        dialect.Config.fromfile(folder / "c.py", import_custom_modules=False)
        assert __import__("os").environ["SIDE_EFFECT"] == "no"
        dialect.Config.fromfile(folder / "c.py")
        assert __import__("os").environ["SIDE_EFFECT"] == "yes"
        __import__("sys").modules.pop("side_effect_of_config")

    def test_a_failed_custom_import_says_so(self, dialect: Any, write: Any) -> None:
        with pytest.raises(ImportError, match="Failed to import custom modules from"):
            dialect.Config.fromfile(write(c_DOT_py="custom_imports = dict(imports=['nope_x'])\n") / "c.py")
        folder = write(d_DOT_py="custom_imports = dict(imports=['nope_x'], allow_failed_imports=True)\n")
        with pytest.warns(UserWarning, match="nope_x"):
            dialect.Config.fromfile(folder / "d.py")

    def test_auto_argparser_has_an_option_per_value(self, dialect: Any, write: Any, monkeypatch: Any) -> None:
        folder = write(c_DOT_py="a = 1\nb = dict(c='x', d=[1.5])\ne = True\n")
        monkeypatch.setattr("sys.argv", ["prog", str(folder / "c.py")])
        parser, made = dialect.Config.auto_argparser()
        args = parser.parse_args([str(folder / "c.py"), "--a", "3", "--b.d", "1", "2", "--e"])
        assert (args.a, vars(args)["b.d"], args.e, made.a) == (3, [1.0, 2.0], True, 1)

    def test_predefined_names_can_be_left_alone(self, dialect: Any, write: Any) -> None:
        folder = write(c_DOT_py="a = '{{ fileBasename }}'\n")
        assert dialect.Config.fromfile(folder / "c.py").a == "c.py"
        assert dialect.Config.fromfile(folder / "c.py", use_predefined_variables=False).a == "{{ fileBasename }}"


def parse_options(dialect: Any, *words: str) -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=dialect.DictAction)
    return parser.parse_args(list(words)).options


def test_options_of_several_flags_add_up_in_mmengine_and_replace_in_mmcv() -> None:
    words = ("--options", "a.b=1", "c=2", "--options", "a.b=3")
    assert parse_options(config, *words) == {"a.b": 3, "c": 2}
    assert parse_options(config_v1, *words) == {"a.b": 3}


def test_brackets_and_kinds_of_option_values() -> None:
    got = parse_options(config, "--options", "a=a,b", "b=[(a,b), [1,2], false]", "c=[[1]]", "d=x=y")
    assert got == {"a": ["a", "b"], "b": [("a", "b"), [1, 2], False], "c": [[1]], "d": "x=y"}
    assert parse_options(config_v1, "--options", "a=,1,", "b=(1,)", "c=[,]") == {"a": ["", 1], "b": (1,), "c": [""]}
    with pytest.raises(AssertionError):
        parse_options(config, "--options", "a=[(a,b), [1,2], false")
    with pytest.raises(SystemExit):
        parse_options(config, "--options", "no_value")


class TestMMEngine:
    def test_environment_variables_are_recorded(self, write: Any, monkeypatch: Any) -> None:
        folder = write(c_DOT_py="a = '{{$ETUDE_A:}}'\nb = {{'$ETUDE_B:80'}}\n")
        with pytest.raises(KeyError, match="ETUDE_A"):
            config.Config.fromfile(folder / "c.py")
        monkeypatch.setenv("ETUDE_A", "60")
        made = config.Config.fromfile(folder / "c.py")
        assert (made.a, made.b, made.env_variables) == ("60", 80, {"ETUDE_A": "60"})

    def test_a_missing_environment_variable_is_told_with_its_line(self, write: Any) -> None:
        with pytest.raises(ConfigError, match=r"c\.py:2: .*ETUDE_NOPE"):
            config.Config.fromfile(write(c_DOT_py="b = 1\na = '{{$ETUDE_NOPE:}}'\n") / "c.py")

    def test_the_live_base_can_be_read_and_changed(self, write: Any) -> None:
        folder = write(
            base_DOT_py="a = dict(x=1)\nb = [1]\n",
            c_DOT_py="_base_ = './base.py'\nc = _base_.a.x + 1\n_base_.a.x = 5\n_base_.b.append(2)\nd = _base_.a\n",
        )
        made = config.Config.fromfile(folder / "c.py")
        assert (made.a.x, made.b, made.c, made.d.x) == (5, [1, 2], 2, 5)

    def test_base_variables_in_json_and_yaml(self, write: Any) -> None:
        folder = write(
            base_DOT_py="a = dict(b=[1, 2])\n",
            c_DOT_json='{"_base_": "base.py", "x": {{_base_.a.b}}, "n": "{{fileBasename}}"}',
            d_DOT_yaml="_base_: [base.py]\nx: {{ _base_.a }}\n",
        )
        assert config.Config.fromfile(folder / "c.json").to_dict() == {"a": {"b": [1, 2]}, "x": [1, 2], "n": "c.json"}
        assert config.Config.fromfile(folder / "d.yaml").x.b == [1, 2]

    def test_a_base_variable_that_is_not_there_is_answered(self, write: Any) -> None:
        folder = write(base_DOT_py="model = 1\n", c_DOT_py="_base_ = 'base.py'\nx = {{_base_.modle}}\n")
        with pytest.raises(KeyError, match="did you mean 'model'"):
            config.Config.fromfile(folder / "c.py")

    def test_code_in_a_config_may_use_config_itself(self, write: Any) -> None:
        folder = write(simple_DOT_py="a = [1, 2]\n")
        file = folder / "c.py"
        file.write_text(
            f"from mmengine import Config\ncfg = Config.fromfile({str(folder / 'simple.py')!r})\nb = cfg.a[1]\n"
        )
        made = config.Config.fromfile(file)
        assert (made.cfg.a, made.b) == ([1, 2], 2)

    def test_bases_of_an_installed_package_carry_its_scope(self, write: Any, monkeypatch: Any) -> None:
        folder = write(
            scopedpkg____init___DOT_py="",
            c_DOT_py="_base_ = 'scopedpkg::a.py'\n",
        )
        inner = folder / "scopedpkg" / "configs"
        inner.mkdir(parents=True)
        (folder / "scopedpkg" / "__init__.py").write_text("")
        (inner / "a.py").write_text("model = dict(type='Net', head=dict(type='H'))\n")
        monkeypatch.syspath_prepend(str(folder))
        made = config.Config.fromfile(folder / "c.py")
        assert made.model == {"type": "Net", "head": {"type": "H"}, "_scope_": "scopedpkg"}

    def test_diff_is_a_unified_diff_of_the_texts(self, tmp_path: Path) -> None:
        one, other = config.Config({"a": 1, "b": 2}), config.Config({"a": 1, "b": 3})
        expected = "--- \n\n+++ \n\n@@ -1,3 +1,3 @@\n\n a = 1\n-b = 2\n+b = 3\n \n\n"
        assert config.Config.diff(one, other) == expected
        one.dump(tmp_path / "one.py")
        assert config.Config.diff(tmp_path / "one.py", other) == expected

    def test_pop_of_a_missing_key_gives_none(self) -> None:
        assert config.ConfigDict(a=1).pop("b") is None
        with pytest.raises(KeyError):
            config_v1.ConfigDict(a=1).pop("b")

    def test_a_dict_class_of_the_user_stays_what_it_is(self) -> None:
        class Mine(dict):
            pass

        assert type(config.ConfigDict(a=Mine(b=1)).a) is Mine

    def test_a_key_named_like_a_method_is_only_an_item(self) -> None:
        made = config.ConfigDict(keys=1)
        assert made["keys"] == 1
        assert callable(made.keys)
        with pytest.raises(AttributeError, match="read-only"):
            made.keys = 2


class TestPrettyText:
    def test_the_text_evaluates_to_the_same_values_whatever_they_are(self) -> None:
        values = {
            "s": "it's a \\ \"quote\"\n", "n": None, "f": 1e-7, "inf": float("inf"), "t": (1,), "e": [], "d": {},
            "deep": {"class": 1, "a-b": [{"x": (1, 2)}], 3: {"y": "z" * 90}}, "set": {1, 2},
        }  # fmt: skip
        for sort in (True, False):
            for spread in (True, False):
                names: dict[str, Any] = {}
                exec(pretty(values, sort=sort, spread=spread), names)
                assert {key: names[key] for key in values} == values

    def test_objects_without_a_literal_never_stop_a_dump(self) -> None:
        text = config.Config({"a": object(), "b": print, "c": dict}).pretty_text
        names: dict[str, Any] = {}
        exec(text, names)
        assert names["c"] == "builtins.dict"

    def test_lines_stay_within_79_columns_where_they_can(self) -> None:
        values = {"optimizer": {"type": "SGD", **{f"argument_{i}": i for i in range(12)}}}
        assert max(map(len, pretty(values, sort=False, spread=False).splitlines())) <= 79


def test_places_follow_assignments_updates_and_attributes() -> None:
    text = "model = dict(\n    a=1,\n    b=[\n        dict(c=2)])\nmodel.update(\n    d=3)\nmodel.b[0].c = 4\n_base_.x.y = 1\n"
    found = {path: place.line for path, place in places_in(text, "c.py").items()}
    assert found[("model",)] == 1
    assert found[("model", "a")] == 2
    assert found[("model", "b", 0, "c")] == 7
    assert found[("model", "d")] == 6
    assert found[("x", "y")] == 8


def test_the_parts_of_a_variable_have_the_lines_that_wrote_it() -> None:
    text = "steps = [\n    dict(type='Load'),\n    dict(type='Flip')]\ndata = dict(\n    train=dict(pipeline=steps))\n"
    found = {path: place.line for path, place in places_in(text, "c.py").items()}
    assert found[("data", "train", "pipeline")] == 5
    assert found[("data", "train", "pipeline", 1, "type")] == 3


def test_the_base_of_a_package_may_lie_beside_its_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for folder in ("some_checkout", "configs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "some_checkout/__init__.py").touch()
    (tmp_path / "configs/base.py").write_text("a = 1\n")
    assert base_file("some_checkout::base.py", "c.py") == (str(tmp_path / "configs/base.py"), "some_checkout")


def test_only_outermost_components_of_another_package_carry_its_scope() -> None:
    values = {"model": {"type": "Net", "head": {"type": "Head"}}, "several": [{"type": "One"}, ({"a": 1},)]}
    scoped = with_scope(config.ConfigDict(values), "other")
    assert scoped.model._scope_ == scoped.several[0]._scope_ == "other"
    assert "_scope_" not in scoped.model.head and "_scope_" not in scoped
    assert isinstance(scoped.several[1][0], config.ConfigDict)


def test_python_that_is_called_something_else_is_warned_of() -> None:
    with (
        pytest.warns(UserWarning, match='Please check "file_format"'),
        pytest.raises(Exception),
    ):
        config.Config.fromstring("a = dict(b=1)", ".json")


def test_commas_inside_brackets_do_not_split_a_value() -> None:
    from etude_openmm.shared.config.config_base import DictActionBase

    assert DictActionBase.parse_value("f(1,2)") == "f(1,2)"
    assert DictActionBase.parse_value("f(1,2),3") == ["f(1,2)", 3]
    assert DictActionBase.parse_value("[(1,2),[3]]") == [(1, 2), [3]]
