"""The base of mmcv's and MMEngine's ``Config``, and of ``DictAction`` for ``--cfg-options``."""

from __future__ import annotations

import copy
import json
import os
import sys
import warnings
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

from etude_openmm.shared.config.dict_base import AttributeDict
from etude_openmm.shared.config.merge import merge, nested
from etude_openmm.shared.errors import (
    ConfigFileError,
    ConfigFileMissing,
    ConfigImportError,
    ConfigKeyError,
    ConfigTypeError,
)
from etude_openmm.shared.importing import import_modules_from_strings
from etude_openmm.shared.reading.source import SUFFIXES

_SLOTS = ("_cfg_dict", "_filename", "_text")


def dump_public(config: Any, file: str) -> None:
    """Write a config as its ``dump`` does, without the values of keys that look like secrets."""
    text = config._dumped(os.path.splitext(file)[1])
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(_public(text, config))


def pretty_public(config: Any) -> str:
    """Return ``pretty_text`` without the values of keys that look like secrets."""
    return _public(config.pretty_text, config)


def _public(text: str, config: Any) -> str:
    from etude.config.dump import public_text  # imports yaml, which reading a Python config does not need

    return public_text(text, config.to_dict())


class ConfigBase:
    """Gives attribute and item access to the values, and forwards all other methods of a dict."""

    dict_class: ClassVar[type[AttributeDict]] = AttributeDict
    reserved: ClassVar[tuple[str, ...]] = ("filename", "text", "pretty_text")
    slots: ClassVar[tuple[str, ...]] = _SLOTS

    def __init__(self, cfg_dict: Any = None, cfg_text: str | None = None, filename: Any = None) -> None:
        cfg_dict = {} if cfg_dict is None else cfg_dict
        if not isinstance(cfg_dict, dict):
            raise ConfigTypeError(f"cfg_dict must be a dict, but got {type(cfg_dict)}")
        for key in cfg_dict:
            if key in self.reserved:
                raise ConfigKeyError(f"{key} is reserved for config file", at=str(filename or ""))
        if not isinstance(cfg_dict, self.dict_class):
            cfg_dict = self.dict_class(cfg_dict)
        filename = os.fspath(filename) if isinstance(filename, os.PathLike) else filename
        self._set("_cfg_dict", cfg_dict)
        self._set("_filename", filename)
        self._set("_text", cfg_text if cfg_text else _text_of(filename))

    def _set(self, name: str, value: Any) -> None:
        # An ordinary assignment would set a key of the config.
        object.__setattr__(self, name, value)

    # -- reading and writing files -------------------------------------------------------------------------------

    @classmethod
    def fromfile(cls, filename: Any, *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    @classmethod
    def fromstring(cls, cfg_str: str, file_format: str) -> Self:
        """Read a config from text of the given format (``.py``, ``.json``, ``.yaml``, ``.yml``)."""
        if file_format not in SUFFIXES:
            raise ConfigFileError("Only py/yml/yaml/json type are supported now!", hint=f"not {file_format!r}")
        if file_format != ".py" and "dict(" in cfg_str:
            warnings.warn('Please check "file_format", the file format may be .py', stacklevel=2)
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, f"config{file_format}")
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(cfg_str)
            made = cls.fromfile(file)
        made._set("_filename", None)
        return made

    @classmethod
    def auto_argparser(cls, description: str | None = None) -> tuple[ArgumentParser, Self]:
        """Return a parser with an option for every value of the config on the command line, and that config."""
        parser = ArgumentParser(description=description)
        parser.add_argument("config", help="config file path")
        known, _ = parser.parse_known_args()
        config = cls.fromfile(known.config)
        add_args(parser, config._cfg_dict)
        return parser, config

    def dump(self, file: Any = None) -> str | None:
        """Write to ``file`` in the format of its suffix; without it return the text in the config's own format."""
        own = os.path.splitext(self._filename or "config.py")[1] if file is None else os.path.splitext(str(file))[1]
        text = self._dumped(own)
        if file is None:
            return text
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(text)
        return None

    def _dumped(self, suffix: str) -> str:
        if suffix == ".json":
            return json.dumps(jsonable(self._plain()))
        if suffix in (".yaml", ".yml"):
            import yaml

            text: str = yaml.safe_dump(jsonable(self._plain()))
            return text
        if suffix != ".py":
            raise ConfigTypeError(f"Unsupported format: {suffix.removeprefix('.')}", hint="py, yml, yaml and json are")
        return self.pretty_text

    def _plain(self) -> dict[Any, Any]:
        return self._cfg_dict.to_dict()

    @property
    def pretty_text(self) -> str:
        raise NotImplementedError

    @property
    def filename(self) -> str | None:
        return self._filename

    @property
    def text(self) -> str:
        return self._text

    def merge_from_dict(self, options: dict[str, Any], allow_list_keys: bool = True) -> None:
        """Merge options with dotted keys into the values. Digits are indices of lists."""
        merged = merge(nested(options), self._cfg_dict, list_keys=allow_list_keys)
        self._set("_cfg_dict", self.dict_class(merged))

    # -- methods of a dict ---------------------------------------------------------------------------------------

    _cfg_dict: AttributeDict
    _filename: str | None
    _text: str

    def __repr__(self) -> str:
        return f"Config (path: {self._filename}): {self._cfg_dict!r}"

    def __len__(self) -> int:
        return len(self._cfg_dict)

    def __getattr__(self, name: str) -> Any:
        if name in self.slots:
            raise AttributeError(name)
        return getattr(self._cfg_dict, name)

    def __getitem__(self, name: Any) -> Any:
        return self._cfg_dict[name]

    def __setitem__(self, name: Any, value: Any) -> None:
        self._cfg_dict[name] = value

    def __delitem__(self, name: Any) -> None:
        del self._cfg_dict[name]

    def __delattr__(self, name: str) -> None:
        delattr(self._cfg_dict, name)

    def __contains__(self, name: object) -> bool:
        return name in self._cfg_dict

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cfg_dict)

    def __getstate__(self) -> Any:
        return tuple(self.__dict__[name] for name in self.slots)

    def __setstate__(self, state: Any) -> None:
        for name, value in zip(self.slots, state, strict=False):
            self._set(name, value)

    def __copy__(self) -> Self:
        other = self.__class__.__new__(self.__class__)
        other.__setstate__(self.__getstate__())
        other._set("_cfg_dict", copy.copy(self._cfg_dict))
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        other = self.__class__.__new__(self.__class__)
        memo[id(self)] = other
        other.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return other


