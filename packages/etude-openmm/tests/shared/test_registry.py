"""Registries of both systems: scopes, parents, registration, building, errors that answer."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from etude_openmm.shared.config.config_v2 import Config
from etude_openmm.shared.config.dict_v2 import ConfigDict
from etude_openmm.shared.registries import registry_v1
from etude_openmm.shared.registries import registry_v2 as registry
from etude_openmm.shared.registries.managers import DefaultScope, ManagerMixin, init_default_scope
from etude_openmm.shared.registries.registry_v2 import Registry, build_from_cfg
from etude_openmm.shared.registries.root import (
    MODELS,
    PARAM_SCHEDULERS,
    RUNNERS,
    count_registered_modules,
    traverse_registry_tree,
)

BOTH = [pytest.param(registry, id="mmengine"), pytest.param(registry_v1, id="mmcv1")]


@pytest.fixture(autouse=True)
def _no_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DefaultScope, "_instance_dict", type(DefaultScope._instance_dict)())


@pytest.mark.parametrize("kind", BOTH)
class TestBothFlavours:
    def test_a_new_registry_is_empty_and_knows_its_scope(self, kind: Any) -> None:
        made = kind.Registry("cat")
        assert (made.name, made.module_dict, len(made), made.scope) == ("cat", {}, 0, "tests")
        assert made.build_func is kind.build_from_cfg
        assert kind.Registry("cat", scope="x").scope == "x"
        with pytest.raises(AssertionError):
            kind.Registry("cat", scope=1)
        with pytest.raises(AssertionError):
            kind.Registry("cat", parent="cat", scope="x")

    def test_children_inherit_the_build_function_and_have_distinct_scopes(self, kind: Any) -> None:
        def build_func(cfg: Any, registry: Any, default_args: Any = None) -> str:
            return f"{registry.scope}:{cfg}"

        parent = kind.Registry("cat", build_func=build_func, scope="a")
        child = kind.Registry("cat", parent=parent, scope="b")
        assert child.build("x") == "b:x"
        assert parent.children == {"b": child}
        with pytest.raises(AssertionError):
            kind.Registry("cat", parent=parent, scope="b")

    def test_registering_classes_and_functions_under_names(self, kind: Any) -> None:
        cats = kind.Registry("cat")

        @cats.register_module()
        class Tom:
            pass

        @cats.register_module(name=["Siam", "Siam2"])
        class Cat:
            pass

        @cats.register_module(name="f")
        def make() -> None:
            pass

        cats.register_module(module=Cat)
        assert cats.get("Tom") is Tom
        assert cats.get("Siam") is cats.get("Siam2") is cats.get("Cat") is Cat
        assert cats.get("f") is make
        assert "Tom" in cats
        assert "Jerry" not in cats
        assert len(cats) == 5

    def test_wrong_registrations_are_refused(self, kind: Any) -> None:
        cats = kind.Registry("cat")
        cats.register_module(name="Tom", module=dict)
        with pytest.raises(KeyError, match="Tom is already registered in cat at builtins"):
            cats.register_module(name="Tom", module=list)
        cats.register_module(name="Tom", module=list, force=True)
        assert cats.get("Tom") is list
        with pytest.raises(TypeError, match="name must be None, an instance of str, or a sequence of str"):
            cats.register_module(name=1, module=dict)
        with pytest.raises(TypeError, match="force must be a boolean"):
            cats.register_module(force=1, module=dict)
        with pytest.raises(TypeError, match="module must be"):
            cats.register_module(module="string")

    def test_building_fills_defaults_and_leaves_the_config_alone(self, kind: Any) -> None:
        nets = kind.Registry("net")

        @nets.register_module()
        class Net:
            def __init__(self, depth: int, stages: int = 4) -> None:
                self.depth, self.stages = depth, stages

        cfg = {"type": "Net", "depth": 50}
        built = nets.build(cfg, default_args={"stages": 3, "depth": 1})
        assert (built.depth, built.stages, cfg) == (50, 3, {"type": "Net", "depth": 50})
        assert nets.build({"depth": 1}, default_args={"type": Net}).depth == 1
        for wrong, error in (
            ("Net", TypeError), ({"depth": 1}, KeyError), ({"type": 1000}, TypeError), ({"type": "VGG"}, KeyError),
            ({"type": "Net", "nope": 1}, TypeError),
        ):  # fmt: skip
            with pytest.raises(error):
                nets.build(wrong)
        with pytest.raises(TypeError):
            kind.build_from_cfg(cfg, "NETS")
        with pytest.raises(TypeError):
            kind.build_from_cfg(cfg, nets, default_args=1)

    def test_an_unknown_name_is_answered_with_the_near_one(self, kind: Any) -> None:
        nets = kind.Registry("net")
        nets.register_module(name="ResNet", module=dict)
        with pytest.raises(KeyError, match="did you mean 'ResNet'"):
            nets.build({"type": "ResNte"})


def tree() -> dict[str, Registry]:
    dogs = Registry("dogs", scope="dogs")
    hounds = Registry("dogs", parent=dogs, scope="hound")
    little = Registry("dogs", parent=hounds, scope="little_hound")
    mid = Registry("dogs", parent=hounds, scope="mid_hound")
    samoyeds = Registry("dogs", parent=dogs, scope="samoyed")
    return {"dogs": dogs, "hound": hounds, "little": little, "mid": mid, "samoyed": samoyeds}


class TestMMEngine:
    def test_names_are_found_here_above_and_by_scope(self) -> None:
        made = tree()
        for where, name in (
            ("dogs", "Golden"),
            ("hound", "Blood"),
            ("little", "Dachs"),
            ("mid", "Beagle"),
            ("samoyed", "Sam"),
        ):
            made[where].register_module(name=name, module=type(name, (), {}))
        found = {
            ("hound", "Golden"): "Golden", ("little", "Golden"): "Golden", ("dogs", "hound.Blood"): "Blood",
            ("hound", "hound.Blood"): "Blood", ("little", "hound.Blood"): "Blood",
            ("dogs", "hound.little_hound.Dachs"): "Dachs", ("hound", "little_hound.Dachs"): "Dachs",
            ("little", "hound.mid_hound.Beagle"): "Beagle", ("little", "samoyed.Sam"): "Sam",
        }  # fmt: skip
        for (where, key), name in found.items():
            assert made[where].get(key).__name__ == name, (where, key)
        for where, key in (
            ("little", "Goldden"),
            ("dogs", "samoyeddd.Sam"),
            ("dogs", "samoyed.Dachs"),
            ("dogs", "Blood"),
        ):
            assert made[where].get(key) is None, (where, key)

    def test_a_dotted_name_may_be_an_import_path(self) -> None:
        assert Registry("x").get("os.path.join") is __import__("os").path.join
        assert Registry("x").get("os.path") is __import__("os").path
        assert Registry("x").get("json") is None
        with pytest.raises(TypeError, match="must be a str"):
            Registry("x").get(dict)

    def test_roots_and_children_are_found_by_scope(self) -> None:
        made = tree()
        assert made["mid"]._get_root_registry() is made["mid"].root is made["dogs"]
        assert made["dogs"]._search_child("mid_hound") is made["mid"]
        assert made["samoyed"]._search_child("mid_hound") is None

    def test_scope_keys_split_at_the_first_dot(self) -> None:
        assert Registry.split_scope_key("a.b.C") == ("a", "b.C")
        assert Registry.split_scope_key("C") == (None, "C")

    @pytest.mark.parametrize("kind", [dict, ConfigDict, Config])
    def test_a_scope_in_the_config_reaches_what_is_built_inside(self, kind: Any) -> None:
        made = tree()

        @made["samoyed"].register_module()
        class Mine:
            def __init__(self, friend: Any) -> None:
                self.friend = made["dogs"].build(friend)

        @made["samoyed"].register_module()
        class Yours:
            pass

        built = made["dogs"].build(kind({"_scope_": "samoyed", "type": "Mine", "friend": {"type": "Yours"}}))
        assert isinstance(built.friend, Yours)
        assert DefaultScope.get_current_instance() is None

    def test_switching_scopes_nests_and_comes_back(self) -> None:
        made = tree()
        DefaultScope.get_instance("start", scope_name="samoyed")
        with made["dogs"].switch_scope_and_registry("hound") as outer:
            assert outer is made["hound"]
            with made["dogs"].switch_scope_and_registry("mid_hound") as inner:
                assert inner is made["mid"]
                assert DefaultScope.get_current_instance().scope_name == "mid_hound"
            assert DefaultScope.get_current_instance().scope_name == "hound"
        with made["mid"].switch_scope_and_registry("unknown") as found:
            assert found is made["mid"]
            assert DefaultScope.get_current_instance().scope_name == "unknown"
        assert DefaultScope.get_current_instance().scope_name == "samoyed"

    def test_init_default_scope_sets_and_changes_the_current_scope(self) -> None:
        init_default_scope("a")
        init_default_scope("b")
        assert DefaultScope.get_current_instance().scope_name == "b"
        init_default_scope("a")
        assert DefaultScope.get_current_instance().scope_name == "a"

    def test_partials_and_lambdas_can_be_registered(self) -> None:
        made = Registry("x")
        made.register_module(name="double", module=lambda n: 2 * n)
        made.register_module(name="four", module=functools.partial(lambda n: 2 * n, n=2))
        assert made.build({"type": "double", "n": 3}) == 6
        assert made.build({"type": "four"}) == 4

    def test_managed_classes_are_built_once_per_name(self) -> None:
        made = Registry("vis")

        @made.register_module()
        class Vis(ManagerMixin):
            def __init__(self, name: str = "") -> None:
                super().__init__(name)

        one = build_from_cfg({"type": "Vis", "name": "v"}, made)
        assert build_from_cfg({"type": "Vis", "name": "v"}, made) is one is Vis.get_current_instance()

    def test_repr_is_a_table(self) -> None:
        made = Registry("cat")
        made.register_module(name="Tom", module=dict)
        assert "Registry of cat" in repr(made)
        assert "Tom" in repr(made)

    def test_a_list_of_models_is_a_sequence_and_runners_come_from_their_config(self) -> None:
        built = MODELS.build([{"type": "torch.nn.Identity"}, {"type": "torch.nn.ReLU"}])
        assert [type(part).__name__ for part in built] == ["Identity", "ReLU"]
        child = Registry("runner", parent=RUNNERS, scope="runner_scope_of_test")

        @child.register_module()
        class MyRunner:
            @classmethod
            def from_cfg(cls, cfg: Any) -> Any:
                return ("made", cfg["x"])

        assert child.build({"runner_type": "MyRunner", "x": 1}) == ("made", 1)
        RUNNERS.children.pop("runner_scope_of_test")

    def test_schedulers_of_epochs_are_converted_on_request(self) -> None:
        child = Registry("parameter scheduler", parent=PARAM_SCHEDULERS, scope="scheduler_scope_of_test")

        @child.register_module()
        class Sched:
            def __init__(self, **kwargs: Any) -> None:
                self.kwargs = kwargs

            @classmethod
            def build_iter_from_epoch(cls, **kwargs: Any) -> Any:
                return ("iter", kwargs["epoch_length"])

        given = {"type": "Sched", "by_epoch": True, "convert_to_iter_based": True}
        assert child.build(given, default_args={"epoch_length": 5}) == ("iter", 5)
        assert child.build({"type": "Sched", "a": 1}, default_args={"epoch_length": 5}).kwargs == {"a": 1}
        with pytest.raises(AssertionError):
            child.build({**given, "by_epoch": False}, default_args={"epoch_length": 5})
        PARAM_SCHEDULERS.children.pop("scheduler_scope_of_test")

    def test_the_tree_can_be_counted(self, tmp_path: Path) -> None:
        made = tree()
        made["mid"].register_module(name="Beagle", module=Path)
        assert [info["num_modules"] for info in traverse_registry_tree(made["dogs"], verbose=False)] == [0, 0, 0, 1, 0]
        assert traverse_registry_tree(made["dogs"])[3] == {"num_modules": 1, "scope": made["mid"].scope, "": ["Beagle"]}
        result = count_registered_modules(str(tmp_path), verbose=False)
        assert (tmp_path / "modules_statistic_results.json").exists()
        assert "HOOKS" in result["registries"]


class TestMmcv1:
    def test_bare_names_stay_in_their_own_table(self) -> None:
        parent = registry_v1.Registry("x", scope="a")
        child = registry_v1.Registry("x", parent=parent, scope="b")
        parent.register_module(name="P", module=dict)
        child.register_module(name="C", module=list)
        assert child.get("P") is None
        assert child.get("a.P") is dict
        assert parent.get("b.C") is child.get("b.C") is list
        with pytest.raises(AttributeError, match="zzz"):
            parent.get("zzz.C")

    def test_errors_of_the_call_name_the_class_and_keep_their_type(self) -> None:
        made = registry_v1.Registry("x")

        @made.register_module()
        class Net:
            def __init__(self, n: int) -> None:
                raise ZeroDivisionError("inside")

        with pytest.raises(ZeroDivisionError, match="Net: inside"):
            made.build({"type": "Net", "n": 1})

    def test_the_decorator_without_a_call_still_works(self) -> None:
        made = registry_v1.Registry("x")
        with pytest.warns(DeprecationWarning):

            @made.register_module
            class Old:
                pass

        assert made.get("Old") is Old


def test_a_name_that_comes_with_the_dialect_is_taken_even_before_it_was_used():
    registry = Registry("lazy thing")
    registry.add_lazy({"Decoder": "json:JSONDecoder"})
    with pytest.raises(KeyError, match="already registered"):
        registry.register_module(name="Decoder", module=dict)
    registry.register_module(name="Decoder", module=dict, force=True)
    assert registry.get("Decoder") is dict
