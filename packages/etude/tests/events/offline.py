"""Reads what Weights & Biases keeps in offline mode."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Offline:
    rows: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    #: Name, aliases, metadata and file names of each artifact.
    artifacts: list[tuple[str, list[str], dict[str, Any], list[str]]] = field(default_factory=list)
    exit_code: int | None = None


#: Seconds that W&B's own process gets to write its file: the end of a run does not wait for that.
_PATIENCE = 600.0


def read_wandb(folder: Path) -> Offline:
    """Return the only offline run below ``folder``, once it has ended."""
    (path,) = folder.glob("**/offline-run-*/run-*.wandb")
    deadline = time.monotonic() + _PATIENCE
    while (found := _read(path.read_bytes())).exit_code is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _read(content: bytes) -> Offline:
    from wandb.proto.wandb_internal_pb2 import Record

    found = Offline()
    for data in _records(content):
        record = Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            found.rows.append(_values(record.history.item))
        elif kind in ("run", "config"):
            found.config |= _values((record.run.config if kind == "run" else record.config).update)
        elif kind == "request" and record.request.HasField("log_artifact"):
            _add(found, record.request.log_artifact.artifact)
        elif kind == "artifact":
            _add(found, record.artifact)
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _records(content: bytes) -> Iterator[bytes]:
    """Split LevelDB's log format: blocks of 32 kB, of chunks with checksum, length and kind (1: whole, 4: the last)."""
    at, record = 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # no chunk begins in the last bytes of a block
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        if at + 7 + length > len(content):  # being written
            return
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def _add(found: Offline, artifact: Any) -> None:
    files = sorted(entry.path for entry in artifact.manifest.contents)
    found.artifacts.append((artifact.name, list(artifact.aliases), json.loads(artifact.metadata or "{}"), files))


def _values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
