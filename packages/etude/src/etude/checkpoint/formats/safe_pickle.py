"""Maps the names inside a foreign pickle to inert data, so that reading it runs no code.

A pickle is a program that calls what it names. This table is everything that it may name. Tensors and arrays are put
together by functions of this module, which check sizes before they allocate; objects of other systems (MMEngine's
``HistoryBuffer``, a parser's ``Namespace``) become plain dicts of their attributes. Nothing is imported on behalf of
a file.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from etude.checkpoint.formats import layouts
from etude.errors import ResumeError, printable

#: Deeper nesting than this is no checkpoint.
MAX_DEPTH = 200
#: Values in all, where one list may be in many others; bytes of tensors that repeat what the file has once.
MAX_ITEMS, MAX_UNREAL = 20_000_000, 1 << 28


class Refused(ResumeError):
    """A file names something that only a program could need."""

    def __init__(self, module: str, name: str) -> None:
        module = {"posix": "os", "nt": "os", "__builtin__": "builtins"}.get(module, module)
        super().__init__(f"refused: global {printable(module)}.{printable(name)}")


def find(module: str, name: str) -> Any:
    """Return the stand-in for ``module.name`` of a file; refuse it when it is not in the table."""
    key = (_renamed(module), name)
    found = _TABLE.get(key) or _of_layouts(key)
    if found is None and module in _STORAGE_MODULES and name in _STORAGES:
        return _STORAGES[name]
    if found is None and module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
        return getattr(torch, name)
    if found is None:
        raise Refused(module, name)
    return found


def plain(value: Any) -> Any:
    """Return ``value`` with every placeholder replaced by plain data; refuse what a few bytes blow up to."""
    made = _plain(value, {}, 0)
    items, unreal = _weigh(made, {})
    if items > MAX_ITEMS:
        raise ResumeError(f"refused: it holds the same lists again and again, more than {MAX_ITEMS} values in all")
    if unreal > MAX_UNREAL:
        raise ResumeError(f"refused: tensors of {unreal / 1e9:.3g} GB that have no bytes of their own in the file")
    return made


def _weigh(value: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how many values there are in ``value``, and the bytes of tensors beyond those of their storages: such
    tensors repeat a few numbers, and whoever copies one needs memory for all of it."""
    if id(value) in known:
        return known[id(value)][0], 0
    items, unreal = 1, 0
    if isinstance(value, torch.Tensor):
        unreal = max(0, value.numel() * value.element_size() - value.untyped_storage().nbytes())
    elif isinstance(value, dict | list | tuple):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            below = _weigh(item, known)
            items, unreal = items + below[0], unreal + below[1]
    else:
        return 1, 0
    known[id(value)] = items, unreal
    return items, unreal


