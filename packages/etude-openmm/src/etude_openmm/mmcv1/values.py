"""Checks values of mmcv 1.x configs: those that mmcv refuses at the start, or silently accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etude.config.conform import Misfit, Want, conform, declared
from etude.config.tree import Path, dotted
from etude.errors.spelling import is_slip, nearest, suggest
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude_openmm.mmcv1.listing import KEYS, registries
from etude_openmm.mmcv1.tracking import tracks
from etude_openmm.shared.checks.bounds import (
    OF_OPTIMIZERS,
    OPEN_SHARE,
    Bound,
    Bounds,
    bounds_of,
    is_number,
    is_whole,
    unquoted,
)
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.checks.schemas import written
from etude_openmm.shared.checks.typos import report_methods
from etude_openmm.shared.checks.weights import report_weights
from etude_openmm.shared.metric_rules import GREATER_KEYS, LESS_KEYS, guess

_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
_MODES = ("train", "val")
_BACKENDS = ("nccl", "gloo", "mpi", "ucc")
#: The keys of ``paramwise_cfg`` that mmcv's optimizer constructor reads.
_PARAMWISE = KEYS.fields("PARAMWISE")
_HOOK = "etude_openmm.mmcv1.live.hooks.hook:Hook"


def _one_of(*words: str) -> Bound:
    return Bound(lambda value: not isinstance(value, str) or value in words, f"one of {', '.join(words)}", words)


def _is_step(value: Any) -> bool:
    steps = value if isinstance(value, list) else [value]
    return all(is_whole(step) and step > 0 for step in steps)


def _is_ratio(value: Any) -> bool:
    if isinstance(value, float):
        return True
    return isinstance(value, tuple) and len(value) in (1, 2) and all(map(is_number, value))


def _is_per_group(value: Any) -> bool:
    """Return whether ``value`` is a number, a list with one per group, or a dict with either per optimizer."""
    return is_number(value) or isinstance(value, list | dict)


_WHOLE = Bound(lambda value: is_whole(value) and value > 0, "a whole number above 0")
_FACTOR = Bound(lambda value: is_number(value) and 0 < value <= 1, "a number above 0 and at most 1")
_BY_ITERATION = Bound(lambda value: value is False, "False: this policy counts iterations")
_RATIO = Bound(_is_ratio, "a tuple or a float, such as (10, 1e-4)")
_PER_GROUP = Bound(_is_per_group, "a number, a list with one per group, or a dict with one per optimizer")
#: mmcv refuses 0 and 1 as whole numbers.
_SHARE = Bound(lambda value: isinstance(value, float) and 0 <= value <= 1, "a float between 0 and 1")
_SCALE = Bound(
    lambda value: isinstance(value, float | dict) or value == "dynamic", "a float (512.0), a dict or 'dynamic'"
)

#: Values that mmcv's classes refuse.
BOUNDS: Bounds = {
    **OF_OPTIMIZERS,
    "*UpdaterHook": {"warmup": _one_of("constant", "linear", "exp"), "anneal_strategy": _one_of("cos", "linear")},
    "Step*UpdaterHook": {"step": Bound(_is_step, "a whole number above 0, or a list of such")},
    "FlatCosine*UpdaterHook": {"start_percent": _SHARE},
    "Cyclic*UpdaterHook": {
        "target_ratio": _RATIO,
        "cyclic_times": _WHOLE,
        "step_ratio_up": Bound(lambda value: is_number(value) and 0 <= value < 1, "a number from 0 to below 1"),
        "by_epoch": _BY_ITERATION,
    },
    "CyclicLrUpdaterHook": {"gamma": _FACTOR},
    "OneCycle*UpdaterHook": {
        "by_epoch": _BY_ITERATION,
        "max_lr": _PER_GROUP,
        "base_momentum": _PER_GROUP,
        "max_momentum": _PER_GROUP,
        "total_steps": _WHOLE,
        "pct_start": _SHARE,
    },
    "CosineRestart*UpdaterHook": {
        "periods": Bound(lambda value: isinstance(value, list) and _is_step(value), "a list of whole numbers above 0"),
        "restart_weights": Bound(lambda value: isinstance(value, list) and all(map(is_number, value)), "a list"),
    },
    "*EMAHook": {"momentum": OPEN_SHARE, "interval": _WHOLE},
    "GradientCumulative*": {"cumulative_iters": _WHOLE},
    "*Fp16OptimizerHook": {"loss_scale": _SCALE},
    "ProfilerHook": {"profile_iters": _WHOLE},
    "EvalHook": {
        "interval": Bound(lambda value: not isinstance(value, int) or value > 0, "positive"),
        "start": Bound(lambda value: not isinstance(value, int) or value >= 0, "at least 0"),
        "save_best": Bound(lambda value: isinstance(value, str), "the name of a result ('auto' takes the first one)"),
        "rule": _one_of("greater", "less"),
    },
}
#: Values that are no arguments of a class.
_ELSEWHERE: Mapping[Path, Bound] = {
    ("log_level",): _one_of(*_LEVELS),
    ("seed",): Bound(lambda value: isinstance(value, int), "a whole number or None"),
    ("fp16", "loss_scale"): _SCALE,
    # Other packages add backends, so an unknown one is only wrong if it is misspelt.
    ("dist_params", "backend"): Bound(
        lambda value: value in _BACKENDS or not _similar_word(str(value), _BACKENDS), "a backend", _BACKENDS
    ),
}


def report_values(
    low: Lowering, target_of: Callable[[Path, Mapping[Any, Any]], str | None], *, own_script: bool = False
) -> None:
    """Add findings to ``low``. ``target_of`` returns the class of Étude that a dict is built as.

    ``own_script``: another project's script trains, whose evaluation hook may know other results by their names.
    """
    for path, value in low.tree.walk():
        target = target_of(path, value) if isinstance(value, Mapping) else None
        if target:
            _arguments(low, path, value, target)
    for path, bound in _ELSEWHERE.items():
        _report_bound(low, path, low.tree.get(*path), bound)
    for rule in _RULES:
        if rule is not _best or not own_script:
            rule(low)
    report_weights(low, "load_from", "resume_from")
    _class_arguments(low, target_of)


def _arguments(low: Lowering, path: Path, given: Mapping[Any, Any], target: str) -> None:
    for key, bound in bounds_of(target.rpartition(":")[2], BOUNDS):
        _report_bound(low, (*path, key), given.get(key), bound)
    signature = scan.signature(target, known=cached)
    takes = {parameter.key: parameter for parameter in (signature.parameters if signature else ())}
    for name, parameter in takes.items():
        value, annotation = given.get(name), written(parameter.annotation)
        where = (*path, name)
        if (
            isinstance(value, str | list | tuple | dict)
            and _is_scalar(declared(annotation))
            and not _is_reported(low, where)
        ):
            try:
                conform(value, annotation)
            except Misfit as misfit:
                low.error(low.place(*where), f"{dotted(where)} must be {misfit}", misfit.hint)
    for ending in ("lr", "momentum"):
        pair = (f"min_{ending}", f"min_{ending}_ratio")
        if all(name in takes for name in pair) and (given.get(pair[0]) is None) == (given.get(pair[1]) is None):
            low.error(low.place(*path), f"{dotted(path)} needs exactly one of {pair[0]} and {pair[1]}")


def _report_bound(low: Lowering, where: Path, value: Any, bound: Bound) -> None:
    if value is None or bound.fits(value) or _is_reported(low, where):
        return
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    hint = suggest(texts[0], bound.words) if bound.words and texts else unquoted(texts[0]) if texts else ""
    low.error(low.place(*where), f"{dotted(where)} must be {bound.want}, not {value!r}", hint)


def _is_reported(low: Lowering, path: Path) -> bool:
    """Return whether there is an error about the value at ``path`` already."""
    at = str(low.place(*path))
    return any(f.at == at and f.severity == "error" and f"{dotted(path)} " in f"{f.message} " for f in low.findings)


def _is_scalar(want: Want) -> bool:
    return all(part[0] in ("int", "float", "bool", "none") for part in (want[1:] if want[0] == "union" else (want,)))


def _warmup(low: Lowering) -> None:
    for key in ("lr_config", "momentum_config"):
        given = low.tree.get(key)
        if not isinstance(given, Mapping) or given.get("warmup") is None:
            continue
        iters = given.get("warmup_iters")
        if iters is None:
            low.error(low.place(key, "warmup"), f"{key}.warmup needs warmup_iters", "how many iterations it lasts")
        elif is_number(iters) and iters <= 0:
            low.error(
                low.place(key, "warmup_iters"), f"{key}.warmup_iters must be above 0 with a warmup, not {iters!r}"
            )
        _report_bound(low, (key, "warmup_ratio"), given.get("warmup_ratio"), _FACTOR)


def _milestones(low: Lowering) -> None:
    for key in ("lr_config", "momentum_config"):
        steps: Any = low.tree.get(key, "step")
        if isinstance(steps, list) and all(isinstance(one, int) for one in steps) and steps != sorted(steps):
            low.warning(low.place(key, "step"), f"{key}.step {steps} does not ascend: later ones are never reached")


def _periods(low: Lowering) -> None:
    """Report restarts that end before the run does: mmcv finds no period for the rest, and raises an error there."""
    for key in ("lr_config", "momentum_config"):
        policy, periods = low.tree.get(key, "policy"), low.tree.get(key, "periods")  # type: Any, Any
        by_epoch = low.tree.get(key, "by_epoch", default=True)
        length: Any = low.tree.get("runner", "max_epochs" if by_epoch else "max_iters")
        whole = isinstance(periods, list) and all(map(is_whole, [*periods, length]))
        if policy == "CosineRestart" and whole and sum(periods) < length:
            unit = "epoch" if by_epoch else "iteration"
            text = f"{key}.periods {periods} end after {unit} {sum(periods)}, the run has {length}"
            low.error(low.place(key, "periods"), text, "give periods that reach its end, and a restart weight for each")


def _run_length(low: Lowering) -> None:
    if low.tree.get("runner", "max_epochs") is not None and low.tree.get("runner", "max_iters") is not None:
        low.error(low.place("runner", "max_iters"), "only one of runner.max_epochs and runner.max_iters can be given")
        return
    kind = str(low.tree.get("runner", "type"))
    length = {"EpochBasedRunner": "max_epochs", "IterBasedRunner": "max_iters"}.get(kind)
    if length and "total_epochs" not in low.tree.values:
        _need(low, ("runner",), length, kind, f"runner = dict(…, {length}=…)")


def _two_lengths(low: Lowering) -> None:
    """Warn if ``total_epochs`` contradicts ``runner``. Other rules hold for MMTracking, see ``tracking.py``."""
    runner, length = low.tree.get("runner"), low.tree.get("total_epochs")
    if not isinstance(runner, Mapping) or length is None or tracks(low):
        return
    known = next((key for key in ("max_epochs", "max_iters") if key in runner), None)
    if known and (known, runner[known]) != ("max_epochs", length):
        text = f"total_epochs = {length!r} is not read beside runner: runner.{known} = {runner[known]!r} counts"
        low.warning(low.place("total_epochs"), text, "leave one of them out")


def _rules_by_parameter(low: Lowering) -> None:
    """Report unknown keys of ``paramwise_cfg``, which mmcv's constructor ignores."""
    rules = low.tree.get("optimizer", "paramwise_cfg")
    if low.tree.get("optimizer", "constructor", default="DefaultOptimizerConstructor") != "DefaultOptimizerConstructor":
        return
    for key in rules if isinstance(rules, Mapping) else ():
        way = ("optimizer", "paramwise_cfg", str(key))
        if key not in _PARAMWISE and not str(key).startswith("_") and _similar_word(str(key), _PARAMWISE) is None:
            low.error(low.place(*way), f"unknown key {dotted(way)}", suggest(str(key), _PARAMWISE))


