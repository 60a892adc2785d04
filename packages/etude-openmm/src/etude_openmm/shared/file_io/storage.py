"""File backends: local disk, HTTP, Petrel and LMDB. Other stores are out of scope."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from etude.errors import MissingExtra, OutOfScope


class BaseStorageBackend(ABC):
    """The base class of backends. Users can derive and register their own."""

    _allow_symlink = False

    @property
    def allow_symlink(self) -> bool:
        """Return whether symbolic links are possible."""
        return self._allow_symlink

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def get(self, filepath: Any) -> Any:
        """Return the file's bytes."""

    @abstractmethod
    def get_text(self, filepath: Any, encoding: str = "utf-8") -> str:
        """Return the file's text."""


class LocalBackend(BaseStorageBackend):
    """Reads and writes files on this machine. A file is written completely or not at all."""

    _allow_symlink = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def get(self, filepath: Any) -> bytes:
        return Path(filepath).read_bytes()

    def get_text(self, filepath: Any, encoding: str = "utf-8") -> str:
        return Path(filepath).read_text(encoding=encoding)

    def put(self, obj: bytes | Any, filepath: Any) -> None:
        data = obj if isinstance(obj, bytes) else obj.getvalue()
        _replace(filepath, data)

    def put_text(self, obj: str, filepath: Any, encoding: str = "utf-8") -> None:
        _replace(filepath, obj.encode(encoding))

    def exists(self, filepath: Any) -> bool:
        return os.path.exists(filepath)

    def isdir(self, filepath: Any) -> bool:
        return os.path.isdir(filepath)

    def isfile(self, filepath: Any) -> bool:
        return os.path.isfile(filepath)

    def join_path(self, filepath: Any, *filepaths: Any) -> str:
        return str(os.path.join(filepath, *filepaths))

    @contextmanager
    def get_local_path(self, filepath: Any) -> Generator[str, None, None]:
        yield filepath

    def copyfile(self, src: Any, dst: Any) -> Any:
        """Copy to a file or into a folder, and return the path of the copy."""
        return shutil.copy(src, dst)

    def copytree(self, src: Any, dst: Any) -> Any:
        return shutil.copytree(src, dst)

    copyfile_from_local = copyfile_to_local = copyfile
    copytree_from_local = copytree_to_local = copytree

    def remove(self, filepath: Any) -> None:
        if not os.path.exists(filepath):
            raise FileNotFoundError(f"filepath {filepath} does not exist")
        if os.path.isdir(filepath):
            raise IsADirectoryError(f"filepath {filepath} should be a file")
        os.remove(filepath)

    def rmtree(self, dir_path: Any) -> None:
        shutil.rmtree(dir_path)

    def copy_if_symlink_fails(self, src: Any, dst: Any) -> bool:
        try:
            os.symlink(src, dst)
        except OSError:
            (self.copyfile if os.path.isfile(src) else self.copytree)(src, dst)
            return False
        return True

    def list_dir_or_file(
        self,
        dir_path: Any,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: str | tuple[str, ...] | None = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """Yield the names below ``dir_path``, relative to it, without hidden ones."""
        if list_dir and suffix is not None:
            raise TypeError("`suffix` should be None when `list_dir` is True")
        if suffix is not None and not isinstance(suffix, str | tuple):
            raise TypeError("`suffix` must be a string or tuple of strings")
        return self._listed(str(dir_path), str(dir_path), list_dir, list_file, suffix, recursive)

    def _listed(self, root: str, folder: str, dirs: bool, files: bool, suffix: Any, recursive: bool) -> Iterator[str]:
        for entry in os.scandir(folder):
            relative = os.path.relpath(entry.path, root)
            if not entry.name.startswith(".") and entry.is_file():
                if files and (suffix is None or relative.endswith(suffix)):
                    yield relative
            elif os.path.isdir(entry.path):
                if dirs:
                    yield relative
                if recursive:
                    yield from self._listed(root, entry.path, dirs, files, suffix, recursive)


class HardDiskBackend(LocalBackend):
    """The older name of ``LocalBackend``."""


class _RemoteBackend(BaseStorageBackend):
    """A backend that gives bytes only."""

    def get_text(self, filepath: Any, encoding: str = "utf-8") -> str:
        return bytes(self.get(filepath)).decode(encoding)


class HTTPBackend(_RemoteBackend):
    """Reads files from ``http(s)://``."""

    def get(self, filepath: Any) -> bytes:
        data: bytes = urlopen(filepath).read()
        return data

    @contextmanager
    def get_local_path(self, filepath: str) -> Generator[str, None, None]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "download")
            Path(path).write_bytes(self.get(filepath))
            yield path


class PetrelBackend(_RemoteBackend):
    """Reads files of an object store with the package ``petrel_client``."""

    def __init__(
        self, path_mapping: dict[str, str] | None = None, enable_mc: bool = True, conf_path: str | None = None
    ) -> None:
        try:
            client = importlib.import_module("petrel_client").client
        except ImportError as error:
            raise ImportError("install petrel_client to use PetrelBackend, or copy the files to a disk") from error
        self._client, self.path_mapping = client.Client(conf_path=conf_path, enable_mc=enable_mc), path_mapping

    def get(self, filepath: Any) -> bytes:
        address = str(filepath)
        for local, remote in (self.path_mapping or {}).items():
            address = address.replace(local, remote, 1)
        found: bytes = self._client.Get(re.sub(r"\\+", "/", address).replace("petrel://", "s3://"))
        return found

    def join_path(self, filepath: Any, *filepaths: Any) -> str:
        return "/".join([str(filepath).rstrip("/"), *(str(part).strip("/") for part in filepaths)])


