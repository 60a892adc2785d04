"""Predicts with a loaded model: the data of a split, or files of the same kind."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.building.components import build_component
from etude.building.data import make_dataset
from etude.building.options import Options
from etude.config.files import read_json
from etude.config.run_files import LEARNT
from etude.core.forward import Forward
from etude.core.predict import inputs_of, predict
from etude.data.datasets.images import SUFFIXES, Pictures
from etude.data.loader import Loader, is_stream
from etude.errors import ConfigError, DataError, UserCodeError, UserError, optional, printable
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.inference.load import checkpoint_of, guest_of, load, plan_of
from etude.inference.samples import FORMATS as OF_GUESTS
from etude.inference.samples import Samples
from etude.inspection.paths import find_path
from etude.losses.outputs import SCORE_KEYS
from etude.plan import Plan, Spec
from etude.registry import DATASETS
from etude.units import either

#: Datasets whose columns or classes are those of the training data.
_SHARING = ("Csv", "Jsonl", "Parquet", "ImageFolder")


FORMATS = (".csv", ".npz", ".jsonl", ".parquet")
#: What a file of predictions may hold beside them, of each sample.
BESIDE = ("targets", "inputs")


#: Names of arguments that say what a dataset reads.
PATH_WORDS = (
    "file", "files", "folder", "root", "path", "paths", "directory", "dir", "image_dir", "data_dir", "filename",
)  # fmt: skip


@record
class Predictions:
    """What a model answers to every sample: ``names`` (or numbers) of the samples and ``outputs`` by name."""

    names: Sequence[str | int]
    #: A tensor with a row for each sample, or a list of what each one has.
    outputs: Mapping[str, Any]
    #: Class names, where the data has them; ``labels`` are guesses of a classifier, else None.
    classes: Sequence[str] = ()
    labels: Tensor | None = None

    def write(self, path: str | Path) -> None:
        """Write ``.csv``, ``.jsonl``, ``.npz`` or ``.parquet``; the file appears whole or not at all."""
        target = Path(path)
        if target.suffix not in FORMATS:
            raise UserError(f"{target}: predictions are written as {either(FORMATS)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part{target.suffix}")
        ragged = [name for name, value in self.outputs.items() if not isinstance(value, Tensor)]
        if ragged and target.suffix != ".jsonl":
            raise UserError(f"{target}: {ragged[0]} has another size for each sample; write a .jsonl file")
        ways = {".csv": self._csv, ".jsonl": self._jsonl, ".npz": self._npz, ".parquet": self._parquet}
        ways[target.suffix](part)
        os.replace(part, target)

    def _label(self, index: int) -> Any:
        assert self.labels is not None
        number = int(self.labels[index])
        return self.classes[number] if self.classes else number

    def _csv(self, path: Path) -> None:
        columns = self._columns()
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            for row in zip(*columns.values(), strict=True):
                writer.writerow([f"{value:.7g}" if isinstance(value, float) else value for value in row])

    def _columns(self) -> dict[str, list[Any]]:
        """Return a table: a column for each number that the samples have."""
        columns: dict[str, list[Any]] = {"sample": list(self.names)}
        if self.labels is not None:
            columns["label"] = [self._label(index) for index in range(len(self.labels))]
        for name, value in self.outputs.items():
            flat = (value.double() if value.is_floating_point() else value).reshape(len(value), -1)
            for place in range(flat.shape[1]):
                columns[name if flat.shape[1] == 1 else f"{name}_{place}"] = flat[:, place].tolist()
        return columns

    def _parquet(self, path: Path) -> None:
        pyarrow = optional("pyarrow", "table", "writing Parquet")
        table = pyarrow.table(self._columns())
        importlib.import_module("pyarrow.parquet").write_table(table, str(path))

    def _jsonl(self, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            for index, name in enumerate(self.names):
                row: dict[str, Any] = {"sample": name}
                if self.labels is not None:
                    row["label"] = self._label(index)
                row |= {key: _plain(value[index]) for key, value in self.outputs.items()}
                file.write(json.dumps(row) + "\n")

    def _npz(self, path: Path) -> None:
        arrays: dict[str, Any] = {name: value.numpy() for name, value in self.outputs.items()}
        if self.labels is not None:
            arrays["label"] = self.labels.numpy()
        np.savez(path, **{"sample": np.array(self.names), **arrays})


def formats_of(run: str | Path) -> Sequence[str]:
    """Return the endings of files that predictions of a run are written as."""
    return FORMATS if guest_of(plan_of(run)) is None else OF_GUESTS


def predict_run(
    run: str | Path,
    data: str | Path | None = None,
    *,
    split: str = "",
    best: bool | str = False,
    ema: bool | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    beside: Sequence[str] = (),
) -> Predictions | Samples:
    """Return what the model of a run answers to a split of its data, a folder of images, or a file like its data.

    ``beside`` adds the ``targets`` and ``inputs`` of the samples, as far as the data has them.
    """
    for word in beside:
        if word not in BESIDE:
            raise UserError(f"predictions hold {either(BESIDE)} beside them, not {word!r}; {suggest(word, BESIDE)}")
    plan = plan_of(run)
    if str(data) in plan.data and not Path(str(data)).exists():  # `etude predict RUN val`
        data, split = None, str(data)
    spoken = guest_of(plan)
    if spoken is not None:
        if batch_size is not None or ema is not None or beside:
            text = f"batch size, weights and what is written are those of the {spoken.title} config"
            raise UserError(f"{text}; leave the flags out")
        if data is not None and not Path(data).exists():
            raise UserError(f"{printable(str(data))}: no such file or folder")
        checkpoint, path = checkpoint_of(run, best=best), Path(data) if data is not None else None
        with redirect_stdout(sys.stderr):  # progress bars of the system
            return Samples(*spoken.predict(plan, Options(quiet=True), checkpoint, split_of(plan, split), path))
    model = load(run, best=best, ema=ema, device=device)
    dataset, names = _dataset(plan, split, data, run)
    usual = next(iter(plan.data.values())).batch_size
    where = next(model.parameters(), torch.zeros(())).device
    loader = Loader(dataset, batch_size=batch_size or usual, device=None if where.type == "cpu" else where)
    forward = Forward(model, {"loss": no_loss} if plan.losses else {})
    answers = predict(forward, loader, device=where)
    outputs = dict(answers) if isinstance(answers, Mapping) else {"output": answers}
    outputs |= _beside(forward, loader, beside, printable(str(run)))
    count = len(next(iter(outputs.values())))
    scores = next((outputs[key] for key in SCORE_KEYS if isinstance(outputs.get(key), Tensor)), None)
    labels = scores.argmax(1) if scores is not None and scores.ndim == 2 and _classifies(plan) else None
    named = getattr(dataset, "classes", None)
    classes = [str(name) for name in named] if isinstance(named, list | tuple) else []
    return Predictions(names or range(count), outputs, classes, labels)


def _beside(forward: Forward, loader: Loader, wanted: Sequence[str], run: str) -> dict[str, Any]:
    """Return the targets and inputs of all samples, in order."""
    found: dict[str, list[Any]] = {}
    for batch in loader if wanted else ():
        inputs, target = inputs_of(forward, batch), forward.target(batch)
        if "targets" in wanted:
            if target is None:
                raise UserError(f"{run}: the data has no targets to write beside the predictions")
            found.setdefault("target", []).append(target)
        if "inputs" in wanted:
            parts = inputs if isinstance(inputs, Mapping) else {"": inputs}
            parts = dict(enumerate(inputs)) if isinstance(inputs, list | tuple) and len(inputs) > 1 else parts
            for key, value in parts.items():
                one = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
                found.setdefault(f"input_{key}".rstrip("_"), []).append(one)
    return {name: _together(values) for name, values in found.items()}


def _together(values: list[Any]) -> Any:
    """Return the tensors of batches as one, or lists of batches as one list."""
    if all(isinstance(value, Tensor) for value in values) and len({value.shape[1:] for value in values}) == 1:
        return torch.cat([value.cpu() for value in values])
    return [item for value in values for item in value]


def _plain(value: Any) -> Any:
    """Return one number as a number, more as lists, and what is inside of mappings and lists."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, Mapping):
        return {str(key): item.tolist() if isinstance(item, Tensor) else _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def no_loss(output: Any, target: Any) -> Tensor:
    return torch.zeros(())


def _classifies(plan: Plan) -> bool:
    named = {spec.name for spec in (*plan.losses, *plan.metrics)}
    return bool(named & {"CrossEntropyLoss", "NLLLoss", "MultiMarginLoss", "Accuracy", "F1", "Confusion"})


def split_of(plan: Plan, split: str) -> str:
    chosen = split or next(name for name in ("test", "val", "train") if name in plan.data)
    if chosen not in plan.data:
        raise ConfigError(f"the config has no {chosen} data", at=plan.files[0], hint=suggest(chosen, plan.data))
    return chosen


def _dataset(plan: Plan, split: str, data: str | Path | None, run: str | Path) -> tuple[Any, list[str]]:
    """Return the data to predict, and the names of its samples if it has any."""
    chosen = split_of(plan, split)
    spec = plan.data[chosen].dataset
    if chosen == "train" and not split and spec.args.get("transform") is not None:
        warnings.warn(
            f"the config has neither val nor test data: inputs are transformed as in training ({spec.at}), which may "
            "be random. Give the config `data.val` with the transform to predict with",
            stacklevel=3,
        )
    train = _training_data(plan, spec, run)
    if data is None:
        dataset = make_dataset(plan, spec, train)
        return dataset, [] if is_stream(dataset) else _names(dataset)
    path = Path(data)
    if not path.exists():
        raise UserError(f"{printable(str(path))}: no such file or folder")
    if _reads_pictures(spec) and _holds_pictures(path):
        return (pictures := _pictures(path, spec, train)), _names(pictures)
    dataset = _like(plan, spec, path, train)
    return dataset, [] if is_stream(dataset) else _names(dataset)


def _training_data(plan: Plan, spec: Spec, run: str | Path) -> Any:
    """Return what the data shares with the training data, if columns or classes of the model come from it; else
    None."""
    first = plan.data.get("train")
    if first is None or first.dataset.name not in _SHARING or spec.name != first.dataset.name:
        return None
    learnt = read_json(Path(run) / LEARNT)
    if learnt:
        return SimpleNamespace(shared=learnt, classes=learnt.get("classes", []))
    try:
        return make_dataset(plan, first.dataset)
    except (ConfigError, DataError):  # it may be gone by now
        return None


def _reads_pictures(spec: Spec) -> bool:
    """Return whether a dataset reads pictures as :class:`Pictures` does. One of your own may treat them otherwise."""
    return DATASETS.origin(spec.name) == "etude.data.datasets.images:ImageFolder"


def _holds_pictures(path: Path) -> bool:
    if path.is_dir():
        return any(one.suffix.lower() in SUFFIXES for one in path.rglob("*"))
    return path.suffix.lower() in SUFFIXES


def _pictures(path: Path, spec: Spec, train: Any) -> Pictures:
    """Return the pictures at ``path``, read as the config's own ImageFolder reads them."""
    args = {key: build_component(value) if isinstance(value, Spec) else value for key, value in spec.args.items()}
    pictures = Pictures(str(path), **{key: args[key] for key in ("size", "mode", "transform") if key in args})
    pictures.classes = getattr(train, "classes", [])
    return pictures


def _like(plan: Plan, spec: Spec, path: Path, train: Any) -> Any:
    """Return the config's own dataset with another file. A table to predict need not have the target's column."""
    key = _path_argument(plan, spec, path)
    changes: dict[str, Any] = {key: [str(path)] if isinstance(spec.args.get(key), list | tuple) else str(path)}
    if spec.name in ("Csv", "Jsonl", "Parquet"):
        changes["predicts"] = True
    made = dataclasses.replace(spec, args={**spec.args, **changes})
    try:
        return make_dataset(plan, made, train)
    except UserCodeError as error:
        raise UserCodeError(f"{printable(str(path))}: {spec.name}({key}=…) cannot read it: {error}") from error


def _path_argument(plan: Plan, spec: Spec, path: Path) -> str:
    """Return the argument of a dataset that says what it reads: the only one with a path as its value, or, as a
    default is not in the config, the only one that is called like one."""
    refused = f"{printable(str(path))}: the config's dataset {spec.name}"
    hint = "leave DATA out and choose a --split"
    if any(isinstance(value, Spec) and value.kind == "dataset" for value in spec.args.values()):
        raise UserError(f"{refused} wraps another one, so nobody can tell what it would do with this file; {hint}")
    given = [key for key, value in spec.args.items() if _is_path(plan, key, value)]
    known = [key for key in PATH_WORDS if key in _parameters(spec)]
    found = given or known
    if not found:
        raise UserError(f"{refused} reads no file, so it cannot read this one; {hint}")
    if len(found) > 1:
        raise UserError(f"{refused} reads several files ({', '.join(found)}), and this is one; {hint}")
    return found[0]


def _is_path(plan: Plan, key: str, value: Any) -> bool:
    """Return whether an argument names files: by its name, or because its value is the path of something."""
    texts = value if isinstance(value, list | tuple) and value else [value]
    if not all(isinstance(text, str) for text in texts):
        return False
    return key in PATH_WORDS or any(os.path.exists(find_path(text, plan.files)) for text in texts if text)


def _parameters(spec: Spec) -> Sequence[str]:
    try:
        return list(inspect.signature(DATASETS.get(spec.name, at=str(spec.at))).parameters)
    except (TypeError, ValueError):
        return ()


def _names(dataset: Any) -> list[str]:
    samples = getattr(dataset, "samples", None)
    if isinstance(samples, list) and samples and isinstance(samples[0], tuple):
        return [str(path) for path, *_ in samples]
    return [str(path) for path in getattr(dataset, "paths", ())]
