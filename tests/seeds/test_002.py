"""Every snippet of "自定义训练配置" (MMTracking), run. A snippet that cannot run as printed gets an error that helps."""

from __future__ import annotations

from typing import Any

import pytest

from etude.errors import ConfigError, EtudeError
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

ADAM = """
optimizer = dict(type='Adam', lr=0.0003, weight_decay=0.0001)
"""

#: As printed: the method has neither colon nor body.
MY_OPTIMIZER_PRINTED = """
from torch.optim import Optimizer
from mmcv.runner.optimizer import OPTIMIZERS


@OPTIMIZERS.register_module()
class MyOptimizer(Optimizer):

    def __init__(self, a, b, c)
"""

MY_OPTIMIZER = """
import torch
from torch.optim import Optimizer
from mmcv.runner.optimizer import OPTIMIZERS


@OPTIMIZERS.register_module(force=True)
class MyOptimizer(Optimizer):

    def __init__(self, params, a, b, c):
        super().__init__(params, dict(lr=a * 0.01, b=b, c=c))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group['lr'])
"""

IMPORT_MY_OPTIMIZER = """
from .my_optimizer import MyOptimizer
"""

CUSTOM_IMPORTS_PRINTED = """
 custom_imports = dict(imports=['mmtrack.core.optimizer.my_optimizer.py'], allow_failed_imports=False)
"""

SGD = """
optimizer = dict(type='SGD', lr=0.02, momentum=0.9, weight_decay=0.0001)
"""

USE_MY_OPTIMIZER = """
optimizer = dict(type='MyOptimizer', a=a_value, b=b_value, c=c_value)
"""

#: As printed: the methods have no bodies.
CONSTRUCTOR_PRINTED = """
from mmcv.utils import build_from_cfg

from mmcv.runner.optimizer import OPTIMIZER_BUILDERS, OPTIMIZERS
from mmtrack.utils import get_root_logger
from .my_optimizer import MyOptimizer


@OPTIMIZER_BUILDERS.register_module()
class MyOptimizerConstructor(object):

    def __init__(self, optimizer_cfg, paramwise_cfg=None):

    def __call__(self, model):

        return my_optimizer
"""

CONSTRUCTOR = """
from mmcv.utils import build_from_cfg

from mmcv.runner.optimizer import OPTIMIZER_BUILDERS, OPTIMIZERS
from mmtrack.utils import get_root_logger
from .my_optimizer import MyOptimizer


@OPTIMIZER_BUILDERS.register_module(force=True)
class MyOptimizerConstructor(object):

    def __init__(self, optimizer_cfg, paramwise_cfg=None):
        self.optimizer_cfg, self.paramwise_cfg = optimizer_cfg, paramwise_cfg

    def __call__(self, model):
        get_root_logger().info('building')
        my_optimizer = build_from_cfg(dict(self.optimizer_cfg, params=model.parameters()), OPTIMIZERS)
        return my_optimizer
"""

GRAD_CLIP = """
optimizer_config = dict(
    _delete_=True, grad_clip=dict(max_norm=35, norm_type=2))
"""

CYCLIC = """
lr_config = dict(
    policy='cyclic',
    target_ratio=(10, 1e-4),
    cyclic_times=1,
    step_ratio_up=0.4,
)
momentum_config = dict(
    policy='cyclic',
    target_ratio=(0.85 / 0.95, 1),
    cyclic_times=1,
    step_ratio_up=0.4,
)
"""

POLY = """
lr_config = dict(policy='poly', power=0.9, min_lr=1e-4, by_epoch=False)
"""

COSINE = """
lr_config = dict(
    policy='CosineAnnealing',
    warmup='linear',
    warmup_iters=1000,
    warmup_ratio=1.0 / 10,
    min_lr_ratio=1e-5)
"""

CUSTOM_IMPORTS_HOOK = """
custom_imports = dict(
    imports=['mmtrack.core.utils.my_hook'],
    allow_failed_imports=False)
"""

CUSTOM_HOOKS_PRIORITY = """
custom_hooks = [
    dict(type='MyHook', a=a_value, b=b_value, priority='NORMAL')
]
"""

EVALUATION = """
evaluation = dict(interval=1, metric='bbox')
"""

#: The parts of these tests belong to mmcls' registries, so the project's own modules are imported beside them.
BOTH = "custom_imports = dict(imports=['seed_parts', '{}'], allow_failed_imports=False)\n"


def _places(project: Any) -> None:  # noqa: F811
    """The parts in mmtrack's registries too: its own train function looks there."""
    text = (project.folder / "seed_parts.py").read_text()
    text += (
        "from mmtrack.datasets import DATASETS as D\nfrom mmtrack.models import MODELS as M\n"
        "D.register_module(force=True)(SeedData)\nM.register_module(force=True)(SeedNet)\n"
    )
    project.write("seed_parts.py", text)


def test_an_optimizer_of_torch(project: Any) -> None:  # noqa: F811
    runner = project.train(ADAM)
    assert type(runner.optimizer).__name__ == "Adam"
    assert runner.optimizer.param_groups[0]["initial_lr"] == 0.0003
    assert runner.optimizer.param_groups[0]["weight_decay"] == 0.0001


def test_the_optimizer_before_the_change(project: Any) -> None:  # noqa: F811
    assert type(project.train(SGD).optimizer).__name__ == "SGD"


