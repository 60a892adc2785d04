"""Weights, moving averages, log lines and tags of whole runs: as mmcv 1.7.2 had them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etude_openmm.mmcv1.live.hooks import small_hooks
from tests.golden.goldens import params, untag
from tests.golden.mmcv1 import fixtures, tools

tools.imports.install()

from mmcv.runner import EvalHook, LoggerHook  # noqa: E402


@pytest.mark.parametrize("case", params("mmcv1", "optimizer_hook"))
def test_weights_follow_the_recorded_path(case: dict[str, Any], tmp_path: Path) -> None:
    path: dict[str, list[float]] = {"fc2.bias": [], "fc1.weight.0": []}

    def look(runner: Any) -> None:
        path["fc2.bias"].append(runner.model.fc2.bias.item())
        path["fc1.weight.0"].append(runner.model.fc1.weight.flatten()[0].item())

    with tools.expected(case) as stage:
        stage.append("build")
        runner, listener = tools.make_runner(case, tmp_path)
        stage.append("register")
        tools.register(runner, optimizer_config=case["optimizer_config"])
        runner.register_hook(tools.Last(look), priority="LOWEST")
        stage.append("run")
        tools.run(runner, case, fixtures.loader(case["iters_per_epoch"]), tools.val_loader(case))
    if "error" in case:
        return
    assert tools.close(path, {key: case[key] for key in path})
    params_now = {name: param.flatten().tolist() for name, param in runner.model.named_parameters()}
    assert tools.close(params_now, case["final_params"])
    norms = [float(norm) for norm in runner.log_buffer.val_history.get("grad_norm", [])]
    assert tools.close(norms, case["grad_norms_logged"])
    assert len(listener.warnings()) == case.get("n_warnings", 0)


def _columns(state: Any, names: list[str]) -> list[float]:
    """The numbers that ``names`` stand for: ``fc2.bias``, ``fc1.weight[0,0]``."""
    found = []
    for name in names:
        key, _, place = name.partition("[")
        found.append(state[key][tuple(map(int, place[:-1].split(",")))].item() if place else state[key].item())
    return found


@pytest.mark.parametrize("case", params("mmcv1", "ema"))
def test_moving_averages_follow_the_recorded_path(case: dict[str, Any], tmp_path: Path) -> None:
    rows: list[list[float]] = []
    names = case.get("columns", ["fc2.bias", "ema_fc2_bias", "fc1.weight[0,0]", "ema_fc1_weight[0,0]"])
    at_val: list[float] = []
    with tools.expected(case) as stage:
        stage.append("build")
        net = tools.watched()
        net.seen = lambda mode: at_val.append(net.fc2.bias.item()) if mode == "val" else None
        runner, _ = tools.make_runner(case, tmp_path, net=net)
        stage.append("register")
        tools.register(
            runner, optimizer_config={}, checkpoint_config={"interval": 1}, custom_hooks_config=[case["ema_hook"]]
        )
        runner.register_hook(
            tools.Last(lambda r: rows.append(_columns(r.model.state_dict(), names))), priority="LOWEST"
        )
        stage.append("run")
        val = tools.val_loader(case)
        tools.run(runner, case, fixtures.loader(case["iters_per_epoch"]), val)
    if "error" in case:
        return
    assert tools.close(rows, case["after_iter"])
    assert tools.close(_columns(net.state_dict(), names), case["after_run"])
    files = {name: tools.loaded(tmp_path / name)["state_dict"] for name in case["checkpoints"]}
    assert tools.close({name: _columns(state, names) for name, state in files.items()}, case["checkpoints"])
    assert all(list(state) == case["state_dict_keys"] for state in files.values())
    if "fc2.bias_at_val" in case:
        _assert_seen_in_validation(at_val, case["fc2.bias_at_val"])


def _assert_seen_in_validation(seen: list[float], wanted: Any) -> None:
    """Once per validation step, once per validation epoch, or the last one: whatever the recording chose."""
    per_epoch = [value for number, value in enumerate(seen) if number == 0 or value != seen[number - 1]]
    forms = [seen, per_epoch, seen[-1:]] if isinstance(wanted, list) else [seen[-1], seen[0]]
    assert any(tools.close(form, wanted) for form in forms)


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_hooks, "clock", fixtures.FakeClock().time)


@pytest.mark.parametrize("case", params("mmcv1", "logs"))
@pytest.mark.usefixtures("fake_clock")
def test_log_lines_are_the_recorded_ones(case: dict[str, Any], tmp_path: Path) -> None:
    net = tools.watched(fixtures.ToyNetExtra if case.get("extra_vars") else fixtures.ToyNet)
    meta = case.get("meta", {"seed": 0})
    runner, listener = tools.make_runner(case, tmp_path, net=net, meta=meta, no_meta=meta is None)
    tools.register(
        runner,
        lr_config=case.get("lr_config"),
        momentum_config=case.get("momentum_config"),
        optimizer_config=case.get("optimizer_config", {"grad_clip": None}),
        log_config=case["log_config"],
    )
    if case.get("evaluation") is not None:
        dataset = fixtures.loader(3, results=case.get("results"))
        runner.register_hook(EvalHook(dataset, **untag(case["evaluation"])), priority="LOW")
    train = fixtures.loader(case["iters_per_epoch"], n=case.get("n_samples"))
    tools.run(runner, case, train, tools.val_loader(case, 1))
    written = sorted(tmp_path.glob("*.log.json"))
    lines = [line for path in written for line in path.read_text().splitlines()]
    assert lines == case["json_lines"]
    assert listener.texts("Epoch", "Iter", "Exp name") == case["text_lines"]


class Probe(LoggerHook):
    """A logger that keeps what a scalar back end would get."""

    def __init__(self, records: list[Any], options: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(interval=2, **kwargs)
        self.records, self.options = records, options

    def log(self, runner: Any) -> None:
        tags = self.get_loggable_tags(runner, **self.options)
        steps = [self.get_iter(runner), self.get_iter(runner, inner_iter=True)]
        self.records.append([*steps, self.get_epoch(runner), self.get_mode(runner), tags])


@pytest.mark.parametrize("case", params("mmcv1", "log_tags"))
def test_scalar_back_ends_get_the_recorded_tags(case: dict[str, Any], tmp_path: Path) -> None:
    records: list[Any] = []
    runner, _ = tools.make_runner(case, tmp_path)
    several = isinstance(runner.optimizer, dict)
    tools.register(
        runner,
        optimizer_config=None if several else {"grad_clip": {"max_norm": 1}},
        log_config=case.get("log_config"),
    )
    by_epoch = case["runner"]["type"] != "IterBasedRunner"
    runner.register_hook(Probe(records, untag(case["probe"]), by_epoch=by_epoch), priority="VERY_LOW")
    if case.get("evaluation") is not None:
        dataset = fixtures.loader(3, results=case["results"])
        runner.register_hook(EvalHook(dataset, **untag(case["evaluation"])), priority="LOW")
    tools.run(runner, case, fixtures.loader(case["iters_per_epoch"]), tools.val_loader(case))
    names = ["step", "inner_step", "epoch", "mode", "tags"]
    assert case.get("columns", names) == names
    assert tools.close(records, case["records"])
    assert [list(got[4]) for got in records] == [list(wanted[4]) for wanted in case["records"]]
