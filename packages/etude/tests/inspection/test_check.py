"""A plan held against what it names, and against itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etude import dialects
from etude.api import load_plan
from etude.errors import ConfigError
from etude.inspection.check import bind_arguments, check
from etude.inspection.check.reality import check_facts
from etude.plan import Plan, Spec, Training
from etude.preview.explain import Facts

from .conftest import Write

GOOD: dict[str, str] = {
    "model": "{type: MLP, sizes: [64, 10]}",
    "loss": "CrossEntropyLoss",
    "data": "{train: {dataset: Digits, batch_size: 8}, val: {dataset: {type: Digits, split: val}}}",
    "optim": "{type: SGD, lr: 0.1}",
    "train": "{epochs: 10}",
    "metrics": "[Accuracy]",
}


@pytest.fixture
def planned(write: Write, tmp_path: Path) -> Any:
    def planner(**sections: str) -> Plan:
        merged = {**GOOD, **sections}
        write("a.yaml", "".join(f"{key}: {value}\n" for key, value in merged.items()))
        return load_plan("a.yaml")[0]

    return planner


@pytest.fixture
def found(planned: Any) -> Any:
    """What check says about the good config with some sections changed, without places."""

    def finder(**sections: str) -> list[str]:
        return [str(finding).partition(": ")[2] for finding in check(planned(**sections))]

    return finder


def test_a_sound_plan_has_no_findings(found: Any) -> None:
    assert found() == []


# -- names and parameters ------------------------------------------------------------------------------------------


def test_what_a_function_returns_is_not_held_against_an_annotation(found: Any, write: Write) -> None:
    net = "class Net:\n    def __init__(self, sizes: dict[str, int]) -> None: ...\n"
    write("made_parts.py", f"{net}def sizes(of): return of\nclass Sizes: ...\n")
    nested = "{{type: made_parts.Net, sizes: {{type: made_parts.{}}}}}"
    assert found(imports="[made_parts]", model=nested.format("sizes, of: {a: 1}")) == []
    (told,) = found(imports="[made_parts]", model=nested.format("Sizes"))
    assert "sizes must be a mapping, not" in told


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"optim": "{type: SGD, lr: 0.1, nestrov: true}"}, "SGD has no parameter 'nestrov'; did you mean 'nesterov'?"),
        ({"optim": "{type: Sgdd, lr: 0.1}"}, "no optimizer is called 'Sgdd'; did you mean 'SGD'?"),
        ({"optim": "{type: MSELoss}"}, "no optimizer is called 'MSELoss'; it is the name of a loss"),
        ({"optim": "{type: torch.optim.SDG, lr: 0.1}"}, "the module torch.optim has no 'SDG'; did you mean 'torch.optim.SGD'?"),
        ({"optim": "{type: torch.nn.Linear, in_features: 1, out_features: 1}"}, "'torch.nn.Linear' is not an optimizer; a torch.optim:Optimizer is due here"),
        ({"model": "{type: os.system, command: ls}"}, "'os.system' of Python's own library is not a model; list its module under `imports` if this is meant"),
        ({"loss": "torch.nn.functional.relu"}, "'torch.nn.functional.relu' is a function, not a loss; list its module under `imports` if this function is meant"),
        ({"model": "{type: torch.nn.Linear, in_features: 3}"}, "Linear needs the parameter 'out_features' (int)"),
        ({"model": "{type: torch.nn.Linear, in_features: 3, out_fetures: 4}"}, "torch.nn.Linear has no parameter 'out_fetures'; did you mean 'out_features'?"),
        ({"loss": "{type: CrossEntropyLoss, label_smoothing: [1]}"}, "CrossEntropyLoss: label_smoothing must be a number, not [1]"),
        ({"optim": "{type: AdamW, betas: [0.9]}"}, "AdamW: betas must be a list of 2, not of 1"),
        ({"optim": '{type: SGD, lr: 0.1, groups: [{match: "*.bias", weight_decai: 0}]}'}, "SGD has no group option 'weight_decai'; did you mean 'weight_decay'?"),
        ({"schedule": "{rl: {type: Cosine}}"}, "the schedule drives 'rl', which no parameter group has; did you mean 'lr'?"),
        ({"schedule": "{lr: {type: Linear, form: 0.1}}"}, "Linear has no parameter 'form'; did you mean 'from'?"),
        ({"imports": "[nothing_here.py]"}, "imports: no module or file 'nothing_here.py' can be found"),
    ],
)  # fmt: skip
def test_what_a_component_does_not_take_is_told(found: Any, sections: dict[str, str], message: str) -> None:
    assert any(line.endswith(message) for line in found(**sections)), found(**sections)


@pytest.mark.parametrize(
    "sections",
    [
        {"optim": "{type: torch.optim.AdamW, lr: 1}"},
        {"optim": "{type: AdamW, betas: [0.9, 1], fused: null, lr: 1}"},
        {"optim": '{type: SGD, lr: 0.1, groups: [{match: "*.bias", weight_decay: 0, lr: 1, name: bias}]}'},
        {"schedule": "{lr: {type: Linear, from: 0.1}, momentum: {type: Cosine}, model.temperature: {type: Cosine}}"},
        {"model": "{type: torch.nn.Sequential}"},
    ],
)
def test_what_is_right_or_cannot_be_known_raises_no_alarm(found: Any, sections: dict[str, str]) -> None:
    assert found(**sections) == []


def test_components_of_the_users_own_are_known_from_their_source(write: Write, found: Any) -> None:
    write(
        "own.py",
        """
        import torch
        from etude import MODELS, HOOKS, Hook
        raise SystemExit("nothing of this is run")
        class Base(torch.nn.Module):
            def __init__(self, depth: int = 1): ...
        @MODELS.register("mine")
        class Mine(Base):
            def __init__(self, width: int, **kwargs):
                super().__init__(**kwargs)
        @HOOKS.register
        def note(run): ...
        """,
    )
    good = {"imports": "[own.py]", "hooks": "[note, {type: note, point: after_epoch}]"}
    assert found(model="{type: mine, width: 3, depth: 2}", **good) == []
    assert found(model="{type: own.Mine, width: 3, depth: 2}", **good) == []
    assert found(model="{type: mine, widht: 3, depht: 2}", **good) == [
        "mine has no parameter 'widht'; did you mean 'width'?",
        "mine has no parameter 'depht'; did you mean 'depth'?",
    ]
    assert found(model="{type: mine, width: wide}", hooks="[{type: note, pont: x}]", imports="[own.py]") == [
        "mine: width must be a whole number, not the string 'wide'",
        "note has no parameter 'pont'; did you mean 'point'?",
    ]


def test_the_engine_gives_its_own_words_to_its_own_update_only(write: Write, found: Any) -> None:
    write(
        "mine.py",
        """
        from etude.registry import UPDATES

        @UPDATES.register
        class Mine:
            def __init__(self, forward, optimizers, accumulate, device="cpu"): ...
        """,
    )
    assert found(update="{type: Mine, accumulate: 4}", imports="[mine.py]") == []
    missing = found(update="{type: Mine}", imports="[mine.py]")
    assert len(missing) == 1
    assert "accumulate" in missing[0]


def test_a_name_that_a_file_beside_the_config_registers_is_answered_with_the_import(write: Write, found: Any) -> None:
    write("nets/tiny.py", "from etude import MODELS\n@MODELS.register\nclass Tiny: ...\n")
    assert found(model="Tiny") == [
        "no model is called 'Tiny'; nets/tiny.py registers it: write imports: [nets/tiny.py]"
    ]
    assert found(model="Tinny") == [
        "no model is called 'Tinny'; did you mean 'Tiny'? nets/tiny.py registers it: write imports: [nets/tiny.py]"
    ]


def test_an_argument_left_over_from_a_base_says_how_to_drop_it(write: Write) -> None:
    write(
        "base.yaml",
        "".join(f"{key}: {value}\n" for key, value in {**GOOD, "optim": "{type: AdamW, betas: [0, 1]}"}.items()),
    )
    write("a.yaml", "_base_: base.yaml\noptim: {type: SGD}\n")
    assert [str(finding) for finding in check(load_plan("a.yaml")[0])] == [
        "base.yaml:4: SGD has no parameter 'betas'; known: dampening, differentiable, foreach, fused, lr, maximize, "
        "momentum, nesterov, weight_decay (it comes from base.yaml; `_replace_: true` drops what a base says)"
    ]


def test_arguments_are_converted_where_nothing_is_lost(planned: Any) -> None:
    plan, findings = bind_arguments(
        planned(
            model="{type: torch.nn.Linear, in_features: 3.0, out_features: 4}", optim="{type: AdamW, betas: [0, 1]}"
        )
    )
    assert findings == []
    assert plan.model.args["in_features"] == 3
    assert isinstance(plan.model.args["in_features"], int)
    assert plan.optimizers[""].spec.args["betas"] == (0, 1)


# -- contradictions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"schedule": "{lr: {type: Cosine, until: 12ep}}"}, "warning: the schedule of lr continues until 12ep, but the run ends at 10ep"),
        ({"schedule": "{lr: {type: Cosine, until: 8ep}}"}, "warning: the schedule of lr ends at 8ep, but the run continues until 10ep"),
        ({"schedule": "{lr: [{type: Linear, until: 1ep}, {type: Cosine, begin: 10ep}]}"}, "warning: a phase of lr begins at 10ep, but the run ends at 10ep"),
        ({"schedule": "{lr: [{type: Linear}, {type: Cosine}]}"}, "this phase of lr lasts until the end, but another one follows"),
        ({"schedule": "{lr: [{type: Linear, until: 3ep}, {type: Cosine, begin: 2ep}]}"}, "this phase of lr begins at 2ep, before the one in front of it ends (3ep)"),
        ({"schedule": "{lr: [{type: Linear, until: 3ep}, {type: Cosine, until: 3ep}]}"}, "this phase of lr ends at 3ep, but begins at 3ep"),
        ({"train": "{epochs: 10, validate: 11ep}"}, "warning: Evaluate acts every 11ep, but the run ends at 10ep: it never falls due"),
        ({"checkpoint": "{best: acuracy}"}, "Checkpoint: no metric gives 'acuracy'; did you mean 'accuracy'?"),
        ({"checkpoint": "{best: accuracy}", "metrics": "[]"}, "Checkpoint: no metric gives 'accuracy'"),
        ({"checkpoint": "{best: accuracy}", "data": "{train: {dataset: Digits}}"}, "Checkpoint: best 'accuracy' needs an evaluation, and data.val is missing"),
        ({"hooks": "[{type: Checkpoint, keep: 9}]"}, "keep of a second Checkpoint has no effect: both save to one place"),
        ({"optim": "{one: {type: SGD}, two: {type: SGD, params: ['*']}}"}, "optimizer 'one' has no `params`"),
        ({"parallel": "{strategy: fsdp}", "optim": "{type: SGD, lr: 0.1, fused: true}"}, "fused SGD does not work with parameters in shards (parallel.strategy: fsdp); remove `fused`"),
        ({"parallel": "{strategy: fsdp}", "update": "torch.nn.Identity"}, "an update of your own does not work with parameters in shards (parallel.strategy: fsdp); use ddp"),
        ({"parallel": "{strategy: ddp}", "optim": "{type: LBFGS}"}, "LBFGS trains in one process only (parallel.strategy: ddp); use another optimizer"),
        ({"parallel": "{strategy: hsdp}", "optim": "{type: Adafactor}"}, "Adafactor does not work with parameters in shards (parallel.strategy: hsdp)"),
        ({"parallel": "{strategy: fsdp, offload: true}", "train": "{epochs: 1, device: cpu}"}, "it needs a GPU, and train.device is cpu"),
        ({"parallel": "{compression: bf16}", "train": "{epochs: 1, device: cpu}"}, "bf16 needs a GPU, and train.device is cpu"),
    ],
)  # fmt: skip
def test_what_cannot_both_be_meant_is_told(found: Any, sections: dict[str, str], message: str) -> None:
    assert any(message in line for line in found(**sections)), found(**sections)


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ("[[train, 1], [vall, 1]]", "a.yaml:5: train.workflow: there is no data.vall; did you mean 'val'?"),
        ("[[train, 0], [val, 1]]", "a.yaml:5: train.workflow never trains; write workflow: [[train, 2], [val, 1]]"),
        ("[train, val]", "a.yaml:5: train.workflow is a list of pairs of a split and a number of epochs; write"),
        ("[[train, 1.5]]", "train.workflow is a list of pairs"),
        ("[[train, -1]]", "train.workflow is a list of pairs"),
        ("2", "train.workflow is a list of pairs"),
    ],
)
def test_a_workflow_that_cannot_be_is_refused(planned: Any, flow: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(train=f"{{epochs: 2, workflow: {flow}}}")
    assert [message in str(finding) for finding in error.value.findings] == [True]


@pytest.mark.parametrize(
    "sections",
    [
        {"schedule": "{lr: {type: Linear, from: 0.1, until: 2ep}}"},
        {"schedule": "{lr: [{type: Linear, until: 100step}, {type: Cosine, until: end}]}"},
        {"checkpoint": "{best: loss}"},
        {"checkpoint": "{every: 10ep, best: accuracy}"},
        {"checkpoint": "{best: ''}"},
        {"checkpoint": "{best: accuracy_top5}", "metrics": "[{type: Accuracy, top: [1, 5]}, Confusion, F1, RMSE]"},
        {"hooks": "[{type: EarlyStop, metric: f1}, {type: EarlyStop, metric: recall/3}]", "metrics": "[F1, Confusion]"},
        {"hooks": "[{type: EarlyStop, metric: speed}]", "metrics": "[{type: Mean, key: speed}]"},
        {"loss": "[MSELoss, L1Loss]", "checkpoint": "{best: loss/L1Loss}", "metrics": "[MAE]"},
    ],
)
def test_what_goes_together_raises_no_alarm(found: Any, sections: dict[str, str]) -> None:
    assert found(**sections) == []


def test_a_plan_of_another_dialect_is_only_asked_for_its_length() -> None:
    nothing = Spec(kind="model", name="Unheard")
    plan = Plan(dialect="mmcv1", model=nothing, update=nothing, loop=nothing, train=Training(), files=("a.py",))
    assert [str(finding) for finding in dialects.of(plan).bind_arguments(plan)[1]] == [
        "a.py: nothing says how long to train; give `epochs` or `steps`"
    ]


# -- what only data, model and disk can tell -----------------------------------------------------------------------

NAMES = ["body.0.weight", "body.0.bias", "head.weight"]


def facts(**changes: Any) -> Facts:
    return Facts(**{"steps_per_epoch": 5, "total_steps": 50, "eval_batches": 2, "checkpoint_bytes": 10, **changes})


def test_facts_that_fit_raise_no_alarm(planned: Any) -> None:
    assert check_facts(planned(), facts(), parameters=NAMES) == []


def test_the_room_that_own_checkpoints_take_is_room_for_newer_ones(
    planned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run that just fits could not be resumed."""
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=50))
    plan, needed = planned(checkpoint="{keep: 3}"), facts(checkpoint_bytes=20)
    (told,) = check_facts(plan, needed, parameters=NAMES, folder=str(tmp_path))
    assert "4 checkpoints need" in str(told)
    (tmp_path / "checkpoints" / "step-000000001").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-000000001" / "model.safetensors").write_bytes(bytes(30))
    assert check_facts(plan, needed, parameters=NAMES, folder=str(tmp_path)) == []


@pytest.mark.parametrize(
    ("sections", "changes", "message"),
    [
        ({}, {"steps_per_epoch": 0}, "data.train gives no batch: the dataset is empty"),
        ({}, {"eval_batches": 0}, "data.val gives no batch: the dataset is empty"),
        ({"optim": "{type: SGD, groups: [{match: 'boddy.*', lr: 1}]}"}, {}, "pattern 'boddy.*' matches no parameter; did you mean 'body'?"),
        ({"optim": "{type: SGD, params: ['tail.*']}"}, {}, "pattern 'tail.*' matches no parameter; parameters are called like body.0.weight"),
        ({"log": "{every: 51step}"}, {}, "warning: Log acts every 51step (51 steps), but the run has 50 steps"),
        ({"schedule": "{lr: {type: Cosine, until: 60step}}"}, {}, "warning: the schedule of lr continues until step 60, but the run has 50"),
        ({}, {"checkpoint_bytes": 10**18}, "checkpoints need"),
    ],
)  # fmt: skip
def test_facts_that_contradict_the_plan_are_told(
    planned: Any, sections: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    told = [str(finding) for finding in check_facts(planned(**sections), facts(**changes), parameters=NAMES)]
    assert any(message in line for line in told), told
