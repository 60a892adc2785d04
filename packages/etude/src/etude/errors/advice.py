"""Advice for errors of packages and data workers: what to install, which release fits, whose line raised."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import FrameType

from etude.errors import DataError, EtudeError, UserCodeError, printable
from etude.errors.own_code import is_library as is_library
from etude.errors.own_code import own_folders

_LOST = r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)"
_IN_WORKER = r"in DataLoader worker process (\d+)"
_FRAME = r'File "([^"]+)", line (\d+)'
#: What numpy and Pillow say of code for older releases → the releases that take it.
_OLD_RELEASES = {
    r"Python integer -?\d+ out of bounds for u?int\d+": "numpy<2",
    r"was removed in the NumPy 2\.0 release|compiled using NumPy 1\.|numpy\.dtype size changed": "numpy<2",
    r"only 0-dimensional arrays can be converted to Python scalars": "numpy<2.4",
    r"module 'numpy' has no attribute '(in1d|trapz)'": "numpy<2.4",
    r"module 'numpy' has no attribute": "numpy<1.24",
    r"bits must be between or equal to 1 and 8": "pillow<13",  # posterize(image, 0) of augmentations
}
#: What projects, and torch, say where a model has to be on a GPU and there is none.
_NO_GPU = r'Unavailable device "cpu"|Only available for cuda|not compiled with CUDA|[Nn]o (CUDA GPUs|NVIDIA)'
#: Modules → the package that brings them, where it has another name.
_DISTRIBUTIONS = {
    "attr": "attrs",
    "cv2": "opencv-python-headless",
    "modelindex": "model-index",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def frames_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Return the frames that an exception came through, outermost first, and the line in each."""
    from traceback import walk_tb

    return walk_tb(error.__traceback__)


def lost_worker(error: BaseException) -> DataError | None:
    """Return a data error if a worker process of torch's loader died, wherever its exception surfaces."""
    if not isinstance(error, RuntimeError) or not re.search(_LOST, str(error)):
        return None
    return DataError(f"{printable(str(error)).strip()} Out of memory, or of /dev/shm? Fewer workers need less of both")


def raised_in_worker(error: BaseException) -> UserCodeError | None:
    """Return what a data set raised in a process of torch's loader; None if Étude's own code did.

    torch raises it again with the traceback as its text, so that no frame of the data set is left.
    """
    worker = re.search(_IN_WORKER, str(error))
    frames = re.findall(_FRAME, str(error)) if worker else []
    theirs = [frame for frame in frames if not is_library(frame[0])] or frames[-1:]
    if worker is None or not theirs or theirs[-1][0].startswith(own_folders()):
        return None
    last = printable(str(error).strip().splitlines()[-1])
    file, line = theirs[-1]
    return UserCodeError(f"{file}:{line}: {last} (in data worker {worker[1]}){release_hint(last)}")


def said_in_worker(error: BaseException) -> str:
    """Return what was raised in a process of torch's loader, without the traceback that is its text; or empty."""
    worker = re.search(_IN_WORKER, str(error))
    last = str(error).strip().splitlines()[-1].removeprefix(f"{type(error).__name__}: ") if worker else ""
    return f"{printable(last)} (in data worker {worker[1]})" if worker else ""


def release_hint(message: str) -> str:
    """Return advice for packages that need GPUs, or another release of numpy, Pillow or torchvision; often empty."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1 and re.search(_NO_GPU, message):
        return "; this code trains in several processes on GPUs alone: on CPUs train in one (no --nproc, no --launcher)"
    if "operator torchvision::" in message:  # its compiled part does not fit torch, which its import shows first
        return "; this torchvision was built for another torch: install the one of your torch, from the same index"
    for said, releases in _OLD_RELEASES.items():
        if re.search(said, message):
            package = releases.partition("<")[0]
            return (
                f"; this code is for an older {package}: pip install '{releases}', or a newer release of that package"
            )
    return ""


def missing_hint(error: BaseException) -> str:
    """Return what to install for an import of a package that is not there; empty for a module of one that is."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if not name or "." in name or isinstance(error, EtudeError):
        return ""
    return install_hint(name)


def install_hint(module: str) -> str:
    """Return the command that installs the package of a module."""
    return f"pip install {_DISTRIBUTIONS.get(module, module)}"