def _constructor(low: Lowering) -> None:
    name = low.tree.get("optimizer", "constructor")
    own = [entry for table, entry in low.registered if table == "OPTIMIZER_BUILDERS"]
    known = [*registries()["OPTIMIZER_BUILDERS"], *own]
    if isinstance(name, str) and name not in known and (_similar_word(name, known) or not low.imports):
        low.error(
            low.place("optimizer", "constructor"), f"no optimizer constructor is called {name!r}", suggest(name, known)
        )


def _clip(low: Lowering) -> None:
    if low.tree.get("optimizer_config", "grad_clip"):
        _need(low, ("optimizer_config", "grad_clip"), "max_norm")


def _log(low: Lowering) -> None:
    for key in ("interval", "hooks"):
        _need(low, ("log_config",), key, hint="log_config = dict(interval=50, hooks=[…])")


def _need(low: Lowering, path: Path, key: str, who: str = "", hint: str = "") -> None:
    """Report that the dict at ``path`` lacks ``key``, unless a misspelt one is reported as such."""
    given = low.tree.get(*path)
    if isinstance(given, Mapping) and key not in given and not _similar_word(key, given):
        low.error(low.place(*path), f"{who or dotted(path)} needs `{key}`", hint)


def _pruning(low: Lowering) -> None:
    given: Any = low.tree.get("checkpoint_config")
    most: Any = given.get("max_keep_ckpts") if isinstance(given, Mapping) and given.get("interval") == 0 else None
    if is_whole(most) and most > 0:
        text = "checkpoint_config.max_keep_ckpts prunes every `interval`, which is 0"
        low.error(low.place("checkpoint_config", "max_keep_ckpts"), text, "give interval=1")


