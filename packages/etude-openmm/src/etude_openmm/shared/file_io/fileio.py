"""``load`` and ``dump`` by file suffix, lists in text files, ``FileClient``, and functions of the file backends."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from io import BytesIO, StringIO
from typing import Any

import yaml

from etude.checkpoint.formats import data_pickle
from etude_openmm.shared.config.config_base import jsonable
from etude_openmm.shared.file_io.storage import (
    BaseStorageBackend,
    HardDiskBackend,
    _listed,
    _parse_uri_prefix,
    add_backend,
    backends,
    get_file_backend,
    prefix_to_backends,
)

#: Module of MMEngine → its data class, which a pickle may contain.
_STRUCTURES = {
    "base_data_element": "BaseDataElement", "instance_data": "InstanceData", "pixel_data": "PixelData",
    "label_data": "LabelData",
}  # fmt: skip
_CONFIGS = {
    ("mmengine.config.config", "ConfigDict"): "dict_v2", ("mmengine.config.config", "Config"): "config_v2",
    ("mmcv.utils.config", "ConfigDict"): "config_v1", ("mmcv.utils.config", "Config"): "config_v1",
}  # fmt: skip
#: Data classes, by their names in the originals' files and in Étude's → Étude's module.
_CLASSES: dict[tuple[str, str], str] = {}
for _module, _name in _STRUCTURES.items():
    _CLASSES[f"mmengine.structures.{_module}", _name] = f"mmengine.structures.{_module}"
for (_theirs, _name), _ours in _CONFIGS.items():
    _ours = f"etude_openmm.shared.config.{_ours}"
    _CLASSES[_theirs, _name] = _CLASSES[_ours, _name] = _ours


class BaseFileHandler:
    """The base class of file handlers, which read and write one format."""

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
        kwargs.setdefault("default", set_default)
        json.dump(obj, file, **kwargs)


class YamlHandler(BaseFileHandler):
    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        return yaml.safe_load(file)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        yaml.safe_dump(jsonable(obj), file, **kwargs)


class PickleHandler(BaseFileHandler):
    """Reads pickles as data, without running code, see :mod:`etude.checkpoint.formats.data_pickle`."""

    str_like = False

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        return data_pickle.load(file, _CLASSES, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        # The default of mmcv and MMEngine.
        kwargs.setdefault("protocol", 2)
        pickle.dump(obj, file, **kwargs)


file_handlers: dict[str, BaseFileHandler] = {
    "json": JsonHandler(), "yaml": YamlHandler(), "yml": YamlHandler(), "pickle": PickleHandler(),
    "pkl": PickleHandler(),
}  # fmt: skip


def register_handler(file_formats: Any, **kwargs: Any) -> Callable[[type[BaseFileHandler]], type[BaseFileHandler]]:
    """Register the decorated handler class for a file suffix: ``@register_handler("csv")``."""

    def wrap(cls: type[BaseFileHandler]) -> type[BaseFileHandler]:
        _register_handler(cls(**kwargs), file_formats)
        return cls

    return wrap


def _register_handler(handler: BaseFileHandler, file_formats: Any) -> None:
    if not isinstance(handler, BaseFileHandler):
        raise TypeError(f"handler must be a child of BaseFileHandler, not {type(handler)}")
    formats = [file_formats] if isinstance(file_formats, str) else file_formats
    if not isinstance(formats, list) or not all(isinstance(one, str) for one in formats):
        raise TypeError("file_formats must be a str or a list of str")
    file_handlers.update(dict.fromkeys(formats, handler))


def _handler(file: Any, file_format: str | None) -> BaseFileHandler:
    if file_format is None:
        if file is None or hasattr(file, "read") or hasattr(file, "write"):
            raise ValueError("file_format must be specified since file is None or an open file")
        if not isinstance(file, str | os.PathLike):
            raise TypeError('"file" must be a filepath str or a file-object')
        file_format = os.path.splitext(os.fspath(file))[1].removeprefix(".")
    if file_format not in file_handlers:
        raise TypeError(f"Unsupported format: {file_format}; known: {', '.join(file_handlers)}")
    return file_handlers[file_format]


def load(
    file: Any, file_format: str | None = None, file_client_args: Any = None, backend_args: Any = None, **kwargs: Any
) -> Any:
    """Load a json, yaml or pickle file. ``file`` is a path, a URL, or an open file."""
    handler = _handler(file, file_format)
    if hasattr(file, "read"):
        return handler.load_from_fileobj(file, **kwargs)
    if not isinstance(file, str | os.PathLike):
        raise TypeError('"file" must be a filepath str or a file-object')
    backend = get_file_backend(file, backend_args=_args(file_client_args, backend_args))
    stream: Any = StringIO(backend.get_text(file)) if handler.str_like else BytesIO(backend.get(file))
    try:
        return handler.load_from_fileobj(stream, **kwargs)
    except data_pickle.RefusedPickle as error:
        raise data_pickle.RefusedPickle(f"{os.fspath(file)}: {error}") from None


def dump(
    obj: Any,
    file: Any = None,
    file_format: str | None = None,
    file_client_args: Any = None,
    backend_args: Any = None,
    **kwargs: Any,
) -> Any:
    """Write ``obj`` to a json, yaml or pickle file; without a file return the text."""
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
    """Return the lines of a text file, each with ``prefix``: at most ``max_num`` (0: all) after ``offset``."""
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
    """Return a dict from a text file with a key and one or more values per line."""
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
    """The older interface of the backends: ``FileClient(backend="disk")``."""

    _backends: dict[str, type[BaseStorageBackend]] = {**backends, "disk": HardDiskBackend}
    _prefix_to_backends: dict[str, type[BaseStorageBackend]] = dict(prefix_to_backends)
    _instances: dict[tuple[Any, ...], FileClient] = {}
    client: Any

    def __new__(cls, backend: str | None = None, prefix: str | None = None, **kwargs: Any) -> FileClient:
        """Return the client for this backend and these arguments, which is made once."""
        if backend is None and prefix is None:
            backend = "disk"
        if backend is not None and backend not in cls._backends:
            raise ValueError(
                f"Backend {backend} is not supported. Currently supported ones are {list(cls._backends)}; "
                "stores that are not a disk are out of Étude's scope"
            )
        if backend is None and prefix not in cls._prefix_to_backends:
            raise ValueError(f"prefix {prefix} is not supported. Supported ones are {list(cls._prefix_to_backends)}")
        key = (backend, prefix, *map(str, kwargs.items()))
        if key not in cls._instances:
            made = super().__new__(cls)
            kind = cls._backends[backend] if backend is not None else cls._prefix_to_backends[str(prefix)]
            made.client = kind(**kwargs)
            cls._instances[key] = made
        return cls._instances[key]

    @classmethod
    def register_backend(
        cls, name: str, backend: type[BaseStorageBackend] | None = None, force: bool = False, prefixes: Any = None
    ) -> Any:
        """Register a backend for clients, as :func:`register_backend` does for functions; also as a decorator."""
        if backend is None:
            # A decorator registers the class and returns it.
            return lambda kind: (cls._register_backend(name, kind, force, prefixes), kind)[1]
        return cls._register_backend(name, backend, force, prefixes)

    @classmethod
    def _register_backend(cls, name: str, backend: Any, force: bool = False, prefixes: Any = None) -> None:
        try:
            add_backend(cls._backends, cls._prefix_to_backends, name, backend, force, prefixes)
        except ValueError as error:
            raise KeyError(str(error)) from None
        cls._instances = {
            key: client for key, client in cls._instances.items() if key[0] != name and key[1] not in _listed(prefixes)
        }  # fmt: skip

    @classmethod
    def infer_client(cls, file_client_args: dict[str, Any] | None = None, uri: Any = None) -> FileClient:
        """Return the client for the arguments or the URL."""
        assert file_client_args is not None or uri is not None, "file_client_args or uri is needed"
        if file_client_args is not None:
            return cls(**file_client_args)
        prefix = cls.parse_uri_prefix(uri)
        return cls(prefix=prefix) if prefix else cls(backend="disk")

    @staticmethod
    def parse_uri_prefix(uri: Any) -> str | None:
        assert isinstance(uri, str | os.PathLike), f"a path is needed, not {uri!r}"
        return _parse_uri_prefix(uri) or None

    @property
    def name(self) -> str:
        return str(self.client.name)

    @property
    def allow_symlink(self) -> bool:
        return bool(self.client.allow_symlink)

    def __getattr__(self, name: str) -> Any:
        # Asked for before ``__new__`` has set it, it would lead back here without end.
        if name == "client":
            raise AttributeError(name)
        return getattr(self.client, name)


def _by_backend(method: str, place: int = 0) -> Callable[..., Any]:
    """Return a function that calls ``method`` of the backend for the path in argument number ``place``."""

    def call(*args: Any, backend_args: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        uri = [*args, *kwargs.values()][place]
        return getattr(get_file_backend(uri, backend_args=backend_args), method)(*args, **kwargs)

    call.__name__, call.__doc__ = method, f"``{method}`` of the backend that the address asks for."
    return call


get, get_text, exists, isdir, isfile, join_path = map(
    _by_backend, ("get", "get_text", "exists", "isdir", "isfile", "join_path")
)
get_local_path, list_dir_or_file, remove, rmtree = map(
    _by_backend, ("get_local_path", "list_dir_or_file", "remove", "rmtree")
)
copyfile, copytree, copyfile_to_local, copytree_to_local = map(
    _by_backend, ("copyfile", "copytree", "copyfile_to_local", "copytree_to_local")
)
copy_if_symlink_fails, generate_presigned_url = map(_by_backend, ("copy_if_symlink_fails", "generate_presigned_url"))
# These take the data first and the path second.
put, put_text = _by_backend("put", 1), _by_backend("put_text", 1)
copyfile_from_local, copytree_from_local = _by_backend("copyfile_from_local", 1), _by_backend("copytree_from_local", 1)


def _args(file_client_args: Any, backend_args: Any) -> Any:
    if file_client_args is not None and backend_args is not None:
        raise ValueError('"file_client_args" and "backend_args" cannot be set at the same time.')
    return backend_args if backend_args is not None else file_client_args


def set_default(value: Any) -> Any:
    """Convert values that json cannot write: sets, ranges, and numpy's numbers."""
    if isinstance(value, set | range):
        return list(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value)} is unsupported for json dump")
