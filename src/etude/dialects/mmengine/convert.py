"""Converts an MMEngine config to a native one. User classes keep their names; keys without a counterpart raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Path, Tree
from etude.dialects.mmengine import lower as lowering
from etude.dialects.mmengine.checks.components import Components
from etude.dialects.mmengine.checks.results import first_result
from etude.dialects.mmengine.projects import with_project
from etude.dialects.openmm.convert import Conversion
from etude.dialects.openmm.metric_rules import guess
from etude.plan import Plan

LIVE = "etude.dialects.mmengine.live.native"
_NATIVE_HOOKS = {"EmptyCacheHook": "EmptyCache", "SyncBuffersHook": "SyncBuffers"}
#: Keys that change the computation and have no native counterpart.
_NO_COUNTERPART = ("efficient_conv_bn_eval", "strategy", "auto_scale_lr", "compile", "activation_checkpointing")
_LOADER_KEYS = (
    "dataset", "sampler", "batch_size", "num_workers", "collate_fn", "drop_last", "persistent_workers", "pin_memory",
    "prefetch_factor", "_delete_",
)  # fmt: skip
_PRECISION = {None: "fp16", "float16": "fp16", "bfloat16": "bf16"}
#: Visualizer backends with a native counterpart; an empty one if the native engine writes such files anyway.
_WRITERS = {"TensorboardVisBackend": "tensorboard", "LocalVisBackend": ""}


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """Return the native config and notes about differences. Raises an error for what has no native form."""
    validates = tree.get("val_dataloader") is not None
    return _Config(tree, lowering.lower(tree), LIVE).converted(validates=validates)


class _Config(Conversion):
    def __init__(self, tree: Tree, plan: Plan, live: str) -> None:
        super().__init__(tree, plan, live)
        self.low.registered = with_project(self.low.registered, tree.values, tree.files)
        self._components = Components(self.low, lowering.WORDS, lowering.TABLES)

    def _target(self, way: Path, *tables: str) -> str:
        given = self.tree.get(*way)
        return self._components.target(given.get("type") if isinstance(given, Mapping) else given, tables)

    def _look_for_the_unsaid(self) -> None:
        tree = self.tree
        if not self.plan.loop.name.rpartition(".")[2].startswith(("EpochBasedTrainLoop", "IterBasedTrainLoop")):
            self.refuse(("train_cfg",), f"the loop {self.plan.loop.name}")
        if _short_type(tree.get("val_cfg")) not in ("", "ValLoop"):
            self.refuse(("val_cfg",), f"the loop {_short_type(tree.get('val_cfg'))}")
        if tree.get("runner_type") not in (None, "Runner"):
            self.refuse(("runner_type",), f"the runner {tree.get('runner_type')}")
        for key in _NO_COUNTERPART:
            given = tree.get(key)
            if given and (not isinstance(given, Mapping) or given.get("enable", True)):
                self.refuse((key,), key)
        for key in ("val_begin", "dynamic_intervals"):
            if tree.get("train_cfg", key) not in (None, 1):
                self.refuse(("train_cfg", key), f"train_cfg.{key}")

    # -- the parts ---------------------------------------------------------------------------------------------------

    def _model(self) -> dict[str, Any]:
        model = self.component(("model",), self._target(("model",), "MODELS"))
        if self.tree.get("data_preprocessor") is not None and "data_preprocessor" not in model:
            way = ("data_preprocessor",)
            model["data_preprocessor"] = self.argument(way, self.tree.get(*way))
        return model

    def _data(self, split: str) -> dict[str, Any]:
        way = f"{split}_dataloader"
        given, loader = self.tree.values[way], self.plan.data[split]
        for key in [key for key in given if key not in _LOADER_KEYS and given[key] is not None]:
            self.refuse((way, key), f"{way}.{key}")
        sampler = given.get("sampler") or {}
        if _short_type(sampler) not in ("", "DefaultSampler", "InfiniteSampler"):
            self.refuse((way, "sampler"), f"the sampler {_short_type(sampler)}")
        if _short_type(sampler) == "InfiniteSampler":
            self.notes.append("InfiniteSampler fills batches across passes; here the last batch of a pass is smaller")
        return {
            "dataset": self.component((way, "dataset"), self._target((way, "dataset"), "DATASETS")),
            "batch_size": loader.batch_size,
            "workers": loader.workers,
            "shuffle": bool(sampler.get("shuffle", True)) if sampler else False,
            "drop_last": loader.drop_last,
            "collate": self._collate((way, "collate_fn")),
        }

    def _collate(self, way: Path) -> Any:
        if self.tree.get(*way) is None:
            return self.function("etude.dialects.mmengine.live.data.collate:pseudo_collate")
        target = self._target(way, "FUNCTIONS")
        return {**self.component(way, target), "type": self.function(target)}

    def _optimizer(self) -> dict[str, Any]:
        given, way = self.tree.values["optim_wrapper"], ("optim_wrapper", "optimizer")
        if "optimizer" not in given or given.get("constructor") not in (None, "DefaultOptimWrapperConstructor"):
            self.refuse(("optim_wrapper",), "a constructor of optimizers")
            return {}
        target, clip = self._target(way, "OPTIMIZERS"), given.get("clip_grad") or {}
        return self.optimizer(way, target, given.get("paramwise_cfg") or {}, clip)

    def _arithmetic(self) -> dict[str, Any]:
        given = self.tree.values["optim_wrapper"]
        kind, many = _short_type(given), given.get("accumulative_counts", 1)
        said = {"accumulate": many} if many != 1 else {}
        if kind == "AmpOptimWrapper":
            if given.get("loss_scale", "dynamic") != "dynamic" or given.get("dtype") not in _PRECISION:
                self.refuse(("optim_wrapper",), "this loss_scale or dtype")
            return {**said, "precision": _PRECISION.get(given.get("dtype"), "fp16")}
        if kind not in ("", "OptimWrapper"):
            self.refuse(("optim_wrapper",), kind)
        return said

    # -- schedules, validation, saving -------------------------------------------------------------------------------

    def _schedule(self) -> dict[str, Any]:
        given = self.tree.get("param_scheduler")
        if not given:
            return {}
        if isinstance(given, Mapping) and "type" not in given:
            self.refuse(("param_scheduler",), "schedulers of several optimizers")
            return {}
        phases, ends = [], 0.0
        for way in _ways("param_scheduler", given):
            phase, begin, end = self._phase(way)
            if begin < ends:
                self.refuse(way, "a scheduler that begins before the one before it ends")
            ends = end
            phases.append(phase)
        self.notes.append("learning rates are computed by formula, not by recurrence: they differ in the last digits")
        return {"schedule": {"lr": phases}}

    def _phase(self, way: Path) -> tuple[dict[str, Any], float, float]:
        """Return one scheduler as a native phase, and its begin and end in epochs."""
        given: Mapping[str, Any] = self.tree.get(*way)
        by_epoch = given.get("by_epoch", True)
        whole = (self.plan.train.epochs if by_epoch else self.plan.train.steps) or 0
        begin, end = given.get("begin", 0), given.get("end") or whole
        unit = "ep" if by_epoch else "step"
        if given.get("convert_to_iter_based") or not end:
            self.refuse(way, "a scheduler whose length depends on the data")
        curve, last = self._curve(way, given, end - begin, unit)
        start = {"begin": f"{begin}{unit}"} if begin else {}
        until = {"until": f"{begin + last}{unit}"} if begin + last != whole else {}
        each = {"by": "epoch"} if by_epoch else {}
        per_epoch = 1 if by_epoch else 1e9  # epoch length unknown: those in steps are warm-ups, which come first
        return {**curve, **start, **until, **each}, begin / per_epoch, end / per_epoch

    def _curve(self, way: Path, given: Mapping[str, Any], length: int, unit: str) -> tuple[dict[str, Any], int]:
        """Return the curve and the time at which it reaches its end: one step early for lines and polynomials."""
        name = _short_type(given)
        base = self.tree.get("optim_wrapper", "optimizer", "lr", default=1.0)
        least = given.get("eta_min_ratio", given.get("eta_min", 0.0) / base)
        # The defaults below are those of MMEngine's schedulers.
        if name == "LinearLR":
            first, last = given.get("start_factor", 1 / 3), given.get("end_factor", 1.0)
            return {"type": "Linear", "from": first, "to": last}, max(length - 1, 1)
        if name == "ConstantLR":
            return {"type": "Constant", "factor": given.get("factor", 1 / 3)}, length
        if name == "CosineAnnealingLR":
            return {"type": "Cosine", "to": least}, given.get("T_max", length)
        if name == "PolyLR":
            return {"type": "Poly", "power": given.get("power", 1.0), "to": least}, max(length - 1, 1)
        if name == "ExponentialLR":
            return {"type": "Exponential", "gamma": given["gamma"], "every": f"1{unit}"}, length
        if name == "StepLR":
            return {"type": "Step", "every": f"{given['step_size']}{unit}", "gamma": given.get("gamma", 0.1)}, length
        if name == "MultiStepLR" and not given.get("begin"):
            at = [f"{moment}{unit}" for moment in given["milestones"]]
            return {"type": "MultiStep", "at": at, "gamma": given.get("gamma", 0.1)}, length
        self.refuse(way, f"the scheduler {name}")
        return {"type": "Constant"}, length

    def _validate(self, config: dict[str, Any]) -> None:
        """Add validation data, metrics and interval, and the hook that evaluates as MMEngine does."""
        # The defaults of ``val_interval`` in MMEngine's loops.
        unit, usual = ("ep", 1) if self.by_epochs else ("step", 1000)
        config["data"]["val"] = self._data("val")
        given = self.tree.values["val_evaluator"]
        config["metrics"] = [self.component(way, self._target(way, "METRICS")) for way in _ways("val_evaluator", given)]
        config["train"]["validate"] = f"{self.tree.get('train_cfg', 'val_interval', default=usual)}{unit}"
        config["hooks"].insert(0, {"type": f"{LIVE}.Validation", "priority": 0})

    def _log(self) -> dict[str, Any]:
        backends = [_short_type(one) for one in self.tree.get("visualizer", "vis_backends") or []]
        return self.log(backends, _WRITERS, (self.tree.get("default_hooks", "logger") or {}).get("interval", 10))

    def _checkpoint(self) -> Any:
        given = self.tree.get("default_hooks", "checkpoint", default={})
        if given is None:
            return False
        unit, most = "ep" if given.get("by_epoch", True) else "step", given.get("max_keep_ckpts", -1)
        kept = {"keep": most if most > 0 else None, **self._best(given)}
        return {"every": f"{max(int(given.get('interval', 1)), 1)}{unit}", **kept}

    def _best(self, given: Mapping[str, Any]) -> dict[str, Any]:
        name, rule = given.get("save_best"), given.get("rule")
        if name is None or self.tree.get("val_dataloader") is None:
            return {}
        if name == "auto":
            name = first_result(self._components) or name
        if not isinstance(name, str) or name == "auto" or not isinstance(rule, str | None):
            self.notes.append(f"save_best={name!r} is left out: give `checkpoint.best` the name of one result")
            return {}
        way = rule or guess(name)
        return {"best": name, **({} if way is None else {"mode": "max" if way == "greater" else "min"})}

    # -- hooks -------------------------------------------------------------------------------------------------------

    def _hooks(self) -> list[dict[str, Any]]:
        found = []
        for key, hook in (self.tree.get("default_hooks") or {}).items():
            if key not in lowering.DEFAULT_HOOKS:
                found += [self._hook(("default_hooks", str(key)))] if isinstance(hook, Mapping) else []
                continue
            # The native engine does the work of the usual hooks itself.
            is_usual = _short_type(hook) in ("", lowering.DEFAULT_HOOKS[key][0])
            if not is_usual or (hook is None and key == "param_scheduler"):
                self.refuse(("default_hooks", str(key)), f"default_hooks.{key}={hook and _short_type(hook)}")
        listed = range(len(self.tree.get("custom_hooks") or []))
        return [*found, *(self._hook(("custom_hooks", index)) for index in listed)]

    def _hook(self, way: Path) -> dict[str, Any]:
        hook, name = self.tree.get(*way), _short_type(self.tree.get(*way))
        own = ("HOOKS", name) in self.low.registered
        if name in _NATIVE_HOOKS and not own:
            return {"type": _NATIVE_HOOKS[name]}
        if name == "EMAHook" and not own:
            return self._average(way, hook)
        if name == "EarlyStoppingHook" and not own:
            return self._patience(way, hook)
        return self.hook(way, self._target(way, "HOOKS"))

    def _average(self, way: Path, hook: Mapping[str, Any]) -> dict[str, Any]:
        said = ("type", "momentum", "begin_iter", "begin_epoch", "update_buffers", "priority")
        kind = _short_type({"type": hook.get("ema_type", "")})
        if set(hook) - {*said, "ema_type"} or kind not in ("", "ExponentialMovingAverage"):
            self.refuse(way, "this kind of EMAHook")
        self.notes.append("the average starts from the first weights, not from those after the first step")
        begin = {"begin": f"{hook['begin_iter']}step"} if hook.get("begin_iter") else {}
        begin |= {"begin": f"{hook['begin_epoch']}ep"} if hook.get("begin_epoch") else {}
        buffers = {"buffers": True} if hook.get("update_buffers") else {}
        return {"type": "EMA", "momentum": hook.get("momentum", 0.0002), **begin, **buffers}

    def _patience(self, way: Path, hook: Mapping[str, Any]) -> dict[str, Any]:
        said = {"type", "monitor", "rule", "min_delta", "patience", "priority"}
        rule = hook.get("rule") or guess(str(hook.get("monitor")))
        if set(hook) - said or rule is None:
            self.refuse(way, "this EarlyStoppingHook")
        better = "max" if rule == "greater" else "min"
        # MMEngine's defaults. Its hook takes the sign from the rule.
        by, patience = abs(hook.get("min_delta", 0.1)), hook.get("patience", 5)
        return {"type": "EarlyStop", "metric": hook.get("monitor"), "patience": patience, "by": by, "mode": better}

    def _note_the_rest(self) -> None:
        tree = self.tree
        if not self.by_epochs:
            self.notes.append("`init_weights` draws other random numbers: the original opens its data before")
        if tree.get("randomness", "seed") is None:
            self.notes.append("the config has no seed, so the original draws one; this one takes 0")
        if tree.get("resume"):
            text = "resume is left out: only weights can be taken from a checkpoint of MMEngine (`init_from`)"
            self.notes.append(text)
        if tree.get("model_wrapper_cfg"):
            self.notes.append("model_wrapper_cfg is left out")
        if tree.get("test_dataloader") is not None:
            self.notes.append("the test data is left out: training does not use it")


def _ways(key: str, given: Any) -> list[Path]:
    """Return the path of each of several components under ``key``, or of the only one."""
    return [(key, index) for index in range(len(given))] if isinstance(given, list | tuple) else [(key,)]


def _short_type(given: Any) -> str:
    kind = given.get("type", "") if isinstance(given, Mapping) else ""
    return str(kind).rpartition(".")[2]
