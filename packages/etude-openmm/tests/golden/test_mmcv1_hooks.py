"""Who is called when: traces of custom hooks, the order of all hooks, training mode around evaluations, signatures."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import data, params, untag
from tests.golden.mmcv1 import fixtures, tools

tools.imports.install()

from mmcv.runner import HOOKS, OPTIMIZER_BUILDERS, OPTIMIZERS, RUNNER_BUILDERS, RUNNERS, EvalHook, Hook  # noqa: E402


@pytest.fixture
def trace() -> Any:
    """Trace hooks, registered for one test; gives the list they write to."""
    record: list[Any] = []
    classes = fixtures.make_trace_hooks(Hook, record)
    for name, cls in classes.items():
        HOOKS.register_module(name=name, module=cls, force=True)
    yield record
    for name in classes:
        HOOKS.module_dict.pop(name)


@pytest.mark.parametrize("case", params("mmcv1", "hook_traces"))
def test_custom_hooks_receive_the_recorded_calls(case: dict[str, Any], tmp_path: Path, trace: list[Any]) -> None:
    runner = None
    with tools.expected(case) as stage:
        stage.append("build")
        runner, _ = tools.make_runner(case, tmp_path)
        stage.append("register")
        runner.register_custom_hooks(untag(case["custom_hooks"]))
        stage.append("run")
        tools.run(runner, case, fixtures.loader(case["train_iters"]), fixtures.loader(case["val_iters"]))
    assert trace == case["trace"]
    if "order" in case:
        assert [[hook.tag, hook.priority] for hook in runner.hooks] == case["order"]
    for name, value in case.get("final", {}).items():
        assert getattr(runner, name) == value, name


@pytest.mark.parametrize("case", params("mmcv1", "hook_info"))
def test_all_hooks_stand_in_the_recorded_order(case: dict[str, Any], tmp_path: Path, trace: list[Any]) -> None:
    runner, _ = tools.make_runner(case, tmp_path)
    keys = ("lr_config", "optimizer_config", "checkpoint_config", "log_config", "momentum_config")
    configs = {key: case[key] for key in keys if key in case}
    if case["wiring"] == "mmcls":
        configs["custom_hooks_config"] = case["custom_hooks"]
    tools.register(runner, **configs)
    if case.get("dist_sampler"):
        runner.register_hook_from_cfg({"type": "DistSamplerSeedHook"})
    if case["evaluation"] is not None:
        evaluation = EvalHook(fixtures.loader(3), **untag(case["evaluation"]))
        runner.register_hook(evaluation, priority="LOW" if case["wiring"] == "mmcls" else "NORMAL")
    if case["wiring"] != "mmcls":
        for config in untag(case["custom_hooks"]):
            runner.register_hook_from_cfg(config)
    assert [[type(hook).__name__, hook.priority] for hook in runner.hooks] == case["order"]
    assert {type(hook).__name__: hook.get_triggered_stages() for hook in runner.hooks} == case["triggered"]
    assert runner.get_hook_info() == case["hook_info"]


@pytest.mark.parametrize("case", params("mmcv1", "train_mode"))
def test_training_goes_on_in_training_mode(case: dict[str, Any], tmp_path: Path) -> None:
    modes: list[bool] = []
    net = tools.watched()
    net.seen = lambda mode: modes.append(net.training) if mode == "train" else None
    runner, _ = tools.make_runner(case, tmp_path, net=net)
    evaluation = EvalHook(fixtures.loader(3, results=[{"acc": 1.0}]), **untag(case["evaluation"]))
    runner.register_hook(evaluation, priority="LOW")
    tools.run(runner, case, fixtures.loader(case["iters_per_epoch"]), tools.val_loader(case))
    # Departure: mmcv trains on in eval mode after some evaluations; here the mode is put back.
    assert modes == [True] * len(case["training"])


SIGNATURES = data("mmcv1", "signatures")


def _signature(cls: type) -> dict[str, Any]:
    """Accepted keys and defaults; ``**kwargs`` lead on to the next class."""
    found: dict[str, Any] = {}
    for base in cls.__mro__[:-1]:
        if "__init__" not in vars(base):
            continue
        open_end = False
        for param in list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]:
            if param.kind is param.VAR_KEYWORD:
                open_end = True
            elif param.kind is not param.VAR_POSITIONAL:
                found.setdefault(param.name, "<required>" if param.default is param.empty else param.default)
        if not open_end:
            break
    return found


@pytest.mark.parametrize("name", [pytest.param(n, id=f"mmcv1-signatures-{n}") for n in SIGNATURES.get("HOOKS", {})])
def test_hooks_accept_the_recorded_keys(name: str) -> None:
    assert _signature(HOOKS.get(name)) == untag(SIGNATURES["HOOKS"][name])


@pytest.mark.parametrize(
    "name", [pytest.param(n, id=f"mmcv1-signatures-{n}") for n in SIGNATURES.get("NOT_IN_REGISTRY", {})]
)
def test_some_classes_are_importable_but_not_registered(name: str) -> None:
    import mmcv.runner

    assert HOOKS.get(name) is None
    assert _signature(getattr(mmcv.runner, name)) == untag(SIGNATURES["NOT_IN_REGISTRY"][name])


@pytest.mark.parametrize(
    "name", [pytest.param(n, id=f"mmcv1-signatures-{n}") for n in SIGNATURES.get("INITIALIZERS", {})]
)
def test_initialisers_accept_the_recorded_keys(name: str) -> None:
    from mmcv.cnn import INITIALIZERS

    assert _signature(INITIALIZERS.get(name)) == untag(SIGNATURES["INITIALIZERS"][name])


@pytest.mark.parametrize(
    ("table", "key"),
    [
        pytest.param(table, key, id=f"mmcv1-signatures-{key}")
        for table, key in (
            (RUNNERS, "RUNNERS"),
            (RUNNER_BUILDERS, "RUNNER_BUILDERS"),
            (OPTIMIZER_BUILDERS, "OPTIMIZER_BUILDERS"),
            (OPTIMIZERS, "OPTIMIZERS_from_torch_2_13"),
        )
    ],
)
def test_registries_hold_the_recorded_names(table: Any, key: str) -> None:
    assert set(SIGNATURES.get(key, ())) <= set(table.module_dict)
