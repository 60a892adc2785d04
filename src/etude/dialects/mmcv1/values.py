"""Checks values of mmcv 1.x configs: those that mmcv refuses at the start, or silently accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etude.config.conform import Misfit, Want, conform, declared
from etude.config.tree import Path, dotted
from etude.dialects.mmcv1.bounds import refused
from etude.dialects.mmcv1.listing import KEYS, registries
from etude.dialects.mmcv1.tracking import tracks
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.checks.schemas import written
from etude.dialects.openmm.checks.typos import report_methods
from etude.dialects.openmm.checks.weights import report_weights
from etude.errors import is_slip, nearest, suggest
from etude.inspection import signatures as scan
from etude.inspection.index import kept

_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
_WORDS: Mapping[str, Sequence[str]] = {
    "warmup": ("constant", "linear", "exp"),
    "rule": ("greater", "less"),
    "anneal_strategy": ("cos", "linear"),
}
#: Shares of a run that mmcv requires as floats.
_SHARES = ("pct_start", "start_percent")
_DECAYS = ("bias_decay_mult", "norm_decay_mult", "dwconv_decay_mult")
_MODES = ("train", "val")
#: The keys of ``paramwise_cfg`` that mmcv's optimizer constructor reads.
_PARAMWISE = KEYS.fields("PARAMWISE")
#: Metrics of MMClassification whose names do not show whether greater is better.
_NO_DIRECTION = ("recall", "f1_score", "support")
_HOOK = "etude.dialects.mmcv1.live.hooks.hook:Hook"
_BACKENDS = ("nccl", "gloo", "mpi", "ucc")


def report_values(low: Lowering, target_of: Callable[[Path, Mapping[Any, Any]], str | None]) -> None:
    """Add findings to ``low``. ``target_of`` returns the class of Étude that a dict is built as."""
    for path, value in low.tree.walk():
        target = target_of(path, value) if isinstance(value, Mapping) else None
        if target:
            _arguments(low, path, value, target)
    _one_of(low, ("log_level",), _LEVELS)
    for rule in _RULES:
        rule(low)
    _class_arguments(low, target_of)
    backend = low.tree.get("dist_params", "backend")
    if isinstance(backend, str) and backend not in _BACKENDS and _similar_word(backend, _BACKENDS):
        low.error(
            low.place("dist_params", "backend"),
            f"dist_params.backend is {backend!r}",
            f"did you mean {_similar_word(backend, _BACKENDS)!r}?",
        )


def _arguments(low: Lowering, path: Path, given: Mapping[Any, Any], target: str) -> None:
    signature = scan.signature(target, known=kept)
    takes = {parameter.key: parameter for parameter in (signature.parameters if signature else ())}
    for name, parameter in takes.items():
        value, annotation = given.get(name), written(parameter.annotation)
        where = (*path, name)
        if name in _WORDS:
            _one_of(low, where, _WORDS[name])
        elif name in _SHARES and name in given and not (isinstance(value, float) and 0 <= value <= 1):
            low.error(low.place(*where), f"{dotted(where)} must be a float between 0 and 1, not {value!r}")
        elif (
            isinstance(value, str | list | tuple | dict)
            and _is_scalar(declared(annotation))
            and not _is_reported(low, where)
        ):
            try:
                conform(value, annotation)
            except Misfit as misfit:
                low.error(low.place(*where), f"{dotted(where)} must be {misfit}", misfit.hint)
    for refusal in refused(target.rpartition(":")[2], given):
        where = (*path, refusal.key)
        if not _is_reported(low, where):
            low.error(low.place(*where), f"{dotted(where)} {refusal.message}", refusal.hint)
    for ending in ("lr", "momentum"):
        pair = (f"min_{ending}", f"min_{ending}_ratio")
        if all(name in takes for name in pair) and (given.get(pair[0]) is None) == (given.get(pair[1]) is None):
            low.error(low.place(*path), f"{dotted(path)} needs exactly one of {pair[0]} and {pair[1]}")


def _is_reported(low: Lowering, path: Path) -> bool:
    """Return whether there is an error about the value at ``path`` already."""
    at = str(low.place(*path))
    return any(f.at == at and f.severity == "error" and f"{dotted(path)} " in f"{f.message} " for f in low.findings)


def _is_scalar(want: Want) -> bool:
    return all(part[0] in ("int", "float", "bool", "none") for part in (want[1:] if want[0] == "union" else (want,)))


def _one_of(low: Lowering, path: Path, words: Sequence[str]) -> None:
    value = low.tree.get(*path)
    if isinstance(value, str) and value not in words:
        low.error(
            low.place(*path), f"{dotted(path)} must be one of {', '.join(words)}, not {value!r}", suggest(value, words)
        )


def _milestones(low: Lowering) -> None:
    for key in ("lr_config", "momentum_config"):
        steps: Any = low.tree.get(key, "step")
        if isinstance(steps, list) and all(isinstance(one, int) for one in steps) and steps != sorted(steps):
            low.warning(low.place(key, "step"), f"{key}.step {steps} does not ascend: later ones are never reached")


def _periods(low: Lowering) -> None:
    """Report restarts that end before the run does: mmcv finds no period for the rest, and raises an error there."""
    for key in ("lr_config", "momentum_config"):
        if str(low.tree.get(key, "policy", default=low.tree.get(key, "type"))).partition("Restart")[0] != "Cosine":
            continue
        by_epoch = low.tree.get(key, "by_epoch", default=True)
        length = low.tree.get("runner", "max_epochs" if by_epoch else "max_iters")
        if length is None and by_epoch:
            length = low.tree.get("total_epochs")
        periods: Any = low.tree.get(key, "periods")
        whole = isinstance(periods, list) and all(type(one) is int for one in periods) and isinstance(length, int)
        if whole and sum(periods) < length:
            unit = "epoch" if by_epoch else "iteration"
            low.error(
                low.place(key, "periods"),
                f"{key}.periods {periods} end after {unit} {sum(periods)}, the run has {length}",
                "give periods that reach its end, and a restart weight for each",
            )


def _run_length(low: Lowering) -> None:
    if low.tree.get("runner", "max_epochs") is not None and low.tree.get("runner", "max_iters") is not None:
        low.error(low.place("runner", "max_iters"), "only one of runner.max_epochs and runner.max_iters can be given")
        return
    length = {"EpochBasedRunner": "max_epochs", "IterBasedRunner": "max_iters"}.get(str(low.tree.get("runner", "type")))
    given = low.tree.get("runner")
    if length and length not in given and not _similar_word(length, given) and "total_epochs" not in low.tree.values:
        low.error(low.place("runner"), f"{given['type']} needs `{length}`", f"runner = dict(…, {length}=…)")


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
    known = [
        *registries()["OPTIMIZER_BUILDERS"],
        *(n for (table, n) in low.registered if table == "OPTIMIZER_BUILDERS"),
    ]
    if isinstance(name, str) and name not in known and (_similar_word(name, known) or not low.imports):
        low.error(
            low.place("optimizer", "constructor"), f"no optimizer constructor is called {name!r}", suggest(name, known)
        )


def _files(low: Lowering) -> None:
    report_weights(low, "load_from", "resume_from")


def _clip(low: Lowering) -> None:
    clip = low.tree.get("optimizer_config", "grad_clip")
    if isinstance(clip, Mapping) and clip and "max_norm" not in clip and not _similar_word("max_norm", clip):
        low.error(low.place("optimizer_config", "grad_clip"), "optimizer_config.grad_clip needs `max_norm`")


def _evaluation(low: Lowering) -> None:
    given = low.tree.get("evaluation")
    if not isinstance(given, Mapping):
        return
    interval, start, best = given.get("interval", 1), given.get("start"), given.get("save_best")
    if isinstance(interval, int) and interval <= 0:
        low.error(low.place("evaluation", "interval"), f"evaluation.interval must be positive, not {interval}")
    if isinstance(start, int) and start < 0:
        low.error(low.place("evaluation", "start"), f"evaluation.start must not be negative, not {start}")
    if best is not None and not isinstance(best, str):
        low.error(
            low.place("evaluation", "save_best"),
            f"evaluation.save_best is the name of a result, not {best!r}",
            "'auto' takes the first one",
        )


def _best(low: Lowering) -> None:
    """Warn if mmcv cannot tell whether greater is better. Only a warning: a user's dataset may have other results."""
    given = low.tree.get("evaluation")
    if not isinstance(given, Mapping) or given.get("save_best") != "auto" or given.get("rule") is not None:
        return
    metric: Any = given.get("metric")
    first = metric[0] if isinstance(metric, list | tuple) and metric else metric
    if first in _NO_DIRECTION and not given.get("greater_keys") and not given.get("less_keys"):
        text = f"evaluation.save_best='auto': whether {first!r} should grow or shrink is not known by its name"
        low.warning(low.place("evaluation", "save_best"), text, "give rule='greater' or rule='less'")


