"""MMEngine's ``Config`` and ``DictAction``, for text-style and pure-Python configs."""

from __future__ import annotations

import os
from typing import Any, Self

from etude_openmm.shared.config.config_base import ConfigBase, DictActionBase, add_args, import_custom
from etude_openmm.shared.config.dict_base import MissingAttribute
from etude_openmm.shared.config.dict_v2 import ConfigDict
from etude_openmm.shared.config.merge import merge
from etude_openmm.shared.config.pretty import pretty
from etude_openmm.shared.reading.lazy_objects import LazyAttr, LazyObject, built, read_base
from etude_openmm.shared.reading.lazy_style import ConfigParsingError, is_lazy, read_lazy
from etude_openmm.shared.reading.source import Source, read_text
from etude_openmm.shared.reading.text_style import Style, read_chain

#: Configs that import ``mmengine`` while they are read get this module, with the names that they may need.
__all__ = [
    "RESERVED_KEYS", "Config", "ConfigDict", "ConfigParsingError", "DictAction", "LazyAttr", "LazyObject", "add_args",
    "read_base", "read_source",
]  # fmt: skip

BASE_KEY, DELETE_KEY, DEPRECATION_KEY = "_base_", "_delete_", "_deprecation_"
_COLOURS = {"+": "bright_green", "-": "bright_red"}
RESERVED_KEYS = ["filename", "text", "pretty_text", "env_variables"]


def read_source(
    filename: Any, *, predefined: bool = True, environment: bool = True, lazy_import: bool | None = None
) -> Source:
    """Read a config file of either style with all its bases."""
    path, text = read_text(filename)
    lazy = path.endswith(".py") and (is_lazy(text, path) if lazy_import is None else lazy_import)
    if lazy:
        return read_lazy(path)
    style = Style(
        ConfigDict, predefined=predefined, environment=environment, live_base=True, refuse_lazy=lazy_import is None
    )
    return read_chain(path, style)


class Config(ConfigBase):
    """A config file or dict, with attribute access to everything inside."""

    dict_class = ConfigDict
    reserved = tuple(RESERVED_KEYS)
    slots = ("_cfg_dict", "_filename", "_text", "_env_variables", "_format_python_code", "_imported")

    def __init__(
        self,
        cfg_dict: Any = None,
        cfg_text: str | None = None,
        filename: Any = None,
        env_variables: dict[str, str] | None = None,
        format_python_code: bool = True,
    ) -> None:
        super().__init__(cfg_dict, cfg_text, filename)
        self._set("_env_variables", env_variables or {})
        self._set("_format_python_code", format_python_code)
        self._set("_imported", {})

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a key. Not in a base class: scripts of projects set slots with ``super(Config, cfg).__setattr__``."""
        setattr(self._cfg_dict, name, value)

    @classmethod
    def fromfile(
        cls,
        filename: Any,
        use_predefined_variables: bool = True,
        import_custom_modules: bool = True,
        use_environment_variables: bool = True,
        lazy_import: bool | None = None,
        format_python_code: bool = True,
    ) -> Self:
        """Read a ``.py`` (either style), ``.json`` or ``.yaml`` file with its bases; import its ``custom_imports``."""
        filename = os.fspath(filename)
        source = read_source(
            filename,
            predefined=use_predefined_variables,
            environment=use_environment_variables,
            lazy_import=lazy_import,
        )
        if import_custom_modules:
            import_custom(source.values, str(source.places.get(("custom_imports",), filename)))
        made = cls(source.values, source.text, filename, source.env, format_python_code)
        made._set("_imported", source.imported)
        return made

    @property
    def env_variables(self) -> dict[str, str]:
        """Return the environment variables that the file used, with their values."""
        found: dict[str, str] = self.__dict__["_env_variables"]
        return found

    @property
    def pretty_text(self) -> str:
        """Return the config as Python source, with sorted keys."""
        return pretty(self._plain(), sort=True, spread=True, wrap=self.__dict__["_format_python_code"])

    def to_dict(self, keep_imported: bool = False) -> dict[Any, Any]:
        """Return plain dicts, with lazy objects as dotted names; with ``keep_imported``, including imported names."""
        return {**ConfigDict(self.__dict__["_imported"] if keep_imported else {}).to_dict(), **self._plain()}

    def _to_lazy_dict(self, keep_imported: bool = False) -> dict[Any, Any]:
        extra = self.__dict__["_imported"] if keep_imported else {}
        return {**extra, **self._cfg_dict._to_lazy_dict()}

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except MissingAttribute:
            imported = self.__dict__.get("_imported", {})
            if name not in imported:
                raise
            return built(imported[name])

    def copy(self) -> Self:
        return self.__copy__()

    @staticmethod
    def diff(cfg1: Any, cfg2: Any) -> str:
        """Return the line-by-line differences of two configs or config files, in colour on a terminal."""
        import difflib

        from rich.console import Console
        from rich.text import Text

        one = cfg1 if isinstance(cfg1, Config) else Config.fromfile(cfg1)
        other = cfg2 if isinstance(cfg2, Config) else Config.fromfile(cfg2)
        text = Text()
        for line in difflib.unified_diff(one.pretty_text.split("\n"), other.pretty_text.split("\n")):
            text.append(f"{line}\n", style=_COLOURS.get(line[:1], "bright_white"))
        console = Console()
        with console.capture() as capture:
            console.print(text)
        return capture.get()

    # -- private names of MMEngine that other packages call, too ----------------------------------------------

    @staticmethod
    def _file2dict(
        filename: Any,
        use_predefined_variables: bool = True,
        use_environment_variables: bool = True,
        lazy_import: bool | None = None,
    ) -> tuple[dict[Any, Any], str, dict[str, str]]:
        source = read_source(
            filename,
            predefined=use_predefined_variables,
            environment=use_environment_variables,
            lazy_import=lazy_import,
        )
        return source.values, source.text, source.env

    @staticmethod
    def _merge_a_into_b(a: dict[Any, Any], b: Any, allow_list_keys: bool = False) -> Any:
        return merge(a, b, list_keys=allow_list_keys)


class DictAction(DictActionBase):
    """Parses ``--cfg-options a.b=1 c=[1,2]``. A second use adds to the first."""

    extends = True
