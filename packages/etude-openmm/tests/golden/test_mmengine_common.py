"""MMEngine: configs of both styles, options, registries and weight initialisation, as the original did them."""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.dialects import imports
from etude_openmm.shared.config.config_v2 import Config, DictAction
from etude_openmm.shared.config.dict_v2 import ConfigDict
from etude_openmm.shared.init.module_v2 import BaseModule
from etude_openmm.shared.registries.managers import DefaultScope
from etude_openmm.shared.registries.registry_v2 import Registry
from tests.golden.goldens import equal, options_for, params, untag

DIALECT = "mmengine"
imports.install()


def expected_error(expect: dict[str, Any]) -> type[BaseException]:
    return getattr(builtins, expect["error"])


def is_error(expect: Any) -> bool:
    return isinstance(expect, dict) and set(expect) - {"stage", "at"} == {"error"}


def as_recorded(value: Any) -> Any:
    """Values as the recording wrote them: JSON's keys are text, objects are their dotted names."""
    if isinstance(value, dict):
        return {str(key): as_recorded(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {"__tuple__": [as_recorded(item) for item in value]}
    if isinstance(value, list):
        return [as_recorded(item) for item in value]
    if isinstance(value, type):
        return {"__repr__": value.__qualname__}
    return value


def short_names(value: Any) -> Any:
    """A class by its own name: where Étude keeps it is not where the original did."""
    if isinstance(value, dict) and set(value) == {"__repr__"}:
        return {"__repr__": value["__repr__"].rpartition(".")[2]}
    return value


@pytest.fixture(autouse=True)
def _scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DefaultScope, "_instance_dict", type(DefaultScope._instance_dict)())


@pytest.mark.parametrize("case", params(DIALECT, "config"))
def test_config(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    {"file": replay_file, "cli": replay_cli, "expr": replay_expr, "diff": replay_diff}[case["kind"]](
        case, tmp_path, monkeypatch
    )


def replay_file(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in case["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("<dir>", str(tmp_path)), encoding="utf-8")
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    expect = case["expect"]
    if is_error(expect) and never_stops_a_dump(case):
        exec(loaded(case, tmp_path).pretty_text, {})
        return
    if is_error(expect):
        with pytest.raises(expected_error(expect)):
            read_every_value(loaded(case, tmp_path), expect["error"])
        return
    config = loaded(case, tmp_path)
    result = json.loads(json.dumps(as_recorded(config.to_dict())).replace(str(tmp_path), "<dir>"))
    assert equal(result, expect["result"])
    if "pretty_text" in expect:
        assert config.pretty_text.replace(str(tmp_path), "<dir>") == expect["pretty_text"]
        again = Config.fromstring(config.pretty_text, ".py")
        assert equal(again.to_dict(), config.to_dict())
    if "env_variables" in expect:
        assert config.env_variables == expect["env_variables"]
    for expression, value in expect.get("probe", {}).items():
        got = eval(f"config{'' if expression.startswith('[') else '.'}{expression}", {"config": config})
        assert equal(short_names(as_recorded(got)), short_names(value)), expression


def loaded(case: dict[str, Any], folder: Path) -> Config:
    config = Config.fromfile(str(folder / case["main"]), **options_for(Config.fromfile, case))
    if "options" in case:
        config.merge_from_dict(untag(case["options"]), allow_list_keys=case.get("allow_list_keys", True))
    return config


def never_stops_a_dump(case: dict[str, Any]) -> bool:
    """A departure: modules and functions left over in a config cannot break its text, and importing from the standard
    library does not make a config a lazy one."""
    texts = [re.sub(r"\{\{.*?\}\}", "0", text) for name, text in case["files"].items() if name.endswith(".py")]
    try:
        nodes = [node for text in texts for node in ast.parse(text).body]
    except SyntaxError:
        return False
    imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    if case["expect"]["error"] == "SyntaxError":
        return bool(nodes)
    return case["expect"]["error"] == "RuntimeError" and bool(imported) and imported <= sys.stdlib_module_names


def read_every_value(config: Config, error: str) -> None:
    """An error that a recording tells of may come when the values are read, or when one is missing."""
    walk(config._cfg_dict)
    if error == "KeyError":
        config["surely_not_there"]
    config.surely_not_there


def walk(value: Any) -> None:
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list | tuple):
            walk(item)


def replay_cli(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cfg-options", nargs="+", action=DictAction)
    arguments = ["--cfg-options", *case["args"]]
    if is_error(case["expect"]):
        with pytest.raises(expected_error(case["expect"])):
            parser.parse_args(arguments)
        return
    assert equal(as_recorded(parser.parse_args(arguments).cfg_options), case["expect"])


def replay_expr(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"ConfigDict": ConfigDict, "Config": Config, "copy": copy, "pickle": pickle}
    if is_error(case["expect"]):
        with pytest.raises(expected_error(case["expect"])):
            eval(case["expr"], names)
        return
    assert equal(as_recorded(eval(case["expr"], names)), case["expect"])


def replay_diff(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Config.diff(Config(untag(case["a"])), Config(untag(case["b"]))) == case["expect"]


@pytest.mark.parametrize("case", params(DIALECT, "registry"))
def test_registry(case: dict[str, Any]) -> None:
    if "register" in case:
        replay_registration(case)
        return
    registries: dict[str, Registry] = {}
    for given in case["registries"]:
        parent = registries[given["parent"]] if "parent" in given else None
        registries[given["scope"]] = Registry("thing", parent=parent, scope=given["scope"])
    for scope, names in case["modules"].items():
        for name in names:
            registries[scope].register_module(module=made_class(name, scope))
    if "default_scope" in case:
        DefaultScope.get_instance("test", scope_name=case["default_scope"])
    assert [answer(registries, query) for query in case["queries"]] == case["expect"]


def made_class(name: str, scope: str) -> type:
    def init(self: Any, **kwargs: Any) -> None:
        self.kwargs = kwargs

    return type(name, (), {"__init__": init, "scope": scope})


def answer(registries: dict[str, Registry], query: list[Any]) -> Any:
    verb, scope, given = query
    if verb == "get":
        found = registries[scope].get(given)
        return None if found is None else f"{found.scope}.{found.__name__}"
    assert verb == "build"
    try:
        built = registries[scope].build(given)
    except Exception as error:
        return {"error": next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")}
    return f"{built.scope}.{type(built).__name__} {json.dumps(built.kwargs)}"


def replay_registration(case: dict[str, Any]) -> None:
    registry = Registry("thing", scope="test")
    seen: list[Any] = []
    for step in case["register"]:
        arguments = {key: value for key, value in step.items() if key != "cls"}
        try:
            registry.register_module(module=made_class(step["cls"], "test"), **arguments)
        except Exception as error:
            seen.append({"error": next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")})
        else:
            seen.append(sorted(registry.module_dict))
    assert seen == case["expect"]


class Sub(BaseModule):
    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)
        self.conv, self.linear, self.norm = nn.Conv1d(1, 1, 1), nn.Linear(1, 1), nn.BatchNorm1d(1)


class Top(BaseModule):
    def __init__(self, init_cfg: Any = None, sub: Any = None) -> None:
        super().__init__(init_cfg)
        self.sub, self.fc, self.reg = Sub(sub), nn.Linear(1, 1), nn.Linear(1, 1)


def filled(module: nn.Module, value: float) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)
    return module


@pytest.mark.parametrize("case", params(DIALECT, "init_cfg"))
def test_init_cfg(case: dict[str, Any], tmp_path: Path) -> None:
    path = str(tmp_path / "c.pth")
    if "checkpoint" in case:
        torch.save(filled(Top(), 42).state_dict(), path)
    top, sub = (with_path(untag(case.get(key)), path) for key in ("top", "sub"))
    net = filled(Top(top, sub), -1)
    torch.manual_seed(case.get("seed", 0))
    if is_error(case["expect"]):
        with pytest.raises(expected_error(case["expect"])):
            net.init_weights()
        return
    net.init_weights()
    if case.get("twice"):
        filled(net, 5)
        net.init_weights()
    got = {name: parameter.detach().flatten()[0].item() for name, parameter in net.named_parameters()}
    assert got == pytest.approx(case["expect"], rel=1e-5, abs=1e-6, nan_ok=True)


def with_path(value: Any, path: str) -> Any:
    return json.loads(json.dumps(value).replace("<ckpt>", path)) if value is not None else None
