"""Lazy configs as LiBai and detectron2 read, change, instantiate, save and print them."""

from __future__ import annotations

import argparse
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf

from tests.golden.goldens import claim, data, options_for, params
from tests.golden.libai_support import expected_failure, number, same, served

# -- loading -----------------------------------------------------------------------------------------------------------


def shown(value: Any) -> Any:
    """A loaded value as the recorder wrote it."""
    if isinstance(value, DictConfig | ListConfig):
        return shown(OmegaConf.to_container(value, resolve=False))
    if isinstance(value, dict):
        return {str(key): shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if callable(value):
        return {"$callable": f"{value.__module__}.{value.__qualname__}"}
    return {"$obj": type(value).__name__}


def kinds(value: Any) -> Any:
    if isinstance(value, DictConfig):
        return {key: type(value[key] if not OmegaConf.is_interpolation(value, key) else "").__name__ for key in value}
    return [type(item).__name__ for item in value]


@pytest.mark.parametrize("case", params("libai", "lazy_load_libai") + params("libai", "lazy_load_detectron2"))
def test_loading(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("<pkg>", case["flavor"]))
    load = served(case["flavor"], "config").LazyConfig.load
    keys = tuple(case["keys"]) if isinstance(case["keys"], list) else case["keys"]
    target = str(tmp_path / case["target"])
    if any("!!python/object" in text or "!!python/module" in text for text in case["files"].values()):
        # Departure: what a YAML file says is never called or imported.
        with pytest.raises(yaml.constructor.ConstructorError):
            load(target, keys)
        return
    if "raises" in case:
        if case["raises"]["error"] == "KeyError" and "quirk" in case:
            check_import_departure(case, load, target, keys)
            return
        case["raises"]["message"] = case["raises"]["message"].replace("<DIR>", str(tmp_path))
        with expected_failure(case):
            load(target, keys)
        return
    loaded = load(target, keys)
    assert type(loaded).__name__ == case.get("kind", type(loaded).__name__)
    assert same(shown(loaded), case["result"])
    if "types" in case and isinstance(loaded, DictConfig | tuple) and loaded:
        assert kinds(loaded) == case["types"]


def check_import_departure(case: dict[str, Any], load: Any, target: str, keys: Any) -> None:
    """Departure: a name that a config file lacks is an ImportError, and ``import *`` works."""
    if case["raises"]["message"] == "'*'":
        assert isinstance(load(target, keys), DictConfig)
    else:
        with pytest.raises(ImportError):
            load(target, keys)


# -- overrides ---------------------------------------------------------------------------------------------------------


def flattened(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in flattened(item, f"{prefix}.{key}").items()}
    return {prefix[1:]: value}


@pytest.mark.parametrize("case", params("libai", "lazy_overrides_libai") + params("libai", "lazy_overrides_detectron2"))
def test_overrides(case: dict[str, Any], tmp_path: Path) -> None:
    meta = data("libai", f"lazy_overrides_{case['flavor']}")["meta"]
    path = tmp_path / "base.py"
    path.write_text(meta["base_config"])
    lazy = served(case["flavor"], "config").LazyConfig
    config = lazy.load(str(path))
    before = shown(config)
    if "raises" in case:
        promised = case["raises"]["error"] in ("KeyError", "NotImplementedError")
        with expected_failure(case, message=promised):
            lazy.apply_overrides(config, case["overrides"])
        return
    assert lazy.apply_overrides(config, case["overrides"]) is config
    expected = with_changes(before, case["changed"])
    assert same(flattened(sorted_keys(shown(config))), flattened(sorted_keys(expected)))


def with_changes(tree: Any, changed: dict[str, Any]) -> Any:
    for key, value in changed.items():
        node = tree
        *parents, last = key.split(".") if key else [""]
        for parent in parents:
            node = node[int(parent)] if isinstance(node, list) else node.setdefault(parent, {})
        node[int(last) if isinstance(node, list) else last] = number(value)
    return tree


def sorted_keys(value: Any) -> Any:
    return {key: sorted_keys(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


# -- instantiate -------------------------------------------------------------------------------------------------------


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = types.ModuleType("golden_targets")
    meta = data("libai", "instantiate_libai").get("meta") or data("libai", "instantiate_detectron2")["meta"]
    exec(meta["golden_targets.py"], module.__dict__)
    monkeypatch.setitem(sys.modules, "golden_targets", module)
    return module


def as_given(config: Any, kind: str, locate: Any) -> Any:
    if kind == "dictconfig" and isinstance(config, dict | list):
        return OmegaConf.create(config, flags={"allow_objects": True})
    return with_objects(config, locate) if kind == "plain_obj" else config


def with_objects(config: Any, locate: Any) -> Any:
    if isinstance(config, list):
        return [with_objects(item, locate) for item in config]
    if not isinstance(config, dict):
        return config
    made = {key: with_objects(item, locate) for key, item in config.items()}
    if isinstance(made.get("_target_"), str):
        made["_target_"] = locate(made["_target_"])
    return made


def made_of(value: Any, module: Any) -> Any:
    if isinstance(value, DictConfig):
        return {
            "$DictConfig": {
                k: made_of(value._get_node(k) if OmegaConf.is_interpolation(value, k) else value[k], module)
                for k in value
            }
        }
    if isinstance(value, ListConfig):
        return {"$ListConfig": [made_of(item, module) for item in value]}
    if isinstance(value, module.Box):
        return {"$Box": {key: made_of(item, module) for key, item in value.kw.items()}}
    if isinstance(value, module.Outer.Inner):
        return {"$Inner": made_of(value.v, module)}
    if type(value).__name__ == "timedelta":
        return {"$timedelta": value.total_seconds()}
    if isinstance(value, module.Callme):
        return {"$Callme": value.k}
    if isinstance(value, tuple):
        return {"$tuple": [made_of(item, module) for item in value]}
    if isinstance(value, dict):
        return {key: made_of(item, module) for key, item in value.items()}
    if isinstance(value, list):
        return [made_of(item, module) for item in value]
    return {"$callable": f"{value.__module__}.{value.__qualname__}"} if callable(value) else value


@pytest.mark.parametrize("case", params("libai", "instantiate_libai") + params("libai", "instantiate_detectron2"))
def test_instantiating(case: dict[str, Any], targets: Any) -> None:
    from etude_libai.lazy.targets import locate, name_of

    if "locate" in case:
        if "raises" in case:
            with expected_failure(case):
                locate(case["locate"])
            return
        found = locate(case["locate"])
        assert name_or_path(found) == case["result"]
        assert "to_string" not in case or name_of(found) == case["to_string"]
        return
    instantiate = served(case["flavor"], "config").instantiate
    given = as_given(case["config"], case["as"], locate)
    if "raises" in case and "quirk" in case:
        # Departure: plain dicts and lists may name their targets, in lists too.
        assert made_of(instantiate(given, **case["kwargs"]), targets) is not None
    elif "raises" in case:
        promised = case["raises"]["error"] != "MissingMandatoryValue"
        with expected_failure(case, message=promised):
            instantiate(given, **case["kwargs"])
    else:
        assert same(made_of(instantiate(given, **case["kwargs"]), targets), case["result"])


def name_or_path(found: Any) -> str:
    return f"{found.__module__}.{found.__qualname__}" if hasattr(found, "__qualname__") else repr(found)


# -- saving and printing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "save_topy_libai") + params("libai", "save_topy_detectron2"))
def test_saving_and_printing(case: dict[str, Any], tmp_path: Path) -> None:
    lazy = served(case["flavor"], "config").LazyConfig
    source = tmp_path / "in" / "config.py"
    source.parent.mkdir()
    source.write_text(case["config_py"].replace("<pkg>", case["flavor"]))
    config = lazy.load(str(source))
    if isinstance(case.get("to_py"), str):
        text = lazy.to_py(config, **options_for(lazy.to_py, case))
        assert re.sub(r"0x[0-9a-f]+", "0xADDR", text) == case["to_py"]
    out = tmp_path / "out"
    out.mkdir()
    lazy.save(config, str(out / "out.yaml"))
    assert sorted(path.name for path in out.iterdir()) == sorted(case["files"])
    assert ((out / "out.yaml").read_text() if (out / "out.yaml").exists() else None) == case["yaml"]
    if isinstance(case["reloads"], str) or "!!python/object" in (case["yaml"] or ""):
        # Departure for objects in YAML: what a file says is never called, so such a file does not load.
        with pytest.raises((yaml.constructor.ConstructorError, FileNotFoundError)):
            lazy.load(str(out / "out.yaml"))
    elif case["reloads"]:
        assert (lazy.load(str(out / "out.yaml")) == config) is case["reload_equal"]


# -- small things ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "args_libai") + params("libai", "args_detectron2"))
def test_arguments(case: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    package = "config" if case["flavor"] == "libai" else "engine"
    parser: argparse.ArgumentParser = served(case["flavor"], package).default_argument_parser()
    if "exit" in case:
        with pytest.raises(SystemExit) as stopped:
            parser.parse_args(case["argv"])
        assert stopped.value.code == case["exit"]
        if "stderr_last" in case:
            assert capsys.readouterr().err.strip().endswith(case["stderr_last"])
        return
    parsed = vars(parser.parse_args(case["argv"]))
    expected = dict(case["namespace"])
    if "<port" in str(expected.get("dist_url")):
        assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", parsed.pop("dist_url"))
        del expected["dist_url"]
    assert parsed == expected


@pytest.mark.parametrize("case", params("libai", "try_get_key"))
def test_asking_for_keys(case: dict[str, Any]) -> None:
    config = OmegaConf.create(data("libai", "try_get_key")["meta"]["config"])
    options = {"default": number(case["default"])} if case["has_default"] else {}
    found = served("libai", "config").try_get_key(config, *case["keys"], **options)
    assert same(OmegaConf.to_container(found) if OmegaConf.is_config(found) else found, case["result"])


claim("libai", "config_tree")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, id=f"libai-config_tree-{name}") for name in data("libai", "config_tree").get("files", {})],
)
def test_common_configs(name: str) -> None:
    expected = data("libai", "config_tree")["files"][name]
    loaded = shown(served("libai", "config").get_config(name))
    assert same(sorted_keys(names_only(loaded)), sorted_keys(names_only(expected)))


def names_only(value: Any) -> Any:
    """The recorder's ``<data>`` stands for the folder of somebody's data; ours is ``./data``."""
    if isinstance(value, dict):
        return {key: names_only(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [names_only(item) for item in value]
    return value.replace("<data>", "./data") if isinstance(value, str) else value
