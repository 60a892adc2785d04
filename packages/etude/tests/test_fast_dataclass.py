"""A record is what a frozen dataclass is."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.fast_dataclass import field, field_names, is_dataclass, record, replace


@record
class Point:
    """A point."""

    x: int
    y: int = 0
    tags: tuple[str, ...] = field(default_factory=tuple)


@record(kw_only=True)
class Sheet:
    """A sheet that counts itself."""

    size: int
    names: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size")


@dataclasses.dataclass(frozen=True)
class Twin:
    """The dataclass with the fields of Point."""

    x: int
    y: int = 0
    tags: tuple[str, ...] = dataclasses.field(default_factory=tuple)


@given(st.integers(), st.integers(), st.lists(st.text()).map(tuple))
def test_it_holds_compares_hashes_and_prints_as_a_dataclass(x, y, tags):
    one, twin = Point(x, y, tags=tags), Twin(x, y, tags=tags)
    assert dataclasses.asdict(one) == dataclasses.asdict(twin)
    assert repr(one) == repr(twin).replace("Twin", "Point")
    assert hash(one) == hash(twin)
    assert one == Point(x, y, tags) and one != Point(x + 1, y, tags) and one != twin
    assert dataclasses.replace(one, y=7) == Point(x, 7, tags)
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one


def test_defaults_are_made_anew():
    assert Point(1) == Point(1, 0, ())
    Sheet(size=1).names["a"] = 1
    assert Sheet(size=1).names == {}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Point(), r"Point\(\) missing required arguments: 'x'"),
        (lambda: Point(1, z=2), "unexpected keyword argument 'z'"),
        (lambda: Point(1, x=2), "multiple values for argument 'x'"),
        (lambda: Point(1, 2, (), 4), "takes 3 positional arguments but 4 were given"),
        (lambda: Sheet(1), "takes 0 positional arguments"),
    ],
)
def test_wrong_arguments_are_type_errors(wrong, says):
    with pytest.raises(TypeError, match=says):
        wrong()


@given(st.lists(st.integers(), max_size=4), st.dictionaries(st.sampled_from(["x", "y", "tags", "z"]), st.integers()))
def test_the_same_calls_are_taken_and_refused_as_by_a_dataclass(args, given):
    try:
        twin = dataclasses.asdict(Twin(*args, **given))
    except TypeError:
        with pytest.raises(TypeError):
            Point(*args, **given)
    else:
        assert dataclasses.asdict(Point(*args, **given)) == twin


def test_the_signature_is_that_of_the_fields():
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 0, tags: 'tuple[str, ...]' = Ellipsis) -> None"
    assert str(inspect.signature(Sheet)) == "(*, size: 'int', names: 'dict[str, int]' = Ellipsis) -> None"


def test_it_stays_as_it_was_made():
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert point.x == 1


def test_post_init_checks_values():
    with pytest.raises(ValueError, match="size"):
        Sheet(size=-1)


@record(frozen=False)
class Sum:
    """A record that changes."""

    value: int = 0
    parts: list[int] = field(default_factory=list)


@record(eq=False)
class Table:
    """A record that equals only itself, and can be a key although its values cannot."""

    rows: dict[str, int]


def test_one_that_is_not_frozen_changes_and_is_no_key():
    one = Sum(3)
    one.value = 4
    assert one == Sum(4) and one != Sum(4, [1])
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_one_without_equality_equals_itself_alone():
    one = Table({"a": 1})
    assert one != Table({"a": 1}) and {one: 1}[one] == 1


def test_it_is_replaced_and_looked_through_without_dataclasses():
    assert replace(Point(1, tags=("a",)), y=7) == Point(1, 7, ("a",))
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        replace(Point(1), z=2)
    assert field_names(Point(1)) == ("x", "y", "tags") and field_names(Point) == field_names(Twin(1)) == ()
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "tags"]
    assert [is_dataclass(value) for value in (Point, Point(1), Twin, Twin(1), 1)] == [True, True, True, True, False]


def test_its_values_are_matched_by_position():
    match Point(1, 2):
        case Point(x, 2):
            assert x == 1
        case _:
            raise AssertionError
