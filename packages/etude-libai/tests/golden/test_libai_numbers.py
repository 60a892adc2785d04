"""Schedules, batch sizes, parameter groups, samplers and evaluators: pure functions with recorded answers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from etude_libai import sizes
from tests.golden.goldens import data, params
from tests.golden.libai_support import Messages, expected_failure, number, same, served

# -- learning rates ----------------------------------------------------------------------------------------------------


def optimizer_with(base_lrs: list[float]) -> torch.optim.SGD:
    return torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in base_lrs], lr=1.0)


def followed(scheduler: Any, optimizer: Any, steps: int) -> list[Any]:
    """The learning rates after 0, 1, … steps."""
    rates = []
    for step in range(steps + 1):
        if step:
            optimizer.step()
            scheduler.step()
        now = [group["lr"] for group in optimizer.param_groups]
        rates.append(now if len(now) > 1 else now[0])
    return rates


@pytest.mark.parametrize("case", params("libai", "lr_libai"))
def test_learning_rates_of_libai(case: dict[str, Any]) -> None:
    optimizer = optimizer_with(case["base_lrs"])
    build = getattr(served("libai", "scheduler"), case["scheduler"])
    if "raises" in case:
        with expected_failure(case):
            followed(build(optimizer, **case["kwargs"]), optimizer, case["steps"])
        return
    assert same(followed(build(optimizer, **case["kwargs"]), optimizer, case["steps"]), case["lrs"])


def multiplier(spec: dict[str, Any]) -> Any:
    arguments = {key: made(value) for key, value in spec.items() if key != "type"}
    fvcore = pytest.importorskip("fvcore.common.param_scheduler", reason="pip install 'etude[detectron2]'")
    warm_up = spec["type"] == "WarmupParamScheduler"
    return getattr(served("detectron2", "solver") if warm_up else fvcore, spec["type"])(**arguments)


def made(value: Any) -> Any:
    if isinstance(value, dict):
        return multiplier(value)
    return [made(item) for item in value] if isinstance(value, list) else value


def lr_multiplier(case: dict[str, Any], optimizer: Any) -> Any:
    if case["last_iter"] >= 0:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    arguments = (multiplier(case["multiplier"]), case["max_iter"], case["last_iter"])
    return served("detectron2", "solver").LRMultiplier(optimizer, *arguments)


@pytest.mark.parametrize("case", params("libai", "lr_detectron2"))
def test_learning_rates_of_detectron2(case: dict[str, Any]) -> None:
    optimizer = optimizer_with(case["base_lrs"])

    def build() -> Any:
        if "deprecated_class" in case:
            return getattr(served("detectron2", "solver"), case["deprecated_class"])(optimizer, **case["kwargs"])
        return lr_multiplier(case, optimizer)

    if "raises" in case:
        with expected_failure(case):
            followed(build(), optimizer, case["steps"])
        return
    scheduler = build()
    assert same(followed(scheduler, optimizer, case["steps"]), case["lrs"])
    if "state_dict" in case:
        assert same(scheduler.state_dict(), case["state_dict"])


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "batch_size"))
def test_batch_sizes(case: dict[str, Any]) -> None:
    config = OmegaConf.create({"train": case["train"]})
    if "raises" in case:
        with expected_failure(case):
            sizes.check_batch_size(config, case["data_parallel_size"])
        return
    sizes.check_batch_size(config, case["data_parallel_size"])
    assert {key: config.train[key] for key in case["result"]} == case["result"]


@pytest.mark.parametrize("case", params("libai", "auto_scale"))
def test_auto_scaling(case: dict[str, Any]) -> None:
    config = OmegaConf.create({"train": case["train"], "graph": {"enabled": case["graph_enabled"]}})
    loader = torch.utils.data.DataLoader(range(case["dataset_len"]))
    scale = served("libai", "engine").DefaultTrainer.auto_scale_hyperparams
    if "raises" in case:
        with expected_failure(case, message=case["raises"]["error"] != "ConfigAttributeError"):
            scale(config, loader)
        return
    with Messages("libai") as said:
        scale(config, loader)
    train = config.train
    actual = {
        "train_iter": train.train_iter,
        "warmup_iter": train.warmup_iter,
        "scheduler": OmegaConf.to_container(train.scheduler),
        "eval_period": train.evaluation.eval_period,
        "ckpt_period": train.checkpointer.period,
    }
    expected = dict(case["result"])
    epochs = {
        "eval_period": case["train"]["evaluation"].get("eval_after_n_epoch"),
        "ckpt_period": case["train"]["checkpointer"].get("save_model_after_n_epoch"),
    }
    shorter = [key for key, number_of in epochs.items() if number_of and expected[key] == 0]
    # Departure: an epoch shorter than a batch gives a period of 1, where 0 never came or divided by zero.
    assert actual == expected | dict.fromkeys(shorter, 1)
    assert shorter or said.texts == case["log"]


@pytest.mark.parametrize("case", params("libai", "auto_scale_workers"))
def test_scaling_for_other_numbers_of_workers(case: dict[str, Any]) -> None:
    pytest.importorskip("fvcore.common.config", reason="pip install 'etude[detectron2]'", exc_type=ImportError)
    node = served("detectron2", "config").CfgNode
    given = case["in"]
    config = node(
        {
            "SOLVER": {
                "REFERENCE_WORLD_SIZE": case["ref"], "IMS_PER_BATCH": given["bs"], "BASE_LR": given["lr"],
                "MAX_ITER": given["max_iter"], "WARMUP_ITERS": given["warmup"], "STEPS": tuple(given["steps"]),
                "CHECKPOINT_PERIOD": given["ckpt_period"],
            },
            "TEST": {"EVAL_PERIOD": given["eval_period"]},
        }
    )  # fmt: skip
    scale = served("detectron2", "engine").DefaultTrainer.auto_scale_workers
    if "raises" in case:
        with expected_failure(case):
            scale(config, case["num_workers"])
        return
    scaled = scale(config, case["num_workers"])
    solver = scaled.SOLVER
    actual = {
        "bs": solver.IMS_PER_BATCH, "lr": solver.BASE_LR, "max_iter": solver.MAX_ITER, "warmup": solver.WARMUP_ITERS,
        "steps": list(solver.STEPS), "eval_period": scaled.TEST.EVAL_PERIOD, "ckpt_period": solver.CHECKPOINT_PERIOD,
        "ref": solver.REFERENCE_WORLD_SIZE,
    }  # fmt: skip
    assert same(actual, case["out"])
    assert (scaled is config) is case["same_object"]


# -- parameter groups --------------------------------------------------------------------------------------------------


def model_of(case: dict[str, Any]) -> nn.Module:
    namespace: dict[str, Any] = {"nn": nn, "torch": torch}
    exec(data("libai", f"param_groups_{case['flavor']}")["meta"]["models.py"], namespace)
    return namespace[case["model"]]()


@pytest.mark.parametrize("case", params("libai", "param_groups_libai") + params("libai", "param_groups_detectron2"))
def test_parameter_groups(case: dict[str, Any]) -> None:
    module = served(case["flavor"], "optim" if case["flavor"] == "libai" else "solver.build")
    if "fn" in case:
        function = getattr(module, "_expand_param_groups" if case["fn"] == "expand" else "reduce_param_groups")
        if "raises" in case:
            with expected_failure(case):
                function(case["params"])
        else:
            assert [dict(group) for group in function(case["params"])] == case["groups"]
        return
    model = model_of(case)
    asked: list[str] = []
    options = dict(case["kwargs"])
    if case.get("lr_factor_func"):

        def factor(name: str) -> float:
            asked.append(name)
            table = case["lr_factor_func"]
            return table.get(name, next((value for start, value in table.items() if name.startswith(start)), 1.0))

        options["lr_factor_func"] = factor
    if "raises" in case:
        with expected_failure(case):
            module.get_default_optimizer_params(model, **options)
        return
    groups = module.get_default_optimizer_params(model, **options)
    names: dict[Any, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, name)
    shown = [{**group, "params": [names[p] for p in group["params"]]} for group in groups]
    assert len(shown) == len(case["groups"])
    for group, expected in zip(shown, case["groups"], strict=True):
        assert set(group) == set(expected)
        assert all(same(group[key], expected[key]) for key in expected)
    if case.get("lr_factor_names"):
        assert asked == case["lr_factor_names"]


@pytest.mark.parametrize("case", params("libai", "best_param_group"))
def test_the_group_whose_rate_is_shown(case: dict[str, Any]) -> None:
    groups = [
        {"params": [nn.Parameter(torch.zeros(1)) for _ in range(count)], "lr": lr}
        for count, lr in case["groups_nparams_lr"]
    ]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    for flavor in ("libai", "detectron2"):
        assert served(flavor, "engine.hooks").LRScheduler.get_best_param_group_id(optimizer) == case["index"]


# -- samplers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "samplers"))
def test_samplers(case: dict[str, Any]) -> None:
    build = getattr(served("libai", "data.samplers"), case["sampler"])
    if "raises" in case:
        with expected_failure(case, message=False):
            next(iter(build(range(case["dataset_len"]), **case["kwargs"])))
        return
    if "quirk" in case:
        check_sampler_departure(case, build)
        return
    sampler = build(range(case["dataset_len"]), **case["kwargs"])
    batches = list(itertools.islice(sampler, case["take"])) if "take" in case else list(sampler)
    assert batches == case["batches"]
    assert len(sampler) == case["len"]
    if "consumed_after" in case:
        assert sampler.consumed_samples == case["consumed_after"]


def check_sampler_departure(case: dict[str, Any], build: Any) -> None:
    """Departures: a resumed sampler goes on exactly, and with ``drop_last`` all ranks yield as many batches."""
    size, options = case["dataset_len"], dict(case["kwargs"])
    if case["sampler"] == "CyclicSampler":
        consumed = options.pop("consumed_samples", 0)
        each = options["micro_batch_size"] * options.get("data_parallel_size", 1)
        if consumed % each:  # no whole number of batches: read as recorded
            resumed = build(range(size), **options, consumed_samples=consumed)
            assert list(itertools.islice(resumed, case["take"])) == case["batches"]
            return
        whole = list(itertools.islice(build(range(size), **options), consumed // each + case["take"]))
        resumed = build(range(size), **options, consumed_samples=consumed)
        assert list(itertools.islice(resumed, case["take"])) == whole[consumed // each :]
        return
    ranks = [
        list(build(range(size), **{**options, "data_parallel_rank": rank}))
        for rank in range(options.get("data_parallel_size", 1))
    ]
    assert len({len(batches) for batches in ranks}) == 1
    assert all(len(batch) == options["micro_batch_size"] for batches in ranks for batch in batches)


# -- evaluators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "evaluators"))
def test_evaluators(case: dict[str, Any]) -> None:
    module = served("libai", "evaluation")
    if "flatten" in case:
        assert same(module.flatten_results_dict(case["flatten"]), case["result"])
    elif "print_csv" in case:
        with Messages("libai") as said:
            module.print_csv_format(number(case["print_csv"]))
        assert said.texts == case["lines"]
    elif "evaluators_return" in case:
        check_several(case, module)
    else:
        check_evaluator(case, module)


def check_several(case: dict[str, Any], module: Any) -> None:
    class Says(module.DatasetEvaluator):
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def evaluate(self) -> Any:
            return self.answer

    several = module.DatasetEvaluators([Says(answer) for answer in case["evaluators_return"]])
    if "raises" in case:
        with expected_failure(case):
            several.evaluate()
    else:
        assert dict(several.evaluate()) == case["result"]


def check_evaluator(case: dict[str, Any], module: Any) -> None:
    evaluator = getattr(module, case["evaluator"])(**({"topk": tuple(case["topk"])} if "topk" in case else {}))
    evaluator.reset()
    for batch in case["batches"]:
        if case["evaluator"] == "PPLEvaluator":
            evaluator.process(
                {}, {key: torch.tensor(number(value), dtype=torch.float64) for key, value in batch.items()}
            )
        else:
            scores, labels = (torch.tensor(part) for part in batch)
            evaluator.process({"labels": labels}, {"prediction_scores": scores})
    if "quirk" in case:
        check_evaluator_departure(case, evaluator)
    elif "raises" in case:
        with expected_failure(case, message=False):
            evaluator.evaluate()
    else:
        assert same(dict(evaluator.evaluate()), case["result"], 1e-6)


def check_evaluator_departure(case: dict[str, Any], evaluator: Any) -> None:
    """Departures: hits are counted whole, means are over batches, and no sample at all is told in words."""
    if not case["batches"]:
        with pytest.raises(ValueError, match="no sample"):
            evaluator.evaluate()
    elif case["evaluator"] == "PPLEvaluator":
        keys = len(case["batches"][0])
        assert same(dict(evaluator.evaluate()), {key: value * keys for key, value in case["result"].items()}, 1e-6)
    else:
        hits = dict.fromkeys(case["topk"], 0)
        for scores, labels in case["batches"]:
            for row, label in zip(scores, labels, strict=True):
                ranked = sorted(range(len(row)), key=lambda index, row=row: -row[index])
                for k in hits:
                    hits[k] += label in ranked[:k]
        total = sum(len(labels) for _, labels in case["batches"])
        assert same(dict(evaluator.evaluate()), {f"Acc@{k}": count * 100.0 / total for k, count in hits.items()})
