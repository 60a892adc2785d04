"""Finds the files and folders that datasets of a config name, and reads the headers of its CSV files."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etude.errors import Finding
from etude.errors.spelling import nearest, suggest
from etude.fast_dataclass import replace
from etude.plan import Plan, Spec
from etude.registry import DATASETS

#: Arguments of Étude's own datasets that are paths.
_PATHS = ("file", "files", "folder")


def located(spec: Spec, files: Sequence[str]) -> Spec:
    """Return ``spec`` of a dataset with paths relative to the config's folder, where something is there."""
    args = {key: _inside(value, files) for key, value in spec.args.items()}
    for key in _own_paths(spec):
        given = args[key]
        args[key] = find_path(given, files) if isinstance(given, str) else [find_path(one, files) for one in given]
    return replace(spec, args=args)


def find_path(path: str, files: Sequence[str]) -> str:
    """Return ``path`` in the folder of the first of ``files`` if something is there, else as it is."""
    if not files or "://" in path or os.path.isabs(os.path.expanduser(path)):
        return path
    near = os.path.join(os.path.dirname(files[0]), path)
    return near if _exists(near) else path


def missing_data(plan: Plan) -> Iterator[Finding]:
    """Warn about data that is not there: it may be where the run will be."""
    for loader in plan.data.values():
        for spec in _datasets(loader.dataset):
            for key in _own_paths(spec):
                values = spec.args[key] if isinstance(spec.args[key], list | tuple) else [spec.args[key]]
                for path in values:
                    if "://" not in path and not _exists(find_path(path, plan.files)):
                        text = f"{spec.name}: there is no {'folder' if key == 'folder' else 'file'} {path}"
                        yield Finding(str(spec.place(key)), text, near_path(path, plan.files), "warning")


def wrong_columns(plan: Plan) -> Iterator[Finding]:
    """Read the first lines of CSV files: a column that a config names, or that training has, must exist."""
    first: tuple[Spec, list[str]] | None = None
    for split in sorted(plan.data, key=lambda split: split != "train"):
        for spec in _datasets(plan.data[split].dataset):
            header = _header(spec, plan.files) if spec.name == "Csv" and _own_paths(spec) else []
            if not header:
                continue
            target, columns = spec.args.get("target", "label"), spec.args.get("columns")
            named = [("target", target), *(("columns", name) for name in columns or ())]
            for key, name in named:
                if isinstance(name, str) and name not in header:
                    text = f"Csv: {spec.args['file']} has no column {name!r}"
                    yield Finding(str(spec.place(key)), text, suggest(name, header))
            if first is None:
                first = (spec, header)
            elif columns is None and "columns" not in first[0].args:
                missing = [name for name in first[1] if name not in (*header, target)]
                if missing:
                    text = f"Csv: {spec.args['file']} has no column {missing[0]!r}, which the training data has"
                    yield Finding(str(spec.place("file")), text, suggest(missing[0], header))


def _header(spec: Spec, files: Sequence[str]) -> list[str]:
    """Return the column names of a CSV file; empty if it cannot be read."""
    path = os.path.expanduser(find_path(str(spec.args["file"]), files))
    try:
        with open(path, newline="", encoding="utf-8") as stream:
            line = next(csv.reader(stream, delimiter=str(spec.args.get("delimiter", ","))), [])
    except (OSError, UnicodeDecodeError, csv.Error, TypeError):
        return []
    return [name.strip() for name in line]


def _datasets(spec: Spec) -> Iterator[Spec]:
    """Yield the dataset and those inside it."""
    yield spec
    for value in spec.args.values():
        if isinstance(value, Spec):
            yield from _datasets(value)


def _own_paths(spec: Spec) -> list[str]:
    own = spec.kind == "dataset" and DATASETS.origin(spec.name).startswith("etude.data.")
    return [key for key in _PATHS if own and _is_path(spec.args.get(key))]


def _is_path(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(one, str) for one in value))


def _inside(value: Any, files: Sequence[str]) -> Any:
    if isinstance(value, Spec):
        return located(value, files)
    if isinstance(value, Mapping):
        return {key: _inside(item, files) for key, item in value.items()}
    return value


def _exists(path: str) -> bool:
    import glob

    path = os.path.expanduser(path)
    return os.path.exists(path) or (glob.has_magic(path) and bool(glob.glob(path)))


def near_path(path: str, files: Sequence[str] = ()) -> str:
    """Return ``did you mean 'flats.csv'?`` for a misspelt path, relative to the first of ``files`` or to the current
    folder; empty if nothing there has a similar name."""
    for root in (os.path.dirname(files[0]) if files else "", ""):
        folder, name = os.path.split(os.path.join(root, path.rstrip("/")))
        asked, ending = os.path.splitext(name)
        there = sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else []
        # The ending makes short names alike; of two files with one name, the one with the same ending is meant.
        stems = {os.path.splitext(one)[0]: one for one in sorted(there, key=lambda one: one.endswith(ending))}
        near = nearest(asked, list(stems))
        if near:
            return f"did you mean {os.path.join(os.path.dirname(path), stems[near])!r}?"
    return ""
