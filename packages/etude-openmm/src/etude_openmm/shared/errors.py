"""Config errors that are also of the class that mmcv or MMEngine raises (``KeyError``, ``TypeError`` …)."""

from __future__ import annotations

from etude.errors import ConfigError


class _Faced(ConfigError):
    def __str__(self) -> str:
        # KeyError's own __str__ would show a repr.
        return "\n".join(str(finding) for finding in self.findings)


class ConfigKeyError(_Faced, KeyError):
    """A name is missing, exists twice, or is reserved."""


class ConfigTypeError(_Faced, TypeError):
    """A value has the wrong type."""


class ConfigValueError(_Faced, ValueError):
    """A value is not allowed."""


class ConfigAttributeError(_Faced, AttributeError):
    """A config does not have an attribute."""


class ConfigFileError(_Faced, OSError):
    """A file has a suffix that is not one of a config."""


class ConfigFileMissing(_Faced, FileNotFoundError):
    """A config file does not exist."""


class ConfigImportError(_Faced, ImportError):
    """A module that a config asks for cannot be imported."""


class ConfigMissingModule(_Faced, ModuleNotFoundError):
    """A module that a config names is not installed."""


class ConfigAssertionError(_Faced, AssertionError):
    """A precondition of the original is not met."""


class ConfigRuntimeError(_Faced, RuntimeError):
    """Two config styles are mixed, or a lazy object is used as the real one."""