class MemcachedBackend(_RemoteBackend):
    """Not supported: it can be imported, but making one raises an error."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise OutOfScope(f"{self.name} is out of Étude's scope; copy the files to a disk")

    def get(self, filepath: Any) -> Any:
        raise NotImplementedError


class LmdbBackend(_RemoteBackend):
    """Reads files in an LMDB by name. The database is opened on first use."""

    def __init__(
        self, db_path: Any, readonly: bool = True, lock: bool = False, readahead: bool = False, **kwargs: Any
    ) -> None:
        _lmdb()
        self.db_path = str(db_path)
        self.readonly, self.lock, self.readahead, self.kwargs = readonly, lock, readahead, kwargs
        self._client: Any = None

    def get(self, filepath: Any) -> bytes:
        if self._client is None:
            self._client = self._get_client()
        with self._client.begin(write=False) as transaction:
            found: bytes | None = transaction.get(str(filepath).encode("ascii"))
        if found is None:
            raise FileNotFoundError(f"{self.db_path} has no {str(filepath)!r}")
        return found

    def _get_client(self) -> Any:
        """Return the open database. A process and its forks can open it only once."""
        key = os.path.realpath(self.db_path)
        if key not in _databases:
            options = {"readonly": self.readonly, "lock": self.lock, "readahead": self.readahead, **self.kwargs}
            _databases[key] = _lmdb().open(self.db_path, **options)
        return _databases[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_client": None}  # each worker process opens it itself


#: The databases that are open.
_databases: dict[str, Any] = {}


def _lmdb() -> Any:
    try:
        return importlib.import_module("lmdb")
    except ImportError as error:
        raise MissingExtra("lmdb", "mcquic", "reading from an LMDB") from error


backends: dict[str, type[BaseStorageBackend]] = {
    "local": LocalBackend, "http": HTTPBackend, "lmdb": LmdbBackend, "memcached": MemcachedBackend,
    "petrel": PetrelBackend,
}  # fmt: skip
prefix_to_backends: dict[str, type[BaseStorageBackend]] = {
    "": LocalBackend, "http": HTTPBackend, "https": HTTPBackend, "petrel": PetrelBackend, "s3": PetrelBackend,
}  # fmt: skip


def register_backend(
    name: str, backend: type[BaseStorageBackend] | None = None, force: bool = False, prefixes: Any = None
) -> Any:
    """Register a backend under ``name`` and for paths with one of ``prefixes``; also as a decorator."""
    if backend is None:
        return lambda cls: (register_backend(name, cls, force, prefixes), cls)[1]
    add_backend(backends, prefix_to_backends, name, backend, force, prefixes)
    return None


def add_backend(
    named: dict[str, type[BaseStorageBackend]],
    prefixed: dict[str, type[BaseStorageBackend]],
    name: Any,
    backend: Any,
    force: bool,
    prefixes: Any,
) -> None:
    """Add a backend to a table of names and a table of prefixes."""
    if not isinstance(name, str):
        raise TypeError(f"the backend name should be a string, but got {type(name)}")
    if not isinstance(backend, type):
        raise TypeError(f"backend should be a class, but got {type(backend)}")
    if not issubclass(backend, BaseStorageBackend):
        raise TypeError(f"backend {backend} is not a subclass of BaseStorageBackend")
    if name in named and not force:
        raise ValueError(f'{name} is already registered as a storage backend, add "force=True" to override it')
    for prefix in _listed(prefixes):
        if prefix in prefixed and not force:
            raise ValueError(f'{prefix} is already registered as a storage backend, add "force=True" to override it')
    named[name] = backend
    prefixed.update(dict.fromkeys(_listed(prefixes), backend))


def _listed(prefixes: Any) -> list[str]:
    if prefixes is None or isinstance(prefixes, str):
        return [] if prefixes is None else [prefixes]
    assert isinstance(prefixes, list | tuple), f"prefixes should be names, got {prefixes!r}"
    return list(prefixes)


def _parse_uri_prefix(uri: Any) -> str:
    """Return ``"petrel"`` for ``petrel://…`` and for ``cluster:petrel://…``; empty for a path."""
    assert isinstance(uri, str | os.PathLike), f"a path is needed, not {uri!r}"
    prefix, found, _ = str(uri).partition("://")
    return prefix.rpartition(":")[2] if found else ""


#: Backends made with ``enable_singleton``, by prefix and arguments.
backend_instances: dict[str, Any] = {}


def get_file_backend(
    uri: Any = None, *, backend_args: dict[str, Any] | None = None, enable_singleton: bool = False
) -> Any:
    """Return the backend of ``backend_args["backend"]``, or of the prefix of ``uri``."""
    if not enable_singleton:
        return _backend_of(uri, dict(backend_args or {}))
    key = f"{_parse_uri_prefix(uri) if uri is not None else ''}:{json.dumps(backend_args or {})}"
    if key not in backend_instances:
        backend_instances[key] = _backend_of(uri, dict(backend_args or {}))
    return backend_instances[key]


def _backend_of(uri: Any, args: dict[str, Any]) -> Any:
    if uri is None and "backend" not in args:
        raise ValueError('uri should not be None when "backend" does not exist in backend_args')
    if "backend" in args:
        name = args.pop("backend")
        if name not in backends:
            raise OutOfScope(f"the storage backend {name!r} is out of Étude's scope; known: {', '.join(backends)}")
        return backends[name](**args)
    prefix = _parse_uri_prefix(uri)
    if prefix not in prefix_to_backends:
        raise OutOfScope(f"{uri}: the storage behind {prefix}:// is out of Étude's scope; copy the file to a disk")
    return prefix_to_backends[prefix](**args)


def _replace(filepath: Any, data: bytes) -> None:
    path = os.path.abspath(os.fspath(filepath))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes files that only their owner can read.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
