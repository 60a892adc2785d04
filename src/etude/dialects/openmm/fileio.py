"""Files by their suffix (``load``, ``dump``), lists in text files, and the functions of the file backends."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from io import BytesIO, StringIO
from typing import Any

import yaml

from etude.dialects.openmm.config_base import jsonable
from etude.dialects.openmm.storage import (
    BaseStorageBackend,
    HardDiskBackend,
    HTTPBackend,
    LmdbBackend,
    LocalBackend,
    MemcachedBackend,
    PetrelBackend,
    get_file_backend,
    register_backend,
)

__all__ = [
    "BaseFileHandler", "BaseStorageBackend", "FileClient", "HTTPBackend", "HardDiskBackend", "JsonHandler",
    "LmdbBackend", "LocalBackend", "MemcachedBackend", "PetrelBackend", "PickleHandler", "YamlHandler",
    "copy_if_symlink_fails", "copyfile", "copyfile_from_local",
    "copyfile_to_local", "copytree", "copytree_from_local", "copytree_to_local", "dict_from_file", "dump", "exists",
    "file_handlers", "get", "get_file_backend", "get_local_path", "get_text", "isdir", "isfile", "join_path",
    "list_dir_or_file", "list_from_file", "load", "put", "put_text", "register_backend", "register_handler", "remove",
    "rmtree",
]  # fmt: skip


class BaseFileHandler:
    """How one format is read and written."""

    str_like = True

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def dump_to_str(self, obj: Any, **kwargs: Any) -> Any:
        stream: Any = StringIO() if self.str_like else BytesIO()
        self.dump_to_fileobj(obj, stream, **kwargs)
        return stream.getvalue()

    def load_from_path(self, filepath: Any, mode: str = "r", **kwargs: Any) -> Any:
        with open(filepath, mode if self.str_like else "rb") as file:
            return self.load_from_fileobj(file, **kwargs)

    def dump_to_path(self, obj: Any, filepath: Any, mode: str = "w", **kwargs: Any) -> None:
        with open(filepath, mode if self.str_like else "wb") as file:
            self.dump_to_fileobj(obj, file, **kwargs)


class JsonHandler(BaseFileHandler):
    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        return json.load(file)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", _json_default)
        json.dump(obj, file, **kwargs)


class YamlHandler(BaseFileHandler):
    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        return yaml.safe_load(file)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        yaml.safe_dump(jsonable(obj), file, **kwargs)


class PickleHandler(BaseFileHandler):
    """Pickles of the user's own data; checkpoints are read elsewhere, without running anything."""

    str_like = False

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        return pickle.load(file, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        kwargs.setdefault("protocol", 2)
        pickle.dump(obj, file, **kwargs)


file_handlers: dict[str, BaseFileHandler] = {
    "json": JsonHandler(), "yaml": YamlHandler(), "yml": YamlHandler(), "pickle": PickleHandler(),
    "pkl": PickleHandler(),
}  # fmt: skip


def register_handler(file_formats: Any, **kwargs: Any) -> Callable[[type[BaseFileHandler]], type[BaseFileHandler]]:
    """``@register_handler("csv")`` on a class: how files of that suffix are read and written."""

    def wrap(cls: type[BaseFileHandler]) -> type[BaseFileHandler]:
        if not issubclass(cls, BaseFileHandler):
            raise TypeError(f"handler must be a child of BaseFileHandler, not {cls}")
        for one in [file_formats] if isinstance(file_formats, str) else file_formats:
            file_handlers[one] = cls(**kwargs)
        return cls

    return wrap


def _handler(file: Any, file_format: str | None) -> BaseFileHandler:
    if file_format is None:
        if not isinstance(file, str | os.PathLike):
            raise ValueError("file_format must be specified since file is None or an open file")
        file_format = os.path.splitext(os.fspath(file))[1].removeprefix(".")
    if file_format not in file_handlers:
        raise TypeError(f"Unsupported format: {file_format}; known: {', '.join(file_handlers)}")
    return file_handlers[file_format]


def load(
    file: Any, file_format: str | None = None, file_client_args: Any = None, backend_args: Any = None, **kwargs: Any
) -> Any:
    """What a json, yaml or pickle file holds. ``file``: a path, an address, or an open file."""
    handler = _handler(file, file_format)
    if hasattr(file, "read"):
        return handler.load_from_fileobj(file, **kwargs)
    if not isinstance(file, str | os.PathLike):
        raise TypeError('"file" must be a filepath str or a file-object')
    backend = get_file_backend(file, backend_args=_args(file_client_args, backend_args))
    stream: Any = StringIO(backend.get_text(file)) if handler.str_like else BytesIO(backend.get(file))
    return handler.load_from_fileobj(stream, **kwargs)


def dump(
    obj: Any,
    file: Any = None,
    file_format: str | None = None,
    file_client_args: Any = None,
    backend_args: Any = None,
    **kwargs: Any,
) -> Any:
    """Write ``obj`` to a json, yaml or pickle file; without a file the text."""
    handler = _handler(file, file_format)
    if file is None:
        return handler.dump_to_str(obj, **kwargs)
    if hasattr(file, "write"):
        handler.dump_to_fileobj(obj, file, **kwargs)
        return None
    if not isinstance(file, str | os.PathLike):
        raise TypeError('"file" must be a filename str or a file-object')
    backend = get_file_backend(file, backend_args=_args(file_client_args, backend_args))
    text = handler.dump_to_str(obj, **kwargs)
    (backend.put_text if handler.str_like else backend.put)(text, file)
    return None


def list_from_file(
    filename: Any,
    prefix: str = "",
    offset: int = 0,
    max_num: int = 0,
    encoding: str = "utf-8",
    file_client_args: Any = None,
    backend_args: Any = None,
) -> list[str]:
    """The lines of a text file, ``prefix`` before each; ``offset`` lines left out, at most ``max_num`` (0: all)."""
    backend = get_file_backend(filename, backend_args=_args(file_client_args, backend_args))
    lines = backend.get_text(filename, encoding).splitlines()[offset:]
    return [prefix + line.rstrip("\n\r") for line in (lines[:max_num] if max_num else lines)]


def dict_from_file(
    filename: Any,
    key_type: Any = str,
    encoding: str = "utf-8",
    file_client_args: Any = None,
    backend_args: Any = None,
) -> dict[Any, Any]:
    """A key and its value (or several) per line."""
    mapping: dict[Any, Any] = {}
    for line in list_from_file(
        filename, encoding=encoding, file_client_args=file_client_args, backend_args=backend_args
    ):
        key, *values = line.split(" ")
        if not values:
            raise AssertionError(f"{line!r} holds no value")
        mapping[key_type(key)] = values[0] if len(values) == 1 else values
    return mapping


class FileClient:
    """The older face of the backends: ``FileClient(backend="disk")``, then its methods."""

    def __init__(self, backend: str | None = None, prefix: str | None = None, **kwargs: Any) -> None:
        given = {"backend": backend, **kwargs} if backend is not None else kwargs
        uri = None if backend is not None else f"{prefix}://" if prefix else ""
        self.client = get_file_backend(uri, backend_args=given)

    register_backend = staticmethod(register_backend)

    @classmethod
    def infer_client(cls, file_client_args: dict[str, Any] | None = None, uri: Any = None) -> FileClient:
        """The client that the arguments, or the address, ask for."""
        if file_client_args is not None:
            return cls(**file_client_args)
        return cls(prefix=cls.parse_uri_prefix(uri))

    @staticmethod
    def parse_uri_prefix(uri: Any) -> str | None:
        prefix, found, _ = str(uri).partition("://")
        return prefix.rpartition(":")[2] if found else None

    @property
    def name(self) -> str:
        return str(self.client.name)

    @property
    def allow_symlink(self) -> bool:
        return isinstance(self.client, LocalBackend)

    def __getattr__(self, name: str) -> Any:
        if name == "client":
            raise AttributeError(name)
        return getattr(self.client, name)


def _by_backend(method: str) -> Callable[..., Any]:
    def call(filepath: Any, *args: Any, backend_args: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        return getattr(get_file_backend(filepath, backend_args=backend_args), method)(filepath, *args, **kwargs)

    call.__name__, call.__doc__ = method, f"``{method}`` of the backend that the address asks for."
    return call


def _writer(method: str) -> Callable[..., Any]:
    def call(obj: Any, filepath: Any, *args: Any, backend_args: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        return getattr(get_file_backend(filepath, backend_args=backend_args), method)(obj, filepath, *args, **kwargs)

    call.__name__, call.__doc__ = method, f"``{method}`` of the backend that the address asks for."
    return call


get, get_text, exists, isdir, isfile, join_path = (
    _by_backend(name) for name in ("get", "get_text", "exists", "isdir", "isfile", "join_path")
)
put, put_text = _writer("put"), _writer("put_text")
get_local_path, list_dir_or_file, remove, rmtree = (
    _by_backend(name) for name in ("get_local_path", "list_dir_or_file", "remove", "rmtree")
)
copyfile, copytree, copy_if_symlink_fails = (
    _by_backend(name) for name in ("copyfile", "copytree", "copy_if_symlink_fails")
)
copyfile_from_local, copytree_from_local = _writer("copyfile_from_local"), _writer("copytree_from_local")
copyfile_to_local, copytree_to_local = _by_backend("copyfile_to_local"), _by_backend("copytree_to_local")


def _args(file_client_args: Any, backend_args: Any) -> Any:
    if file_client_args is not None and backend_args is not None:
        raise ValueError('"file_client_args" and "backend_args" cannot be set at the same time.')
    return backend_args if backend_args is not None else file_client_args


def _json_default(value: Any) -> Any:
    """What json cannot say by itself: sets, ranges, and numbers of numpy."""
    if isinstance(value, set | range):
        return list(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value)} is unsupported for json dump")
