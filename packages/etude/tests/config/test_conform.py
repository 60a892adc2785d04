"""What a value may become where a parameter declares a type."""

from __future__ import annotations

from typing import Any

import pytest

from etude.config.conform import Misfit, conform
from etude.plan import Spec


@pytest.mark.parametrize(
    ("value", "annotation", "fitted"),
    [
        (3, "float", 3.0),
        (10.0, "int", 10),
        ([0.9, 1], "tuple[float, float]", (0.9, 1.0)),
        ([1, 2, 3], "tuple[int, ...]", (1, 2, 3)),
        ([1, 2], "Sequence[float]", [1.0, 2.0]),
        ({"a": 1}, "Mapping[str, float]", {"a": 1.0}),
        (None, "Optional[int]", None),
        (2, "float | int", 2),
        ("sum", "Literal['mean', 'sum']", "sum"),
        ("x", "Union[int, 'str']", "x"),
        ("anything", "SomeAlias", "anything"),
        ("anything", "not python(", "anything"),
        ("2ep", "Amount", "2ep"),
        (1, "Annotated[int, 'positive']", 1),
    ],
)
def test_a_value_is_converted_where_nothing_is_lost(value: Any, annotation: str, fitted: Any) -> None:
    found = conform(value, annotation)
    assert found == fitted
    assert type(found) is type(fitted)


@pytest.mark.parametrize(
    ("value", "annotation", "message", "hint"),
    [
        ("3e-3", "float", "a number, not the string '3e-3'", "write 3e-3 without quotes"),
        ("yes", "bool", "true or false, not the string 'yes'", "write true"),
        (0, "bool | None", "true or false or null, not 0", "write false"),
        (True, "int", "a whole number, not true", ""),
        (0.5, "int", "a whole number, not 0.5", ""),
        (float("nan"), "int", "a whole number, not nan", ""),
        (7, "str", "a string, not 7", 'write "7" in quotes'),
        (None, "float", "a number, not null", ""),
        ([1], "tuple[float, float]", "a list of 2, not of 1", ""),
        ("1", "list[int]", "a list, not the string '1'", ""),
        ("maen", "Literal['mean', 'sum']", "one of 'mean', 'sum', not the string 'maen'", "did you mean 'mean'?"),
        ("fast", "Amount", "an amount like 1ep or 500step, not the string 'fast'", ""),
        ("x", "float | torch.Tensor", "a number, not the string 'x'", ""),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_would(
    value: Any, annotation: str, message: str, hint: str
) -> None:
    with pytest.raises(Misfit) as caught:
        conform(value, annotation)
    assert (str(caught.value), caught.value.hint) == (message, hint)


def test_a_component_fits_an_object_and_no_number() -> None:
    spec = Spec(kind="model", name="MLP")
    assert conform(spec, "torch.nn.Module") is spec
    with pytest.raises(Misfit, match="a whole number, not the model MLP"):
        conform(spec, "int")
    with pytest.raises(Misfit, match="a number, not a list of 2"):
        conform([spec, spec], "float")