def _best(low: Lowering) -> None:
    """Check that ``save_best`` is spelt as a metric is, and that it is known whether greater is better."""
    given: Any = low.tree.get("evaluation")
    best = given.get("save_best") if isinstance(given, Mapping) else None
    if not isinstance(best, str) or best == "auto":
        return
    metric = given.get("metric")
    near = _similar_word(best, metric if isinstance(metric, list | tuple) else [metric])
    if near is not None and near != best:
        text = f"evaluation.save_best: {best!r} is not what is evaluated"
        low.error(low.place("evaluation", "save_best"), text, f"did you mean {near!r}?")
        return
    if given.get("rule") is not None:
        return
    greater, less = (given.get(f"{word}_keys") for word in ("greater", "less"))
    if guess(best, _listed(greater, GREATER_KEYS), _listed(less, LESS_KEYS)) is None:
        text = f"evaluation.save_best {best!r} does not tell by its name whether it should grow or shrink"
        low.error(low.place("evaluation", "save_best"), text, "give rule='greater' or rule='less'")


def _listed(given: Any, usual: Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(map(str, usual if given is None else given))


def _hook_methods(low: Lowering) -> None:
    for path, name in low.tree.walk():
        if path[0] == "custom_hooks" and path[-1] == "type" and ("HOOKS", name) in low.registered:
            report_methods(low, low.registered["HOOKS", name], _HOOK, {})


def _workflow(low: Lowering) -> None:
    flow: Any = low.tree.get("workflow")
    if flow is None:
        return
    at = low.place("workflow")
    if not isinstance(flow, list) or not all(map(_is_turn, flow)):
        low.error(at, f"workflow must be a list of tuples (mode, number of times), not {flow!r}", "[('train', 1)]")
    # Only unknown modes are compared: that imports difflib, which a check without mistakes does not need.
    elif near := next(filter(None, (_similar_word(mode, _MODES) for mode, _ in flow if mode not in _MODES)), None):
        low.error(at, f"workflow {flow} has an unknown mode", f"did you mean {near!r}?")
    elif all(mode == "val" or count == 0 for mode, count in flow):
        low.error(at, f"the workflow {flow} never trains", "add ('train', 1)")
    elif len(flow) > 2:
        low.error(at, f"a workflow has one or two entries in a config, not {len(flow)}")


def _is_turn(entry: Any) -> bool:
    return isinstance(entry, tuple) and list(map(type, entry)) == [str, int]


def _class_arguments(low: Lowering, target_of: Callable[[Path, Mapping[Any, Any]], str | None]) -> None:
    """Compare the arguments of model and data with those that their classes take, read from the source if needed.

    The model and the training data are built with exactly the config's arguments. Parts inside them are built by their
    owner, which may add arguments: there it is only a warning.
    """
    for path, given in low.tree.walk():
        name = given.get("type") if isinstance(given, Mapping) else None
        if not isinstance(name, str) or path[0] not in ("model", "data"):
            continue
        target = next((t for (_, entry), t in low.registered.items() if entry == name), target_of(path, given))
        signature = scan.signature(target, folders=low.folders, known=cached) if target else None
        if signature is not None and not signature.open:
            certain = path in (("model",), ("data", "train"))
            _compare_arguments(
                low, path, given, [p for p in signature.parameters if p.word], low.error if certain else low.warning
            )


def _compare_arguments(
    low: Lowering, path: Path, given: Mapping[Any, Any], takes: Sequence[Any], tell: Callable[..., None]
) -> None:
    names = [parameter.key for parameter in takes]
    unknown = [key for key in given if key not in names and key != "type" and not str(key).startswith("_")]
    meant = {nearest(str(key), names) for key in unknown}
    for key in unknown:
        if not any(f.at == str(low.place(*path, key)) and repr(key) in f"{f.message}'{key}'" for f in low.findings):
            tell(low.place(*path, key), f"{given['type']} has no parameter {key!r}", suggest(str(key), names))
    for parameter in takes:
        if parameter.required and parameter.key not in given and parameter.key not in meant:
            tell(low.place(*path), f"{given['type']} needs the parameter {parameter.key!r}")


_RULES = (
    _warmup, _milestones, _periods, _run_length, _two_lengths, _rules_by_parameter, _constructor, _clip, _log,
    _pruning, _best, _workflow, _hook_methods,
)  # fmt: skip


def _similar_word(word: str, words: Any) -> str | None:
    return nearest(word, [str(known) for known in words if is_slip(word, str(known))])
