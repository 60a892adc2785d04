from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.checkpoint import warm_start
from etude.checkpoint.store import Store
from etude.errors import ConfigError, ResumeError


def model() -> nn.Module:
    return nn.ModuleDict({"backbone": nn.Linear(3, 4), "head": nn.Linear(4, 2)})


def ones(**shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return {name.replace("__", "."): torch.ones(shape) for name, shape in shapes.items()}


def test_weights_of_a_native_checkpoint_start_another_run(tmp_path: Path) -> None:
    trained, fresh = model(), model()
    store = Store(tmp_path)
    store.save({"model": trained.state_dict(), "counters": {"step": 5}}, step=5)
    store.close()
    assert warm_start.init_from(fresh, tmp_path / "step-000000005").exact
    assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), fresh.parameters(), strict=True))


def test_prefixes_are_cut_and_put_on(tmp_path: Path) -> None:
    torch.save({"state_dict": ones(teacher__backbone__weight=(4, 3), teacher__backbone__bias=(4,))}, tmp_path / "f.pth")
    fresh = model()
    match = warm_start.init_from(fresh, tmp_path / "f.pth", prefix="teacher.backbone", to="backbone")
    assert sorted(match.matched) == ["backbone.bias", "backbone.weight"]
    assert fresh["backbone"].weight.unique().tolist() == [1.0]  # type: ignore[index]


def test_keys_are_revised_by_regular_expressions_in_order(tmp_path: Path) -> None:
    torch.save(ones(module__encoder__weight=(4, 3), module__encoder__bias=(4,)), tmp_path / "f.pth")
    match = warm_start.init_from(model(), tmp_path / "f.pth", rename=[(r"^module\.", ""), ("^encoder", "backbone")])
    assert len(match.matched) == 2


def test_what_does_not_fit_is_left_and_listed(tmp_path: Path) -> None:
    torch.save(ones(backbone__weight=(4, 3), head__weight=(9, 4), haed__bias=(2,)), tmp_path / "f.pth")
    fresh = model()
    before = fresh["head"].weight.clone()  # type: ignore[index]
    match = warm_start.init_from(fresh, tmp_path / "f.pth")
    assert torch.equal(before, fresh["head"].weight)  # type: ignore[index]
    text = warm_start.describe(match)
    assert "shape    head.weight: the model has (2, 4), the file (9, 4)" in text
    assert "missing  head.bias (the file has haed.bias)" in text
    assert "1 fit, 1 of another shape, 2 missing, 1 unused" in text


def test_strict_refuses_anything_odd(tmp_path: Path) -> None:
    torch.save(ones(backbone__weight=(4, 3)), tmp_path / "f.pth")
    with pytest.raises(ConfigError, match="does not fit exactly"):
        warm_start.init_from(model(), tmp_path / "f.pth", strict=True)


def test_that_nothing_matched_is_an_error(tmp_path: Path) -> None:
    torch.save(ones(other=(1,)), tmp_path / "f.pth")
    with pytest.raises(ConfigError, match="nothing matched"):
        warm_start.init_from(model(), tmp_path / "f.pth")
    with pytest.raises(ConfigError, match=r"prefix 'backbon' matches no weight; did you mean 'backbone'\?"):
        torch.save(ones(backbone__weight=(4, 3)), tmp_path / "g.pth")
        warm_start.init_from(model(), tmp_path / "g.pth", prefix="backbon")
    with pytest.raises(ConfigError, match="not a valid regular expression"):
        warm_start.init_from(model(), tmp_path / "g.pth", rename={"(": ""})


