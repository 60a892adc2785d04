"""iopath's path managers: files by path, and by whatever prefixes handlers are registered for."""

from __future__ import annotations

import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any

logger = logging.getLogger("iopath.common.file_io")

Path = str | os.PathLike[str]


class LazyPath(os.PathLike[str]):
    """A path that is worked out when it is first used."""

    def __init__(self, func: Callable[[], str]) -> None:
        self._func, self._value = func, None

    def _get_value(self) -> str:
        if self._value is None:
            self._value = self._func()  # type: ignore[assignment]
        return self._value  # type: ignore[return-value]

    def __fspath__(self) -> str:
        return self._get_value()

    def __getattr__(self, name: str) -> Any:
        if self.__dict__.get("_value") is None:
            raise AttributeError(f"Uninitialized LazyPath has no attribute: {name}.")
        return getattr(self._value, name)

    def __getitem__(self, key: Any) -> str:
        if self._value is None:
            raise TypeError("Uninitialized LazyPath is not subscriptable.")
        return self._value[key]

    def __str__(self) -> str:
        return self._value if self._value is not None else super().__str__()


class PathHandler:
    """What a path manager does with the paths of some prefixes; a subclass says as much of it as it can."""

    _strict_kwargs_check = True

    def _check_kwargs(self, kwargs: dict[str, Any]) -> None:
        if not kwargs:
            return
        if self._strict_kwargs_check:
            raise ValueError(f"Unused arguments: {kwargs}")
        logger.warning(f"[PathManager] {kwargs} argument ignored by {type(self).__name__}")

    def _get_supported_prefixes(self) -> list[str]:
        raise NotImplementedError

    def _get_local_path(self, path: str, force: bool = False, **kwargs: Any) -> str:
        raise NotImplementedError

    def _copy_from_local(self, local_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool | None:
        raise NotImplementedError

    def _open(self, path: str, mode: str = "r", buffering: int = -1, **kwargs: Any) -> IO[Any]:
        raise NotImplementedError

    def _copy(self, src_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool:
        raise NotImplementedError

    def _mv(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        raise NotImplementedError

    def _exists(self, path: str, **kwargs: Any) -> bool:
        raise NotImplementedError

    def _isfile(self, path: str, **kwargs: Any) -> bool:
        raise NotImplementedError

    def _isdir(self, path: str, **kwargs: Any) -> bool:
        raise NotImplementedError

    def _ls(self, path: str, **kwargs: Any) -> list[str]:
        raise NotImplementedError

    def _mkdirs(self, path: str, **kwargs: Any) -> None:
        raise NotImplementedError

    def _rm(self, path: str, **kwargs: Any) -> None:
        raise NotImplementedError

    def _symlink(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        raise NotImplementedError

    def _set_cwd(self, path: str | None, **kwargs: Any) -> bool:
        raise NotImplementedError

    def _get_path_with_cwd(self, path: str) -> str:
        return path


class NativePathHandler(PathHandler):
    """Paths of this machine."""

    def __init__(self) -> None:
        self._cwd: str | None = None

    def _get_path_with_cwd(self, path: str) -> str:
        return os.path.normpath(path if self._cwd is None else os.path.join(self._cwd, path))

    def _get_local_path(self, path: str, force: bool = False, **kwargs: Any) -> str:
        self._check_kwargs(kwargs)
        return os.fspath(path)

    def _copy_from_local(self, local_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool | None:
        self._check_kwargs(kwargs)
        return self._copy(local_path, dst_path, overwrite=overwrite)

    def _open(self, path: str, mode: str = "r", buffering: int = -1, **kwargs: Any) -> IO[Any]:
        known = ("encoding", "errors", "newline", "closefd", "opener")
        options = {name: kwargs.pop(name) for name in known if name in kwargs}
        self._check_kwargs(kwargs)
        return open(self._get_path_with_cwd(path), mode, buffering, **options)

    def _copy(self, src_path: str, dst_path: str, overwrite: bool = False, **kwargs: Any) -> bool:
        self._check_kwargs(kwargs)
        source, target = self._get_path_with_cwd(src_path), self._get_path_with_cwd(dst_path)
        if os.path.exists(target) and not overwrite:
            logger.error(f"Destination file {target} already exists.")
            return False
        return _done(shutil.copyfile, source, target)

    def _mv(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        self._check_kwargs(kwargs)
        target = self._get_path_with_cwd(dst_path)
        if os.path.exists(target):
            logger.error(f"Destination file {target} already exists.")
            return False
        return _done(shutil.move, self._get_path_with_cwd(src_path), target)

    def _symlink(self, src_path: str, dst_path: str, **kwargs: Any) -> bool:
        self._check_kwargs(kwargs)
        source, target = self._get_path_with_cwd(src_path), self._get_path_with_cwd(dst_path)
        if not os.path.exists(source) or os.path.exists(target):
            logger.error(f"{source} does not exist, or {target} already does.")
            return False
        return _done(os.symlink, source, target)

    def _exists(self, path: str, **kwargs: Any) -> bool:
        self._check_kwargs(kwargs)
        return os.path.exists(self._get_path_with_cwd(path))

    def _isfile(self, path: str, **kwargs: Any) -> bool:
        self._check_kwargs(kwargs)
        return os.path.isfile(self._get_path_with_cwd(path))

    def _isdir(self, path: str, **kwargs: Any) -> bool:
        self._check_kwargs(kwargs)
        return os.path.isdir(self._get_path_with_cwd(path))

    def _ls(self, path: str, **kwargs: Any) -> list[str]:
        self._check_kwargs(kwargs)
        return os.listdir(self._get_path_with_cwd(path))

    def _mkdirs(self, path: str, **kwargs: Any) -> None:
        self._check_kwargs(kwargs)
        os.makedirs(self._get_path_with_cwd(path), exist_ok=True)

    def _rm(self, path: str, **kwargs: Any) -> None:
        self._check_kwargs(kwargs)
        os.remove(self._get_path_with_cwd(path))

    def _set_cwd(self, path: str | None, **kwargs: Any) -> bool:
        self._check_kwargs(kwargs)
        if path is not None and not os.path.isdir(path):
            raise ValueError(f"PathManager.set_cwd(): {path} is not a valid directory.")
        self._cwd = None if path is None else os.path.abspath(path)
        return True


def _done(act: Callable[[str, str], Any], source: str, target: str) -> bool:
    try:
        act(source, target)
    except OSError as error:
        logger.error(f"Error in {act.__name__} of {source} - {error}")
        return False
    return True


def _then(file: IO[Any], callback: Callable[[], Any]) -> IO[Any]:
    """``file``, with something to be done once when it is closed."""
    close = file.close

    def closing() -> None:
        was_open = not file.closed
        close()
        if was_open:
            callback()

    return _Closing(file, closing)  # type: ignore[return-value]


class _Closing:
    """A file that is closed in another way; everything else is its own."""

    def __init__(self, file: IO[Any], close: Callable[[], None]) -> None:
        self._file, self.close = file, close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self._file)


class PathManager:
    """Files by path: each goes to the handler of its prefix, and without one to this machine."""

    def __init__(self) -> None:
        self._path_handlers: OrderedDict[str, PathHandler] = OrderedDict()
        self._native_path_handler: PathHandler = NativePathHandler()
        #: Handlers with writes under way: always none, since :meth:`opena` writes at once.
        self._async_handlers: set[PathHandler] = set()

    def _handler(self, path: Path) -> PathHandler:
        text = os.fspath(path)
        return next((own for prefix, own in self._path_handlers.items() if text.startswith(prefix)), self._native())

    def _native(self) -> PathHandler:
        return self._native_path_handler

    def register_handler(self, handler: PathHandler, allow_override: bool = True) -> None:
        """Give the paths of a handler's prefixes to it, or those of this machine; longer prefixes are asked first."""
        kinds = [kind.__name__ for kind in type(handler).__mro__]
        assert PathHandler.__name__ in kinds, handler  # that of an installed iopath will do
        if NativePathHandler.__name__ in kinds:
            if not allow_override:
                raise ValueError("`NativePathHandler` is registered by default: `allow_override=True` replaces it")
            self._native_path_handler = handler
            return
        for prefix in handler._get_supported_prefixes():
            if prefix in self._path_handlers and not allow_override:
                old = type(self._path_handlers[prefix])
                raise KeyError(f"[PathManager] Prefix '{prefix}' already registered by {old}!")
            self._path_handlers[prefix] = handler
        self._path_handlers = OrderedDict(sorted(self._path_handlers.items(), key=lambda item: item[0], reverse=True))

    def set_strict_kwargs_checking(self, enable: bool) -> None:
        """Whether arguments that a handler does not know are refused (or else logged)."""
        for handler in (self._native_path_handler, *self._path_handlers.values()):
            handler._strict_kwargs_check = enable

    def set_logging(self, enable_logging: bool = True) -> None:
        """Taken and not used: nothing about files is sent anywhere."""

    def set_cwd(self, path: str | None, **kwargs: Any) -> bool:
        return self._native_path_handler._set_cwd(path, **kwargs)

    def open(self, path: Path, mode: str = "r", buffering: int = -1, **kwargs: Any) -> IO[Any]:
        return self._handler(path)._open(os.fspath(path), mode, buffering=buffering, **kwargs)

    def get_local_path(self, path: Path, force: bool = False, **kwargs: Any) -> str:
        """A path of this machine with the content of ``path``."""
        handler = self._handler(path)
        options = {"force": force, **kwargs} if force or handler is self._native() else kwargs
        return handler._get_local_path(os.fspath(path), **options)

    def opena(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        callback_after_file_close: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> IO[Any]:
        """A file to write beside other work. Here it is written at once, so there is nothing to wait for; the callback
        comes when it is closed."""
        file = self.open(path, mode, buffering, **kwargs)
        if callback_after_file_close is None or "w" not in mode:
            return file
        return _then(file, callback_after_file_close)

    def async_join(self, *paths: str, **kwargs: Any) -> bool:
        return True

    def async_close(self, **kwargs: Any) -> bool:
        return True

    def copy(self, src_path: Path, dst_path: Path, overwrite: bool = False, **kwargs: Any) -> bool:
        assert self._handler(src_path) is self._handler(dst_path), (src_path, dst_path)
        return self._handler(src_path)._copy(os.fspath(src_path), os.fspath(dst_path), overwrite, **kwargs)

    def mv(self, src_path: Path, dst_path: Path, **kwargs: Any) -> bool:
        assert self._handler(src_path) is self._handler(dst_path), (src_path, dst_path)
        return self._handler(src_path)._mv(os.fspath(src_path), os.fspath(dst_path), **kwargs)

    def copy_from_local(self, local_path: str, dst_path: Path, overwrite: bool = False, **kwargs: Any) -> bool | None:
        assert os.path.exists(local_path), f"local_path = {local_path}"
        return self._handler(dst_path)._copy_from_local(local_path, os.fspath(dst_path), overwrite=overwrite, **kwargs)

    def exists(self, path: Path, **kwargs: Any) -> bool:
        return self._handler(path)._exists(os.fspath(path), **kwargs)

    def isfile(self, path: Path, **kwargs: Any) -> bool:
        return self._handler(path)._isfile(os.fspath(path), **kwargs)

    def isdir(self, path: Path, **kwargs: Any) -> bool:
        return self._handler(path)._isdir(os.fspath(path), **kwargs)

    def ls(self, path: Path, **kwargs: Any) -> list[str]:
        return self._handler(path)._ls(os.fspath(path), **kwargs)

    def mkdirs(self, path: Path, **kwargs: Any) -> None:
        return self._handler(path)._mkdirs(os.fspath(path), **kwargs)

    def rm(self, path: Path, **kwargs: Any) -> None:
        return self._handler(path)._rm(os.fspath(path), **kwargs)

    def symlink(self, src_path: Path, dst_path: Path, **kwargs: Any) -> bool:
        assert self._handler(src_path) is self._handler(dst_path), (src_path, dst_path)
        return self._handler(src_path)._symlink(os.fspath(src_path), os.fspath(dst_path), **kwargs)


class PathManagerFactory:
    """Path managers that several parts of a program share, by name."""

    _made: dict[str, PathManager] = {}

    @classmethod
    def get(cls, key: str = "global_path_manager", defaults_setup: bool = False) -> PathManager:
        return cls._made.setdefault(key, PathManager())

    @classmethod
    def remove(cls, key: str) -> None:
        cls._made.pop(key, None)


#: The one that whole programs share; fvcore, detectron2 and LiBai each have one of their own.
g_pathmgr = PathManagerFactory.get()
FVCORE, DETECTRON2, LIBAI = PathManager(), PathManager(), PathManager()