@pytest.mark.parametrize("imported", ["mmtrack.core.optimizer.my_optimizer", "mmtrack.core.optimizer"])
def test_an_optimizer_of_ones_own(project: Any, imported: str) -> None:  # noqa: F811
    _places(project)
    project.write("mmtrack/core/optimizer/my_optimizer.py", MY_OPTIMIZER)
    project.write("mmtrack/core/optimizer/__init__.py", IMPORT_MY_OPTIMIZER)
    runner = project.train(BOTH.format(imported) + USE_MY_OPTIMIZER)
    assert type(runner.optimizer).__name__ == "MyOptimizer"
    assert runner.optimizer.param_groups[0]["b"] == 2


@pytest.mark.parametrize("printed", [MY_OPTIMIZER_PRINTED, CONSTRUCTOR_PRINTED])
def test_a_module_without_bodies_is_told_with_its_line(project: Any, printed: str) -> None:  # noqa: F811
    project.write("mmtrack/core/optimizer/my_optimizer.py", printed)
    with pytest.raises((EtudeError, SyntaxError)) as caught:
        project.train(BOTH.format("mmtrack.core.optimizer.my_optimizer"))
    assert "my_optimizer.py" in str(caught.value)


def test_a_module_named_as_a_file_is_told_what_to_write(project: Any) -> None:  # noqa: F811
    with pytest.raises((ConfigError, SyntaxError), match="config.py"):
        project.train(CUSTOM_IMPORTS_PRINTED)
    project.write("mmtrack/core/optimizer/my_optimizer.py", MY_OPTIMIZER)
    with pytest.raises(ConfigError, match=r"mmtrack\.core\.optimizer\.my_optimizer"):
        project.train(CUSTOM_IMPORTS_PRINTED.replace("\n ", "\n"))


def test_an_optimizer_constructor_of_ones_own(project: Any) -> None:  # noqa: F811
    _places(project)
    project.write("mmtrack/core/optimizer/my_optimizer.py", MY_OPTIMIZER)
    project.write("mmtrack/core/optimizer/my_constructor.py", CONSTRUCTOR)
    imported = BOTH.format("mmtrack.core.optimizer.my_constructor")
    use = "optimizer = dict(type='MyOptimizer', a=1, b=2, c=3, constructor='MyOptimizerConstructor')"
    assert type(project.train(imported + use).optimizer).__name__ == "MyOptimizer"


def test_gradients_are_clipped(project: Any) -> None:  # noqa: F811
    runner = project.train(GRAD_CLIP, child=True)
    hook = next(hook for hook in runner.hooks if type(hook).__name__ == "OptimizerHook")
    assert hook.grad_clip == {"max_norm": 35, "norm_type": 2}
    assert "grad_norm" in next((project.folder / "out").glob("*.log.json")).read_text()


def test_learning_rate_and_momentum_go_in_a_cycle(project: Any) -> None:  # noqa: F811
    project.train(CYCLIC)
    rates, momenta = project.parts.RATES, project.parts.MOMENTA
    assert len(rates) == 10
    assert rates[4] == max(rates) == pytest.approx(0.2)
    assert momenta[4] == min(momenta) == pytest.approx(0.9 * 0.85 / 0.95)


def test_a_polynomial_policy(project: Any) -> None:  # noqa: F811
    project.train(POLY)
    wanted = [(0.02 - 1e-4) * (1 - i / 10) ** 0.9 + 1e-4 for i in range(10)]
    assert pytest.approx(wanted) == project.parts.RATES


def test_a_cosine_with_a_warmup(project: Any) -> None:  # noqa: F811
    project.train(COSINE)
    assert project.parts.RATES[0] == pytest.approx(0.002)
    assert project.parts.RATES[1] == pytest.approx(0.02 * (1 - (1 - 1 / 1000) * 0.9))


def test_the_default_workflow(project: Any) -> None:  # noqa: F811
    assert project.train(WORKFLOW).mode == "train"


def test_a_workflow_with_validation(project: Any) -> None:  # noqa: F811
    assert project.train(f"workflow = {WORKFLOW_WITH_VAL}").mode == "val"


@pytest.mark.parametrize("hooks", [CUSTOM_HOOKS, CUSTOM_HOOKS_PRIORITY])
def test_a_hook_of_ones_own(project: Any, hooks: str) -> None:  # noqa: F811
    _places(project)
    project.write("mmtrack/core/utils/my_hook.py", MY_HOOK)
    project.write("mmtrack/core/utils/__init__.py", IMPORT_MY_HOOK)
    imported = CUSTOM_IMPORTS_HOOK.replace("imports=[", "imports=['seed_parts', ")
    runner = project.train(imported + hooks)
    assert [hook.priority for hook in runner.hooks if type(hook).__name__ == "MyHook"] == [50]


def test_checkpoints_every_epoch(project: Any) -> None:  # noqa: F811
    project.train(CHECKPOINT)
    assert (project.folder / "out" / "epoch_2.pth").is_file()


def test_two_loggers(project: Any) -> None:  # noqa: F811
    runner = project.train(LOG)
    assert [type(hook).__name__ for hook in runner.hooks][-2:] == ["TextLoggerHook", "TensorboardLoggerHook"]
    assert any((project.folder / "out" / "tf_logs").iterdir())


def test_other_keys_of_evaluation_go_to_the_dataset(project: Any) -> None:  # noqa: F811
    project.train(EVALUATION)
    assert project.parts.KWARGS == [{"metric": "bbox"}] * 2
