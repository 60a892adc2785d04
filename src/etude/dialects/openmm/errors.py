"""Errors of both faces: the class that the original raised, carrying Étude's findings (place, fault, suggestion)."""

from __future__ import annotations

from etude.errors import ConfigError


class _Faced(ConfigError):
    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)


class ConfigKeyError(_Faced, KeyError):
    """A name that is not there, is there twice, or is reserved."""


class ConfigTypeError(_Faced, TypeError):
    """A value of the wrong kind."""


class ConfigValueError(_Faced, ValueError):
    """A value that cannot be."""


class ConfigAttributeError(_Faced, AttributeError):
    """An attribute that a config does not have."""


class ConfigFileError(_Faced, OSError):
    """A file of a kind that is not a config."""


class ConfigFileMissing(_Faced, FileNotFoundError):
    """A config file that does not exist."""


class ConfigImportError(_Faced, ImportError):
    """A module that a config asks for cannot be imported."""


class ConfigMissingModule(_Faced, ModuleNotFoundError):
    """A module that a config names is not installed."""


class ConfigAssertionError(_Faced, AssertionError):
    """A precondition of the original that was broken."""


class ConfigRuntimeError(_Faced, RuntimeError):
    """Two ways of writing configs that do not go together, or a stand-in used as the real thing."""
