from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.api import load_plan
from etude.checkpoint.plan_changes import HARMLESS, Change, compare, facts, require_allowed, require_known, words_of
from etude.config.tree import Tree
from etude.errors import ConfigError
from etude.plan import HookPlan, Loader, Optimizer, Place, Plan, Spec, Training
from etude.units import Amount

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
    with pytest.raises(ConfigError, match=r"^data\.train\.batch_size: 32 → 64 changes the result; --allow-change"):
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
            ConfigError,
            match=r"^hooks\.my\.Own: (none → my.Own|my.Own → none) changes the result; --allow-change \S+ \S+ it$",
        ):
            require_allowed(found, ("seed",))
        require_allowed(found, (key,))


def test_all_refused_changes_come_at_once_by_section() -> None:
    optimizer = Optimizer(spec=Spec(kind="optimizer", name="SGD", args={"lr": 0.2}))
    with pytest.raises(ConfigError) as caught:
        found = changed(optimizers={"": optimizer}, train=replace(PLAN.train, seed=5))
        require_allowed(found, (), since="step-000000007")
    assert [str(finding) for finding in caught.value.findings] == [
        "optim.type: AdamW → SGD, optim.lr: 0.1 → 0.2 change the result after step-000000007; "
        "--allow-change optim accepts them",
        "train.seed: 0 → 5 changes the result after step-000000007; --allow-change train.seed accepts it",
    ]


CONFIG = """
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 64, timeout: 30.0}
optim: {type: SGD, lr: 0.1, groups: [{match: "*.bias", momentum: 0.5}]}
schedule:
  lr:
    - {type: Linear, until: 1ep}
    - {type: Cosine, until: end}
  model.head.scale: {type: Cosine, to: 0.5}
train: {epochs: 3}
hooks: [Freeze, {type: EMA, momentum: 0.1}]
"""


@pytest.mark.parametrize(
    ("old", "new", "said", "names"),
    [
        ("    - {type: Cosine, until: end}\n", "", "c.yaml:8: schedule.lr.1.type: Cosine → none",
         ("schedule", "schedule.lr", "schedule.lr.1", "schedule.lr.1.type", "schedule.0.phases.1.curve", "schedule.0")),
        ("Linear, until: 1ep", "Linear, until: 2ep", "c.yaml:9: schedule.lr.0.until: 1ep → 2ep",
         ("schedule", "schedule.lr.0.until", "schedule.0.phases.0.until", "until")),
        ("to: 0.5", "to: 0.1", "c.yaml:11: schedule.model.head.scale.0.to: 0.5 → 0.1",
         ("schedule.model.head.scale", "schedule.1.phases.0.curve.to", "to")),
        ("loss: CrossEntropyLoss", "loss: MSELoss", "c.yaml:3: loss.type: CrossEntropyLoss → MSELoss",
         ("loss", "loss.0", "loss.0.type", "type")),
        ("momentum: 0.5", "momentum: 0.7", "c.yaml:6: optim.groups.0.momentum: 0.5 → 0.7",
         ("optim.groups.0", "optim.groups.0.options.momentum", "momentum")),
        ("momentum: 0.1}", "momentum: 0.2}", "c.yaml:13: hooks.EMA.momentum: 0.1 → 0.2", ("hooks", "hooks.EMA", "momentum")),
        ("Freeze, ", "", "c.yaml:13: hooks.Freeze: Freeze → none", ("hooks", "hooks.Freeze")),
        ("epochs: 3", "steps: 50", "c.yaml:12: loop.type: epochs → steps", ("loop", "loop.type")),
        (", groups: [{match: \"*.bias\", momentum: 0.5}]", "", "c.yaml:6: optim.groups.0.match: *.bias → none",
         ("optim", "optim.groups", "optim.groups.0")),
    ],
)  # fmt: skip
def test_a_change_is_told_in_the_words_of_the_config_with_its_line(
    old: str, new: str, said: str, names: tuple[str, ...], workdir: Path
) -> None:
    def read(text: str) -> tuple[Plan, Tree]:
        Path("c.yaml").write_text(text)
        return load_plan("c.yaml")

    (before, _), (after, tree) = read(CONFIG), read(CONFIG.replace(old, new))
    found = compare(facts(before), facts(after))
    with pytest.raises(ConfigError) as caught:
        require_allowed(found, (), tree=tree)
    assert str(caught.value).startswith(f"{said} changes the result; --allow-change ")
    advised = str(caught.value).partition("--allow-change ")[2].split()[0]
    for name in ("all", advised, *names):
        require_known([name], [*words_of(facts(before)), *words_of(facts(after))])
        require_allowed(found, (name,))