def test_strict_asks_for_the_submodule_that_is_named_not_for_the_whole_model(tmp_path: Path) -> None:
    torch.save(
        {"state_dict": ones(backbone__weight=(4, 3), backbone__bias=(4,), head__weight=(9, 4))}, tmp_path / "f.pth"
    )
    fresh = model()
    match = warm_start.init_from(fresh, tmp_path / "f.pth", prefix="backbone", to="backbone", strict=True)
    assert match.exact and sorted(match.outside) == ["head.bias", "head.weight"]
    assert "2 fit, 0 of another shape, 0 missing, 0 unused; the other 2 of the model stay as they are" in (
        warm_start.describe(match)
    )
    torch.save(ones(backbone__weight=(4, 3)), tmp_path / "half.pth")
    with pytest.raises(ConfigError, match=r"missing  backbone\.bias"):
        warm_start.init_from(model(), tmp_path / "half.pth", prefix="backbone", to="backbone", strict=True)


def test_several_submodules_by_a_map_of_prefixes(tmp_path: Path) -> None:
    torch.save(
        ones(enc__weight=(4, 3), enc__bias=(4,), cls__weight=(2, 4), cls__bias=(2,), other=(1,)), tmp_path / "f.pth"
    )
    fresh = model()
    match = warm_start.init_from(fresh, tmp_path / "f.pth", prefix={"enc": "backbone", "cls": "head"}, strict=True)
    assert match.exact and len(match.matched) == 4 and not match.outside
    match = warm_start.init_from(fresh, tmp_path / "f.pth", prefix={"enc.": "backbone."}, strict=True)
    assert len(match.matched) == 2 and len(match.outside) == 2
    with pytest.raises(ConfigError, match="leave `to` out"):
        warm_start.init_from(fresh, tmp_path / "f.pth", prefix={"enc": "backbone"}, to="head")


def test_when_nothing_matches_the_prefix_that_would_help_is_named(tmp_path: Path) -> None:
    torch.save(ones(module__net__backbone__weight=(4, 3), module__net__backbone__bias=(4,)), tmp_path / "deep.pth")
    with pytest.raises(ConfigError, match=r"`prefix: module\.net` would make names agree"):
        warm_start.init_from(model(), tmp_path / "deep.pth")
    torch.save(ones(weight=(4, 3), bias=(4,)), tmp_path / "flat.pth")
    with pytest.raises(ConfigError, match=r"`to: (backbone|head)` would make names agree"):
        warm_start.init_from(model(), tmp_path / "flat.pth")


def test_a_long_list_is_told_by_modules(tmp_path: Path) -> None:
    torch.save(
        {f"layers.{n}.{w}": torch.ones(1) for n in range(40) for w in ("q", "k")} | ones(head__bias=(2,)),
        tmp_path / "f.pth",
    )
    text = warm_start.describe(warm_start.init_from(model(), tmp_path / "f.pth"))
    assert "unused   layers.0.* (2 tensors)" in text and len(text.splitlines()) <= 33 and "lines more" in text


def test_a_file_without_weights_says_what_it_has(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "ema": {"state_dict": ones(w=(2,))}}, tmp_path / "f.pth")
    with pytest.raises(ResumeError, match="holds no weights; it has epoch, ema"):
        warm_start.read_weights(tmp_path / "f.pth")
    assert list(warm_start.read_weights(tmp_path / "f.pth", key="ema.state_dict")) == ["w"]
    with pytest.raises(ResumeError, match=r"no 'ema\.weights' in it; it has epoch, ema"):
        warm_start.read_weights(tmp_path / "f.pth", key="ema.weights")


def tensors(*names: str) -> dict[str, torch.Tensor]:
    return {name: torch.ones(1) for name in names}


def names_of_hint(model: list[str], file: list[str], tmp_path: Path) -> str:
    """Return what is suggested when no name of the file is one of the model."""
    torch.save(tensors(*file), tmp_path / "hint.pth")
    fresh = nn.Module()
    for name in model:
        *steps, last = name.split(".")
        module = fresh
        for step in steps:
            if not hasattr(module, step):
                module.add_module(step, nn.Module())
            module = getattr(module, step)
        module.register_buffer(last, torch.zeros(1))
    with pytest.raises(ConfigError, match="nothing matched") as caught:
        warm_start.init_from(fresh, tmp_path / "hint.pth")
    return caught.value.findings[0].hint


