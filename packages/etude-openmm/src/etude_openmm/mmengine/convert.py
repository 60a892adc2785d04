"""Converts an MMEngine config to a native one. User classes keep their names; keys without a counterpart raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Path, Tree
from etude.plan import Plan
from etude_openmm.mmengine import lower as lowering
from etude_openmm.mmengine.checks.components import Components
from etude_openmm.mmengine.checks.results import first_result
from etude_openmm.mmengine.projects import with_project
from etude_openmm.shared.convert import FORMULA, Conversion
from etude_openmm.shared.metric_rules import guess

LIVE = "etude_openmm.mmengine.live.native"
_COLLATE = "etude_openmm.mmengine.live.data.collate:pseudo_collate"
#: Schedulers that end at a value of their own.
_REACHING = ("LinearLR", "PolyLR", "ConstantLR")
#: Units in an epoch. Its length in steps is unknown: schedulers in steps before others are short warm-ups.
_PER = {"ep": 1.0, "step": 1e9}
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
    rate = ("optim_wrapper", "optimizer", "lr")
    has_group_options = True

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
            **self._collate((way, "collate_fn")),
        }

    def _collate(self, way: Path) -> dict[str, Any]:
        target = _COLLATE if self.tree.get(*way) is None else self._target(way, "FUNCTIONS")
        if target.endswith(":default_collate"):  # the native one
            return {}
        given = {} if self.tree.get(*way) is None else self.component(way, target)
        return {"collate": {**given, "type": self.function(target)}}

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
        phases: list[dict[str, Any]] = []
        ends, value = 0.0, 1.0
        for way in _ways("param_scheduler", given):
            ends, value = self._add(way, phases, ends, value)
        self.notes.append(FORMULA)
        return {"schedule": {"lr": phases}}

    def _add(self, way: Path, phases: list[dict[str, Any]], ends: float, start: float) -> tuple[float, float]:
        """Add one scheduler, which finds the rate at the factor ``start``; return its end in epochs and last factor.

        MMEngine reaches the last value of a scheduler one epoch or step before its ``end``.
        """
        given: Mapping[str, Any] = self.tree.get(*way)
        name, by_epoch = _short_type(given), given.get("by_epoch", True)
        unit, whole = ("ep", self.plan.train.epochs) if by_epoch else ("step", self.plan.train.steps)
        begin, end = int(given.get("begin", 0)), given.get("end") or whole
        if by_epoch and not self.by_epochs:
            self.refuse((*way, "by_epoch"), "a scheduler by epochs in a training by iterations")
            return ends, start
        length, to_end = end - begin if end else None, end == whole
        if name in _REACHING and length == 1:
            self.refuse(way, f"{name} with a length of 1")
        by_step = not by_epoch or bool(given.get("convert_to_iter_based"))
        late = length is None or by_step == by_epoch  # one step before the end is nothing that epochs can say
        curve, value = self._curve(way, name, begin, length, start, unit)
        last = end if late or length is None else begin + length - 1
        if name == "CosineAnnealingLR":
            last, late = begin + given["T_max"] if given.get("T_max") else end, not to_end
            if last and end and last < end:
                self.refuse((*way, "T_max"), "T_max, which is shorter than the scheduler,")
        elif name not in _REACHING:
            last, late = None if to_end else last, late and not to_end
        if late:
            what = "step" if by_step else "epoch"
            self.notes.append(f"{self.tree.place(*way)}: {name} ends one {what} later than in the original")
        before = phases[-1].get("until") if phases else "0ep"
        if begin / _PER[unit] >= ends:
            opening = {"begin": f"{begin}{unit}"} if begin and before != f"{begin}{unit}" else {}
            if opening and phases and str(before).endswith(unit):
                text = "the rate stays where the phase before arrives; in MMEngine that is just before its `end`"
                self.notes.append(f"from {before} to {begin}{unit} {text}")
        else:
            opening = {}
            if name != "MultiStepLR" or begin:
                self.refuse(way, "a scheduler that begins before the one before it ends")
            self.notes.append(f"the warm-up has to end before the first milestone, {curve.get('at', [''])[0]}")
        until = {"until": f"{last}{unit}"} if last and last != whole else {}
        each = {} if by_step else {"by": "epoch"}
        phases.append({**curve, **opening, **until, **each})
        if name == "ConstantLR":
            phases.append({"type": "Constant", "factor": start, **({} if to_end else {"until": f"{end}{unit}"})})
        return max(end or 0, last or 0) / _PER[unit], value

    def _curve(
        self, way: Path, name: str, begin: int, length: int | None, start: float, unit: str
    ) -> tuple[dict[str, Any], float]:
        """Return the curve that begins at the factor ``start``, and its last factor."""
        given: Mapping[str, Any] = self.tree.get(*way)
        here: dict[str, Any] = {} if start == 1.0 else {"from": start}
        count, gamma = (length or 1) - 1, given.get("gamma", 0.1)
        if name == "LinearLR":
            first, last = given.get("start_factor", 1 / 3), given.get("end_factor", 1.0)
            return {"type": "Linear", "from": first * start, "to": last * start}, last * start
        if name == "ConstantLR" and length and not given.get("convert_to_iter_based"):
            return {"type": "Constant", "factor": given.get("factor", 1 / 3) * start}, start
        if name in ("CosineAnnealingLR", "PolyLR"):
            groups = str(self.tree.get("optim_wrapper", "paramwise_cfg", default=""))
            least = given.get("eta_min_ratio") or self.floor((*way, "eta_min"), given.get("eta_min"), groups)
            power = {"power": given.get("power", 1.0)} if name == "PolyLR" else {}
            return {"type": "Poly" if power else "Cosine", **here, **power, "to": least}, least
        if name == "ExponentialLR":
            by_step = unit == "step" or given.get("convert_to_iter_based")
            curve = {"type": "Exponential", **here, "gamma": gamma, "every": "1step" if by_step else "1ep"}
            return curve, start * gamma**count
        if name == "StepLR":
            every = given["step_size"]
            return {"type": "Step", **here, "every": f"{every}{unit}", "gamma": gamma}, start * gamma ** (
                count // every
            )
        if name == "MultiStepLR":
            at = [begin + moment for moment in given["milestones"]]
            passed = sum(moment <= begin + count for moment in at)
            curve = {"type": "MultiStep", **here, "at": [f"{moment}{unit}" for moment in at], "gamma": gamma}
            return curve, start * gamma**passed
        self.refuse(way, f"the scheduler {name}")
        return {"type": "Constant"}, start

    def _validate(self, config: dict[str, Any]) -> None:
        """Add validation data, metrics and interval, and the hook that evaluates as MMEngine does."""
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
        self.refuse_others(way, hook, (*said, "ema_type"), "EMAHook")
        if kind not in ("", "ExponentialMovingAverage"):
            self.refuse((*way, "ema_type"), f"ema_type={kind} of EMAHook")
        self.notes.append("the average starts from the first weights, not from those after the first step")
        begin = {"begin": f"{hook['begin_iter']}step"} if hook.get("begin_iter") else {}
        begin |= {"begin": f"{hook['begin_epoch']}ep"} if hook.get("begin_epoch") else {}
        buffers = {"buffers": True} if hook.get("update_buffers") else {}
        return {"type": "EMA", "momentum": hook.get("momentum", 0.0002), **begin, **buffers}

    def _patience(self, way: Path, hook: Mapping[str, Any]) -> dict[str, Any]:
        said = {"type", "monitor", "rule", "min_delta", "patience", "priority"}
        rule = hook.get("rule") or guess(str(hook.get("monitor")))
        self.refuse_others(way, hook, said, "EarlyStoppingHook")
        if rule is None:
            self.refuse(way, "an EarlyStoppingHook without `rule`")
        better = "max" if rule == "greater" else "min"
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
