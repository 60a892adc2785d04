"""Old configs inside a native one: ``type`` is written ``_class_`` there, so that nobody builds them early."""

from __future__ import annotations

from typing import Any

from etude.errors import ConfigError
from etude.inspection import signatures as scan

_TYPE, _TUPLE = "_class_", "_tuple_"


def hidden(value: Any, path: str) -> Any:
    """``value`` as YAML can hold it without its components being built; what YAML cannot say is a mistake."""
    if isinstance(value, dict):
        return {(_TYPE if key == "type" else key): hidden(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, tuple):
        return {_TUPLE: [hidden(item, path) for item in value]}
    if isinstance(value, list):
        return [hidden(item, path) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ConfigError(f"{path}: a {type(value).__name__} cannot be written into YAML", hint="give its name as a string")


def restored(value: Any) -> Any:
    """The config that :func:`hidden` hid."""
    if isinstance(value, dict):
        if set(value) == {_TUPLE}:
            return tuple(restored(item) for item in value[_TUPLE])
        return {("type" if key == _TYPE else key): restored(item) for key, item in value.items()}
    return [restored(item) for item in value] if isinstance(value, list | tuple) else value


def as_torch_does(optimizer: str) -> dict[str, Any]:
    """An argument of no effect that leaves the choice of kernels to torch: those of the engine round differently."""
    signature = scan.signature(f"torch.optim:{optimizer.rpartition('.')[2]}")
    takes = [parameter.name for parameter in signature.parameters] if signature else []
    return {"differentiable": False} if "differentiable" in takes else {}
