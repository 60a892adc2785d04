"""Converts an mmcv 1.x config to a native one. User classes keep their names; keys without a counterpart raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.config.tree import Path, Tree
from etude.inspection import signatures
from etude.plan import Plan
from etude_openmm.mmcv1 import lower as lowering
from etude_openmm.mmcv1.listing import HOOKS, OPTIMIZERS
from etude_openmm.mmcv1.tracking import tracks
from etude_openmm.shared.convert import FORMULA, Conversion
from etude_openmm.shared.metric_rules import guess

LIVE = "etude_openmm.mmcv1.live.native"
WARMED = "etude_openmm.mmcv1.curves.Warmed"
_SPLITS = ("train", "val", "test", "train_dataloader", "val_dataloader", "test_dataloader")
_LOADER_KEYS = ("samples_per_gpu", "workers_per_gpu", "shuffle", "drop_last", "persistent_workers", "pin_memory")
#: Keys of ``evaluation`` that are arguments of the hook, not of ``dataset.evaluate``.
_HOOK_ARGUMENTS = (
    "start", "interval", "by_epoch", "save_best", "rule", "greater_keys", "less_keys", "out_dir", "priority",
    "file_client_args", "broadcast_bn_buffer", "tmpdir", "gpu_collect",
)  # fmt: skip
#: Policies of ``lr_config`` with a native form → their arguments.
_POLICIES = {
    "step": ("step", "gamma"), "exp": ("gamma",), "fixed": (), "poly": ("power", "min_lr"),
    "cosineannealing": ("min_lr", "min_lr_ratio"), "linearannealing": ("min_lr", "min_lr_ratio"),
}  # fmt: skip
_WARMUP = ("policy", "by_epoch", "warmup", "warmup_iters", "warmup_ratio", "warmup_by_epoch")
#: Loggers that have a native counterpart.
_WRITERS = {"TensorboardLoggerHook": "tensorboard", "TextLoggerHook": ""}


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """Return the native config and notes about differences. Raises an error for what has no native form."""
    config = _Config(tree, lowering.lower(tree), LIVE)
    return config.converted(validates=config.given.get("val") is not None)


class _Config(Conversion):
    rate = ("optimizer", "lr")
    gradients_stay, norms_are_biased = True, False

    def __init__(self, tree: Tree, plan: Plan, live: str) -> None:
        super().__init__(tree, plan, live)
        self.given = tree.values["data"]
        self.unit = "ep" if self.by_epochs else "step"

    def _own_modules(self) -> Sequence[str]:
        return self.plan.imports

    def _model(self) -> dict[str, Any]:
        return self.component(("model",), self._target(("model",), "MODELS", "CLASSIFIERS"))

    def _target(self, way: Path, *tables: str) -> str:
        """Return ``module:attribute`` of a ``type``: a user-defined class, else one that Étude provides."""
        name = str(self.tree.get(*way, "type"))
        own = [self.low.registered[table, name] for table in tables if (table, name) in self.low.registered]
        module, _, attribute = name.rpartition(".")
        return own[0] if own else lowering.WORDS.names.get(name) or (f"{module}:{attribute}" if module else "")

    def _look_for_the_unsaid(self) -> None:
        tree = self.tree
        if tracks(self.low):
            self.refuse(("model",), "MMTracking's training of trackers and their parts")
        flow = tree.get("workflow") or [("train", 1)]
        if not self.by_epochs and len(flow) > 1:
            self.refuse(("workflow",), "a workflow of iterations")
        elif any(mode == "val" for mode, _ in flow) and self.given.get("val") is None:
            self.refuse(("workflow",), "a workflow that validates without data.val")
        if tree.get("runner", "type", default="EpochBasedRunner") not in ("EpochBasedRunner", "IterBasedRunner"):
            self.refuse(("runner",), f"the runner {tree.get('runner', 'type')}")
        if tree.get("momentum_config"):
            self.refuse(("momentum_config",), "momentum_config")
        if tree.get("sampler"):
            self.refuse(("sampler",), "a sampler")
        if tree.get("evaluation", "start") is not None:
            self.refuse(("evaluation", "start"), "evaluation.start")

    # -- the parts ---------------------------------------------------------------------------------------------------

    def _data(self, split: str) -> dict[str, Any]:
        common = {key: value for key, value in self.given.items() if key not in _SPLITS}
        own = self.given.get(f"{split}_dataloader") or {}
        settings = {"shuffle": split == "train", **common, **own}
        for key in [key for key in settings if key not in _LOADER_KEYS]:
            self.refuse(("data", f"{split}_dataloader", key) if key in own else ("data", key), f"data.{key}")
        way = ("data", split)
        if isinstance(self.given[split], list | tuple):
            self.refuse(way, "a list of data sets")
            return {}
        if "dataset" in self.given[split]:
            self.refuse(way, f"a wrapper of data sets ({self.given[split].get('type')})")
        target = self._target(way, "DATASETS")
        dataset = self.component(way, target)
        if split != "train":
            dataset["test_mode"] = True
        return {
            "dataset": dataset,
            "batch_size": int(settings["samples_per_gpu"]),
            "workers": int(settings["workers_per_gpu"]),
            "shuffle": bool(settings["shuffle"]) and split == "train",
            "drop_last": bool(settings.get("drop_last", False)) and split == "train",
            **({} if self._is_plain(target, dataset) else {"collate": f"{LIVE}.collate"}),
        }

    def _is_plain(self, target: str, dataset: Mapping[str, Any]) -> bool:
        """Return whether its own source shows that samples hold no DataContainer, so that torch's collate does."""
        source = signatures.find_source(target.partition(":")[0], self.low.folders)
        bases = (signatures.signature(target, folders=self.low.folders) or signatures.Signature()).bases
        imported = source.names.values() if source is not None else ["DataContainer"]
        ours = not any("DataContainer" in str(name) for name in imported) and "pipeline" not in dataset
        return ours and bool(bases) and all(base.startswith(("torch.utils.data", "typing")) for base in bases)

    def _optimizer(self) -> dict[str, Any]:
        given, way = self.tree.values["optimizer"], ("optimizer",)
        if "type" not in given or given.get("constructor") not in (None, "DefaultOptimizerConstructor"):
            self.refuse(way, "a constructor of optimizers")
            return {}
        name = str(given["type"])
        target = self.low.registered.get(("OPTIMIZERS", name)) or OPTIMIZERS.get(name) or self._target(way)
        clip = (self.tree.get("optimizer_config") or {}).get("grad_clip") or {}
        return self.optimizer(way, target, given.get("paramwise_cfg") or {}, clip)

    def _arithmetic(self) -> dict[str, Any]:
        """Return the precision and the gradient accumulation of the optimizer hook."""
        given, fp16 = self.tree.get("optimizer_config"), self.tree.get("fp16")
        if given is None and fp16 is None:
            self.refuse((), "a config without optimizer_config, whose model steps its optimizer itself,")
            return {}
        kind, many = str((given or {}).get("type", "OptimizerHook")), (given or {}).get("cumulative_iters", 1)
        if kind not in ("OptimizerHook", "GradientCumulativeOptimizerHook"):
            self.refuse(("optimizer_config",), kind)
        self.refuse_others(("optimizer_config",), given or {}, ("type", "grad_clip", "cumulative_iters"), kind)
        if fp16 is not None and dict(fp16).get("loss_scale") != "dynamic":
            self.refuse(("fp16",), "a fixed loss scale")
        return {**({"accumulate": many} if many != 1 else {}), **({"precision": "fp16"} if fp16 is not None else {})}

    # -- schedules, validation, saving -------------------------------------------------------------------------------

    def _schedule(self) -> dict[str, Any]:
        way: Path = ("lr_config",)
        given = dict(self.tree.get(*way) or {})
        if not given:
            return {}
        policy, by_epoch = str(given.get("policy") or given.get("type")), given.get("by_epoch", self.by_epochs)
        known = _POLICIES.get(policy.lower()) if "policy" in given else None
        if known is None or (by_epoch and not self.by_epochs):
            self.refuse(way, f"the policy {policy}" if known is None else "by_epoch=True in a training by iterations")
            return {}
        self.refuse_others(way, given, (*_WARMUP, *known), f"the policy {policy}")
        self.notes.append(FORMULA)
        curve = self._curve(policy.lower(), given, "ep" if by_epoch else "step")
        warmup, each = given.get("warmup"), {"by": "epoch"} if by_epoch else {}
        if not warmup:
            return {"schedule": {"lr": [{**curve, **each}]}} if curve["type"] != "Constant" else {}
        ratio = given.get("warmup_ratio", 0.1)
        until = f"{given.get('warmup_iters', 0)}{'ep' if given.get('warmup_by_epoch') else 'step'}"
        if curve["type"] not in ("MultiStep", "Constant"):  # mmcv multiplies
            arguments = {key: value for key, value in curve.items() if key != "type"}
            made = {"type": WARMED, "curve": curve["type"], "arguments": arguments, "by_epoch": by_epoch}
            return {"schedule": {"lr": [{**made, "warmup": warmup, "ratio": ratio, "length": until}]}}
        line = {"type": "Exponential" if warmup == "exp" else "Linear", "from": ratio, "to": 1.0}
        first = {"type": "Constant", "factor": ratio} if warmup == "constant" else line
        if curve["type"] == "MultiStep":
            self.notes.append(f"the warm-up has to end before the first milestone, {curve['at'][0]}")
        return {"schedule": {"lr": [{**first, "until": until}, {**curve, **each}]}}

    def _curve(self, policy: str, given: Mapping[str, Any], unit: str) -> dict[str, Any]:
        steps: Any = given.get("step")
        gamma = given.get("gamma", 0.1)
        if isinstance(steps, int) and given.get("warmup"):  # a Step counts from the end of the warm-up
            length = (self.plan.train.epochs if unit == "ep" else self.plan.train.steps) or 0
            steps = list(range(steps, length, steps)) or steps
        if policy == "step":
            if isinstance(steps, int):
                return {"type": "Step", "every": f"{steps}{unit}", "gamma": gamma}
            return {"type": "MultiStep", "at": [f"{step}{unit}" for step in steps], "gamma": gamma}
        if policy == "exp":
            return {"type": "Exponential", "gamma": given["gamma"], "every": f"1{unit}"}
        if policy == "fixed":
            return {"type": "Constant"}
        groups = str(self.tree.get("optimizer", "paramwise_cfg", default=""))
        least = given.get("min_lr_ratio") or self.floor(("lr_config", "min_lr"), given.get("min_lr"), groups)
        if policy == "poly":
            return {"type": "Poly", "power": given.get("power", 1.0), "to": least}
        linear = {"type": "Linear", "from": 1.0, "to": least}
        return {"type": "Cosine", "to": least} if policy == "cosineannealing" else linear

    def _validate(self, config: dict[str, Any]) -> None:
        config["data"]["val"] = self._data("val")
        given: Mapping[str, Any] = self.tree.get("evaluation") or {}
        config["train"]["validate"] = f"{int(given.get('interval', 1))}{self.unit}"
        flow = [[mode, count] for mode, count in self.tree.get("workflow") or []]
        if len(flow) > 1:
            config["train"]["workflow"] = flow
            self.notes.append(
                "validation epochs of `workflow` take data.val as evaluations do, without the training's pipeline, "
                "batch size and shuffling; none follows the last training epoch"
            )
        arguments = {
            key: self.argument(("evaluation", key), value) for key, value in given.items() if key not in _HOOK_ARGUMENTS
        }
        name = {"name": given["save_best"]} if given.get("save_best") not in (None, "auto") else {}
        config["metrics"] = [{"type": f"{LIVE}.Results", **name, **arguments}]
        config["hooks"].insert(0, {"type": f"{LIVE}.Validation", "priority": 0})

    def _log(self) -> dict[str, Any]:
        names = [str(hook.get("type")) for hook in self.tree.get("log_config", "hooks", default=[]) or []]
        return self.log(names, _WRITERS, int(self.tree.get("log_config", "interval", default=10)))

    def _checkpoint(self) -> Any:
        best, given = self.tree.get("evaluation", "save_best"), self.tree.get("checkpoint_config")
        if not isinstance(given, Mapping):
            return False
        if best == "auto":
            self.notes.append("save_best='auto' is left out: give `checkpoint.best` the name of one result")
        kept = {"best": best, "mode": self._mode(best)} if best and best != "auto" else {}
        most, unit = given.get("max_keep_ckpts", -1), "ep" if given.get("by_epoch", self.by_epochs) else "step"
        return {"every": f"{max(int(given.get('interval', -1)), 1)}{unit}", "keep": most if most > 0 else None, **kept}

    def _mode(self, best: str) -> str:
        rule = self.tree.get("evaluation", "rule")
        return "min" if (rule or guess(best)) == "less" else "max"

    # -- hooks -------------------------------------------------------------------------------------------------------

    def _hooks(self) -> list[dict[str, Any]]:
        listed = enumerate(self.tree.get("custom_hooks") or [])
        return [self._hook(("custom_hooks", index), hook) for index, hook in listed if not _is_logger(hook)]

    def _hook(self, way: Path, hook: Mapping[str, Any]) -> dict[str, Any]:
        name = str(hook.get("type"))
        if name == "EMAHook" and ("HOOKS", name) not in self.low.registered:
            self.refuse_others(way, hook, ("type", "momentum", "interval", "priority", "warm_up"), name)
            if hook.get("interval", 1) != 1:
                self.refuse((*way, "interval"), f"interval={hook['interval']} of EMAHook")
            momentum, length = hook.get("momentum", 0.0002), hook.get("warm_up", 100)
            if momentum * length > 1:  # else the ramp, which starts at 1 / warm_up, is never below the momentum
                self.notes.append(f"warm_up={length} of EMAHook is left out: the average is slower at first there")
            self.notes.append("checkpoints contain the average in addition to the weights, not in their place")
            return {"type": "EMA", "momentum": momentum}
        return self.hook(way, self._target(way, "HOOKS"))

    def _note_the_rest(self) -> None:
        if self.tree.get("seed") is None:
            self.notes.append("the config has no seed, so the original draws one; this one takes 0")
        if self.tree.get("resume_from"):
            self.notes.append(
                "resume_from is left out: only weights can be taken from a checkpoint of mmcv (`init_from`)"
            )
        if self.tree.get("auto_resume"):
            self.notes.append("auto_resume is left out: `etude train --resume` resumes from the newest checkpoint")
        if self.given.get("test") is not None:
            self.notes.append("the test data is left out: training does not use it")


def _is_logger(hook: Mapping[str, Any]) -> bool:
    """Return whether a hook is a logger, whose values the native engine records itself."""
    name = str(hook.get("type"))
    return name in HOOKS and name.endswith(("LoggerHook", "WandbHook"))
