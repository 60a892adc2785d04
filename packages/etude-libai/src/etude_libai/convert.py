"""Converts LiBai and detectron2 configs to native ones. User classes keep their names; other keys may raise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects.converting import FORMULA, Refusing
from etude.errors import Finding
from etude.plan import Plan
from etude.schedules.curves import Window
from etude_libai import lower as lowering
from etude_libai.checks.calls import MARKS, ONEFLOW
from etude_libai.curves import Running
from etude_libai.lazy.extra import dict_config, omegaconf, without_tuples
from etude_libai.lazy.targets import is_served, locate, target_name

LIVE = "etude_libai.live.native"
_STORAGE = "etude_libai.live.events.notebook"
_RUNNING = f"{Running.__module__}.{Running.__qualname__}"
#: Options of parameter groups that have a native form.
_RULES = ("weight_decay_norm", "weight_decay_bias", "clip_grad_max_norm", "clip_grad_norm_type", "bias_lr_factor")


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """Return the native config and notes about differences. Raises one error for all parts without a native form."""
    tree = _resolved(tree)
    plan = lowering.lower(tree)
    return (_Detectron2 if lowering.is_detectron2(tree.values) else _LiBai)(tree, plan).converted()


class _Conversion(Refusing):
    """Converts one config: collects the native form, notes, and findings about parts without one."""

    optimizer_key = "optim"
    #: The loader functions that have a native form, and their arguments.
    loaders: tuple[str, ...] = ()
    loader_keys: tuple[str, ...] = ()
    hook = "Storage"

    def converted(self) -> tuple[dict[str, Any], list[str]]:
        if self.tree.get("train", "amp", "enabled", default=False):
            self.refuse(("train", "amp"), "a scaler of its own", "convert with train.amp.enabled=False")
        saved = self.tree.get("train", "checkpointer", default={})
        config: dict[str, Any] = {
            "name": self.plan.name,
            "imports": [LIVE],
            "model": self.model(),
            "data": {"train": self.data()},
            "optim": self.optimizer(),
            **self.schedule(),
            "hooks": [{"type": f"{_STORAGE}.{self.hook}"}, *self.clipping()],
            "train": self.train(),
            "log": {"every": f"{int(self.tree.get('train', 'log_period', default=20))}step"},
            "checkpoint": {"every": f"{int(saved.get('period', 5000))}step", "keep": saved.get("max_to_keep")},
        }
        if self.plan.init_from:
            config["init_from"] = self.weights(str(self.plan.init_from["path"]))
        self.notes.append("evaluation and the best checkpoint are left out: their evaluators are not native metrics")
        return self.finished(config)

    # -- what differs ------------------------------------------------------------------------------------------------

    def model(self) -> dict[str, Any]:
        return self.component(("model",))

    def data(self) -> dict[str, Any]:
        raise NotImplementedError

    def train(self) -> dict[str, Any]:
        raise NotImplementedError

    def schedule(self) -> dict[str, Any]:
        raise NotImplementedError

    def weights(self, path: str) -> str:
        return path

    def clipping(self) -> list[dict[str, Any]]:
        return []

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, way: Path, *, plain: bool = False) -> Any:
        """Return the value at ``way`` for YAML. Unless ``plain``, lazy calls become components, mappings settings."""
        given = self.tree.get(*way)
        if isinstance(given, Mapping):
            if plain:
                return {str(key): self.value((*way, key), plain=True) for key in given}
            if "_target_" in given:
                return self.component(way)
            return {"type": f"{LIVE}.settings", "of": self.value(way, plain=True)} if given else {}
        if isinstance(given, list | tuple):
            return [self.value((*way, index), plain=plain) for index in range(len(given))]
        return self._scalar(way)

    def component(self, way: Path) -> dict[str, Any]:
        """Return the lazy call at ``way`` as a component of that name."""
        given: Mapping[str, Any] = self.tree.get(*way)
        arguments = {str(key): self.value((*way, key)) for key in given if key not in MARKS}
        return {"type": self.name((*way, "_target_")), **arguments}

    def name(self, way: Path) -> str:
        target = self.tree.get(*way)
        if not isinstance(target, str) and (finding := _unwritable(self.tree, way, target)):
            self.findings.append(finding)
        return target_name(target)

    def _scalar(self, way: Path) -> Any:
        given = self.tree.get(*way)
        if isinstance(given, str) and "${" in given:
            hint = "write the value itself"
            self.refuse(way, f"{dotted(way)}, {given!r}, which is known when training begins,", hint)
        if given is None or isinstance(given, str | bool | int | float):
            return given
        if finding := _unwritable(self.tree, way, given):
            self.findings.append(finding)
            return None
        return {"type": f"{LIVE}.found", "name": target_name(given)}

    # -- the parts that both have --------------------------------------------------------------------------------------

    def require_loader(self) -> Mapping[str, Any]:
        way = ("dataloader", "train")
        loader: Mapping[str, Any] = self.tree.get(*way) or {}
        if not is_served(loader.get("_target_", ""), self.loaders):
            self.refuse(way, f"a loader other than {' and '.join(self.loaders)}")
        for key in [key for key in loader if key not in self.loader_keys]:
            self.refuse((*way, key), f"{key} of the loader")
        return loader

    def optimizer(self) -> dict[str, Any]:
        way: Path = (self.optimizer_key,)
        given: Mapping[str, Any] = self.tree.get(*way)
        left_out = ("_target_", "params", *ONEFLOW)
        made: dict[str, Any] = {"type": target_name(given["_target_"])}
        module, _, name = made["type"].rpartition(".")
        if module in ("torch.optim", "oneflow.optim", "oneflow.nn.optimizer") or module.startswith("torch.optim."):
            made = self.torch_optimizer(name)
        made |= {str(key): self.value((*way, key), plain=True) for key in given if key not in left_out}
        rules: Mapping[str, Any] = given.get("params") or {}
        if not is_served(rules.get("_target_", ""), ("get_default_optimizer_params",)):
            self.refuse((*way, "params"), "parameter groups of your own")
        for key in [key for key, value in rules.items() if key not in _RULES and value is not None]:
            inherited = {"base_lr": given.get("lr"), "weight_decay": given.get("weight_decay")}
            if key not in ("_target_", "model") and rules[key] != inherited.get(key, object()):
                self.refuse((*way, "params", key), f"{key} of the parameter groups")
        groups = self._groups(rules)
        return {**made, **({"groups": groups} if groups else {})}

    def _groups(self, rules: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the native groups. Biases come first, because that rule also covers biases of norm layers."""
        bias: dict[str, Any] = {}
        if rules.get("weight_decay_bias") is not None:
            bias["weight_decay"] = rules["weight_decay_bias"]
        if rules.get("bias_lr_factor") not in (None, 1.0):
            bias["lr_mult"] = rules["bias_lr_factor"]
        groups = [{"match": "*.bias", **bias}] if bias else []
        if rules.get("weight_decay_norm") is not None:
            groups.append({"kind": "norm", "weight_decay": rules["weight_decay_norm"]})
        return groups

    def phases(self, main: dict[str, Any], method: str, factor: float, length: int, total: int) -> dict[str, Any]:
        """Return a warm-up of ``length`` steps up to the value that ``main``, which runs from step 0, has then."""
        self.notes.append(FORMULA)
        if length <= 0:
            return {"schedule": {"lr": [main]}}
        arguments = _without_type(main)
        if method == "constant":
            first = {"type": "Constant", "factor": factor, "until": f"{length}step"}
        else:
            top = Running(main["type"], arguments).prepare(Window(length, total - length))(0)
            first = {"type": "Linear", "from": factor, "until": f"{length}step", "to": top}
        own = main if main["type"] in ("MultiStep", "Constant") else {"type": _RUNNING, "curve": main["type"]}
        if own is not main and arguments:
            own["arguments"] = arguments
        return {"schedule": {"lr": [first, own]}}


