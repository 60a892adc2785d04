"""Taking a section's keys: what fits is given, everything that does not is told at once."""

from __future__ import annotations

from typing import Any

from etude.config.reader import Fields
from etude.config.tree import Tree
from etude.plan import Place, Spec
from etude.units import Amount


def tree(values: dict[str, Any]) -> Tree:
    """Every path of ``values`` at a line of its own."""
    made = Tree(values)
    made.places = {
        path: Place("a.yaml", line, ".".join(map(str, path))) for line, (path, _) in enumerate(made.walk(), 1)
    }
    return made


def test_values_are_taken_with_their_types_and_defaults() -> None:
    fields = Fields(tree({"train": {"epochs": 3.0, "seed": 1, "name": None}}), ("train",))
    assert fields.take("epochs", int) == 3
    assert fields.take("accumulate", int, default=1) == 1
    assert fields.take("name", str, default=None) is None
    assert fields.take("seed", "int | str") == 1
    fields.done()
    assert fields.findings == []


def test_all_mistakes_of_all_sections_are_told_at_once_with_their_lines() -> None:
    root = Fields(tree({"optim": {"lr": "1e-3", "weight_decy": 0}, "train": {"epochs": -1}, "modle": "MLP"}))
    optim, train = root.section("optim"), root.section("train")
    root.take("model", default=None)
    assert optim.take("lr", float, default=0.1) == 0.1
    assert optim.take("weight_decay", float, default=0.0) == 0.0
    assert train.take_positive("epochs", default=None) is None
    for fields in (optim, train, root):
        fields.done()
    assert [str(finding) for finding in root.findings] == [
        "a.yaml:2: optim.lr must be a number, not the string '1e-3'; write 1e-3 without quotes",
        "a.yaml:5: train.epochs must be more than zero, not -1",
        "a.yaml:3: unknown key optim.weight_decy; did you mean 'weight_decay'?",
        "a.yaml:6: unknown key modle; did you mean 'model'?",
    ]


def test_a_missing_key_is_told_where_its_section_stands() -> None:
    fields = Fields(tree({"train": {"seed": 1}}), ("train",))
    assert fields.take("epochs", int) is None
    assert str(fields.findings[0]) == "a.yaml:1: train.epochs is missing"


def test_a_section_may_be_absent_or_empty_but_not_a_number() -> None:
    root = Fields(tree({"log": None, "train": 3}))
    assert not root.section("data").present
    assert not root.section("log").present
    root.section("train")
    assert [str(finding) for finding in root.findings] == ["a.yaml:2: train must be a mapping, not 3"]


def test_amounts_are_parsed_and_a_wrong_one_is_told() -> None:
    fields = Fields(tree({"every": "2ep", "until": 100, "validate": "-1ep", "begin": "soon"}))
    assert fields.take_amount("every") == Amount(2, "epoch")
    assert fields.take_amount("until", unit="epoch", default=None) is None
    assert fields.take_amount("nothing", default=None) is None
    assert fields.take_amount("validate", default=None) is None
    assert fields.take_amount("begin", default=None) is None
    assert [finding.message for finding in fields.findings] == [
        "until: 100 has no unit",
        "validate: '-1ep' is not an amount",
        "begin: 'soon' is not an amount",
    ]


def test_choices_and_priorities_are_answered_with_the_near_one() -> None:
    fields = Fields(tree({"precision": "bf61", "priority": "HIHG"}))
    assert fields.take("precision", str, default="fp32", choices=("fp32", "bf16")) == "fp32"
    assert fields.take_priority() == 50
    assert [finding.hint for finding in fields.findings] == ["did you mean 'bf16'?", "did you mean 'HIGH'?"]
    assert Fields(tree({"priority": "low"})).take_priority() == 70


def test_a_component_is_a_name_or_a_mapping_and_keeps_the_places_of_its_arguments() -> None:
    root = Fields(tree({"loss": "MSELoss", "model": {"type": "MLP", "sizes": [1, 2]}}))
    assert root.take_spec("loss", "loss") == Spec(kind="loss", name="MSELoss", at=Place("a.yaml", 1, "loss"))
    model = root.take_spec("model", "model")
    assert model is not None
    assert (model.name, dict(model.args), model.at.line, model.place("sizes").line) == ("MLP", {"sizes": [1, 2]}, 3, 4)


def test_components_inside_arguments_become_specs_of_their_own_kind() -> None:
    values = {"dataset": {"type": "Idx", "transform": ["Flip", {"type": "Crop", "size": 8}]}}
    spec = Fields(tree(values)).take_spec("dataset", "dataset")
    assert spec is not None
    flip, crop = spec.args["transform"]
    assert (flip.kind, flip.name, crop.kind, crop.name, dict(crop.args)) == (
        "transform",
        "Flip",
        "transform",
        "Crop",
        {"size": 8},
    )


def test_the_rest_of_a_section_is_the_component_and_own_keys_are_kept_out() -> None:
    optim = Fields(tree({"optim": {"type": "AdamW", "lr": 0.1, "clip_norm": 1.0}}), ("optim",))
    assert optim.take("clip_norm", float) == 1.0
    spec = optim.rest_spec("optimizer")
    optim.done()
    assert spec is not None
    assert (spec.name, dict(spec.args)) == ("AdamW", {"lr": 0.1})
    assert optim.findings == []


def test_a_component_without_a_type_is_a_finding() -> None:
    fields = Fields(tree({"model": {"sizes": [1]}, "loss": 3, "metrics": ["A", {"type": "B"}]}))
    assert fields.take_spec("model", "model") is None
    assert fields.take_spec("loss", "loss") is None
    assert [spec.name for spec in fields.take_specs("metrics", "metric")] == ["A", "B"]
    assert [finding.message for finding in fields.findings] == [
        "model has no `type`",
        "loss must be a loss: its name, or a mapping with `type`",
    ]


def test_a_class_of_a_python_config_goes_by_its_dotted_path() -> None:
    class Local: ...

    fields = Fields(tree({"a": {"type": Fields}, "b": {"type": Local}}))
    spec = fields.take_spec("a", "model")
    assert spec is not None
    assert spec.name == "etude.config.reader.Fields"
    assert fields.take_spec("b", "model") is None
    assert "cannot be found again by its name" in str(fields.findings[0])


def test_a_misspelt_type_is_found_also_inside_arguments() -> None:
    fields = Fields(tree({"model": {"tpye": "MLP"}, "dataset": {"type": "Idx", "transform": {"typ": "Flip"}}}))
    assert fields.take_spec("model", "model") is None
    assert fields.take_spec("dataset", "dataset") is not None
    assert [str(finding) for finding in fields.findings] == [
        "a.yaml:2: unknown key model.tpye; did you mean 'type'?",
        "a.yaml:6: unknown key dataset.transform.typ; did you mean 'type'?",
    ]


def test_a_variable_of_a_python_config_is_told_how_to_stay_private() -> None:
    fields = Fields(Tree({"width": 3, "modle": 1}, {(): Place("a.py", 1)}))
    fields.take("model", default=None)
    fields.done()
    assert [finding.hint for finding in fields.findings] == [
        "call it _width if it is your own variable",
        "did you mean 'model'?",
    ]
