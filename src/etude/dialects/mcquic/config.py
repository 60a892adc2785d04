"""The config as McQuic's users see it: what may stand where, how values are read, and the messages for what may not.

One table of fields is the source of everything: reading, writing, the JSON schema and its readable form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

TARGETS = ("PSNR", "MsSSIM")
REQUIRED = "Missing data for required field."
_TRUE = {"t", "T", "true", "True", "TRUE", "on", "On", "ON", "y", "Y", "yes", "Yes", "YES", "1", 1}
_FALSE = {"f", "F", "false", "False", "FALSE", "off", "Off", "OFF", "n", "N", "no", "No", "NO", "0", 0}


class ValidationError(ValueError):
    """A config that cannot be read. ``messages`` is a nested mapping with a list of texts at every wrong place."""

    def __init__(self, messages: Any) -> None:
        self.messages = messages
        super().__init__(str(messages))


@dataclass(frozen=True)
class Field:
    """One key: how its value is read, whether it must be there, and what the documentation says of it."""

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]
    doc: str
    required: bool = True


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
    except TypeError:
        pass
    raise ValidationError(["Not a valid boolean."])


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValidationError(["Not a valid mapping type."])
    return deepcopy(dict(value))


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise ValidationError(["Not a valid list."])
        found, wrong = [], {}
        for index, item in enumerate(value):
            try:
                found.append(_not_null(read, item))
            except ValidationError as error:
                wrong[index] = error.messages
        if wrong:
            raise ValidationError(wrong)
        return found

    return read_list


def _not_null(read: Callable[[Any], Any], value: Any) -> Any:
    if value is None:
        raise ValidationError(["Field may not be null."])
    return read(value)


def _section(fields: Mapping[str, Field], make: Callable[..., Any]) -> Callable[[Any], Any]:
    """A mapping with these keys and no others; all that is wrong with it is reported at once."""

    def read_section(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValidationError({"_schema": ["Invalid input type."]})
        wrong: dict[Any, Any] = {key: ["Unknown field."] for key in value if key not in fields}
        found: dict[str, Any] = {}
        for name, field in fields.items():
            if name not in value:
                if field.required:
                    wrong[name] = [REQUIRED]
                continue
            try:
                found[name] = _not_null(field.read, value[name])
            except ValidationError as error:
                wrong[name] = error.messages
        if wrong:
            raise ValidationError(wrong)
        return make(**found)

    return read_section


@dataclass
class General:
    """Something looked up in a registry: its ``key`` there and the ``params`` it is made with."""

    key: str
    params: dict[str, Any]

    # McQuic writes and saves sections with small letters, and its code reads them with capital ones.
    Key = property(attrgetter("key"))
    Params = property(attrgetter("params"))


@dataclass
class GPU:
    """How many devices are wanted, and with how much memory (MiB, -1: any)."""

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
        """With the learning rate for this batch: the configured one is meant for 64 samples a step."""
        scaled = deepcopy(self.optim)
        if "lr" in scaled.params:
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
    """A whole config: ``Config.deserialize(dict)`` reads one, ``config.serialize()`` gives a dict that reads again."""

    model: General
    train: Train

    Model = property(attrgetter("model"))

    @property
    def Train(self) -> Train:
        return self.train

    @staticmethod
    def deserialize(data: Mapping[str, Any]) -> Config:
        """Read a config; keys of the top level with a ``$`` (``$schema``) are for editors and left out."""
        config: Config = ConfigSchema().load({key: value for key, value in data.items() if "$" not in str(key)})
        return config

    def serialize(self) -> dict[str, Any]:
        return ConfigSchema().dump(self)


GENERAL = {
    "key": Field(_string, {"type": "string"}, "Name in the registry, or a dotted path to a class."),
    "params": Field(_mapping, {"type": "object"}, "Keyword arguments it is made with; `{}` for none."),
}
GPU_FIELDS = {
    "gpus": Field(_integer, {"type": "integer", "minimum": 1}, "Number of devices, and of processes."),
    "vRam": Field(_integer, {"type": "integer", "minimum": -1}, "Memory that each must have free, in MiB; -1: any."),
    "wantsMore": Field(_boolean, {"type": "boolean"}, "Take all devices that qualify."),
}
_general = _section(GENERAL, General)
TRAIN = {
    "batchSize": Field(_integer, {"type": "integer", "minimum": 1}, "Samples per process and step."),
    "epoch": Field(_integer, {"type": "integer", "minimum": 1}, "Epochs in all."),
    "valFreq": Field(_integer, {"type": "integer", "minimum": 1}, "Validate and save every so many epochs."),
    "trainSet": Field(_string, {"type": "string"}, "A folder of images, or an LMDB."),
    "valSet": Field(_string, {"type": "string"}, "A folder of images, or an LMDB."),
    "saveDir": Field(_string, {"type": "string"}, "Where runs are kept; the newest is in `latest`."),
    "target": Field(
        _string,
        {"type": "string", "enum": list(TARGETS)},
        "The distortion to train for; a loss of one's own by its name in LossRegistry.",
    ),
    "optim": Field(_general, {"$ref": "#/$defs/General"}, "The optimizer."),
    "schdr": Field(_general, {"$ref": "#/$defs/General"}, "The learning-rate scheduler, stepped once per epoch."),
    "gpu": Field(_section(GPU_FIELDS, GPU), {"$ref": "#/$defs/GPU"}, "The devices."),
    "hooks": Field(
        _list_of(_general), {"type": "array", "items": {"$ref": "#/$defs/General"}}, "Hooks, in order.", required=False
    ),
    "externalLib": Field(
        _list_of(_string), {"type": "array", "items": {"type": "string"}}, "Python files to import.", required=False
    ),
}
ROOT = {
    "model": Field(_general, {"$ref": "#/$defs/General"}, "The model and its hyper-parameters."),
    "train": Field(_section(TRAIN, Train), {"$ref": "#/$defs/Train"}, "Everything about training."),
}
SECTIONS = {"Config": ROOT, "Train": TRAIN, "General": GENERAL, "GPU": GPU_FIELDS}


class ConfigSchema:
    """Reads and writes configs."""

    def load(self, data: Any) -> Any:
        return _section(ROOT, Config)(data)

    def dump(self, config: Config) -> dict[str, Any]:
        return _plain(config)  # type: ignore[no-any-return]


def json_schema() -> dict[str, Any]:
    """The JSON schema of a config, from the same table that reads it."""
    root = _object_schema(ROOT)
    root["properties"] = {"$schema": {"type": "string"}, **root["properties"]}
    defs = {name: _object_schema(fields) for name, fields in SECTIONS.items() if name != "Config"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "McQuic config", **root, "$defs": defs}


def markdown_schema() -> str:
    """The same for people."""
    lines = ["# The config of McQuic", ""]
    for name, fields in SECTIONS.items():
        lines += [f"## {name}", "", "| key | value | required | |", "|---|---|---|---|"]
        for key, field in fields.items():
            lines.append(f"| `{key}` | {_kind(field.schema)} | {'yes' if field.required else 'no'} | {field.doc} |")
        lines.append("")
    return "\n".join(lines)


def _object_schema(fields: Mapping[str, Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, field in fields.items() if field.required],
        "properties": {name: {**field.schema, "description": field.doc} for name, field in fields.items()},
    }


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(schema["enum"])
    if schema["type"] == "array":
        return f"list of {_kind(schema['items'])}"
    least = f", at least {schema['minimum']}" if "minimum" in schema else ""
    return f"{schema['type']}{least}"


def _plain(value: Any) -> Any:
    """Dataclasses as dicts; a list that was not given is written as an empty one, so that the result reads again."""
    if hasattr(value, "__dataclass_fields__"):
        found = {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
        return {name: [] if item is None else item for name, item in found.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return deepcopy(value)
