"""Instantiates lazy configs, as LiBai and as detectron2 do.

.. code-block:: text

    LiBai        keywords are merged in; _recursive_=False leaves arguments alone; failures are InstantiationException
    detectron2   no keywords; _recursive_ is an ordinary argument; the original exceptions pass
    both         lists are walked, mappings without _target_ are passed on unchanged
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any

from etude.errors import EtudeError
from etude_libai.lazy.errors import InstantiationException
from etude_libai.lazy.extra import dict_config, is_list_config, omegaconf
from etude_libai.lazy.making import explain_build_error, explain_lookup_error
from etude_libai.lazy.targets import locate, target_name, with_target_names

# -- LiBai -------------------------------------------------------------------------------------------------------------


def instantiate(cfg: Any, **kwargs: Any) -> Any:
    """Build the object that ``cfg`` describes, innermost first. ``kwargs`` are merged into it before."""
    recursive = kwargs.pop("_recursive_", True)
    if not (isinstance(cfg, Mapping) or _is_sequence(cfg)):
        return cfg
    if isinstance(cfg, dict | list):
        cfg = with_target_names(cfg)
    if kwargs and isinstance(cfg, Mapping):
        cfg = _merge_arguments(cfg, kwargs)
    return _instantiate_as_libai(cfg, recursive)


def _instantiate_as_libai(cfg: Any, recursive: bool) -> Any:
    if _is_sequence(cfg):
        return _same_kind(cfg, [_instantiate_as_libai(item, recursive) for item in cfg])
    if not isinstance(cfg, Mapping) or "_target_" not in cfg:
        return cfg
    recursive = cfg.get("_recursive_", recursive)
    if not isinstance(recursive, bool):
        raise TypeError(f"Instantiation: _recursive_ flag must be a bool, got {type(recursive)}")
    target = _libai_target(_instantiate_as_libai(cfg["_target_"], recursive), cfg)
    arguments = {
        key: _instantiate_as_libai(cfg[key], recursive) if recursive else cfg[key]
        for key in cfg
        if key not in ("_target_", "_recursive_")
    }
    try:
        return target(**arguments)
    except EtudeError as error:
        explain_build_error(error, error, cfg, target, target_name(target))
        raise
    except Exception as error:
        failed = InstantiationException(f"Error in call to target '{target_name(target)}':\n{error!r}")
        explain_build_error(failed, error, cfg, target, target_name(target))
        raise failed from error


def _libai_target(target: Any, cfg: Any) -> Callable[..., Any]:
    if isinstance(target, str):
        try:
            target = locate(target)
        except Exception as error:
            failed = InstantiationException(f"Error locating target '{target}', see chained exception above.")
            explain_lookup_error(failed, error, cfg, target)
            raise failed from error
    if not callable(target):
        raise InstantiationException(f"Expected a callable target, got '{target}' of type '{type(target).__name__}'")
    return target  # type: ignore[no-any-return]


def _merge_arguments(cfg: Any, kwargs: Mapping[str, Any]) -> Any:
    package = omegaconf()
    base = cfg if isinstance(cfg, package.DictConfig) else dict_config(cfg)
    merged = package.OmegaConf.merge(base, dict_config(dict(kwargs)))
    # So that interpolations still refer to the whole config.
    merged._set_parent(base._get_parent())
    return merged


# -- detectron2 --------------------------------------------------------------------------------------------------------


def instantiate_detectron2(cfg: Any) -> Any:
    """Build the object that ``cfg`` describes. Exceptions of the targets are not wrapped."""
    package = omegaconf()
    if _is_sequence(cfg):
        made = [instantiate_detectron2(item) for item in cfg]
        unchanged = isinstance(cfg, list) and all(new is old for new, old in zip(made, cfg, strict=True))
        return cfg if unchanged else _same_kind(cfg, made)
    if isinstance(cfg, package.DictConfig) and is_dataclass(cfg._metadata.object_type):
        return package.OmegaConf.to_object(cfg)
    if not isinstance(cfg, Mapping) or "_target_" not in cfg:
        return cfg
    target = instantiate_detectron2(cfg["_target_"])
    arguments = {key: instantiate_detectron2(cfg[key]) for key in cfg if key != "_target_"}
    label, target = _detectron2_target(target, cfg)
    try:
        return target(**arguments)
    except Exception as error:
        if isinstance(error, TypeError):
            logging.getLogger(__name__).error(f"Error when instantiating {label}!")
        explain_build_error(error, error, cfg, target, label)
        raise


def _detectron2_target(target: Any, cfg: Any) -> tuple[str, Callable[..., Any]]:
    label = target_name(target)
    if isinstance(target, str):
        try:
            target = locate(target)
        except Exception as error:
            explain_lookup_error(error, error, cfg, label)
            raise
        assert target is not None, label
    assert callable(target), f"_target_ {target} does not define a callable object"
    return label, target


# -- shared ------------------------------------------------------------------------------------------------------------


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list) or is_list_config(value)


def _same_kind(like: Any, items: list[Any]) -> Any:
    """Return items as a list of the same class as ``like``."""
    if isinstance(like, list):
        return items
    return omegaconf().ListConfig(items, flags={"allow_objects": True})
