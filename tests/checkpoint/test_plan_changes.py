from __future__ import annotations

from dataclasses import replace

import pytest

from etude.checkpoint.plan_changes import Change, compare, facts, require_allowed
from etude.errors import ConfigError
from etude.plan import HookPlan, Loader, Optimizer, Place, Plan, Spec, Training

PLAN = Plan(
    dialect="native",
    model=Spec(kind="model", name="MLP", args={"sizes": [4, 2]}, at=Place("a.yaml", 3)),
    data={"train": Loader(dataset=Spec(kind="dataset", name="Digits"), batch_size=32)},
    optimizers={"": Optimizer(spec=Spec(kind="optimizer", name="AdamW", args={"lr": 0.1}))},
    update=Spec(kind="update", name="Step"),
    loop=Spec(kind="loop", name="epochs"),
    hooks=(HookPlan(spec=Spec(kind="hook", name="Ema", args={"momentum": 0.1})),),
    train=Training(epochs=3),
)


def changed(**parts: object) -> list[Change]:
    return compare(facts(PLAN), facts(replace(PLAN, **parts)))  # type: ignore[arg-type]


def test_facts_are_plain_values_by_the_words_of_the_config() -> None:
    known = facts(PLAN)
    assert known["optim.type"] == "AdamW" and known["optim.lr"] == 0.1
    assert known["data.train.batch_size"] == 32 and known["hooks.Ema.momentum"] == 0.1
    assert all(value is None or isinstance(value, bool | int | float | str) for value in known.values())


def test_where_a_value_was_written_does_not_matter() -> None:
    assert changed(model=replace(PLAN.model, at=Place("b.yaml", 9)), files=("b.yaml",)) == []


def test_a_longer_run_more_workers_and_another_folder_are_harmless() -> None:
    loader = replace(PLAN.data["train"], workers=2)
    found = changed(train=replace(PLAN.train, epochs=9), data={"train": loader}, folder="elsewhere")
    assert len(found) == 3
    require_allowed(found, ())


@pytest.mark.parametrize("key", ["data.train.batch_size", "batch_size", "data", "all"])
def test_a_change_that_leads_elsewhere_needs_its_name(key: str) -> None:
    found = changed(data={"train": replace(PLAN.data["train"], batch_size=64)})
    with pytest.raises(ConfigError, match=r"data\.train\.batch_size 32 -> 64 changes the trajectory; --allow-change"):
        require_allowed(found, ("seed",))
    require_allowed(found, (key,))


@pytest.mark.parametrize("key", ["hooks.my.Own", "Own", "hooks", "all"])
def test_a_hook_that_is_new_or_gone_is_one_change(key: str) -> None:
    own = HookPlan(spec=Spec(kind="hook", name="my.Own", args={"size": 3, "parts": [1, 2]}))
    for found in (
        changed(hooks=(*PLAN.hooks, own)),
        compare(facts(replace(PLAN, hooks=(own, *PLAN.hooks))), facts(PLAN)),
    ):
        with pytest.raises(
            ConfigError, match=r"^hooks\.my\.Own \S+ -> \S+ changes the trajectory; --allow-change \S+ \S+ it$"
        ):
            require_allowed(found, ("seed",))
        require_allowed(found, (key,))


def test_all_refused_changes_come_at_once() -> None:
    optimizer = Optimizer(spec=Spec(kind="optimizer", name="SGD", args={"lr": 0.2}))
    with pytest.raises(ConfigError) as caught:
        require_allowed(changed(optimizers={"": optimizer}, train=replace(PLAN.train, seed=5)), ())
    assert len(caught.value.findings) == 3


def test_secrets_and_what_came_from_the_environment_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER", "s3cret-marker")
    args = {"api_key": "k-123456", "url": "https://u:s3cret-marker@host", "name": "plain"}
    known = facts(replace(PLAN, writers=(Spec(kind="writer", name="Remote", args=args),)))
    text = repr(known)
    assert "k-123456" not in text and "s3cret-marker" not in text and known["writers.0.name"] == "plain"
