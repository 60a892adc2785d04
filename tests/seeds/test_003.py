"""Every snippet of "Customize Runtime Settings" (MMClassification), run. A misprint gets an error that helps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etude.cli import main
from etude.errors import ConfigError
from tests.seeds.mmcv1_runs import project  # noqa: F401
from tests.seeds.mmcv1_snippets import (
    CHECKPOINT,
    CUSTOM_HOOKS,
    IMPORT_MY_HOOK,
    LOG,
    MY_HOOK,
    WORKFLOW,
    WORKFLOW_WITH_VAL,
)

EVALUATION = """
evaluation = dict(interval=1, metric='accuracy', metric_options={'topk': (1, )})
"""

#: The tutorial writes ``True``; the name of a result, or 'auto', is what works.
SAVE_BEST_PRINTED = """
evaluation = dict(interval=1, save_best=True, metric='accuracy', metric_options={'topk': (1, )})
"""

START = """
evaluation = dict(interval=1, start=200, metric='accuracy', metric_options={'topk': (1, )})
"""

#: The tutorial calls the key ``mmcv_hooks``; it is ``custom_hooks``.
MMCV_HOOKS_PRINTED = """
mmcv_hooks = [
    dict(type='MMCVHook', a=a_value, b=b_value, priority='NORMAL')
]
"""

EMA = """
custom_hooks = [
    dict(type='EMAHook', interval=100, priority='HIGH')
]
"""

CUSTOM_IMPORTS = """
custom_imports = dict(imports=['mmcls.core.utils.my_hook'], allow_failed_imports=False)
"""

CUSTOM_HOOKS_PRIORITY = """
custom_hooks = [
    dict(type='MyHook', a=a_value, b=b_value, priority='ABOVE_NORMAL')
]
"""


@pytest.mark.parametrize(("snippet", "mode"), [(WORKFLOW, "train"), (f"workflow = {WORKFLOW_WITH_VAL}", "val")])
def test_workflows(project: Any, snippet: str, mode: str) -> None:  # noqa: F811
    assert project.train(snippet).mode == mode


def test_checkpoints_every_epoch(project: Any) -> None:  # noqa: F811
    project.train(CHECKPOINT)
    assert (project.folder / "out" / "latest.pth").is_symlink()


def test_two_loggers(project: Any) -> None:  # noqa: F811
    runner = project.train(LOG)
    assert [hook.interval for hook in runner.hooks[-2:]] == [50, 50]


def test_options_of_the_metric_go_to_the_dataset(project: Any) -> None:  # noqa: F811
    project.train(EVALUATION)
    assert project.parts.KWARGS == [{"metric": "accuracy", "metric_options": {"topk": (1,)}}] * 2


def test_save_best_is_a_name_not_a_truth_value(project: Any) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match="auto"):
        project.train(SAVE_BEST_PRINTED)
    project.train(SAVE_BEST_PRINTED.replace("True", "'auto'"))
    assert (project.folder / "out" / "best_accuracy_top-1_epoch_2.pth").is_file()


def test_evaluation_may_start_late(project: Any) -> None:  # noqa: F811
    project.train(START)
    assert project.parts.KWARGS == []


def test_a_key_that_nobody_reads_is_told(project: Any, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    main(["check", str(project.config(MMCV_HOOKS_PRINTED))])
    told = next(line for line in capsys.readouterr().out.splitlines() if "mmcv_hooks" in line)
    assert "config.py:" in told
    assert "custom_hooks" in told


def test_moving_averages(project: Any) -> None:  # noqa: F811
    runner = project.train(EMA)
    assert [hook.priority for hook in runner.hooks if type(hook).__name__ == "EMAHook"] == [30]
    state = torch.load(project.folder / "out" / "epoch_2.pth", weights_only=False)["state_dict"]
    assert "ema_fc_weight" in state


@pytest.mark.parametrize(("hooks", "priority"), [(CUSTOM_HOOKS, 50), (CUSTOM_HOOKS_PRIORITY, 40)])
@pytest.mark.parametrize("by_package", [False, True])
def test_a_hook_of_ones_own(project: Any, hooks: str, priority: int, by_package: bool) -> None:  # noqa: F811
    project.write("mmcls/core/utils/my_hook.py", MY_HOOK)
    imported = CUSTOM_IMPORTS.replace("imports=[", "imports=['seed_parts', ")
    if by_package:
        project.write("mmcls/core/utils/__init__.py", IMPORT_MY_HOOK)
        imported = imported.replace(".my_hook", "")
    runner = project.train(imported + hooks)
    assert [hook.priority for hook in runner.hooks if type(hook).__name__ == "MyHook"] == [priority]


def test_resume_load_and_pretrained(project: Any) -> None:  # noqa: F811
    first = project.train("runner = dict(max_epochs=1)", folder="first", child=True)
    weight = first.model.fc.weight.detach().clone()
    load = "load_from = 'first/epoch_1.pth'\nrunner = dict(max_epochs=1)"
    assert project.train(load, folder="loaded", child=True).iter == 5
    resumed = project.train("resume_from = 'first/epoch_1.pth'", folder="resumed")
    assert (resumed.iter, resumed.meta["iter"]) == (10, 5)
    torch.save({"state_dict": {f"backbone.{k}": v for k, v in first.model.state_dict().items()}}, "part.pth")
    init = "model = dict(init_cfg=dict(type='Pretrained', checkpoint='part.pth', prefix='backbone'))\n"
    still = "optimizer = dict(lr=0.0, weight_decay=0.0)\nrunner = dict(max_epochs=1)"
    assert torch.equal(project.train(init + still, folder="pretrained", child=True).model.fc.weight, weight)