@pytest.mark.parametrize(
    ("model", "file", "hint"),
    [
        (["x"], ["a.x"], "prefix: a"), (["x"], ["a.b.c.d.x"], "prefix: a.b.c.d"), (["x"], ["a.b.c.d.e.x"], None),
        (["a.x"], ["x"], "to: a"), (["a.b.c.d.x"], ["x"], "to: a.b.c.d"), (["x"], ["y"], None), (["x"], ["a.y"], None),
        # The prefix that makes most names agree.
        (["x", "y", "z"], ["a.x", "b.x", "b.y", "c.z"], "prefix: b"), ([], ["a.x"], None),
    ],
)  # fmt: skip
def test_the_prefix_that_is_suggested_makes_names_agree(
    tmp_path: Path, model: list[str], file: list[str], hint: str | None
) -> None:
    said = names_of_hint(model, file, tmp_path)
    assert said.startswith(f"`{hint}` ") if hint else "would make names agree" not in said


def test_a_key_of_a_native_checkpoint_is_another_part_of_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save({"model": tensors("w"), "hook.Ema": {"weights": {"w": torch.zeros(1)}, "n": 1}}, step=5)
    store.close()
    path = tmp_path / "step-000000005"
    assert warm_start.read_weights(path)["w"].item() == 1
    assert warm_start.read_weights(path, key="hook.Ema.weights")["w"].item() == 0
    assert warm_start.read_weights(path, key="model")["w"].item() == 1
    with pytest.raises(ResumeError, match=r"no weights below 'hook\.Ema'; it has model, hook\.Ema"):
        warm_start.read_weights(path, key="hook.Ema")


@pytest.mark.parametrize("name", warm_start.WEIGHT_KEYS)
def test_weights_are_found_under_the_usual_names(name: str) -> None:
    content = {"epoch": 3, name: tensors("w"), "empty": {}}
    assert warm_start.weights_place(content) == name
    assert list(warm_start.weights_in(content)) == ["w"]


@pytest.mark.parametrize(
    ("key", "number"), [("a", 1), ("a.b", 2), ("a.b.c", 3), ("d.e", 4), ("d", None), ("a.x", None), ("a.w.x", None)]
)
def test_the_longest_name_that_is_there_is_meant(key: str, number: int | None) -> None:
    content: dict[str, Any] = {
        "a": {"w": torch.tensor(1), "b": {"w": torch.tensor(9)}},
        "a.b": {"w": torch.tensor(2), "c": {"w": torch.tensor(3)}},
        "d": {"e": {"w": torch.tensor(4)}},
    }
    if number is None:
        with pytest.raises(ResumeError, match=f"^file: no (weights below )?'{key}'"):
            warm_start.weights_in(content, key=key, at="file")
    else:
        assert warm_start.weights_in(content, key=key)["w"].item() == number


def test_a_file_that_is_weights_alone_needs_no_key() -> None:
    assert list(warm_start.weights_in({"w": torch.ones(1), "model": 3, "state_dict": {}})) == ["w"]
    with pytest.raises(ResumeError, match="holds no weights; it has nothing"):
        warm_start.weights_in({})


def test_a_file_without_weights_names_twelve_things_that_it_has() -> None:
    with pytest.raises(ResumeError) as caught:
        warm_start.weights_in({f"n{number}": 0 for number in range(20)})
    assert str(caught.value).endswith("n10, n11")


def test_a_prefix_that_matches_nothing_is_answered_with_those_of_its_depth() -> None:
    weights = tensors("a.b.x", "a.c.x", "d.e.x")
    with pytest.raises(ConfigError, match=r"prefix 'q\.r\.' matches no weight; it has a\.b, a\.c, d\.e$"):
        warm_start.adapt(weights, prefix="q.r.")
    with pytest.raises(ConfigError, match=r"matches no weight; it has a, d$"):
        warm_start.adapt(weights, prefix="q")
    with pytest.raises(ConfigError) as caught:
        warm_start.adapt(tensors(*(f"m{number:02}.x" for number in range(20))), prefix="q")
    assert str(caught.value).endswith("m10, m11")


