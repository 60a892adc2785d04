from __future__ import annotations

from pathlib import Path

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
