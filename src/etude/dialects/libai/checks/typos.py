"""Arguments of lazy calls that are one letter away from what the target takes, where its signature alone does not say.

A target may be text (nothing is imported for it then), or take ``**kwargs``: an unknown argument alone is no mistake
there, one that is a single slip away from a missing one surely is.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects.libai import names
from etude.dialects.libai.known_keys import KEYS
from etude.dialects.libai.lazy.configurable import is_configurable
from etude.dialects.libai.lazy.origins import ORIGINS
from etude.errors import Finding, is_slip, nearest
from etude.inspection import signatures as scan
from etude.inspection.index import kept

#: Sections without a target and the keys that belong there, beside any of your own.
_SECTIONS: dict[Path, tuple[str, ...]] = {("dataloader",): ("train", "test", "evaluator")}
_ALWAYS = ("_target_", "_recursive_")
_BUILDERS = ("etude.dialects.libai.live.data.loaders", "etude.dialects.libai.live.detectron.data")
_OF_TORCH = (
    "pin_memory", "timeout", "multiprocessing_context", "prefetch_factor", "pin_memory_device", "in_order", "drop_last",
)  # fmt: skip
#: What OneFlow's optimizers take and torch's do not.
_ONEFLOW = ("do_bias_correction", "contiguous_params", "fused")


def slips(tree: Tree) -> list[Finding]:
    """Every key that was probably meant to be another one."""
    found: list[Finding] = []
    for way, node in tree.walk():
        if isinstance(node, Mapping):
            words = _SECTIONS[way] if way in _SECTIONS else _takes(node.get("_target_"))
            found += _in(tree, way, node, words)
    return found


def _in(tree: Tree, way: Path, node: Mapping[Any, Any], words: Iterable[str]) -> list[Finding]:
    words = tuple(words)
    missing = [word for word in words if word not in node]
    found = []
    for key in node:
        if not isinstance(key, str) or key in words or key in _ALWAYS:
            continue
        meant = nearest(key, [word for word in missing if len(word) > 1 and is_slip(key, word)])
        if (
            meant is None
            and way in _SECTIONS
            and (near := nearest(key, [word for word in words if is_slip(key, word)]))
        ):
            at, text = str(tree.place(*way, key)), f"{dotted((*way, key))}: nothing reads it"
            found.append(Finding(at, text, f"did you mean {near!r}?", "warning"))
        if meant:
            at = str(tree.place(*way, key))
            found.append(Finding(at, f"unknown key {dotted((*way, key))}", f"did you mean {meant!r}?"))
    return found


def new_keys(given: Mapping[str, Path]) -> list[Finding]:
    """Overrides that set a key which was not there: a mistake where it is nearly one that is read, else worth a word.

    ``given``: override → the way to the part of its key that was not there.
    """
    found = []
    for text, way in given.items():
        known = {**KEYS, **_SECTIONS}.get(way[:-1])
        if known is None or way[-1] in known:
            continue
        near = nearest(str(way[-1]), known)
        if near:
            found.append(Finding(f"override '{text}'", f"unknown key {dotted(way)}", f"did you mean {near!r}?"))
        elif len(way) > 1:
            at, hint = f"override '{text}'", "nothing of Étude reads it"
            found.append(Finding(at, f"the config had no key {dotted(way)}", hint, "warning"))
    return found


def beside(tree: Tree) -> list[Finding]:
    """Overrides that add to a user-defined mapping (``model.cfg``) what is nearly a key that stands there."""
    found = []
    for text, way in ORIGINS.new.items():
        if str(tree.place(*way)) != f"override '{text}'" or way[:-1] in (*KEYS, *_SECTIONS):
            continue
        node, key = tree.get(*way[:-1]), str(way[-1])
        if isinstance(node, Mapping) and "_target_" not in node:
            near = nearest(key, [str(other) for other in node if other != key and _is_typo(key, str(other))])
            if near:
                at, hint = f"override '{text}'", f"did you mean {near!r}?"
                found.append(Finding(at, f"the config had no key {dotted(way)}", hint))
    return found


def _is_typo(key: str, other: str) -> bool:
    """Return whether one was meant by the other; ``dim1`` and ``dim2``, ``size_h`` and ``size_w`` are two things."""
    if not is_slip(key, other) or min(len(key), len(other)) < 4:
        return False
    differ = [n for n, (a, b) in enumerate(zip(key, other, strict=False)) if a != b] if len(key) == len(other) else []
    last = len(differ) == 1 and (key[differ[0]].isdigit() or (key + "_")[differ[0] + 1] == "_")
    return not last


def closed(target: str) -> tuple[str, ...] | None:
    """All that a target, given by its name, takes; None where that cannot be known from its source."""
    signature = of_name(target)
    module, _, name = target.rpartition(".")
    loader = names.MODULES.get(module, {}).get(name, "").partition(":")[0] in _BUILDERS
    if signature is None or (signature.open and not loader):
        return None
    extra = _OF_TORCH if loader else _ONEFLOW if target.startswith("oneflow.optim.") else ()
    return (*(parameter.name for parameter in signature.parameters), *extra)


def takes_of_loader(target: Any) -> tuple[str, ...] | None:
    """Return what one of our loader builders takes, with what it passes on to torch's ``DataLoader``; None for
    others.
    """
    if getattr(target, "__module__", "") not in _BUILDERS:
        return None
    return (*inspect.signature(target).parameters, *_OF_TORCH)


def of_name(target: str) -> scan.Signature | None:
    """The signature of a target that is given by its name, read from its source."""
    module, _, attribute = target.rpartition(".")
    if module == "oneflow.optim":
        module = "torch.optim"
    ours = names.MODULES.get(module, {}).get(attribute, f"{module}:{attribute}")
    return scan.signature(ours, known=kept) if module else None


def _takes(target: Any) -> tuple[str, ...]:
    """Return what a target takes; nothing for one whose signature is closed, which is compared elsewhere."""
    if isinstance(target, str):
        signature = of_name(target)
        if signature is None or not signature.open:
            return ()
        return tuple(parameter.name for parameter in signature.parameters)
    try:
        parameters = inspect.signature(target).parameters.values() if callable(target) else ()
    except (TypeError, ValueError):
        return ()
    from_config = ("cfg",) if is_configurable(target) else ()
    if not from_config and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        return ()
    return (*from_config, *(p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)))
