"""What McQuic 0.1.40 did, replayed: registries, external libraries, configs, schedulers, tuners, hooks, small formats."""

from __future__ import annotations

import hashlib
import re
import sys
import types
from copy import deepcopy

import pytest
import torch

from etude.dialects import imports
from etude_mcquic import config as configs
from etude_mcquic.live import builtin, formats, hooks, registry, tuners
from etude_mcquic.schema import SCHEMA
from tests.golden.goldens import data, params


@pytest.fixture(autouse=True)
def clean_registries():
    """What a case registers is forgotten afterwards."""
    imports.install()
    before = {table: dict(table._map) for table in registry.REGISTRIES}
    yield
    for table, entries in before.items():
        table._map.clear()
        table._map.update(entries)


def number(value):
    if isinstance(value, dict) and set(value) == {"$f"}:
        return float(value["$f"])
    return [number(item) for item in value] if isinstance(value, list) else value


def module_of(name: str, text: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(text, module.__dict__)
    return module


@pytest.mark.parametrize("case", params("mcquic", "registry"))
def test_registry(case):
    objects = module_of("golden_reg", data("mcquic", "registry")["meta"]["golden_reg.py"])
    R = type("DemoRegistry", (registry.Registry,), {})
    tables = {"R": R, "R2": type("OtherRegistry", (registry.Registry,), {}), "R3": type("ChildRegistry", (R,), {})}
    for op, expected in zip(case["ops"], case["results"], strict=True):
        try:
            answer = registry_answer(tables[op[1]], op, objects)
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        if "quirk" in case and isinstance(expected, dict) and "error" in expected:
            assert "error" not in answer, "a departure: partials and instances work"
        else:
            assert answer == expected


def registry_answer(table, op, objects):
    name, target = op[0], getattr(objects, op[2], None) if len(op) > 2 else None
    if name == "register":
        return {"returns_same": table.register(target) is target}
    if name == "register_as":
        return {"returns_same": table.register(op[3])(target) is target}
    if name == "register_empty":
        return table.register()
    if name == "get":
        log: list = []
        logger = types.SimpleNamespace(debug=lambda text, *args: log.append(["DEBUG", text % args]))
        found = table.get(op[2], logger)
        return {"is": [n for n in ("Foo", "Bar", "make", "Part", "inst") if getattr(objects, n) is found], "log": log}
    return list(table.keys()) if name == "keys" else table.summary()


@pytest.mark.parametrize("case", params("mcquic", "builtin_registries"))
def test_builtin_registries(case, monkeypatch):
    registry.OptimizerRegistry._map.clear()
    for name in ("ReduceLROnPlateau", "Exponential", "MultiStep", "OneCycle"):
        registry.LrSchedulerRegistry._map.pop(name, None)
    if case["id"] == "with_apex_stub":
        stub = types.ModuleType("apex.optimizers")
        stub.FusedLAMB = type("FusedLAMB", (torch.optim.SGD,), {"__module__": "apex.optimizers"})
        monkeypatch.setitem(sys.modules, "apex", types.ModuleType("apex"))
        monkeypatch.setitem(sys.modules, "apex.optimizers", stub)
    if "raises" in case:
        builtin.registerBuiltinFunctions()  # a departure: LAMB is there without apex, and nothing fails
        assert registry.OptimizerRegistry.get("Lamb").__name__ == "LAMB"
        return
    if "apex_stub" in case["id"]:
        builtin.registerBuiltinFunctions()
    tables = {table.__name__: table for table in registry.REGISTRIES}
    for name, expected in case["registries"].items():
        if name == "ModuleRegistry":
            continue  # layers are registered by McQuic itself
        assert list(tables[name].keys()) == expected["keys"]
        assert tables[name].summary() == expected["summary"]


@pytest.mark.parametrize("case", params("mcquic", "external_lib"))
def test_external_lib(case, tmp_path, monkeypatch):
    registry.OptimizerRegistry._map.clear()
    registry.OptimizerRegistry._map["Adam"] = torch.optim.Adam
    monkeypatch.setattr(sys, "golden_counter", [], raising=False)
    here = str(tmp_path)
    for name, text in case["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for link, target in case["links"].items():
        (tmp_path / link).symlink_to(target.replace("<DIR>", here))
    monkeypatch.chdir(tmp_path / case["cwd"])
    before = set(sys.modules)
    paths = [path.replace("<DIR>", here) for path in case["externalLib"]]
    if "raises" in case:
        with pytest.raises(Exception) as caught:
            builtin.import_external(paths)
        assert type(caught.value).__name__ == case["raises"]["error"]
    else:
        builtin.import_external(paths)
    new = {name for name in set(sys.modules) - before if re.fullmatch("[0-9a-f]{32}", name)}
    expected = {hashlib.md5(m["name_is_md5_of"].replace("<DIR>", here).encode()).hexdigest() for m in case["modules"]}
    assert new == expected
    entries = {}
    for key, value in registry.OptimizerRegistry.items():
        module = value.__module__
        entries[key] = f"{'<md5>' if len(module) == 32 else module}.{value.__qualname__}"
    assert list(registry.OptimizerRegistry.keys()) == case["keys"] and entries == case["entries"]
    assert sys.golden_counter == case["exec_log"]


def edited(case) -> dict:
    values = deepcopy(data("mcquic", "config")["meta"]["base"])
    if case.get("edits") is None:
        return deepcopy(case["config"])
    for path, value in case["edits"]:
        *way, last = path.split(".") if not path.startswith("$") else [path]
        owner = values
        for part in way:
            owner = owner[part]
        if value == {"$missing": True}:
            owner.pop(last, None)
        else:
            owner[last] = value
    return values


def properties(config) -> dict:
    train = config.Train
    try:
        optim = {"key": train.Optim.Key, "params": train.Optim.Params}
    except Exception as error:
        optim = {"access_raises": {"error": type(error).__name__, "message": str(error)}}
    plain = {name: getattr(train, name) for name in ("batchSize", "epoch", "valFreq", "trainSet", "valSet", "saveDir", "target")}  # fmt: skip
    return plain | {
        "optim": optim,
        "optim_raw": {"key": train.optim.key, "params": train.optim.params},
        "schdr": {"key": train.Schdr.Key, "params": train.Schdr.Params},
        "gpu": [train.GPU.GPUs, train.GPU.VRam, train.GPU.WantsMore],
        "hooks": [{"key": hook.Key, "params": hook.Params} for hook in train.Hooks],
        "externalLib": train.ExternalLib,
        "model": {"key": config.Model.Key, "params": config.Model.Params},
    }


def text_keys(value):
    return {str(k): text_keys(v) for k, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("case", params("mcquic", "config"))
def test_config(case):
    jsonschema_verdict(case)
    if not case["ok"]:
        with pytest.raises(configs.ValidationError) as caught:
            configs.Config.deserialize(edited(case))
        assert text_keys(caught.value.messages) == case["raises"]["messages"]
        return
    config = configs.Config.deserialize(edited(case))
    base = properties(configs.Config.deserialize(data("mcquic", "config")["meta"]["base"]))
    changed = {name: value for name, value in properties(config).items() if value != base[name]}
    assert changed == {name: pytest.approx(v, rel=1e-12) if isinstance(v, float) else v for name, v in case["changed"].items()}  # fmt: skip
    plain = config.serialize()
    assert configs.Config.deserialize(plain) is not None, "a departure where recorded otherwise: a dump reads again"
    assert plain["train"]["optim"]["params"].get("lr") == case["optim_lr_in_serialized"]
    assert plain["train"].get("externalLib", []) == case["serialize_externalLib"]


def jsonschema_verdict(case) -> None:
    """The published schema and ours agree, but for ``$schema``, which ours allows."""
    schema = SCHEMA
    expected = case["json_schema_valid"] or case["id"].startswith("dollar")
    assert valid(edited(case), schema, schema) == expected


def valid(value, schema, root) -> bool:
    """The few words of JSON Schema that are used here."""
    if "$ref" in schema:
        return valid(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    kind = schema["type"]
    if kind == "integer" and isinstance(value, float) and value == int(value):
        value = int(value)
    if not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool)):
        return False
    if kind == "object" and "properties" in schema:
        known = schema["properties"]
        return (
            all(name in value for name in schema["required"])
            and all(name in known for name in value)
            and all(valid(item, known[name], root) for name, item in value.items())
        )
    if kind == "array":
        return all(valid(item, schema["items"], root) for item in value)
    return value in schema.get("enum", [value]) and (kind != "integer" or value >= schema.get("minimum", value))


def make_optimizer(case):
    parameters = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in case["base_lrs"]]
    if case["optimizer"] == "SGD":
        return torch.optim.SGD(parameters, momentum=0.9)
    return getattr(torch.optim, case["optimizer"])(parameters)


@pytest.mark.parametrize("case", params("mcquic", "lr"))
def test_lr(case):
    builtin.registerBuiltinFunctions()

    def play():
        optimizer = make_optimizer(case)
        scheduler = registry.LrSchedulerRegistry.get(case["key"])(optimizer, **case["params"])
        rows, betas, momenta = [], [], []
        for step in range(case["steps"] + 1):
            if step:
                optimizer.step()
                scheduler.step()
            if case.get("resume_at") and step == case["resume_at"]:
                state = scheduler.state_dict()
                fresh = make_optimizer(case)
                fresh.load_state_dict(optimizer.state_dict())
                again = registry.LrSchedulerRegistry.get(case["key"])(fresh, **case["params"])
                fresh.load_state_dict(optimizer.state_dict())
                again.load_state_dict(state)
                optimizer, scheduler = fresh, again
            lrs = [group["lr"] for group in optimizer.param_groups]
            rows.append(lrs[0] if len(lrs) == 1 else lrs)
            group = optimizer.param_groups[0]
            betas.append(group["betas"][0] if "betas" in group else None)
            momenta.append(group.get("momentum"))
        return rows, betas, momenta, scheduler.last_epoch

    if "raises" in case and not ("quirk" in case and case.get("resume_at")):
        with pytest.raises(Exception) as caught:
            play()
        assert type(caught.value).__name__ == case["raises"]["error"]
        return
    rows, betas, momenta, last = play()
    if case.get("resume_at"):
        # A departure: a way back is exact, so the rows are those of a run that never stopped.
        straight = dict(case, resume_at=None)
        case, resumed = straight, rows
        rows, *_ = play()
        assert resumed == rows
        return
    assert rows == [pytest.approx(number(row), rel=1e-9) for row in case["lrs"]]
    assert last == case["last_epoch"]
    if "beta1" in case:
        assert betas == pytest.approx(case["beta1"], rel=1e-9)
    if "momentum" in case:
        assert momenta == pytest.approx(case["momentum"], rel=1e-9)


@pytest.mark.parametrize("case", params("mcquic", "value_tuners"))
def test_value_tuners(case):
    tuner = getattr(tuners, case["tuner"])(**case["kwargs"])
    values = [tuner.Value]
    for _ in range(case["steps"]):
        tuner.step()
        values.append(tuner.Value)
    assert values == pytest.approx(number(case["values"]), rel=1e-9, abs=1e-15)
    assert sorted(tuner.state_dict()) == case["state_keys"]


@pytest.mark.parametrize("case", params("mcquic", "hook_split"))
def test_hook_split(case):
    module = module_of("golden_hooks", data("mcquic", "hook_split")["meta"]["golden_hooks.py"])
    if "raises" in case:
        with pytest.raises(Exception) as caught:
            hooks.getAllHooks(case["hooks"])
        assert type(caught.value).__name__ == case["raises"]["error"]
        return
    chains = hooks.getAllHooks(case["hooks"])
    assert list(chains) == case["result_keys"]
    assert {name: len(chain) for name, chain in chains.items()} == case["counts"]
    for chain in chains.values():
        chain(3, 1, None, logger=None, extra=1)
    assert case["log"] == module.LOG


@pytest.mark.parametrize("case", params("mcquic", "frequency_hook"))
def test_frequency_hook(case):
    log: list = []

    def make(name):
        return lambda step: log.append([name, step]) or name

    hook = hooks.FrequecyHook(*[(frequency, make(name)) for frequency, name in case["pairs"]])
    results = [{str(k): v for k, v in hook(step).items()} for step in case["steps"]]
    assert results == case["results"] and log == case["log"]


@pytest.mark.parametrize("case", params("mcquic", "format"))
def test_format(case):
    if "pretty_step" in case:
        assert formats.prettyStep(case["pretty_step"]) == case["result"]
    elif "decibel_upper" in case:
        found = float(formats.Decibel(case["decibel_upper"])(torch.tensor(number(case["x"]))))
        assert found == pytest.approx(number(case["result"]), rel=1e-6)
    elif "ema_momentum" in case:
        tracker = formats.EMATracker((), case["ema_momentum"])
        found = [float(tracker(torch.tensor(number(x)))) for x in case["xs"]]
        assert found == pytest.approx(number(case["values"]), rel=1e-6, nan_ok=True)
    elif "param_shape" in case:
        model = torch.nn.Module()
        model.w = torch.nn.Parameter(torch.zeros(case["param_shape"]))
        assert formats.totalParameters(model) == case["result"]
    elif "version_check" in case:
        if "raises" in case:
            with pytest.raises(ValueError, match=re.escape(case["raises"]["message"])):
                formats.versionCheck(case["version_check"])
        else:
            assert formats.versionCheck(case["version_check"]) is case["result"]
    else:
        assert hashlib.md5(case["absolute_path"].encode()).hexdigest() == case["module_name"]
        assert builtin.module_name(case["absolute_path"]) == case["module_name"]
