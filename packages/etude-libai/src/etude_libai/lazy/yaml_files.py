"""Reads and writes lazy configs as YAML.

Writing never raises an error: what YAML cannot hold is logged, and pickled if possible.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pickle
import sys
from typing import Any

import yaml

from etude_libai.lazy.extra import dict_config, omegaconf, without_tuples
from etude_libai.lazy.targets import with_target_names

logger = logging.getLogger("libai.config.lazy")


def read(filename: str) -> Any:
    """Read YAML with tuples, and with imported names and dataclasses. Nothing is called, and nothing is imported."""
    with open(filename, encoding="utf-8") as file:
        return yaml.load(file, Loader=_Loader)


class _Loader(yaml.FullLoader):
    pass


def _dataclass(loader: Any, suffix: str, node: Any) -> Any:
    """Return an object of an imported dataclass with the saved fields."""
    module, _, name = suffix.rpartition(".")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    fields = loader.construct_mapping(node, deep=True) if isinstance(node, yaml.MappingNode) else None
    if not isinstance(found, type) or not dataclasses.is_dataclass(found) or fields is None:
        raise yaml.constructor.ConstructorError(
            None, None, f"python/object:{suffix} is refused: it is no dataclass that is imported", node.start_mark
        )
    # As pickle does: ``__init__`` and ``__post_init__`` ran when the object was made. Works for frozen classes, too.
    made = object.__new__(found)
    for each in dataclasses.fields(found):
        if each.name in fields:
            object.__setattr__(made, each.name, fields[each.name])
    return made


_Loader.add_multi_constructor("tag:yaml.org,2002:python/object:", _dataclass)


def save(cfg: Any, filename: str, *, as_objects: bool = False) -> None:
    """Write ``cfg`` to ``filename`` and, if YAML cannot hold all of it, to ``filename.pkl``.

    With ``as_objects`` dataclasses are written as objects (detectron2), otherwise as plain mappings (LiBai).
    """
    try:
        mode = omegaconf().SCMode.INSTANTIATE if as_objects else omegaconf().SCMode.DICT
        plain = omegaconf().OmegaConf.to_container(cfg, resolve=False, structured_config_mode=mode)
        container = with_target_names(without_tuples(plain))
        text = yaml.dump(container, default_flow_style=None, allow_unicode=True, width=9999)
        with open(filename, "w", encoding="utf-8") as file:
            file.write(text)
    except Exception:
        logger.exception("Unable to serialize the config to yaml. Error:")
    else:
        if _loads_again(text):
            return
        logger.warning(f"the config in {filename} contains objects that YAML cannot restore")
    _write_pickle(cfg, f"{filename}.pkl")


def _loads_again(text: str) -> bool:
    """Return whether the text can be read again. Unsafe loading is fine here, as Étude wrote the text itself."""
    try:
        dict_config(yaml.unsafe_load(text))
    except Exception:
        return False
    return True


def _write_pickle(cfg: Any, filename: str) -> None:
    """Write a pickle for the user to look into. Étude itself never reads it."""
    writer: Any = pickle
    with contextlib.suppress(ModuleNotFoundError):
        import cloudpickle as writer  # type: ignore[import-untyped,no-redef]
    try:
        content = writer.dumps(cfg)
    except Exception:
        content = pickle.dumps(str(cfg))
    with open(filename, "wb") as file:
        file.write(content)
    logger.warning(f"Config is saved using pickle at {os.fspath(filename)}.")