def _hook_methods(low: Lowering) -> None:
    for path, name in low.tree.walk():
        if path[0] == "custom_hooks" and path[-1] == "type" and ("HOOKS", name) in low.registered:
            report_methods(low, low.registered["HOOKS", name], _HOOK, {})


def _workflow(low: Lowering) -> None:
    flow: Any = low.tree.get("workflow")
    if flow is None:
        return
    tuples = isinstance(flow, list) and all(isinstance(entry, tuple) and len(entry) == 2 for entry in flow)
    if not tuples:
        low.error(low.place("workflow"), f"workflow must be a list of tuples, not {flow!r}", "write [('train', 1)]")
        return
    for index, (mode, _) in enumerate(flow):
        if mode not in _MODES and (near := _similar_word(str(mode), _MODES)):
            low.error(low.place("workflow", index), f"no mode is called {mode!r}", f"did you mean {near!r}?")
            return
    for index, (mode, count) in enumerate(flow):
        if not isinstance(count, int):
            low.error(
                low.place("workflow", index), f"workflow: {mode!r} is done a whole number of times, not {count!r}"
            )
            return
    if all(mode == "val" or count == 0 for mode, count in flow):
        low.error(low.place("workflow"), f"the workflow {flow} never trains", "add ('train', 1)")
    elif len(flow) > 2:
        low.error(low.place("workflow"), f"a workflow has one or two entries in a config, not {len(flow)}")


