"""Plan → Run: everything that the plan names, made and wired, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import etude
from etude.build import build
from etude.building.components import build_component, import_modules
from etude.building.device import pick_device
from etude.errors import ConfigError, UserCodeError
from etude.plan import Spec
from tests.cli.commands import CONFIG


def planned(*overrides: str, text: str = CONFIG) -> etude.Plan:
    Path("c.yaml").write_text(text)
    return etude.load_plan("c.yaml", overrides)[0]


def test_a_run_has_what_the_plan_names_and_nothing_is_written(workdir):
    run = build(planned())
    assert type(run.model).__name__ == "MLP" and set(run.data) == {"train", "val"}
    assert type(run.optimizers[""]).__name__ == "AdamW" and len(run.optimizers[""].param_groups) == 2
    assert (run.steps_per_epoch, run.total_steps, run.max_epochs) == (6, 12, 2)
    assert [hook.name for hook in run.hooks] == ["Schedule", "Timer", "Log", "Evaluate", "Checkpoint"]
    assert set(run.evaluation.metrics) == {"accuracy"}
    assert [path.name for path in Path().iterdir()] == ["c.yaml"]


def test_two_builds_of_one_seed_have_the_same_weights(workdir):
    one, two, other = build(planned()), build(planned()), build(planned("+train.seed=1"))
    first, second, third = (next(run.model.parameters()) for run in (one, two, other))
    assert torch.equal(first, second) and not torch.equal(first, third)


@pytest.mark.parametrize(
    ("override", "length"),
    [("+train.limit_batches=4", (4, 8)), ("+train.overfit=1", (1, 12)), ("data.train.batch_size=1000", (2, 4))],
)
def test_the_length_follows_from_data_and_limits(workdir, override, length):
    run = build(planned(override))
    assert (run.steps_per_epoch, run.total_steps) == length


def test_limits_hold_for_evaluations_too(workdir):
    assert len(build(planned("+train.limit_batches=2")).data["val"]) == 2
    assert len(build(planned()).data["val"]) == 4


def test_specs_inside_arguments_are_made_first():
    inner = [Spec(kind="loss", name="L1Loss"), Spec(kind="loss", name="MSELoss")]
    made = build_component(Spec(kind="loss", name="SumLoss", args={"losses": inner, "weights": [1.0, 2.0]}))
    assert [type(loss).__name__ for loss in made.losses] == ["L1Loss", "MSELoss"]


def test_a_wrong_call_is_a_mistake_of_the_config_with_its_place():
    with pytest.raises(ConfigError, match=r"c.yaml:3: model 'torch.nn.Linear': .*out_features"):
        build_component(Spec(kind="model", name="torch.nn.Linear", args={"in_features": 1}, at="c.yaml:3"))


def test_what_a_component_raises_is_told_with_its_place():
    with pytest.raises(UserCodeError, match=r"c.yaml:3: model torch.nn.Conv2d raised ValueError"):
        wrong = {"in_channels": 3, "out_channels": 4, "kernel_size": 1, "groups": 2}
        build_component(Spec(kind="model", name="torch.nn.Conv2d", args=wrong, at="c.yaml:3"))


def test_the_device_is_told_or_picked():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in {"cpu", "cuda", "mps"}
    for wrong in ("cpuu", "cuda:77"):
        with pytest.raises(ConfigError, match=wrong):
            pick_device(wrong)


MODEL = """\
import torch, etude

@etude.MODELS.register(force=True)
class Ours(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, {width})
"""


def test_two_projects_with_a_file_of_one_name_train_in_one_process(workdir):
    text = "imports: [ours.py]\n" + CONFIG.replace("{type: MLP, sizes: [64, 16, 10]}", "Ours").replace("*.bias", "bias")
    widths = []
    for width in (10, 12):
        folder = workdir / str(width)
        folder.mkdir()
        (folder / "ours.py").write_text(MODEL.format(width=width))
        (folder / "c.yaml").write_text(text)
        widths.append(build(etude.load_plan(folder / "c.yaml")[0]).model.out_features)
    assert widths == [10, 12]


def test_a_file_does_not_take_the_name_of_a_module_in_use(workdir):
    Path("json.py").write_text("")
    with pytest.raises(ConfigError, match="another name"):
        import_modules(planned(text="imports: [json.py]\n" + CONFIG))


def test_losses_of_one_name_are_numbered_and_functions_are_losses(workdir):
    Path("own_losses.py").write_text(
        "def own(output, target, scale=2.0):\n    return scale * (output.sum() - target.sum())\n"
    )
    losses = "loss: [L1Loss, L1Loss, {type: own_losses.own, scale: 3.0}]"
    run = build(planned(text="imports: [own_losses.py]\n" + CONFIG.replace("loss: CrossEntropyLoss", losses)))
    found = run.update.forward.losses
    assert list(found) == ["L1Loss", "L1Loss#2", "own"]
    assert float(found["own"](torch.ones(2), torch.zeros(2))) == 6.0