def test_a_schedule_that_is_new_is_one_section(workdir: Path) -> None:
    new = CONFIG.partition("schedule:")[2].partition("train:")[0]
    without = CONFIG.replace(f"schedule:{new}", "")
    plans = []
    for text in (without, CONFIG):
        Path("c.yaml").write_text(text)
        plans.append(facts(load_plan("c.yaml")[0]))
    assert [change.key for change in compare(*plans)] == [
        "schedule.lr.0",
        "schedule.lr.1",
        "schedule.model.head.scale.0",
    ]
    require_allowed(compare(*plans), ("schedule",))


def test_secrets_and_what_came_from_the_environment_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER", "s3cret-marker")
    args = {"api_key": "k-123456", "url": "https://u:s3cret-marker@host", "name": "plain"}
    known = facts(replace(PLAN, writers=(Spec(kind="writer", name="Remote", args=args),)))
    text = repr(known)
    assert "k-123456" not in text and "s3cret-marker" not in text and known["writers.0.name"] == "plain"


def test_the_facts_of_a_section_are_written_as_in_a_config() -> None:
    known = facts(
        replace(PLAN, optimizers={"": PLAN.optimizers[""], "gen": Optimizer(spec=Spec(kind="optimizer", name="SGD"))})
    )
    head = {key: value for key, value in known.items() if key.startswith(("model", "hooks", "loop", "optim"))}
    assert head == {
        "model.type": "MLP", "model.sizes.0": 4, "model.sizes.1": 2,
        "optim.type": "AdamW", "optim.lr": 0.1,
        "optim.gen.type": "SGD", "loop.type": "epochs",
        "hooks.Ema.type": "Ema", "hooks.Ema.momentum": 0.1, "hooks.Ema.priority": 50, "hooks.Ema.every": None,
        "hooks.Ema.essential": True,
    }  # fmt: skip
    assert not [key for key in known if key.startswith(("files", "source")) or ".at" in key]


def test_amounts_places_and_objects_in_arguments_have_facts_of_their_own() -> None:
    args = {"warmup": Amount(3.0, "epoch"), "at": Place("a.yaml", 3), "kind": object, "none": None}
    known = facts(replace(PLAN, model=Spec(kind="model", name="MLP", args=args)))
    assert {key: value for key, value in known.items() if key.startswith("model.")} == {
        "model.type": "MLP", "model.warmup": "3ep", "model.kind": "<class 'type'>", "model.none": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "harmless"),
    [
        *((key, True) for key in HARMLESS), ("data.val.batch_size", True), ("data.train.workers", True),
        ("data.values", False), ("folders", False), ("train.epoch", False), ("hooks.Logger", False), ("train", False),
        ("hooks.Log.every", True), ("data.train.workers.x", False), ("workers", False), ("optim.timeout", True),
    ],
)  # fmt: skip
def test_a_key_is_harmless_by_itself_its_section_or_its_last_word(key: str, harmless: bool) -> None:
    assert Change(key, 1, 2).harmless is harmless
    if harmless:
        require_allowed([Change(key, 1, 2)], ())
    else:
        with pytest.raises(ConfigError):
            require_allowed([Change(key, 1, 2)], ())


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("all", True), ("optim.groups.0.lr", True), ("lr", True), ("optim", True), ("optim.groups", True),
        ("optim.groups.0", True), ("opt", False), ("groups", False), ("0", False), ("0.lr", False), ("", False),
        ("optim.groups.0.l", False),
    ],
)  # fmt: skip
def test_a_change_is_allowed_by_its_key_a_section_its_last_word_or_all(key: str, allowed: bool) -> None:
    change = Change("optim.groups.0.lr", 1, 2)
    assert change.allowed([key]) is allowed and change.allowed(["x", key]) is allowed and not change.allowed([])


