"""detectron2's yacs configs: CfgNode, which is fvcore's with a version, the default config, and registered models.

Files of earlier versions are upgraded if detectron2, which knows their keys, is installed.
"""

from __future__ import annotations

import ast
import importlib
import io
import logging
import os
import re
from typing import IO, Any

import torch
import yaml

from etude.errors import ConfigError, OutOfScope
from etude_libai.lazy.extra import fvcore
from etude_libai.lazy.reading.errors import near, put_on
from etude_libai.lazy.targets import locate
from etude_libai.lazy.yacs_places import about, reporting
from etude_libai.places import CONFIGS

_fvcore = fvcore("common.config", "a yacs config (CfgNode, get_cfg)")
__all__ = ["META_ARCH_REGISTRY", "CfgNode", "Registry", "build_model", "get_cfg", "locate"]

logger = logging.getLogger("detectron2.config.config")

VERSION = 2

#: An expression in YAML; detectron2's own files compute the sizes of anchors with it.
_EXPRESSION = re.compile(r"""!!python/object/apply:eval *\[ *"([^"]*)" *\]""")
#: The syntax that an expression may contain: no calls, no attributes, no names except those of its own loops.
_ARITHMETIC = (
    ast.Expression, ast.ListComp, ast.comprehension, ast.Name, ast.Load, ast.Store, ast.Constant, ast.List, ast.Tuple,
    ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop,
)  # fmt: skip


def _computed(text: str) -> str:
    """Return the value of an arithmetic expression as YAML. Raises ``ValueError`` for others, which could run code."""
    parsed = ast.parse(text.strip(), mode="eval")
    if not all(isinstance(node, _ARITHMETIC) for node in ast.walk(parsed)):
        raise ValueError(f"{text!r} is no arithmetic: a YAML config is read as data")
    return repr(eval(compile(parsed, "<config>", "eval"), {"__builtins__": {}}))


class CfgNode(_fvcore.CfgNode):  # type: ignore[name-defined,misc]
    """A config node. Its files may have the version of detectron2's keys that they were written for."""

    def merge_from_file(self, cfg_filename: str, allow_unsafe: bool = True) -> None:
        """Merge a YAML file. It is read as data only: ``allow_unsafe`` has no effect."""
        with reporting(self, file=cfg_filename):
            self._merge_file(cfg_filename)

    @classmethod
    def _open_cfg(cls, filename: str) -> IO[str]:
        """Open a file for fvcore, with expressions (``!!python/object/apply:eval ["[32 * 2]"]``) replaced by values."""
        with super()._open_cfg(filename) as file:
            return io.StringIO(_EXPRESSION.sub(lambda found: _computed(found[1]), file.read()))

    def merge_from_list(self, cfg_list: list[Any]) -> None:
        with reporting(self, pairs=cfg_list):
            super().merge_from_list(cfg_list)

    def _merge_file(self, cfg_filename: str) -> None:
        assert os.path.isfile(cfg_filename), f"Config file '{cfg_filename}' does not exist!"
        loaded = type(self)(self.load_yaml_with_base(cfg_filename, allow_unsafe=False))
        newest = self.get("VERSION", VERSION)
        assert newest == VERSION, "CfgNode.merge_from_file is only allowed on a config object of latest version!"
        compat = _compat()
        version = loaded.get("VERSION")
        if version is None:
            version = newest if compat is None else compat.guess_version(loaded, cfg_filename)
        assert version <= newest, f"Cannot merge a v{version} config into a v{newest} config."
        if version == newest:
            self.merge_from_other_cfg(loaded)
            return
        if compat is None:
            raise ValueError(f"VERSION: {version} of the keys is read by detectron2, which is not installed")
        logger.warning(f"'{cfg_filename}' is written for v{version} of the keys; they are read as those of v{newest}")
        whole = compat.downgrade_config(self, to_version=version)
        whole.merge_from_other_cfg(loaded)
        upgraded = compat.upgrade_config(whole)
        self.clear()
        self.update(upgraded)

    def dump(self, *args: Any, **kwargs: Any) -> str:
        return str(super().dump(**kwargs))


def _compat() -> Any:
    """Return detectron2's module that upgrades older keys; None if detectron2 is not installed."""
    try:
        return importlib.import_module("detectron2.config.compat")
    except ImportError:
        return None


# -- the default config -----------------------------------------------------------------------------------------------


def _read(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return _with_tuples(yaml.safe_load(file))


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_tuples(item) for item in value]
    return ast.literal_eval(value) if isinstance(value, str) and value.startswith("(") else value


#: The default config itself. Code that adds keys for all configs changes it.
DEFAULT_CONFIG = CfgNode(_read(os.path.join(CONFIGS, "detectron2", "defaults.yaml")))


def get_cfg() -> Any:
    """Return a copy of the default config."""
    return DEFAULT_CONFIG.clone()


#: A global config, which detectron2 itself advises against.
global_cfg = CfgNode()


def set_global_cfg(cfg: CfgNode) -> None:
    """Copy ``cfg`` to :data:`global_cfg`."""
    global_cfg.clear()
    global_cfg.update(cfg)


# -- registered models -------------------------------------------------------------------------------------------------


class Registry(fvcore("common.registry", "a registry of detectron2").Registry):  # type: ignore[misc]
    """fvcore's registry, with a suggestion for a name that is not registered."""

    def get(self, name: str) -> Any:
        try:
            return super().get(name)
        except KeyError as error:
            put_on(error, ConfigError(error.args[0], hint=near(name, self._obj_map)))
            raise


META_ARCH_REGISTRY = Registry("META_ARCH")
_DETECTION = ("GeneralizedRCNN", "PanopticFPN", "ProposalNetwork", "RetinaNet", "SemanticSegmentor", "FCOS")


def build_model(cfg: Any) -> torch.nn.Module:
    """Build the model that is registered as ``cfg.MODEL.META_ARCHITECTURE``, on its device."""
    name = cfg.MODEL.META_ARCHITECTURE
    if name in _DETECTION and name not in META_ARCH_REGISTRY:
        raise OutOfScope(
            f"MODEL.META_ARCHITECTURE: {name} is out of Étude's scope: detection models come from detectron2, which is "
            "not installed; or register a model of your own with @META_ARCH_REGISTRY.register() and name it here"
        )
    model: torch.nn.Module = META_ARCH_REGISTRY.get(name)(cfg)
    device = str(cfg.MODEL.DEVICE)
    with about("MODEL.DEVICE", hint="such as cpu, cuda or cuda:1"):
        return model.to("cpu" if device.startswith("cuda") and not torch.cuda.is_available() else device)
