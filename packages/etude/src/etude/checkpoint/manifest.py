"""``manifest.json``: describes a checkpoint, with the size and checksum of each of its files. Written last, read
first."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from etude.config.shapes import measured, rows, table, text, whole
from etude.errors import ResumeError, printable
from etude.fast_dataclass import field, record

#: 2 is one whose tensors lie in pieces in the files of several ranks.
FORMAT = 2
NAME = "manifest.json"
MAX_SIZE = 16 << 20
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.#+-]{0,200}")


class Damaged(ResumeError):
    """The content is not what was written. It does not mean another version or missing permissions."""


class Withheld(ResumeError):
    """The content is intact, but must not be used as it is: it belongs to another user, or has a newer format."""


@record
class Stored:
    """One file of a checkpoint."""

    size: int
    sha256: str


@record(kw_only=True)
class Manifest:
    """Describes a checkpoint. ``parts`` maps each part to its tensor file, or to None.

    ``shards`` maps a part to the files of other ranks that hold pieces of its tensors.
    """

    step: int
    epoch: int
    kind: str = "full"
    tag: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, str | None] = field(default_factory=dict)
    files: Mapping[str, Stored] = field(default_factory=dict)
    shards: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    saved: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    etude: str = "0.1.0"
    world: int = 1

    @property
    def format(self) -> int:
        """The version of etude's format that reads this: older ones still read what has no shards."""
        return 2 if self.shards else 1

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    def to_json(self) -> bytes:
        body = {
            "format": self.format, "etude": self.etude, "kind": self.kind, "step": self.step, "epoch": self.epoch,
            "tag": self.tag, "saved": self.saved, "world": self.world,
            # JSON has no NaN and no infinity; `float` reads the text back.
            "metrics": {name: v if math.isfinite(v) else repr(float(v)) for name, v in self.metrics.items()},
            "parts": dict(self.parts),
            "files": {name: {"size": f.size, "sha256": f.sha256} for name, f in self.files.items()},
        }  # fmt: skip
        if self.shards:
            body["shards"] = {part: list(names) for part, names in self.shards.items()}
        return json.dumps(body | {"digest": _digest(body)}, indent=1, ensure_ascii=False).encode()


def parse(content: bytes) -> Manifest:
    """Return the manifest if it is complete, has a known format, and names only files in the same folder."""
    try:
        body = json.loads(content)
        digest = body.pop("digest", None)
        version = body["format"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Damaged("its manifest is damaged") from None
    # Before the digest, which a newer format may compute otherwise: such a checkpoint is withheld, not damaged.
    if isinstance(version, int) and version > FORMAT:
        raise Withheld(f"its format {version} needs a newer etude (this one reads up to {FORMAT})")
    if digest != _digest(body):
        raise Damaged("checksum of manifest.json differs")
    try:
        return _from_body(body)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise Damaged(f"its manifest is damaged ({printable(str(error))[:80]})") from None


def _from_body(body: dict[str, Any]) -> Manifest:
    files = table(body["files"], lambda file: Stored(whole(file["size"]), text(file["sha256"])))
    parts = table(body["parts"], lambda name: None if name is None else text(name))
    shards = table(body.get("shards", {}), lambda names: tuple(rows(names, text)))
    named = [name for names in (parts.values(), *shards.values()) for name in names if name is not None]
    for name in (*files, *named):
        if not is_plain_name(name):
            raise ResumeError(f"refused: its manifest names {printable(str(name))[:80]!r}, a file outside of it")
    missing = [name for name in named if name not in files]
    if missing or "state.json" not in files:
        raise Damaged(f"its manifest does not list {(missing or ['state.json'])[0]}")
    return Manifest(
        step=whole(body["step"]), epoch=whole(body["epoch"]), kind=text(body["kind"]), tag=text(body["tag"]),
        metrics=table(body["metrics"], measured), parts=parts, files=files,
        shards=shards, saved=text(body["saved"]), etude=text(body["etude"]), world=whole(body["world"]),
    )  # fmt: skip


def is_plain_name(name: str) -> bool:
    """Return whether ``name`` is one component below the checkpoint's folder on any file system."""
    return _FILE.fullmatch(name) is not None


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
