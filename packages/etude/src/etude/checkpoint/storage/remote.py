"""Stores files on any file system that fsspec knows (``s3://``, ``gs://``, ``memory://`` …), with one door for errors.

Every call to a client passes :meth:`RemoteDisk._again`. It repeats what a network may fail at, for a bounded time, and
turns whatever a client raises into one :class:`RemoteError` of one line.
"""

from __future__ import annotations

import errno
import importlib.util
import io
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import IO, Any, TypeVar, cast

from etude.checkpoint import manifest as manifests
from etude.checkpoint.storage import disk as local
from etude.errors import EtudeError, MissingExtra, UserError, optional, printable

T = TypeVar("T")
#: Seconds for which a call is repeated: on a server that has not answered yet, and on one that has.
_PATIENCE_AT_FIRST, _PATIENCE = 2.0, 10.0
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 3.2
#: Where the first part of a path is a bucket. There are no folders to be made there, and buckets are the user's.
_BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "cos", "obs")
_S3 = ("s3", "s3a")
#: Packages of clients that draw waits from Python's global generator.
_CLIENTS = ("aiobotocore", "aiohttp", "adlfs", "azure", "botocore", "fsspec", "gcsfs", "google", "ossfs", "s3fs")
#: Errors of clients by the names of their classes, so that no client has to be imported to know them.
_NO_CREDENTIALS = {
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "TokenRetrievalError", "SSOError", "DefaultCredentialsError", "RefreshError", "ClientAuthenticationError",
    "NoAuthTokenError",
}  # fmt: skip
_NO_ANSWER = {
    "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError",
    "ClientConnectorError", "ServerDisconnectedError", "ConnectionError", "TimeoutError", "FSTimeoutError",
}  # fmt: skip
#: Errors that another attempt would not change.
_FINAL = {"ParamValidationError", "InvalidURL", "InvalidEndpointURLError", "NoRegionError", "InvalidRegionError"}
_SERVER = re.compile(r"https?://[^/\s\"'<>]+")
_PLAIN = (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError)


class RemoteError(OSError, EtudeError):
    """An object store that does not answer, refuses, or does not have what is needed; the message is one line."""

    exit_code = 2

    def __init__(self, message: str, code: int, *, answered: bool = False) -> None:
        super().__init__(message)
        self.errno = code
        if answered:  # it was there when the run began
            self.exit_code = 6


def connect(url: str) -> tuple[RemoteDisk, str]:
    """Return the file system of ``url``, and the path there. Nothing is asked of a server yet."""
    fsspec = optional("fsspec", "s3", f"the path {printable(url)}")
    scheme = url.partition("://")[0]
    drawn = random.getstate()
    try:
        fs, path = fsspec.core.url_to_fs(url, **(_options(fsspec, scheme) if scheme in _S3 else {}))
    except ImportError as error:
        if scheme in _S3:
            raise MissingExtra("s3fs", "s3", f"the path {printable(url)}") from None
        raise UserError(f"{printable(url)}: {printable(str(error))}") from None
    except ValueError as error:
        raise UserError(f"{printable(url)}: {printable(str(error))}") from None
    finally:
        random.setstate(drawn)  # packages of clients draw while they are imported
    if scheme in _S3:
        fs.retries = 1
    _keep_generators_apart()
    return RemoteDisk(fs, scheme), str(path)


def _options(fsspec: Any, scheme: str) -> dict[str, Any]:
    """Return what a client of S3 is made with: it does not repeat calls itself, nor remember listings, which lag."""
    given = fsspec.config.conf.get(scheme, {}).get("config_kwargs", {})
    return {
        "use_listings_cache": False,
        "config_kwargs": {**given, "retries": {"total_max_attempts": 1, "mode": "standard"}},
    }


_own_random: ModuleType | None = None


