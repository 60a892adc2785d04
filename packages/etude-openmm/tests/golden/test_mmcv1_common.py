"""mmcv 1.x: config files, options, texts, weight initialisation and checkpoint loading, as the original did them."""

from __future__ import annotations

import argparse
import builtins
import math
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from etude_openmm.shared.config.config_v1 import Config, DictAction
from etude_openmm.shared.init.module_v1 import BaseModule, initialize
from etude_openmm.shared.live.checkpoint_v1 import load_checkpoint
from tests.golden.goldens import equal, options_for, params, untag
from tests.golden.mmcv1.fixtures import make_init_nets

DIALECT = "mmcv1"
InitNet, Leaf, Outer = make_init_nets(BaseModule)


def expected_error(case: dict[str, Any]) -> type[BaseException]:
    return getattr(builtins, case["error"]["type"])


def written(files: dict[str, str], folder: Path) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return type(value)(plain(item) for item in value) if isinstance(value, list | tuple) else value


def options_of(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cfg-options", nargs="+", action=DictAction)
    return parser.parse_args(["--cfg-options", *arguments]).cfg_options


@pytest.mark.parametrize("case", params(DIALECT, "config_files"))
def test_config_files(case: dict[str, Any], tmp_path: Path) -> None:
    written(case["files"], tmp_path)

    def load() -> Config:
        config = Config.fromfile(tmp_path / case["main"], **options_for(Config.fromfile, case))
        config.merge_from_dict(options_of(case["cfg_options"]) if case.get("cfg_options") else {})
        return config

    if "error" in case:
        with pytest.raises(expected_error(case)):
            load()
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = load()
    assert len(caught) == case.get("warns", 0)
    assert equal(plain(config._cfg_dict), untag(case["result"]))
    assert list(config) == case["key_order"]


@pytest.mark.parametrize("case", params(DIALECT, "dict_action", key="arg"))
def test_dict_action(case: dict[str, Any]) -> None:
    if "error" in case:
        if case.get("lenient"):
            assert isinstance(options_of([case["arg"]]), dict)
            return
        with pytest.raises(expected_error(case)):
            options_of([case["arg"]])
        return
    got, want = options_of([case["arg"]])["k"], untag(case["value"])
    assert type(got) is type(want)
    assert equal(got, want)


ACCESS = {
    "attr": lambda c: c.b.c[1].d,
    "attr-tuple": lambda c: c.b.e[1].f,
    "item": lambda c: c["b"]["c"][0],
    "get-default": lambda c: c.get("zzz", 5),
    "missing-attr": lambda c: c.nope,
    "missing-item": lambda c: c["nope"],
    "missing-nested": lambda c: c.b.nope,
    "contains": lambda c: ["a" in c, "zzz" not in c],
    "set": lambda c: _set(c),
    "len": lambda c: len(c),
    "iter": lambda c: list(c),
    "pop": lambda c: c.pop("a"),
    "repr": lambda c: repr(Config({"a": 1})),
    "fromstring": lambda c: Config.fromstring("a = 1\nb = dict(c=2)\n", ".py").b.c,
    "fromstring-badfmt": lambda c: Config.fromstring("a = 1\n", "py"),
    "not-dict": lambda c: Config([1]),
    "notdict": lambda c: Config([1]),
    "reserved": lambda c: Config({"filename": "x"}),
    "deepcopy": lambda c: __import__("copy").deepcopy(c).b.c[1].d,
    "copy": lambda c: __import__("copy").copy(c).b.c[1].d,
    "pickle": lambda c: __import__("pickle").loads(__import__("pickle").dumps(c)).b.c[1].d,
    "tuple-attr": lambda c: c.b.e[1].f,
    "list-attr": lambda c: c.b.c[1].d,
    "keys": lambda c: list(c.keys()),
    "get": lambda c: c.get("a"),
    "get-missing": lambda c: c.get("zzz"),
    "pop-missing": lambda c: c.pop("zzz"),
    "nested-item": lambda c: c["b"]["e"][1]["f"],
    "tuple": lambda c: c.b.e[1].f,
    "in-tuple": lambda c: c.b.e[1].f,
    "in-list": lambda c: c.b.c[1].d,
    "attr-in-list": lambda c: c.b.c[1].d,
    "attr-in-tuple": lambda c: c.b.e[1].f,
    "setdefault": lambda c: c.setdefault("zzz", 3),
    "items": lambda c: [key for key, _ in c.items()],
    "hasattr": lambda c: hasattr(c, "zzz"),
    "filename": lambda c: c.filename,
    "text": lambda c: c.text,
    "init-type": lambda c: Config([1]),
    "bad-type": lambda c: Config([1]),
    "dump": lambda c: Config({"a": 1}).dump(),
    "dump-noarg": lambda c: Config({"a": 1}).dump(),
}


def _set(config: Config) -> list[Any]:
    config.n = {"x": 1}
    config["m"] = {"y": 2}
    return [config.n.x, config["m"].y, type(config.n).__name__]


@pytest.mark.parametrize("case", params(DIALECT, "config_access"))
def test_config_access(case: dict[str, Any]) -> None:
    config = Config({"a": 1, "b": {"c": [1, {"d": 2}], "e": (3, {"f": 4})}, "s": "it"})
    if "error" in case:
        with pytest.raises(expected_error(case)):
            ACCESS[case["id"]](config)
        return
    assert equal(ACCESS[case["id"]](config), untag(case["value"]))


@pytest.mark.parametrize("case", params(DIALECT, "pretty_text"))
def test_pretty_text(case: dict[str, Any]) -> None:
    """Where the original crashes (a quote inside a string), the text evaluates to the same values here."""
    wanted = untag(case["config"])
    text = Config(wanted).pretty_text
    names: dict[str, Any] = {"nan": math.nan, "inf": math.inf}
    exec(text, names)
    assert equal({key: names[key] for key in wanted}, wanted)
    assert [key for key in names if key in wanted] == list(wanted)
    if "pretty_text" in case and "quirk" not in case:
        said: dict[str, Any] = {"nan": math.nan, "inf": math.inf}
        exec(case["pretty_text"], said)
        assert equal({key: said[key] for key in wanted}, wanted)


def filled(module: torch.nn.Module, value: float) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)
    return module