def _log(low: Lowering) -> None:
    given = low.tree.get("log_config")
    for key in ("interval", "hooks") if isinstance(given, Mapping) else ():
        if key not in given and not _similar_word(key, given):
            low.error(low.place("log_config"), f"log_config needs `{key}`", "log_config = dict(interval=50, hooks=[…])")


def _decay(low: Lowering) -> None:
    """Report factors of a weight decay if the optimizer has none."""
    rules = low.tree.get("optimizer", "paramwise_cfg")
    if not isinstance(rules, Mapping) or "weight_decay" in low.tree.values["optimizer"]:
        return
    custom = rules.get("custom_keys")
    factors: list[tuple[str, ...]] = [(name,) for name in _DECAYS if name in rules]
    if isinstance(custom, Mapping):
        factors += [
            ("custom_keys", key, "decay_mult")
            for key, rule in custom.items()
            if isinstance(rule, Mapping) and "decay_mult" in rule
        ]
    for factor in factors[:1]:
        way = ("optimizer", "paramwise_cfg", *factor)
        low.error(low.place(*way), f"{dotted(way)} needs a weight_decay in the optimizer")


def _half_precision(low: Lowering) -> None:
    for way in (("fp16", "loss_scale"), ("optimizer_config", "loss_scale")):
        value = low.tree.get(*way)
        if isinstance(value, int) or (isinstance(value, str) and value != "dynamic"):
            low.error(
                low.place(*way), f"{dotted(way)} must be a float, a dict or 'dynamic', not {value!r}", "e.g. 512.0"
            )


def _seed(low: Lowering) -> None:
    seed = low.tree.get("seed")
    if seed is not None and not isinstance(seed, int):
        low.error(low.place("seed"), f"seed must be a whole number or None, not {seed!r}")


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
        signature = scan.signature(target, folders=low.folders, known=kept) if target else None
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
    _milestones, _periods, _run_length, _clip, _constructor, _evaluation, _workflow, _log, _decay, _half_precision,
    _seed, _files, _two_lengths, _rules_by_parameter, _hook_methods, _best,
)  # fmt: skip


def _similar_word(word: str, words: Any) -> str | None:
    return nearest(word, [str(known) for known in words if is_slip(word, str(known))])
