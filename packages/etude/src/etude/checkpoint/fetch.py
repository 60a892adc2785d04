"""Lists the files that a config names by an address, and downloads them: in pieces that a later try adds to, checked.

A file goes where loading looks for it: ``checkpoints`` in the folder of ``torch.hub``. Its SHA-256 is noted there in
``SHA256SUMS``, which ``sha256sum -c`` reads.
"""

from __future__ import annotations

import hashlib
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from etude.config.files import replace_text
from etude.errors import DataError, printable
from etude.fast_dataclass import record

#: Address of a name such as ``torchvision://resnet50``, and the name of its file; None for any other text.
Zoo = Callable[[str], tuple[str, str] | None]
SUMS = "SHA256SUMS"
#: Endings of files that are worth to be fetched; other addresses are those of pages and services.
_FILES = re.compile(
    r"\.(pth|pt|pt2|th|tar|ckpt|bin|safetensors|pkl|pickle|onnx|zip|t?gz|npy|npz|json|txt|mcquic|model|vocab)$"
)
_SCHEME = re.compile(r"[A-Za-z][\w.+-]*://")
#: Seconds without any byte before a connection is given up, and bytes that are written at a time.
_PATIENCE, _PIECE = 30, 1 << 20


@record
class Wanted:
    """A file that a config names: the name there, its address (empty if nobody knows it), and where it belongs."""

    name: str
    url: str
    path: Path

    @property
    def is_here(self) -> bool:
        return self.path.is_file()


def folder() -> Path:
    """Return the folder in which torch keeps weights."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache"))
    home = os.environ.get("TORCH_HOME", os.path.join(cache, "torch"))
    return Path(os.path.expanduser(home), "hub", "checkpoints")


def wanted(values: Any, zoo: Zoo) -> list[Wanted]:
    """Return the files that the values of a config name, each once."""
    found: dict[str, Wanted] = {}
    for text in _texts(values):
        if text in found or not _SCHEME.match(text):
            continue
        known = zoo(text)
        if known is not None:
            url, name = known
            found[text] = Wanted(text, url, folder() / name)
        elif text.startswith(("http://", "https://")) and _FILES.search(urlsplit(text).path):
            found[text] = of_url(text)
    return list(found.values())


def of_url(url: str) -> Wanted:
    """Return the file behind an address, under the last part of it."""
    name = os.path.basename(unquote(urlsplit(url).path)) or "download"
    return Wanted(url, url, folder() / name)


def _texts(values: Any) -> Iterator[str]:
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list | tuple):
        for value in values:
            yield from _texts(value)
    elif isinstance(values, str):
        yield values


def size_of(file: Wanted) -> int | None:
    """Return the bytes of a file as its server says. Raises :class:`~etude.errors.DataError` where it cannot be asked.

    None: the server does not say.
    """
    with _asked(urllib.request.Request(file.url, method="HEAD")) as answer:
        length = answer.headers.get("Content-Length")
    return int(length) if length and length.isdigit() else None


def download(file: Wanted, say: Callable[[int], Any] = lambda done: None) -> str:
    """Download a file, from where an earlier try ended, and return its SHA-256. ``say`` is told the bytes so far.

    An address such as ``…/resnet50-11ad3fa6.pth`` ends in the first digits of the checksum, which are compared. The
    file appears whole or not at all.
    """
    file.path.parent.mkdir(parents=True, exist_ok=True)
    part = file.path.with_name(f"{file.path.name}.part")
    begun = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        answer = _asked(request)
    except DataError as error:
        if not isinstance(error.__cause__, urllib.error.HTTPError) or error.__cause__.code != 416:
            raise
        part.unlink()  # the server has a shorter file now
        answer = _asked(urllib.request.Request(file.url))
    with answer:
        goes_on = begun > 0 and answer.status == 206 and _begins(answer) == begun
        length = answer.headers.get("Content-Length")
        total = (begun if goes_on else 0) + int(length) if length and length.isdigit() else None
        _write(part, answer, "ab" if goes_on else "wb", file, say)
    if total is not None and part.stat().st_size != total:
        raise DataError(f"{file.url}: the connection ended after {part.stat().st_size} of {total} bytes; try again")
    with part.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    named = re.search(r"[-_]([0-9a-f]{8,64})\.\w+$", urlsplit(file.url).path)
    # Digits alone are probably a date.
    if named is not None and not named[1].isdigit() and not digest.startswith(named[1]):
        part.unlink()
        raise DataError(
            f"{file.url}: the file's SHA-256 begins with {digest[: len(named[1])]}, not with {named[1]} as its name "
            "says; it was not kept"
        )
    os.replace(part, file.path)
    _note(file.path, digest)
    return digest


def _begins(answer: Any) -> int:
    found = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range") or "")
    return int(found[1]) if found else -1


def _write(part: Path, answer: Any, mode: str, file: Wanted, say: Callable[[int], Any]) -> None:
    try:
        with part.open(mode) as target:
            while piece := answer.read(_PIECE):
                target.write(piece)
                say(target.tell())
    except (OSError, HTTPException) as error:
        raise DataError(f"{file.url}: the download broke off ({error}); the same command goes on with it") from error


def _asked(request: urllib.request.Request) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        raise DataError(f"{request.full_url}: the server answers {error.code} {printable(error.reason)}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(f"{request.full_url} cannot be reached: {printable(str(reason))}") from error


def _note(path: Path, digest: str) -> None:
    """Add a line to the checksums of a folder; it replaces an older one of the same file."""
    sums = path.parent / SUMS
    before = sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else []
    lines = [line for line in before if line.partition("  ")[2] != path.name]
    replace_text(sums, "\n".join([*lines, f"{digest}  {path.name}", ""]))
