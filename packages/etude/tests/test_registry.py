from __future__ import annotations

import sys

import pytest

from etude.errors import ConfigError, UserCodeError
from etude.registry import MODELS, OPTIMIZERS, Registry, trust


@pytest.fixture
def pets():
    registry = Registry("pet")

    @registry.register
    class Cat:
        def __init__(self, lives=9):
            self.lives = lives

    @registry.register("hound")
    class Dog:
        def __init__(self, name):
            self.name = name

    return registry


def test_names_come_from_the_class_or_from_the_decorator(pets):
    assert list(pets) == ["Cat", "hound"]
    assert pets.build({"type": "hound", "name": "Rex"}).name == "Rex"
    assert pets.build("Cat").lives == 9


def test_an_unknown_name_is_answered_with_the_near_one(pets):
    with pytest.raises(ConfigError, match="no pet is called 'Cst'; did you mean 'Cat'"):
        pets.get("Cst")


def test_a_name_is_not_taken_twice_unless_forced(pets):
    with pytest.raises(ValueError, match="'Cat' is taken"):
        pets.add("Cat", dict)
    pets.add("Cat", dict, force=True)
    assert pets.get("Cat") is dict


def test_lazy_entries_are_imported_when_asked_for():
    registry = Registry("thing")
    registry.add("Odd", "colorsys:rgb_to_hls")
    sys.modules.pop("colorsys", None)
    assert "Odd" in registry and "colorsys" not in sys.modules
    assert registry.get("Odd").__name__ == "rgb_to_hls"


def test_scopes_lead_to_children_and_children_ask_their_parent(pets):
    zoo = Registry("pet", parent=pets, scope="zoo")
    zoo.add("Lion", dict)
    assert pets.get("zoo.Lion") is dict and zoo.get("zoo.Lion") is dict
    assert zoo.get("Cat") is pets.get("Cat")
    with pytest.raises(ConfigError):
        pets.get("Lion")


def test_a_wrong_argument_is_the_configs_mistake_and_a_raising_class_is_the_users(pets):
    with pytest.raises(ConfigError, match="lifes"):
        pets.build({"type": "Cat", "lifes": 3})

    @pets.register
    class Broken:
        def __init__(self):
            len(3)

    with pytest.raises(UserCodeError, match="Broken raised TypeError"):
        pets.build("Broken")


def test_any_dotted_path_to_a_class_of_the_right_kind_works():
    import torch

    assert OPTIMIZERS.get("torch.optim.SGD") is torch.optim.SGD
    assert MODELS.get("torch.nn.Linear") is torch.nn.Linear


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "subprocess.Popen", "torch.nn.Linear"])
def test_a_dotted_path_to_anything_else_is_refused_before_it_is_called(name):
    with pytest.raises(ConfigError, match="is not a optimizer|is not an optimizer"):
        OPTIMIZERS.get(name)


def test_functions_of_modules_that_the_user_imported_are_welcome():
    registry = Registry("thing")
    with pytest.raises(ConfigError):
        registry.get("textwrap.dedent")
    trust("textwrap")
    assert registry.get("textwrap.dedent")("  x") == "x"


def test_summary_lists_every_entry_with_its_origin(pets):
    pets.add("far", "some.module:Thing")
    assert [line.split()[0] for line in pets.summary().splitlines()] == ["Cat", "far", "hound"]
    assert "some.module:Thing" in pets.summary()
