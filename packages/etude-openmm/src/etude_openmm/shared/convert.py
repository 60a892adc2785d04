"""The common part of converting configs of other systems to native ones. Imports no torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from etude.config.tree import Path, Tree
from etude.dialects import imports
from etude.dialects.converting import FORMULA as FORMULA
from etude.dialects.converting import Refusing
from etude.errors.own_code import is_own
from etude.inspection import signatures
from etude.plan import PRIORITIES, Plan
from etude_openmm.shared.checks.lowering import Lowering

#: Attributes of the runner that a converted hook can use, see :class:`etude_openmm.shared.live.native.RunnerView`.
RUNNER = (
    "data_batch", "data_loader", "epoch", "inner_iter", "iter", "log_buffer", "logger", "max_epochs", "max_iters",
    "model", "optim_wrapper", "optimizer", "outputs", "rank", "train_dataloader", "work_dir", "world_size",
)  # fmt: skip
#: Keys of ``paramwise_cfg`` that have a native form.
_RULES = {"custom_keys", "norm_decay_mult", "bias_lr_mult", "bias_decay_mult", "bypass_duplicate"}
_SHARED = "etude_openmm.shared.live.native"
_TYPE, _TUPLE = "_class_", "_tuple_"


class Conversion(Refusing):
    """Converts one config of mmcv 1.x or MMEngine."""

    #: Where the base learning rate stands.
    rate: Path
    #: Whether groups of ``custom_keys`` may have options of the optimizer beside their multipliers.
    has_group_options = False
    #: Whether ``bias_decay_mult`` is for biases of norms, too.
    norms_are_biased = True
    #: Whether hooks find the gradients after an update.
    gradients_stay = False

    def __init__(self, tree: Tree, plan: Plan, live: str) -> None:
        super().__init__(tree, plan)
        self.low = Lowering(tree)
        self.by_epochs = plan.train.steps is None
        #: The module with the adapters of this dialect.
        self.live = live
        #: Modules that the native config imports: adapters, modules of functions, and the user's.
        self.modules = [_SHARED, live]

    def converted(self, *, validates: bool) -> tuple[dict[str, Any], list[str]]:
        """Return the native config and notes on differences. Raises one error for all parts without a native form."""
        train = self.plan.train
        self._look_for_the_unsaid()
        length = {"epochs": train.epochs} if self.by_epochs else {"steps": train.steps}
        config: dict[str, Any] = {
            "name": self.plan.name,
            "imports": [],
            "model": self._model(),
            "data": {"train": self._data("train")},
            "optim": self._optimizer(),
            **self._schedule(),
            "update": f"{self.live}.TrainStep",
            "train": {**length, "seed": train.seed, "deterministic": train.deterministic},
            "log": self._log(),
            "checkpoint": self._checkpoint(),
            "hooks": self._hooks(),
        }
        config["train"] |= self._arithmetic()
        if config["train"].get("accumulate") and any(hook.get("type") == "EMA" for hook in config["hooks"]):
            self.notes.append("the average follows once for each update, in the original in every iteration")
        if validates:
            self._validate(config)
        config["imports"] = [*dict.fromkeys([*self.modules, *self._own_modules()])]
        if self.tree.get("load_from"):
            config["init_from"] = self.tree.get("load_from")
        self._note_the_rest()
        return self.finished(config)

    # -- overridden by each dialect: parts of the native config, errors and notes --------------------------------------

    def _look_for_the_unsaid(self) -> None: ...
    def _note_the_rest(self) -> None: ...
    def _model(self) -> Any: ...
    def _data(self, split: str) -> Any: ...
    def _optimizer(self) -> Any: ...
    def _schedule(self) -> Any: ...
    def _log(self) -> Any: ...
    def _checkpoint(self) -> Any: ...
    def _hooks(self) -> Any: ...
    def _arithmetic(self) -> Any: ...
    def _validate(self, config: dict[str, Any]) -> None: ...

    def _own_modules(self) -> Sequence[str]:
        return self.low.modules

    # -- shared --------------------------------------------------------------------------------------------------------

    def log(self, names: Sequence[str], native: Mapping[str, str], every: int) -> dict[str, Any]:
        """Return the log interval and the native writers of ``names``. An empty writer means that it is built in."""
        for name in [name for name in names if name not in native]:
            self.notes.append(f"{name} is left out: add a writer to `log.to`")
        writers = [native[name] for name in names if native.get(name)]
        return {"every": f"{every}step", **({"to": writers} if writers else {})}

    def component(self, way: Path, target: str, leave_out: Sequence[str] = ()) -> dict[str, Any]:
        """Return the component at ``way`` with ``target``, ``module:attribute``, as its type."""
        given = self.tree.get(*way)
        if not target:
            self.refuse(way, f"{given.get('type') if isinstance(given, Mapping) else given}, whose source is unknown,")
        left_out = ("type", "_scope_", "_delete_", *leave_out)
        rest = {str(key): value for key, value in given.items() if key not in left_out}
        return {"type": target.replace(":", "."), **{key: self.argument((*way, key), rest[key]) for key in rest}}

    def argument(self, way: Path, value: Any) -> Any:
        """Return an argument for YAML. Dicts from which a class builds its own parts are kept as settings."""
        try:
            written = hidden(value)
        except TypeError as error:
            self.refuse(way, f"{'.'.join(map(str, way))}, {error},")
            return None
        return value if written == value else {"type": f"{_SHARED}.settings", "of": written}

    def function(self, target: str) -> str:
        """Return the dotted name of a function, and add its module to the imports of the native config."""
        self.modules.append(target.partition(":")[0])
        return target.replace(":", ".")

    def optimizer(self, way: Path, target: str, rules: Mapping[str, Any], clip: Mapping[str, Any]) -> dict[str, Any]:
        """Return the optimizer with its parameter groups and gradient clipping."""
        made = self.component(way, target, leave_out=("paramwise_cfg", "constructor"))
        made |= {key: list(value) for key, value in self.tree.get(*way).items() if isinstance(value, tuple)}
        if target.startswith(("torch.optim:", "etude.optim.")):
            made |= self.torch_optimizer(target.partition(":")[2])
        above = way if self.tree.get(*way, "paramwise_cfg") else way[:-1]
        groups = self._groups((*above, "paramwise_cfg"), rules, target)
        norm = {"clip_norm": clip["max_norm"]} if "max_norm" in clip else {}
        value = {"clip_value": clip["clip_value"]} if "clip_value" in clip else {}
        if set(clip) - {"max_norm", "clip_value", "type"} and clip.get("norm_type", 2) != 2:
            self.refuse(way, f"clipping by {dict(clip)}")
        if groups and norm:
            self.notes.append("the norm that clips is summed in the order of the groups: the last digits may differ")
        return {**made, **norm, **value, **({"groups": groups} if groups else {})}

    def floor(self, way: Path, least: Any, groups: str) -> float:
        """Return the lowest learning rate of a schedule as a factor of the base rate."""
        if least and "lr_mult" in groups:
            self.refuse(way, f"{way[-1]}={least}, one lowest rate for groups with other rates (lr_mult),")
        return float(least or 0.0) / float(self.tree.get(*self.rate, default=1.0))

    def _groups(self, way: Path, rules: Mapping[str, Any], target: str) -> list[dict[str, Any]]:
        self.refuse_others(way, rules, _RULES, "paramwise_cfg")
        keys, options = rules.get("custom_keys") or {}, {"lr_mult", "decay_mult"}
        if self.has_group_options and (signature := signatures.signature(target, folders=self.low.folders)):
            options |= {parameter.name for parameter in signature.parameters}
        for key, entry in keys.items():
            self.refuse_others((*way, "custom_keys", key), entry, options, f"the rule {key}")
        groups = [{"match": f"*{key}*", **keys[key]} for key in sorted(sorted(keys), key=len, reverse=True)]
        bias = {f"{name}_mult": rules[f"bias_{name}_mult"] for name in ("lr", "decay") if f"bias_{name}_mult" in rules}
        if "norm_decay_mult" in rules:
            groups.append({"kind": "norm", "decay_mult": rules["norm_decay_mult"]})
        elif bias:  # the rate is never for biases of norms, the decay only in MMEngine
            decay = bias.get("decay_mult", 1.0) if self.norms_are_biased else 1.0
            groups.append({"kind": "norm", "match": "*.bias", "decay_mult": decay})
        if "decay_mult" in bias and not self.norms_are_biased:
            self.notes.append("bias_decay_mult of mmcv leaves out convolutions of one input channel; here it does not")
        return [*groups, {"match": "*.bias", **bias}] if bias else groups

    def hook(self, way: Path, target: str) -> dict[str, Any]:
        """Return a user-defined hook, wrapped by the adapter."""
        why = obstacle(target, self.low.folders)
        if why:
            self.refuse(way, f"the hook {self.tree.get(*way).get('type')}, {why},")
        priority = priority_of(self.tree.get(*way), target, self.low.folders)
        own = self.component(way, target, leave_out=("priority",))
        looks = self.gradients_stay and reads_gradients(target, self.low.folders)
        keeps = {"gradients": True} if looks else {}
        return {"type": f"{self.live}.Hook", "priority": priority, "hook": own, **keeps}


def hidden(value: Any) -> Any:
    """Return ``value`` for YAML. ``type`` becomes ``_class_``, so that the native engine does not build the dicts."""
    if isinstance(value, dict):
        return {(_TYPE if key == "type" else key): hidden(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {_TUPLE: [hidden(item) for item in value]}
    if isinstance(value, list):
        return [hidden(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a {type(value).__name__}, which YAML cannot hold")


def restored(value: Any) -> Any:
    """Undo :func:`hidden`."""
    if isinstance(value, dict):
        if set(value) == {_TUPLE}:
            return tuple(restored(item) for item in value[_TUPLE])
        return {("type" if key == _TYPE else key): restored(item) for key, item in value.items()}
    return [restored(item) for item in value] if isinstance(value, list | tuple) else value


# -- the sources of hooks ----------------------------------------------------------------------------------------------


def obstacle(target: str, folders: Sequence[str]) -> str:
    """Return why the hook ``target`` cannot act in a native run; empty if its source shows no reason."""
    classes = list(_classes(target, folders))
    if not classes:
        return "whose source cannot be read"
    for method in _methods(classes):
        if method.name in ("before_save_checkpoint", "after_load_checkpoint"):
            return f"which acts at {method.name}"
        if asked := next((name for name in _runner_attributes(method) if name not in RUNNER), ""):
            return f"which asks for runner.{asked}"
    return ""


def reads_gradients(target: str, folders: Sequence[str]) -> bool:
    """Return whether the hook looks at ``.grad``; the native update clears it."""
    nodes = [node for method in _methods(_classes(target, folders)) for node in ast.walk(method)]
    return any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in nodes)


def _methods(classes: Iterable[ast.ClassDef]) -> list[ast.FunctionDef]:
    return [item for node in classes for item in node.body if isinstance(item, ast.FunctionDef)]


def priority_of(hook: Mapping[str, Any], target: str, folders: Sequence[str]) -> int:
    """Return the priority of a hook as a number: of the config, else of its class."""
    given = hook.get("priority")
    for node in _classes(target, folders) if given is None else ():
        given = next((value for value in map(_priority, node.body) if value is not None), None)
        if given is not None:
            break
    return given if isinstance(given, int) else PRIORITIES.get(str(given).upper(), PRIORITIES["NORMAL"])


def _priority(statement: ast.stmt) -> str | int | None:
    """Return the value of ``priority = "LOW"`` in the body of a class."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    named = any(isinstance(target, ast.Name) and target.id == "priority" for target in targets)
    value = statement.value if named and isinstance(statement, ast.Assign) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str | int) else None


def _classes(target: str, folders: Sequence[str]) -> Iterator[ast.ClassDef]:
    """Yield the class and its bases up to the dialect's own ``Hook``, as far as sources are found."""
    waiting, seen = [target], set[str]()
    while waiting:
        module, _, attribute = waiting.pop(0).partition(":")
        name = (imports.served_names(module) or {}).get(attribute, f"{module}:{attribute}")
        ours = name in seen or (is_own(name) and name.endswith(":Hook"))
        found = None if ours else signatures.class_of(name, folders=folders)
        seen.add(name)
        if found is not None:
            yield found[1]
            waiting += (signatures.signature(name, folders=folders) or signatures.Signature()).bases


def _runner_attributes(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the names ``a`` of ``runner.a`` in a method, and ``log_buffer.b`` unless it is ``update``."""
    for node in ast.walk(method):
        name, *rest = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else [""]
        if name == "runner" and (len(rest) == 1 or (rest[0] == "log_buffer" and rest[1] != "update")):
            yield ".".join(rest)