def _keep_generators_apart() -> None:
    """Give clients a ``random`` of their own: a wait that they draw must not change what the user's code draws."""
    global _own_random
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _CLIENTS and getattr(module, "random", None) is random:
            if _own_random is None:
                _own_random = _second_random()
            module.random = _own_random  # type: ignore[attr-defined]


def _second_random() -> ModuleType:
    """Load Python's ``random`` once more: the same functions on another generator."""
    spec = importlib.util.find_spec("random")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RemoteDisk:
    """A file system of fsspec. A call that fails is repeated for a while, with longer and longer waits.

    Object stores cannot rename a folder in one stroke; there a checkpoint is complete when its manifest is there,
    which comes last.
    """

    RENAMES = False

    def __init__(self, fs: Any, scheme: str) -> None:
        self._fs, self._scheme = fs, scheme
        #: Whether a call has succeeded: then the place and the credentials are right, and a failure may pass.
        self._answered = False

    def join(self, folder: str, name: str) -> str:
        return f"{folder.rstrip('/')}/{name}"

    def url(self, path: str) -> str:
        """Return ``path`` as a user would write it."""
        return path if "://" in path else f"{self._scheme}://{path.lstrip('/')}"

    def make_folder(self, path: str) -> None:
        if self._scheme not in _BUCKETS:
            self._again("mkdir", path, lambda: self._fs.makedirs(path, exist_ok=True))

    def create(self, path: str) -> local.FileWriter:
        return _RemoteWriter(self, path)

    def put(self, path: str, pieces: Iterable[memoryview | bytes]) -> None:
        """Upload a whole file. It is kept until it has arrived, so that a broken upload starts again from the
        beginning."""
        self._again("put", path, lambda: self._send(path, pieces))

    def _send(self, path: str, pieces: Iterable[memoryview | bytes]) -> None:
        writer = _RemoteWriter(self, path)
        try:
            for piece in pieces:
                writer.write(piece)
            writer.sync()
        except BaseException:
            writer.discard()
            raise

    def sync_folder(self, path: str) -> None:
        local.ask("fsync_folder", path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, or a folder file by file: what is left when that is interrupted is complete on one side."""
        inside = self._files(source)
        if not inside:
            self._copy(source, target)
            self.remove(source)
            return
        # The manifest makes a checkpoint complete: it arrives last, and goes first.
        for name in sorted(inside, key=lambda name: (name == manifests.NAME, name)):
            self._copy(self.join(source, name), self.join(target, name))
        for name in sorted(inside, key=lambda name: (name != manifests.NAME, name)):
            self.remove(self.join(source, name))
        if self._scheme not in _BUCKETS:
            self.remove_tree(source)

    def _files(self, folder: str) -> list[str]:
        """Return the paths of all files below ``folder``, relative to it."""
        found: list[str] = self._again("list", folder, lambda: self._fresh().find(folder))
        start = f"{folder.rstrip('/')}/"
        return [path.removeprefix(start) for path in found if path.startswith(start) and path != start]

    def _copy(self, source: str, target: str) -> None:
        self._again("rename", target, lambda: self._fs.cp_file(source, target))

    def remove(self, path: str) -> None:
        self._remove("remove", path, self._fs.rm_file)

    def remove_tree(self, path: str) -> None:
        self._remove("rmdir", path, lambda path: self._fs.rm(path, recursive=True))

    def _remove(self, call: str, path: str, remove: Callable[[str], Any]) -> None:
        # An attempt whose answer was lost may have removed it already.
        with suppress(FileNotFoundError):
            self._again(call, path, lambda: remove(path) if self._fresh().exists(path) else None)

    def names(self, path: str) -> list[str]:
        try:
            found: list[str] = self._again("list", path, lambda: self._fresh().ls(path, detail=False))
        except NotADirectoryError:
            return []
        except FileNotFoundError as error:
            self._require_bucket(path, error)
            return []
        # A store lists a file, or the mark of an empty folder, as what is in it.
        inside = [entry.rstrip("/") for entry in found if entry.strip("/") != path.strip("/")]
        return sorted(os.path.basename(entry) for entry in inside)

    def exists(self, path: str) -> bool:
        return bool(self._again("list", path, lambda: self._fresh().exists(path)))

    def _require_bucket(self, path: str, error: FileNotFoundError) -> None:
        """Refuse a place in a bucket that does not exist: it is probably misspelt."""
        bucket = path.lstrip("/").partition("/")[0]
        if self._scheme in _S3:
            found = "NoSuchBucket" not in _code(error)
        else:
            found = self._scheme not in _BUCKETS or self._again("list", bucket, lambda: self._fs.exists(bucket))
        if not found:
            raise self._no_bucket(path)

    def _no_bucket(self, path: str) -> RemoteError:
        bucket = printable(path.lstrip("/").partition("/")[0])
        message = f"{printable(self.url(path))}: there is no bucket {bucket!r}; is it misspelt? Buckets are not created"
        return RemoteError(message, errno.ENOENT)

    def open_file(self, path: str) -> IO[bytes]:
        return cast(IO[bytes], _RemoteReader(self, path))

    def write_atomically(self, path: str, write: Callable[[IO[bytes]], Any]) -> None:
        """Upload a small file in one request."""
        memory = io.BytesIO()
        write(memory)
        self._again("put", path, lambda: self._fs.pipe_file(path, memory.getvalue()))

    # -- a small file that several processes write ---------------------------------------------------------------

    def read_small(self, path: str) -> tuple[bytes, str]:
        """Return what is in a small file, and the mark of this version of it, if the store gives one."""

        def read() -> tuple[bytes, str]:
            # The mark first: if the file changes in between, a write that asks for the mark fails.
            mark = str(self._fresh().info(path).get("ETag") or "")
            return self._fs.cat_file(path), mark

        return self._again("open", path, read)

    def write_new(self, path: str, content: bytes) -> bool:
        """Create a small file; return False if there is one."""
        return self._write_if(path, content, mode="create")

    def replace(self, path: str, content: bytes, mark: str) -> bool:
        """Replace the version of a small file that has this ``mark``; return False if that is not there any more.

        Stores other than S3 have no such question; there the file is replaced in any case.
        """
        return self._write_if(path, content, **({"IfMatch": mark} if mark and self._scheme in _S3 else {}))

    def _write_if(self, path: str, content: bytes, **condition: Any) -> bool:
        try:
            self._again("put", path, lambda: self._fs.pipe_file(path, content, **condition))
        except (FileExistsError, FileNotFoundError, _Changed):
            # An attempt whose answer was lost may have written it.
            with suppress(FileNotFoundError):
                return self.read_small(path)[0] == content
            return False
        return True

    # -- the door ------------------------------------------------------------------------------------------------

    def _fresh(self) -> Any:
        """Return the file system without what it remembers of listings, which then lag."""
        self._fs.invalidate_cache()
        return self._fs

    def _again(self, call: str, path: str, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``; repeat it after errors that a network may cause, not after others."""
        patience = _PATIENCE if self._answered else _PATIENCE_AT_FIRST
        began = time.monotonic()
        for wait, waited in _waits():
            try:
                local.ask(call, path)
                result = attempt()
                self._answered |= call != "create"  # an upload asks the server nothing before it is full
                return result
            except _PLAIN as error:
                self._answered |= call != "create"
                if _code(error) == "NoSuchBucket" and call != "list":
                    raise self._no_bucket(path) from error
                raise
            except (AttributeError, TypeError, NameError):  # a fault in a program, not of a store
                raise
            except Exception as error:
                if _code(error) in ("PreconditionFailed", "ConditionalRequestConflict"):
                    raise _Changed from error
                if _is_final(error) or max(waited, time.monotonic() - began) + wait > patience:
                    raise self._explained(path, error) from error
            time.sleep(wait)
        raise AssertionError("unreachable")

    def _explained(self, path: str, error: Exception) -> RemoteError:
        """Return ``error`` as one line that says what to look at."""
        if isinstance(error, RemoteError):
            return error
        names, code = _names(error), getattr(error, "errno", None)
        text = printable(" ".join((str(error) or type(error).__name__).split()))[:300]
        if names & _NO_CREDENTIALS:
            code, text = errno.EACCES, f"no credentials ({text})"
        elif isinstance(error, PermissionError):
            code, text = errno.EACCES, f"access denied ({text})"
        elif names & _NO_ANSWER:
            code = code or (errno.ETIMEDOUT if any("Timeout" in name for name in names) else errno.ECONNREFUSED)
            server = _SERVER.search(text)
            text = f"no answer from {server[0]}" if server else f"no answer ({text})"
        return RemoteError(f"{printable(self.url(path))}: {text}", code or errno.EIO, answered=self._answered)


class _Changed(Exception):
    """A small file is not the version that was to be replaced."""


class _RemoteWriter:
    """An upload. It is complete when ``sync`` returns and the remote size is the size sent."""

    def __init__(self, disk: RemoteDisk, path: str) -> None:
        self._disk, self.path, self._sent = disk, path, 0
        self._file: Any = disk._again("create", path, lambda: disk._fs.open(path, "wb"))

    def write(self, data: memoryview | bytes) -> int:
        view = memoryview(data).cast("B")
        try:
            local.ask("write", self.path, len(view))
        except local.Torn as torn:
            raise torn.error from None
        for begin in range(0, len(view), local.PIECE):
            self._file.write(view[begin : begin + local.PIECE])
        self._sent += len(view)
        return len(view)

    def sync(self) -> None:
        self.close()
        # An object store may keep a part of an upload without an error.
        arrived = self._disk._again("fsync", self.path, lambda: self._disk._fs.size(self.path))
        if arrived != self._sent:
            raise OSError(f"{arrived} of {self._sent} bytes arrived")

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def discard(self) -> None:
        """Give up an upload, so that no part of it is taken for a file, not even when Python forgets it."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(Exception):  # the error that made it necessary counts
                file.discard()
            with suppress(AttributeError):
                file.closed = True


class _RemoteReader(io.RawIOBase):
    """A file on another file system, read piece by piece; a piece that does not come is asked for again."""

    def __init__(self, disk: RemoteDisk, path: str) -> None:
        super().__init__()
        self._disk, self._path, self._at = disk, path, 0
        self._file: Any = disk._again("open", path, lambda: disk._fs.open(path, "rb"))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = self._disk._again("seek", self._path, lambda: int(self._file.seek(offset, whence)))
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")

        def read() -> bytes:
            self._file.seek(self._at)
            return bytes(self._file.read(len(view)))

        content = self._disk._again("read", self._path, read)
        view[: len(content)] = content
        self._at += len(content)
        return len(content)

    def close(self) -> None:
        if not self.closed:
            file = getattr(self, "_file", None)
            if file is not None:
                with suppress(Exception):  # what was read is complete
                    file.close()
        super().close()


def _waits() -> Iterator[tuple[float, float]]:
    """Yield longer and longer waits, each with the sum of those before it."""
    wait, waited = _FIRST_WAIT, 0.0
    while True:
        yield wait, waited
        waited += wait
        wait = min(2 * wait, _LONGEST_WAIT)


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _is_final(error: Exception) -> bool:
    """Return whether another attempt would end in the same way."""
    if isinstance(error, PermissionError | ValueError | NotImplementedError | EtudeError):
        return True
    status = getattr(error, "status", 0)
    return bool(_names(error) & (_NO_CREDENTIALS | _FINAL)) or (isinstance(status, int) and 400 <= status < 429)


def _code(error: BaseException) -> str:
    """Return the code that a server of S3 gave as the reason, empty if there is none."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""
