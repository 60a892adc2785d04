"""Finds the lazy calls of a config, the signatures of their targets, and unknown arguments. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.errors import Finding
from etude.errors.spelling import is_slip, nearest, suggest
from etude.inspection import signatures
from etude.inspection.signature_cache import cached
from etude.inspection.signatures import Parameter, Signature
from etude_libai import names
from etude_libai.lazy.targets import target_name

#: Keys of a lazy call that are no arguments.
MARKS = ("_target_", "_recursive_")
_BUILDERS = ("etude_libai.live.data.loaders", "etude_libai.live.detectron.data")
#: Arguments that Étude's loader builders pass on to torch's ``DataLoader``.
_OF_TORCH = (
    "pin_memory", "timeout", "multiprocessing_context", "prefetch_factor", "pin_memory_device", "in_order", "drop_last",
)  # fmt: skip
#: Arguments of OneFlow's optimizers that torch's do not have.
ONEFLOW = ("do_bias_correction", "contiguous_params", "fused")


def lazy_calls(tree: Tree) -> Iterator[tuple[Path, Mapping[Any, Any], Any]]:
    """Yield the path, the node and the target of every lazy call: a name, a callable or another lazy call."""
    for way, node in tree.walk():
        if isinstance(node, Mapping) and node.get("_target_") is not None:
            yield way, node, node["_target_"]


def named_targets(tree: Tree) -> Iterator[tuple[Path, str]]:
    """Yield the targets that are given by a dotted name."""
    return ((way, target) for way, _, target in lazy_calls(tree) if isinstance(target, str) and "." in target)


def signature_of(target: Any) -> Signature | None:
    """Return the signature of a target: from the source if it is a name, else from the callable."""
    if isinstance(target, str):
        module, _, attribute = target.rpartition(".")
        module = "torch.optim" if module == "oneflow.optim" else module
        ours = names.MODULES.get(module, {}).get(attribute, f"{module}:{attribute}")
        return signatures.signature(ours, known=cached) if module else None
    return _signature_of_callable(target) if callable(target) else None


def _signature_of_callable(target: Any) -> Signature | None:
    """Return the signature of a target that the config holds as an object; None if Python does not know it."""
    import inspect  # slow to import, and a config that is read for a check holds names

    from etude_libai.lazy.configurable import is_configurable

    try:
        given = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return None
    taken = []
    for each in [one for one in given if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]:
        declared = "" if each.annotation is each.empty else each.annotation
        text = declared if isinstance(declared, str) else inspect.formatannotation(declared)
        taken.append(Parameter(each.name, text, None if each.default is each.empty else repr(each.default)))
    if is_configurable(target):  # ``cfg`` stands for all arguments
        return Signature((Parameter("cfg", default="..."), *taken), open=True)
    return Signature(tuple(taken), open=any(each.kind is each.VAR_KEYWORD for each in given))


def arguments_of(target: Any) -> tuple[tuple[str, ...], bool]:
    """Return the names of the arguments of a target, as far as they are known, and whether it takes no others."""
    signature, module, home = signature_of(target), "", getattr(target, "__module__", "")
    if signature is None:
        return (), False
    if isinstance(target, str):
        module, _, name = target.rpartition(".")
        home = names.MODULES.get(module, {}).get(name, "").partition(":")[0]
    loader = home in _BUILDERS
    extra = _OF_TORCH if loader else ONEFLOW if module == "oneflow.optim" else ()
    return (*(parameter.name for parameter in signature.parameters), *extra), loader or not signature.open


def unknown_arguments(tree: Tree, *, slips: bool = False) -> Iterator[Finding]:
    """Yield a finding for every argument that its target does not take.

    A target with ``**kwargs`` takes any argument. With ``slips``, one that is a single slip away from a missing one is
    a mistake, too.
    """
    for way, node, target in lazy_calls(tree):
        known, complete = arguments_of(target)
        missing = [word for word in known if word not in node and len(word) > 1]
        for key in [str(key) for key in node if key not in known and key not in MARKS]:
            at, meant = str(tree.place(*way, key)), nearest(key, [word for word in missing if is_slip(key, word)])
            if complete:
                text = f"{dotted(way)}: {target_name(target)} takes no argument {key!r}"
                yield Finding(at, text, suggest(key, known))
            elif slips and meant:
                yield Finding(at, f"unknown key {dotted((*way, key))}", f"did you mean {meant!r}?")