def _plain(value: Any, done: dict[int, Any], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ResumeError("refused: nested too deeply")
    if isinstance(value, bool | int | float | str | bytes | None | torch.Tensor):
        return value
    if id(value) in done:
        return done[id(value)]
    made = done[id(value)] = _plain_container(value, done, depth + 1)
    return made


def _plain_container(value: Any, done: dict[int, Any], depth: int) -> Any:
    if isinstance(value, _Array):
        return _plain(value.array(), done, depth)
    if isinstance(value, Record):
        return {str(k): _plain(v, done, depth) for k, v in value.fields.items() if not isinstance(v, _Method)}
    if isinstance(value, dict):
        return _plain_dict(value, done, depth)
    if isinstance(value, list):
        return [_plain(item, done, depth) for item in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(_plain(item, done, depth) for item in value)
    return value


def _plain_dict(value: dict[Any, Any], done: dict[int, Any], depth: int) -> dict[Any, Any]:
    items = {_plain(k, done, depth): _plain(v, done, depth) for k, v in dict.items(value) if not isinstance(v, _Method)}
    if isinstance(value, Counter):
        return Counter(items)
    if not isinstance(value, OrderedDict):
        return items
    ordered = OrderedDict(items)
    metadata = vars(value).get("_metadata")
    if metadata is not None:  # module versions, which torch keeps with the weights
        ordered._metadata = _plain(metadata, done, depth)  # type: ignore[attr-defined]
    return ordered


# -- tensors -----------------------------------------------------------------------------------------------------------

_STORAGE_MODULES = ("torch", "torch.storage", "torch.cuda")
_STORAGES: dict[str, torch.dtype | None] = {
    "FloatStorage": torch.float32, "DoubleStorage": torch.float64, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64, "ComplexDoubleStorage": torch.complex128,
    "UntypedStorage": torch.uint8, "TypedStorage": torch.uint8,
}  # fmt: skip


def rebuild_tensor(storage: torch.Tensor, offset: int, size: Any, stride: Any, *_: Any) -> torch.Tensor:
    """Build a tensor over ``storage`` (all its elements, in one dimension); refuse one that reaches beyond it."""
    size, stride = tuple(int(n) for n in size), tuple(int(n) for n in stride)
    if (
        not isinstance(storage, torch.Tensor)
        or len(size) != len(stride)
        or offset < 0
        or min(size + stride, default=0) < 0
    ):
        raise ResumeError("refused: a tensor with a wrong layout")
    if 0 in size:
        return torch.empty(size, dtype=storage.dtype)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= storage.numel():
        raise ResumeError(f"refused: a tensor needs {last + 1} elements, its storage has {storage.numel()}")
    return storage.as_strided(size, stride, storage.storage_offset() + offset)  # a storage may be part of another


def _rebuild_tensor_v3(
    storage: torch.Tensor, offset: int, size: Any, stride: Any, grad: Any, hooks: Any, dtype: torch.dtype, *_: Any
) -> torch.Tensor:
    """Build a tensor of a newer dtype: raw bytes and the dtype; the offset still counts elements."""
    return rebuild_tensor(storage.view(dtype), offset, size, stride)


def _rebuild_parameter(data: torch.Tensor, *_: Any) -> torch.Tensor:
    return data


def _rebuild_from_type(function: Callable[..., Any], kind: Any, args: Any, state: Any) -> torch.Tensor:
    if function not in (rebuild_tensor, _rebuild_tensor_v3, _rebuild_parameter):
        raise ResumeError("refused: a tensor of an unknown make")
    made: torch.Tensor = function(*args)
    return made


# -- numpy -------------------------------------------------------------------------------------------------------------


class _Dtype:
    """A numpy dtype as the file describes it; only plain numbers are known."""

    def __init__(self, code: str, *_: Any) -> None:
        self.code, self.order = str(code), "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = str(state[1])

    def real(self) -> np.dtype[Any]:
        if self.code.lstrip("<>|=")[:1] not in tuple("biufc?") or len(self.code) > 4:
            raise ResumeError(f"refused: numpy data of type {printable(self.code[:40])}")
        dtype = np.dtype(self.code)
        return dtype.newbyteorder(">") if self.order == ">" else dtype


class _Array:
    """A numpy array that is being rebuilt: the file sets its state, :meth:`array` returns the array."""

    def __init__(self) -> None:
        self.state: tuple[Any, ...] = (1, (0,), _Dtype("u1"), False, b"")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> Any:
        _, shape, dtype, fortran, data = self.state
        if isinstance(data, list):
            return data
        raw = data.encode("latin1") if isinstance(data, str) else data
        # Arrays over bytes cannot be written to.
        flat = np.frombuffer(bytearray(raw), dtype=dtype.real())
        return flat.reshape(tuple(int(n) for n in shape), order="F" if fortran else "C")


def _array(kind: Any, shape: Any, code: Any) -> _Array:
    return _Array()


def _scalar(dtype: _Dtype, data: Any) -> Any:
    raw = data.encode("latin1") if isinstance(data, str) else data
    real = dtype.real()
    if len(raw) != real.itemsize:
        raise ResumeError("refused: a numpy scalar of a wrong size")
    return np.frombuffer(raw, dtype=real)[0]


# -- objects of other systems ------------------------------------------------------------------------------------------


class Record:
    """An object of another system: its attributes, none of its behaviour."""

    fields: dict[str, Any]

    def __new__(cls, *_: Any, **__: Any) -> Record:
        made = super().__new__(cls)
        made.fields = {}
        return made

    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            self.fields.update(part or {})


class _Dict(dict[Any, Any]):
    """A dict with attributes of another system (ConfigDict and its kin); the attributes are dropped."""

    def __setstate__(self, state: Any) -> None:
        return


class _Method:
    """A method that an object carried along; useless as data."""


def _getattr(owner: Any, name: str) -> _Method:
    if not (isinstance(owner, type) and issubclass(owner, Record | _Dict)):
        raise Refused("builtins", "getattr")
    return _Method()


def _reconstruct(kind: type, base: type, state: Any) -> Any:
    if not (isinstance(kind, type) and issubclass(kind, Record | _Dict)):
        raise Refused("copyreg", "_reconstructor")
    return kind()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1" if encoding not in ("latin1", "utf-8", "ascii") else encoding)


def _bytearray(data: Any = b"", *_: Any) -> bytearray:
    return bytearray(
        data.encode("latin1") if isinstance(data, str) else bytes(data if isinstance(data, bytes) else b"")
    )


def _renamed(module: str) -> str:
    """Return old and new names of a module in one spelling."""
    module = module.replace("numpy._core.", "numpy.core.", 1) if module.startswith("numpy._core.") else module
    return {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)


def _of_layouts(key: tuple[str, str]) -> Any:
    """Return what reads a class of an installed guest's layout; None for any other."""
    kinds = {"mapping": _Dict, "object": Record, "method": _Method()}
    return next((kinds[layout.pickled[key]] for layout in layouts.known() if key in layout.pickled), None)


_TABLE: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor"): rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type,
    # A name in place of the class: as an argument it is inert, and a call of it fails.
    ("torch", "Tensor"): torch.Tensor.__name__,
    ("torch.nn.parameter", "Parameter"): "Parameter",
    ("torch.nn.parameter", "Buffer"): "Buffer",
    ("torch", "Size"): torch.Size,
    ("torch", "device"): torch.device,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("collections", "defaultdict"): lambda *_: {},
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "bytearray"): _bytearray,
    ("builtins", "bytes"): lambda *args: bytes(_bytearray(*args)),  # as protocol 2 writes b""
    ("builtins", "object"): object,
    ("builtins", "getattr"): _getattr,
    ("builtins", "dict"): dict,
    ("builtins", "list"): list,
    ("copyreg", "_reconstructor"): _reconstruct,
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): "ndarray",
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("argparse", "Namespace"): Record,
    ("types", "SimpleNamespace"): Record,
    ("addict.addict", "Dict"): _Dict,
    ("pytorch_lightning.utilities.parsing", "AttributeDict"): _Dict,
    ("lightning_fabric.utilities.data", "AttributeDict"): _Dict,
}  # fmt: skip
