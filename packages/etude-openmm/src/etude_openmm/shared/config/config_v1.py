"""mmcv 1.x's ``Config``, ``ConfigDict`` and ``DictAction``."""

from __future__ import annotations

import os
from typing import Any, Self

from etude_openmm.shared.config.config_base import ConfigBase, DictActionBase, add_args, import_custom
from etude_openmm.shared.config.dict_base import AttributeDict
from etude_openmm.shared.config.merge import merge
from etude_openmm.shared.config.pretty import pretty
from etude_openmm.shared.reading.text_style import Style, read_chain


class ConfigDict(AttributeDict):
    """A dict with attribute access. A missing attribute is an ``AttributeError``, a missing item a ``KeyError``."""


#: Configs that import ``mmcv`` while they are read get this module, with the names that they may need.
__all__ = ["BASE_KEY", "DELETE_KEY", "DEPRECATION_KEY", "Config", "ConfigDict", "DictAction", "add_args"]

BASE_KEY, DELETE_KEY, DEPRECATION_KEY = "_base_", "_delete_", "_deprecation_"


class Config(ConfigBase):
    """A config file or dict, with attribute access to everything inside."""

    dict_class = ConfigDict

    @classmethod
    def fromfile(cls, filename: Any, use_predefined_variables: bool = True, import_custom_modules: bool = True) -> Self:
        """Read a ``.py``, ``.json`` or ``.yaml`` file with its bases, and import its ``custom_imports``."""
        source = read_chain(filename, Style(ConfigDict, predefined=use_predefined_variables))
        if import_custom_modules:
            import_custom(source.values, str(source.places.get(("custom_imports",), filename)))
        return cls(source.values, cfg_text=source.text, filename=os.fspath(filename))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a key. Not in a base class: scripts of projects set slots with ``super(Config, cfg).__setattr__``."""
        setattr(self._cfg_dict, name, value)

    def __copy__(self) -> Self:
        """Return a second ``Config`` that shares the values, as in mmcv: a change of one shows in the other."""
        other = self.__class__.__new__(self.__class__)
        other.__setstate__(self.__getstate__())
        return other

    @staticmethod
    def _file2dict(filename: Any, use_predefined_variables: bool = True) -> tuple[dict[Any, Any], str]:
        source = read_chain(filename, Style(ConfigDict, predefined=use_predefined_variables))
        return source.values, source.text

    @staticmethod
    def _merge_a_into_b(a: dict[Any, Any], b: Any, allow_list_keys: bool = False) -> Any:
        return merge(a, b, list_keys=allow_list_keys)

    @property
    def pretty_text(self) -> str:
        """Return the config as Python source, with keys in their order."""
        return pretty(self._cfg_dict, sort=False, spread=False)


class DictAction(DictActionBase):
    """Parses ``--cfg-options a.b=1 c=[1,2]``. A second use replaces the first."""