@pytest.mark.parametrize("key", ["lr", "optim", "optim.groups", "optim.groups.0", "optim.groups.0.lr", "all"])
def test_keys_sections_and_last_words_are_known(key: str) -> None:
    require_known([key], ["optim.groups.0.lr", "seed"])


@pytest.mark.parametrize("key", ["groups", "0", "0.lr", "groups.0.lr", "opt", "optim.groups.0.l"])
def test_other_parts_of_a_key_are_not_known(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_known(["lr", key], ["optim.groups.0.lr"])
    assert len(caught.value.findings) == 1 and f" {key}" in str(caught.value)


def test_words_that_are_no_keys_are_known_to_a_plan_without_any() -> None:
    require_known(["all", "data", "owner", "attempts"], [])
    with pytest.raises(ConfigError) as caught:
        require_known(["lr", "all", "seed"], [])
    assert len(caught.value.findings) == 2


def differ(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(one.key, one.before, one.after) for one in compare({"facts": 1, **before}, {"facts": 1, **after})]


def test_keys_that_differ_are_compared_and_new_or_gone_components_are_one_difference() -> None:
    assert differ({"a": 1, "b": 2, "gone": 3}, {"b": 3, "a": 1, "new": 4}) == [
        ("b", 2, 3), ("new", None, 4), ("gone", 3, None),
    ]  # fmt: skip
    optim = {"optim.type": "SGD", "optim.lr": 1}
    assert differ(optim, {"optim.type": "AdamW", "optim.lr": 2, "optim.eps": 3}) == [
        ("optim.type", "SGD", "AdamW"), ("optim.lr", 1, 2), ("optim.eps", None, 3),
    ]  # fmt: skip
    ema = {"hooks.Ema.type": "Ema", "hooks.Ema.every": 5, "hooks.Ema.none": None}
    assert differ({}, ema) == [("hooks.Ema", None, "Ema")] and differ(ema, {}) == [("hooks.Ema", "Ema", None)]
    assert differ(ema, {**ema, "hooks.Ema2.type": "Ema2"}) == [("hooks.Ema2", None, "Ema2")]
    assert differ({}, {"train.type": None}) == []


def test_facts_of_different_versions_are_not_compared() -> None:
    assert compare({"facts": 1, "a": 1}, {"facts": 2, "a": 2}) == [] and compare({"a": 1}, {"facts": 1, "a": 2}) == []
    assert len(compare({"a": 1}, {"a": 2})) == 1


def test_a_change_of_the_model_is_accepted_on_a_condition_and_a_time_is_named_as_in_a_config() -> None:
    with pytest.raises(ConfigError, match="weights"):
        require_allowed([Change("model.size", 1, None)], ())
    with pytest.raises(ConfigError) as caught:
        require_allowed([Change("models.size", 1, None)], ())
    assert "weights" not in str(caught.value)
    before, after = (facts(replace(PLAN, train=Training(epochs=3, max_seconds=limit))) for limit in (None, 60.0))
    assert [str(change) for change in compare(before, after)] == ["train.max_time: none → 60.0"]
    assert str(Change("train.seed", 0, None)) == "train.seed: 0 → none"


@pytest.mark.parametrize(("value", "hidden"), [("abcdef", True), ("abcde", False), ("abcdefg", True)])
def test_values_of_the_environment_are_hidden_from_six_letters_on(
    monkeypatch: pytest.MonkeyPatch, value: str, hidden: bool
) -> None:
    monkeypatch.setenv("TRACKER", value)
    known = facts(replace(PLAN, model=Spec(kind="model", name="MLP", args={"path": f"/x/{value}/y", "other": "fine"})))
    assert known["model.path"] == ("/x/…/y" if hidden else f"/x/{value}/y") and known["model.other"] == "fine"
