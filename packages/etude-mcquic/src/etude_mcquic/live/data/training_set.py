"""``mcquic dataset``: packs the pictures of a folder into an LMDB for training."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from etude.errors import MissingExtra, UserError, printable
from etude_mcquic.live.formats import hashOfFile

_ENDINGS = (".png", ".jpg", ".jpeg")
#: Pictures with a shorter side are left out: training crops squares of this size.
_LEAST = 512


def pack(images: Path, target: Path) -> list[str]:
    """Write ``target`` with ``data.mdb`` and ``metadata.json``, and return what to say. It replaces a former one."""
    try:
        import lmdb
    except ImportError as error:
        raise MissingExtra("lmdb", "mcquic", "writing a training set") from error
    if target.is_dir() and any(target.iterdir()) and not (target / "data.mdb").is_file():
        raise UserError(f"{printable(str(target))} has other files than a training set; choose another folder")
    found = sorted(path for path in images.rglob("*") if path.suffix.lower() in _ENDINGS)
    chosen = [path for path in found if _is_large(path)]
    if not chosen:
        raise UserError(f"{printable(str(images))}: of {len(found)} pictures none has {_LEAST} pixels along each side")
    random.Random(3407).shuffle(chosen)
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    size = sum(path.stat().st_size + 8192 for path in chosen)
    with lmdb.open(str(part), map_size=2 * size + (1 << 24)) as environment, environment.begin(write=True) as writing:
        for number, path in enumerate(chosen):
            writing.put(number.to_bytes(32, sys.byteorder), path.read_bytes())
    content = {"length": len(chosen), "hash": hashOfFile(str(part / "data.mdb"))}
    (part / "metadata.json").write_text(json.dumps(content))
    shutil.rmtree(target, ignore_errors=True)
    part.replace(target)
    return [f"{len(chosen)} of {len(found)} pictures, {size / 1e6:.1f} MB  {target}"]


def _is_large(path: Path) -> bool:
    try:
        with Image.open(path) as picture:
            return min(picture.size) >= _LEAST
    except (UnidentifiedImageError, OSError):
        return False
