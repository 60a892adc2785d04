from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etude.api import load_plan
from etude.checkpoint.plan_changes import Change, compare, facts, require_allowed, require_known, words_of
from etude.config.tree import Tree
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