def first_values(module: torch.nn.Module, most: int) -> dict[str, list[float]]:
    return {name: value.detach().flatten()[:most].tolist() for name, value in module.named_parameters()}


def assert_close(got: dict[str, list[float]], want: dict[str, list[float]]) -> None:
    assert list(got) == list(want)
    for name, values in want.items():
        assert got[name] == pytest.approx(values, rel=1e-5, abs=1e-6, nan_ok=True), name


@pytest.mark.parametrize("case", params(DIALECT, "init_cfg"))
def test_init_cfg(case: dict[str, Any]) -> None:
    net = filled(InitNet(), -9)
    torch.manual_seed(case["seed"])
    if "error" in case:
        with pytest.raises(expected_error(case)):
            initialize(net, untag(case["init_cfg"]))
        return
    initialize(net, untag(case["init_cfg"]))
    assert_close(first_values(net, 4), case["params"])


@pytest.mark.parametrize("case", params(DIALECT, "init_hierarchy"))
def test_init_hierarchy(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = {name: torch.tensor(value) for name, value in case["source_params"].items()}
    shaped = {name: value.reshape(1, 1) if name.endswith("weight") else value for name, value in source.items()}
    for file, prefix in (("pre.pth", ""), ("mod.pth", "module."), ("bb.pth", "backbone.")):
        state = {prefix + name: value for name, value in shaped.items()}
        torch.save(state if file == "mod.pth" else {"state_dict": state}, file)
    net = filled(Outer(untag(case["outer_init_cfg"]), untag(case["leaf_init_cfg"])), -9)
    if "error" in case:
        with pytest.raises(expected_error(case)):
            net.init_weights()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2 if case.get("twice") else case.get("calls", 1)):
            net.init_weights()
    assert_close(first_values(net, 4), case["params"])
    assert [net.is_init, net.leaf.is_init] == case["is_init"]


def report_in(text: str) -> dict[str, list[str]]:
    report: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("size mismatch for "):
            report.setdefault("size_mismatch", []).append(line.removeprefix("size mismatch for ").partition(":")[0])
        for key, start in (("unexpected", "unexpected key in source"), ("missing", "missing keys in source")):
            if line.startswith(start):
                report[key] = line.partition(": ")[2].split(", ")
    return report


@pytest.mark.parametrize("case", params(DIALECT, "load_checkpoint"))
def test_load_checkpoint(case: dict[str, Any], tmp_path: Path) -> None:
    shapes = case.get("bad_shape", {})
    net = filled(Outer(), -9)
    state = {
        key: torch.full(shapes.get(key, (1, 1) if key.endswith("weight") else (1,)), float(number))
        for number, key in enumerate(case["keys"], start=1)
    }
    path = os.fspath(tmp_path / "c.pth")
    torch.save(state if case.get("flat") else {"state_dict": state}, path)
    extra = {"revise_keys": [tuple(pair) for pair in untag(case["revise_keys"])]} if "revise_keys" in case else {}
    text = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if "error" in case:
            with pytest.raises(expected_error(case)) as failed:
                load_checkpoint(net, path, strict=case["strict"], **extra)
            text = str(failed.value)
        else:
            load_checkpoint(net, path, strict=case["strict"], **extra)
            text = "\n".join(str(warning.message) for warning in caught)
    assert_close(first_values(net, 4), case["params"])
    got, want = report_in(text), case["report"]
    assert {key: sorted(names) for key, names in got.items()} == {key: sorted(names) for key, names in want.items()}
