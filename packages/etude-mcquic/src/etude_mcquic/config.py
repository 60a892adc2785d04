"""McQuic's Config: its sections, how values are read and written, and the messages for wrong ones.

Which keys and values are allowed is in :mod:`.schema`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from etude_mcquic.schema import fields, is_required, kind

# marshmallow's words, which McQuic's configs may use.
_TRUE = {"t", "T", "true", "True", "TRUE", "on", "On", "ON", "y", "Y", "yes", "Yes", "YES", "1", 1}
_FALSE = {"f", "F", "false", "False", "FALSE", "off", "Off", "OFF", "n", "N", "no", "No", "NO", "0", 0}


class ValidationError(ValueError):
    """A config cannot be read. ``messages`` is a nested mapping with a list of texts for every wrong key."""

    def __init__(self, messages: Any) -> None:
        self.messages = messages
        super().__init__(str(messages))


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise ValidationError(["Not a valid integer."])
    try:
        return int(value)
    except OverflowError as error:
        raise ValidationError(["Number too large."]) from error
    except (TypeError, ValueError) as error:
        raise ValidationError(["Not a valid integer."]) from error


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValidationError(["Not a valid string."])
    return value


def _boolean(value: Any) -> bool:
    try:
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
    except TypeError:  # it cannot be hashed
        pass
    raise ValidationError(["Not a valid boolean."])


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValidationError(["Not a valid mapping type."])
    return deepcopy(dict(value))


@dataclass
class General:
    """An entry of a registry: its ``key`` and the ``params`` to build it with."""

    key: str
    params: dict[str, Any]

    # McQuic's files have keys in lower case, and its code reads attributes in upper case.
    Key = property(attrgetter("key"))
    Params = property(attrgetter("params"))


@dataclass
class GPU:
    """The number of devices, and the memory that each should have (MiB, -1 for any)."""

    gpus: int
    vRam: int
    wantsMore: bool

    GPUs = property(attrgetter("gpus"))
    VRam = property(attrgetter("vRam"))
    WantsMore = property(attrgetter("wantsMore"))


@dataclass
class Train:
    """The ``train`` section."""

    batchSize: int
    epoch: int
    valFreq: int
    trainSet: str
    valSet: str
    saveDir: str
    target: str
    optim: General
    schdr: General
    gpu: GPU
    hooks: list[General] | None = None
    externalLib: list[str] | None = None

    BatchSize = property(attrgetter("batchSize"))
    Epoch = property(attrgetter("epoch"))
    ValFreq = property(attrgetter("valFreq"))
    TrainSet = property(attrgetter("trainSet"))
    ValSet = property(attrgetter("valSet"))
    SaveDir = property(attrgetter("saveDir"))
    Target = property(attrgetter("target"))
    Schdr = property(attrgetter("schdr"))

    @property
    def Optim(self) -> General:
        """Return the optimizer with its learning rate, which is configured for 64 samples, scaled to the batch size."""
        # A copy: ``config.yaml`` keeps the learning rate as it is written.
        scaled = deepcopy(self.optim)
        if "lr" in scaled.params:
            # McQuic's formula: ``sqrt(n) / 8`` is the same factor, but rounds differently.
            scaled.params["lr"] /= 2 ** (3 - math.log2(self.batchSize * self.gpu.gpus) / 2)
        return scaled

    @property
    def GPU(self) -> GPU:
        return self.gpu

    @property
    def Hooks(self) -> list[General]:
        return self.hooks or []

    @property
    def ExternalLib(self) -> list[str]:
        return self.externalLib or []


@dataclass
class Config:
    """A whole config. ``Config.deserialize(dict)`` reads it; ``config.serialize()`` returns a dict to read again."""

    model: General
    train: Train

    Model = property(attrgetter("model"))

    @property
    def Train(self) -> Train:
        return self.train

    @staticmethod
    def deserialize(data: Mapping[str, Any]) -> Config:
        """Read a config. Top-level keys with a ``$`` (``$schema``) are for editors and are ignored."""
        config: Config = ConfigSchema().load({key: value for key, value in data.items() if "$" not in str(key)})
        return config

    def serialize(self) -> dict[str, Any]:
        return ConfigSchema().dump(self)


REQUIRED = "Missing data for required field."
_READ: dict[str, Callable[[Any], Any]] = {
    "integer": _integer, "string": _string, "boolean": _boolean, "object": _mapping,
}  # fmt: skip
_MADE: dict[str, type[Any]] = {"Config": Config, "Train": Train, "General": General, "GPU": GPU}


def _read(value: Any, schema: Mapping[str, Any]) -> Any:
    """Convert a value as its schema says. Raises ``ValidationError`` if that is impossible."""
    if value is None:
        raise ValidationError(["Field may not be null."])
    if "$ref" in schema:
        return _section(value, kind(schema))
    if schema["type"] != "array":
        return _READ[schema["type"]](value)
    if not isinstance(value, list | tuple):
        raise ValidationError(["Not a valid list."])
    return list(_collected({index: (item, schema["items"]) for index, item in enumerate(value)}, {}).values())


def _section(value: Any, name: str) -> Any:
    """Read a mapping with exactly the keys of a section. Raises one error for all mistakes."""
    if not isinstance(value, Mapping):
        raise ValidationError({"_schema": ["Invalid input type."]})
    known = fields(name)
    wrong: dict[Any, Any] = {key: ["Unknown field."] for key in value if key not in known}
    wrong |= {key: [REQUIRED] for key in known if key not in value and is_required(name, key)}
    return _MADE[name](**_collected({key: (value[key], known[key]) for key in known if key in value}, wrong))


def _collected(given: Mapping[Any, tuple[Any, Mapping[str, Any]]], wrong: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values of ``given`` (key → value, schema). Raises one error for them and for those in ``wrong``."""
    found = {}
    for key, (value, schema) in given.items():
        try:
            found[key] = _read(value, schema)
        except ValidationError as error:
            wrong[key] = error.messages
    if wrong:
        raise ValidationError(wrong)
    return found


class ConfigSchema:
    """Reads and writes configs."""

    def load(self, data: Any) -> Any:
        return _section(data, "Config")

    def dump(self, config: Config) -> dict[str, Any]:
        """Return a config as dicts. A missing list becomes an empty one, so that the result can be read again."""
        return asdict(config, dict_factory=lambda pairs: {key: [] if item is None else item for key, item in pairs})
