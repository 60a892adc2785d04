"""Pictures from a folder in place of a project's data set, each through the project's own test pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from etude.data.datasets.images import SUFFIXES
from etude.errors import UserError, printable

_SPLIT = "predict a split of the config's data"


def files_at(path: Path) -> list[str]:
    """Return the picture at ``path``, or all pictures in a folder, in the order of their names."""
    found = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES)
    if not found:
        raise UserError(f"{printable(str(path))} holds no picture ({', '.join(sorted(SUFFIXES))})")
    return [str(one) for one in found]


class FromFiles:
    """Samples that ``pipeline`` makes of what ``begin`` says about each file; anything else is asked of ``dataset``."""

    def __init__(
        self, dataset: Any, files: Sequence[str], pipeline: Callable[[Any], Any], begin: Callable[[str, int], Any]
    ) -> None:
        self.dataset, self.files, self._pipeline, self._begin = dataset, files, pipeline, begin

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        try:
            return self._pipeline(self._begin(self.files[index], index))
        except KeyError as error:
            raise UserError(
                f"the test pipeline of the config asks for {error}, which a picture alone does not tell; {_SPLIT}"
            ) from error

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # while a worker process makes its copy
            raise AttributeError(name)
        return getattr(self.dataset, name)


def with_pipeline(dataset: Any) -> Any:
    """Return the innermost data set, which has a pipeline that reads files."""
    while not hasattr(dataset, "pipeline") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    if not hasattr(dataset, "pipeline"):
        raise UserError(f"{type(dataset).__name__} has no pipeline to read pictures with; {_SPLIT}")
    steps = [type(step).__name__ for step in getattr(dataset.pipeline, "transforms", ())]
    if steps and not any("Load" in step for step in steps):
        raise UserError(
            f"the test pipeline ({', '.join(steps)}) reads no files: {type(dataset).__name__} has its pictures in "
            f"memory, and only it knows the order of their colours; {_SPLIT}"
        )
    return dataset