class DictActionBase(Action):
    """Parses ``--cfg-options a.b=1 c=[1,2]`` into ``{"a.b": 1, "c": [1, 2]}``."""

    #: Whether a second use of the option adds to the first instead of replacing it.
    extends: ClassVar[bool] = False

    @classmethod
    def parse_value(cls, text: str) -> Any:
        """Return ``text`` as a number, a boolean, None, a list, a tuple, or the text without blanks."""
        return _parsed(text.strip("'\"").replace(" ", ""))

    @classmethod
    def _parse_iterable(cls, val: str) -> Any:
        """Return :meth:`parse_value`; scripts of projects call it by this name."""
        return cls.parse_value(val)

    @staticmethod
    def _parse_int_float_bool(val: str) -> Any:
        return _leaf(val)

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        options = dict(getattr(namespace, self.dest, None) or {}) if self.extends else {}
        for pair in [values] if isinstance(values, str) else values:
            key, equals, text = pair.partition("=")
            if not equals:
                parser.error(f"{option_string or self.dest}: {pair!r} is not of the form key=value")
            options[key] = self.parse_value(text)
        setattr(namespace, self.dest, options)


def _parsed(text: str) -> Any:
    text = text.strip("'\"")
    if text[:1] in ("(", "[") and text[-1:] == {"(": ")", "[": "]"}[text[0]] and len(list(_split(text))) == 1:
        items = _items(text[1:-1])
        return tuple(items) if text[0] == "(" else items
    if "," in text and len(list(_split(text))) > 1:  # not if all commas are in brackets, as in ``f(1,2)``
        return _items(text)
    return _leaf(text)


def _items(text: str) -> list[Any]:
    """Return the values between commas. ``a,`` has one value; ``,a`` begins with an empty text."""
    pieces = list(_split(text))
    return [_parsed(piece) for piece in (pieces if pieces[-1] else pieces[:-1])]


def _split(text: str) -> Iterator[str]:
    """Yield the pieces between commas that are outside all brackets."""
    if text.count("(") != text.count(")") or text.count("[") != text.count("]"):
        raise AssertionError(f"Imbalanced brackets exist in {text}")
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _leaf(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return None if text == "None" else text


def import_custom(values: dict[Any, Any], at: str) -> None:
    """Import the modules of ``custom_imports``."""
    wanted = values.get("custom_imports")
    if not wanted:
        return
    unknown = [key for key in wanted if key not in ("imports", "allow_failed_imports")]
    if unknown:
        raise ConfigTypeError(
            f"custom_imports has no key {unknown[0]!r}", at=at, hint="it takes `imports` and `allow_failed_imports`"
        )
    try:
        import_modules_from_strings(**dict(wanted))
    except ConfigTypeError as error:
        raise ConfigTypeError(error.findings[0].message, at=at) from None
    except ImportError as error:
        text = f"Failed to import custom modules from {dict(wanted)}: {error}"
        if not _is_lost(wanted.get("imports"), error):  # the module exists, and fails inside
            raise ConfigImportError(text, at=at) from error
        raise ConfigImportError(
            f"{text}; the current sys.path is: {sys.path}", at=at,
            hint="set PYTHONPATH to the folder that holds the module",
        ) from error  # fmt: skip


def _is_lost(imports: Any, error: ImportError) -> bool:
    """Return whether a module of ``imports``, or a package above it, was not found."""
    names = [imports] if isinstance(imports, str) else list(imports or ())
    above = [".".join(name.split(".")[:end]) for name in names for end in range(1, name.count(".") + 2)]
    return any(f"No module named {name!r}" in str(error) for name in above)


def add_args(parser: ArgumentParser, values: dict[Any, Any], prefix: str = "--") -> ArgumentParser:
    """Add an option for every value to the parser: ``--model.depth`` of the value's type, several values for a list."""
    for key, value in dict.items(values):
        if isinstance(value, str | bool | int | float):
            kind: Any = {"action": "store_true"} if isinstance(value, bool) else {"type": type(value)}
            parser.add_argument(f"{prefix}{key}", **kind)
        elif isinstance(value, dict):
            add_args(parser, value, f"{prefix}{key}.")
        elif isinstance(value, Iterable):
            items = list(value)
            parser.add_argument(f"{prefix}{key}", type=type(items[0]) if items else str, nargs="+")
        elif value is None:
            parser.add_argument(f"{prefix}{key}")
    return parser


def jsonable(value: Any) -> Any:
    """Return values for JSON and YAML: tuples as lists, sets sorted, other objects as text."""
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in dict.items(value)}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, set | range):
        return sorted(value) if isinstance(value, set) else list(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else str(value)


def _text_of(filename: str | None) -> str:
    if not filename:
        return ""
    if not os.path.isfile(filename):
        raise ConfigFileMissing(f'file "{filename}" does not exist')
    with open(filename, encoding="utf-8") as file:
        return file.read()