class _LiBai(_Conversion):
    loaders = ("build_nlp_train_loader", "build_image_train_loader")
    loader_keys = (
        "_target_", "dataset", "num_workers", "sampler", "collate_fn", "dataset_mixer", "train_batch_size",
        "test_batch_size", "seed", "consumed_samples", "pin_memory", "mixup_func",
    )  # fmt: skip

    def __init__(self, tree: Tree, plan: Plan) -> None:
        super().__init__(tree, plan)
        self.many = int(tree.get("train", "num_accumulation_steps") or 1)
        self.iterations = int(tree.get("train", "train_iter") or 0) * self.many
        self.graph = bool(tree.get("graph", "enabled", default=True))
        if tree.get("train", "train_epoch"):
            hint = "say train.train_iter and train.train_epoch=0"
            self.refuse(("train", "train_epoch"), "train.train_epoch, which counts by the length of the data,", hint)
        if self.graph and self.many > 1:
            hint = "convert with graph.enabled=False"
            self.refuse(("train", "num_accumulation_steps"), "accumulation in graph mode", hint)
        if tree.get("tokenization") is not None:
            self.refuse(("tokenization",), "a tokenizer, which is made before the data,")

    def model(self) -> dict[str, Any]:
        """Return the model, with ``amp_enabled`` off as LiBai's trainer sets it."""
        made = super().model()
        inner = made.get("cfg", {}).get("of", {}) if isinstance(made.get("cfg"), dict) else {}
        for arguments in (made, inner):
            if arguments.get("amp_enabled") is not None:
                arguments["amp_enabled"] = False
        return made

    def data(self) -> dict[str, Any]:
        way: Path = ("dataloader", "train")
        loader, size = self.require_loader(), self.tree.get("train", "train_micro_batch_size")
        if size is None:
            hint = "say train.train_micro_batch_size"
            self.refuse(("train", "train_micro_batch_size"), "a batch size that depends on the processes", hint)
        if loader.get("mixup_func") is not None:
            self.refuse((*way, "mixup_func"), "mixup of batches")
        sampler = loader.get("sampler") or {}
        if sampler and not is_served(sampler.get("_target_", ""), ("CyclicSampler",)):
            self.refuse((*way, "sampler"), "a sampler other than CyclicSampler")
        collate = {"collate": self.name((*way, "collate_fn"))} if loader.get("collate_fn") is not None else {}
        return {
            "dataset": self._datasets((*way, "dataset")),
            "batch_size": int(size or 1),
            "workers": int(loader.get("num_workers", 4)),
            "shuffle": bool(sampler.get("shuffle", False)) if sampler else True,
            "drop_last": True,
            "collate": {"type": f"{LIVE}.Fields", **collate},
        }

    def _datasets(self, way: Path) -> dict[str, Any]:
        given = self.tree.get(*way)
        ways = [(*way, index) for index in range(len(given))] if isinstance(given, list | tuple) else [way]
        made = [self.component(one) for one in ways]
        for dataset in made:
            if "seed" in dataset:  # the trainer's
                dataset["seed"] = int(self.tree.get("train", "seed"))
        mixer = self.tree.get("dataloader", "train", "dataset_mixer")
        if mixer is None and len(made) == 1:
            return made[0]
        kind = "torch.utils.data.ConcatDataset" if mixer is None else self.name((*way[:-1], "dataset_mixer"))
        return {"type": kind, "datasets": made}

    def train(self) -> dict[str, Any]:
        if self.graph:
            self.notes.append(
                "the native form compiles with the compiler's default random numbers: dropout draws other ones"
            )
        if self.tree.get("train", "dist", "data_parallel_size", default=1) not in (None, 1):
            self.notes.append("the number of processes is given when they are started")
        many = {"accumulate": self.many} if self.many > 1 else {}
        compiled = {"compile": True} if self.graph else {}
        return {"steps": self.iterations, "seed": self.plan.train.seed, **many, **compiled}

    def weights(self, path: str) -> str:
        return f"{path}/model"

    def clipping(self) -> list[dict[str, Any]]:
        rules = self.tree.get("optim", "params", default={})
        norm, kind = rules.get("clip_grad_max_norm"), rules.get("clip_grad_norm_type")
        if norm is None or kind is None:
            return []
        return [{"type": f"{LIVE}.ClipByGroup", "max_norm": norm, "norm_type": kind}]

    def schedule(self) -> dict[str, Any]:
        way: Path = ("train", "scheduler")
        given: Mapping[str, Any] = self.tree.get(*way)
        base, total = float(self.tree.get("optim", "lr")), self.iterations
        name = target_name(given["_target_"]).rpartition(".")[2]
        gamma = given.get("gamma", 0.1)
        known: dict[str, dict[str, Any]] = {
            "WarmupCosineLR": {"type": "Cosine", "to": given.get("alpha", 0.0)},
            "WarmupCosineAnnealingLR": {"type": "Cosine", "to": given.get("eta_min", 0.0) / base},
            "WarmupStepLR": {"type": "Step", "every": f"{given.get('step_size')}step", "gamma": gamma},
            "WarmupExponentialLR": {"type": "Exponential", "gamma": gamma, "every": "1step"},
            "WarmupPolynomialLR": {
                "type": "Poly", "to": given.get("end_learning_rate", 1e-4) / base, "power": given.get("power", 1.0),
            },
        }  # fmt: skip
        if not is_served(given["_target_"], tuple(known)) or given.get("cycle"):
            self.refuse(way, f"the scheduler {name} with these arguments")
            return {}
        warmup = math.ceil(total // self.many * self.tree.get("train", "warmup_ratio", default=0)) * self.many
        factor, method = given.get("warmup_factor", 0.0), given.get("warmup_method", "linear")
        return self.phases(known[name], method, factor, warmup, total)


class _Detectron2(_Conversion):
    optimizer_key = "optimizer"
    loaders = ("build_detection_train_loader",)
    loader_keys = ("_target_", "dataset", "mapper", "total_batch_size", "num_workers", "aspect_ratio_grouping")
    hook = "StorageDetectron2"

    def data(self) -> dict[str, Any]:
        way: Path = ("dataloader", "train")
        loader = self.require_loader()
        if loader.get("aspect_ratio_grouping", True):
            hint = "convert with dataloader.train.aspect_ratio_grouping=False"
            self.refuse((*way, "aspect_ratio_grouping"), "batches of one aspect ratio", hint)
        called = isinstance(loader.get("mapper"), Mapping)
        given = self.value((*way, "mapper")) if called else self.name((*way, "mapper"))
        mapper = {"mapper": given} if loader.get("mapper") is not None else {}
        dataset = self.tree.get(*way, "dataset")
        listed = self.value((*way, "dataset"), plain=isinstance(dataset, list))
        return {
            "dataset": {"type": f"{LIVE}.Mapped", "dataset": listed, **mapper},
            "batch_size": int(loader.get("total_batch_size", 1)),
            "workers": int(loader.get("num_workers", 0)),
            "shuffle": True,
            "drop_last": True,
            "collate": f"{LIVE}.whole",
        }

    def train(self) -> dict[str, Any]:
        seed = int(self.tree.get("train", "seed", default=-1))
        if seed < 0:
            self.notes.append("train.seed is not set: detectron2 draws a random one, the native config has 0")
        return {"steps": int(self.tree.get("train", "max_iter")), "seed": max(0, seed)}

    def schedule(self) -> dict[str, Any]:
        way: Path = ("lr_multiplier",)
        given, total = self.tree.get(*way), int(self.tree.get("train", "max_iter"))
        if given is None:
            self.refuse((), "a config without lr_multiplier")
            return {}
        name = target_name(given["_target_"]).rpartition(".")[2]
        warmed = name == "WarmupParamScheduler"
        main = self._multiplier((*way, "scheduler") if warmed else way, total)
        length = float(given.get("warmup_length", 0.0)) * total if warmed else 0.0
        if main is None or given.get("rescale_interval") or length != round(length):
            self.refuse(way, f"the multiplier {name} with these arguments")
            return {}
        factor = float(given.get("warmup_factor", 0.0)) * Running(main["type"], _without_type(main)).at_start()
        return self.phases(main, given.get("warmup_method", "linear"), factor, round(length), total)

    def _multiplier(self, way: Path, total: int) -> dict[str, Any] | None:
        """Return the native curve of one of fvcore's schedulers, or None."""
        given = self.tree.get(*way)
        name = target_name(given.get("_target_", "")).rpartition(".")[2] if isinstance(given, Mapping) else ""
        if name == "ConstantParamScheduler":
            return {"type": "Constant", "factor": given["value"]}
        if name in ("CosineParamScheduler", "LinearParamScheduler"):
            kind = name.removesuffix("ParamScheduler")
            return {"type": kind, "from": given["start_value"], "to": given["end_value"]}
        if name == "PolynomialDecayParamScheduler":
            return {"type": "Poly", "from": given["base_value"], "to": 0.0, "power": given["power"]}
        if name == "MultiStepParamScheduler" and given.get("milestones") is not None:
            values, moments = list(given["values"]), list(given["milestones"])
            count = given.get("num_updates") or moments.pop()
            ratios = {round(after / before, 12) for before, after in itertools.pairwise(values)}
            if len(ratios) == 1 and len(moments) == len(values) - 1:
                at = [f"{round(moment * total / count)}step" for moment in moments]
                return {"type": "MultiStep", "at": at, "gamma": ratios.pop(), "from": values[0]}
        return None


def _without_type(curve: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in curve.items() if key != "type"}


def _resolved(tree: Tree) -> Tree:
    """Resolve interpolations (``${..lr}``), as native references are written differently.

    A section with one that is only known when training begins stays as it is.
    """
    package, values = omegaconf(), dict(tree.values)
    config = dict_config(values)
    for key in tree.values:
        with suppress(package.errors.OmegaConfBaseException):
            node = config[key]
            config_node = package.OmegaConf.is_config(node)
            values[key] = without_tuples(package.OmegaConf.to_container(node, resolve=True)) if config_node else node
    return replace(tree, values=values)


def _unwritable(tree: Tree, way: Path, value: Any) -> Finding | None:
    """Return a finding if a class, function or object cannot be found again by its name; else None."""
    if callable(value) and getattr(value, "__module__", None) and "<" not in getattr(value, "__qualname__", "<"):
        try:
            if locate(target_name(value)) is value:
                return None
        except (ImportError, ValueError):
            pass  # defined in the config itself
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    hint = "move what is defined in the config itself to a module"
    return Finding(str(tree.place(*way)), f"{dotted(way)}: {kind} cannot be written into YAML", hint)
