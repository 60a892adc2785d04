"""``mcquic IN OUT``: compresses a picture to a ``.mcq`` file, and restores one, with McQuic's own model."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.checkpoint.state import check_weights
from etude.checkpoint.storage.disk import write_atomically
from etude.dialects import imports, ownership
from etude.errors import NoCheckpoint, ResumeError, UserError, printable
from etude_mcquic.config import Config
from etude_mcquic.files import Saver
from etude_mcquic.live.data.images import decode
from etude_mcquic.live.data.transforms import AlignedCrop, DeTransform
from etude_mcquic.live.formats import versionCheck
from etude_mcquic.live.model.models import find_model, join_alone

#: Where McQuic publishes trained models, and the name of the one that it has published.
PUBLISHED = "https://github.com/xiaosu-zhu/McQuic/releases/download/generic/"
MODELS = {"qp_2_msssim": "qp_2_msssim_8e954998.mcquic"}
#: Endings of what is compressed.
PICTURES = (".png", ".jpg", ".jpeg")
_INSIDE = "module._compressor."


def model_file(qp: int, local: Path | None, *, mse: bool) -> Path:
    """Return the file of the model that is asked for: ``local``, else a published one in torch's cache."""
    if local is not None:
        return local
    key = f"qp_{qp}_{'mse' if mse else 'msssim'}"
    if key not in MODELS:
        there = ", ".join(MODELS)
        raise UserError(f"McQuic has published no model {key}, only {there}; give one of yours with --local FILE")
    found = Path(torch.hub.get_dir(), "checkpoints", MODELS[key])
    if not found.is_file():
        raise NoCheckpoint(
            f"the model {key} is not on this machine ({found}); `etude fetch {PUBLISHED}{MODELS[key]}` downloads it, "
            "or give one of yours with --local FILE"
        )
    return found


def load_model(path: Path) -> tuple[Any, Config]:
    """Return a compressor with the weights of a checkpoint, or of a file that ``mcquic validate -e`` has written."""
    content = Saver.load(path)
    if "config" not in content or not ("trainer" in content or "model" in content):
        raise ResumeError(f"{printable(str(path))} is neither a checkpoint nor an exported model of McQuic")
    if "trainer" not in content:
        if "version" not in content:
            raise ResumeError(f"{printable(str(path))} has no version: it was exported by too old a McQuic")
        versionCheck(content["version"])
    imports.install()
    config = Config.deserialize(content["config"])
    if ownership.original("mcquic") is None:
        raise UserError("files are written by McQuic's own model: install McQuic, or run in a checkout of it")
    make = find_model(config.Model.Key)
    join_alone(make)
    model = make(**config.Model.Params).eval()
    if not hasattr(model, "compress"):
        raise UserError(f"{config.Model.Key} has no method compress, so it cannot write files")
    weights = content["trainer"]["_model"] if "trainer" in content else content["model"]
    own = {name.removeprefix(_INSIDE): value for name, value in weights.items()}
    weights = {name: own[name] for name in own if not name.startswith("module.")}
    check_weights(model, weights)
    model.load_state_dict(weights)
    return model, config


def _files() -> Any:
    """Return McQuic's module that writes and reads ``.mcq`` files."""
    try:
        return importlib.import_module("mcquic.utils.specification")
    except ImportError as error:
        raise UserError(f"McQuic's files need the package {error.name}: pip install {error.name}") from error


@torch.inference_mode()
def compress(model: Any, path: Path, *, crop: bool) -> Any:
    """Return the compressed file of a picture."""
    image = decode(path.read_bytes(), str(path)).float() / 255
    image = AlignedCrop()(image) if crop else image
    _, binaries, headers = model.compress((image[None] - 0.5) * 2)
    return _files().File(headers[0], binaries[0])


@torch.inference_mode()
def restore(model: Any, file: Any) -> Tensor:
    """Return the bytes of the picture in a compressed file (3×H×W)."""
    restored: Tensor = DeTransform()(model.decompress([file.Content], [file.FileHeader])[0])
    return restored


def run(source: Path, target: Path | None, *, qp: int, local: Path | None, mse: bool, crop: bool) -> list[str]:
    """Compress or restore ``source`` by its ending, and return what to say."""
    kind = source.suffix.lower()
    if kind in PICTURES:
        path = model_file(qp, local, mse=mse)
        model, _ = load_model(path)
        model.QuantizationParameter = str(local) if local is not None else path.name.rpartition("_")[0]
        file, before = compress(model, source, crop=crop), source.stat().st_size
        saved = _written(target, source, ".mcq", file.serialize())
        share = (before - file.size(False)) / before * 100
        return [str(file), f"{before} B => {file.size(False)} B. Compression ratio: {share:.2f}%", *saved]
    if kind != ".mcq":
        raise UserError(f"{printable(str(source))} is neither a picture ({', '.join(PICTURES)}) nor a .mcq file")
    try:
        file = _files().File.deserialize(source.read_bytes())
    except Exception as error:
        raise UserError(f"{printable(str(source))} is no file of McQuic: {error}") from error
    model, _ = load_model(_model_of(file, qp, local, mse=mse))
    return [str(file), *_written(target, source, ".png", _png(restore(model, file)))]


def _model_of(file: Any, qp: int, local: Path | None, *, mse: bool) -> Path:
    """Return the model that a file was written with, by its header; else the one that is asked for."""
    name = str(file.FileHeader.QuantizationParameter)
    if local is None and os.path.isfile(name):
        return Path(name)
    if local is None and name in MODELS:
        return model_file(int(name.split("_")[1]), None, mse=name.endswith("_mse"))
    return model_file(qp, local, mse=mse)


def _written(target: Path | None, source: Path, ending: str, content: bytes) -> list[str]:
    if target is None:
        return []
    path = target / f"{source.stem}{ending}" if target.is_dir() else target
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {printable(str(path.parent))}")
    write_atomically(path, lambda file: file.write(content))
    return [f"Saved at {path}"]


def _png(picture: Tensor) -> bytes:
    import io

    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture.permute(1, 2, 0).numpy())).save(held, "PNG")
    return held.getvalue()


def write_picture(picture: Tensor, path: Path) -> None:
    """Write the bytes of a picture (3×H×W) as PNG."""
    write_atomically(path, lambda file: file.write(_png(picture)))