def test_a_prefix_is_a_module_and_not_the_beginning_of_a_name() -> None:
    weights = tensors("enc.x", "encoder.x", "enc")
    assert list(warm_start.adapt(weights, prefix="enc")) == ["x"]
    assert list(warm_start.adapt(weights, to="a.b.")) == ["a.b.enc.x", "a.b.encoder.x", "a.b.enc"]
    assert list(warm_start.adapt(weights, prefix={"enc": "", "encoder": "y"})) == ["x", "y.x"]
    assert list(warm_start.adapt(weights, rename={"^enc": "a", "a$": "b"})) == ["a.x", "aoder.x", "b"]


def test_all_of_a_model_is_asked_for_if_one_prefix_goes_anywhere() -> None:
    fresh = tensors("a.x", "b.x", "x")
    match = warm_start.compare(fresh, tensors("a.x"))
    assert match.missing == ["b.x", "x"] and match.outside == []
    match = warm_start.compare(fresh, tensors("a.x"), inside=("a.",))
    assert match.outside == ["b.x", "x"] and match.missing == [] and match.exact
    match = warm_start.compare(fresh, tensors("a.x"), inside=("a.", "b."))
    assert match.missing == ["b.x"] and not match.exact


def test_a_map_with_one_prefix_to_the_model_itself_asks_for_the_whole_model(tmp_path: Path) -> None:
    torch.save(ones(enc__weight=(4, 3), enc__bias=(4,), rest__head__weight=(2, 4)), tmp_path / "f.pth")
    match = warm_start.init_from(model(), tmp_path / "f.pth", prefix={"enc": "backbone", "rest": ""})
    assert match.missing == ["head.bias"] and match.outside == []


@pytest.mark.parametrize(
    "match",
    [warm_start.Match(missing=["a"]), warm_start.Match(unexpected=["a"]), warm_start.Match(mismatched=[("a", (), ())])],
)
def test_any_difference_makes_a_match_inexact(match: warm_start.Match) -> None:
    assert not match.exact and warm_start.Match(matched=["a"], outside=["b"]).exact


@pytest.mark.parametrize(
    ("count", "lines", "more"), [(4, 4, ""), (5, 5, ""), (6, 5, "… and 1 lines more"), (9, 5, "4")]
)
def test_a_table_has_no_more_lines_than_asked_for(count: int, lines: int, more: str) -> None:
    text = warm_start.describe(warm_start.Match(missing=[f"n{number}" for number in range(count)]), most=5)
    assert text.count("missing  n") == lines and text.count("lines more") == bool(more) and more in text


def test_many_names_are_joined_by_kind_and_by_two_levels_of_modules() -> None:
    match = warm_start.Match(
        missing=["a.b.c.w", "a.b.d.w", "a.c.other", "top", "tip"], unexpected=["q.k", "q.v", "z.z.z.w", "z.z.w"]
    )
    assert warm_start.describe(match, most=9).count("\n") == 9
    assert warm_start.describe(match, most=8).splitlines()[:-1] == [
        "  missing  a.b.* (2 tensors)",
        "  missing  a.c.other",
        "  missing  top",
        "  missing  tip",
        "  unused   q.* (2 tensors)",
        "  unused   z.z.* (2 tensors)",
    ]


def test_what_is_no_tensor_has_no_shape_and_is_left_as_it_is(tmp_path: Path) -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"version": 1}

        def set_extra_state(self, state: Any) -> None:
            raise AssertionError

    torch.save({**ones(weight=(2, 3), bias=(2,)), "_extra_state": torch.tensor(1)}, tmp_path / "f.pth")
    fresh = Extra(3, 2)
    assert warm_start.init_from(fresh, tmp_path / "f.pth").exact and fresh.weight.unique().tolist() == [1.0]


def test_an_error_of_a_native_checkpoint_names_its_path(tmp_path: Path) -> None:
    (tmp_path / "step-000000001").mkdir()
    with pytest.raises(ResumeError, match=r"step-000000001: it has no manifest\.json"):
        warm_start.read_weights(tmp_path / "step-000000001")
