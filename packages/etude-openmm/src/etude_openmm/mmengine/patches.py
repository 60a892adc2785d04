"""Changes modules of the installed mmengine after they have run, where Étude promises more.

Files are written whole or not at all, and reading one executes nothing. No torch.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from types import ModuleType
from typing import Any

import yaml

from etude.checkpoint.formats import data_pickle

#: Data classes that a pickle may contain: by their names in the originals' files and in Étude's → the module.
_CLASSES = {
    (f"mmengine.structures.{module}", name): f"mmengine.structures.{module}"
    for module, name in (
        ("base_data_element", "BaseDataElement"), ("instance_data", "InstanceData"), ("pixel_data", "PixelData"),
        ("label_data", "LabelData"),
    )
}  # fmt: skip
for _theirs, _name, _file in (
    ("mmengine.config.config", "Config", "config_v2"), ("mmengine.config.config", "ConfigDict", "dict_v2"),
    ("mmcv.utils.config", "Config", "config_v1"), ("mmcv.utils.config", "ConfigDict", "config_v1"),
):  # fmt: skip
    _ours = f"etude_openmm.shared.config.{_file}"
    _CLASSES[_theirs, _name] = _CLASSES[_ours, _name] = _ours
#: The LMDBs that are open: a process and its forks can open each only once.
_databases: dict[str, Any] = {}


def name_the_transform(module: ModuleType) -> None:
    """Let the error of a dataset without a single sample name the transform that returned None."""
    from etude_openmm.mmengine.live import user_errors

    original = module.BaseDataset.__getitem__

    @functools.wraps(original)
    def getitem(self: Any, idx: int) -> Any:
        try:
            return original(self, idx)
        except Exception as error:
            if type(error) is Exception:  # what mmengine raises, and hardly any other code
                user_errors.of_pipeline(error, self, idx)
            raise

    module.BaseDataset.__getitem__ = getitem


def revert_all_batch_norms(module: ModuleType) -> None:
    """Let synchronised batch norms of mmcv be reverted, too, without its compiled part."""
    from etude_openmm.mmengine.live.model import sync_bn

    vars(module).update(revert_sync_batchnorm=sync_bn.revert_sync_batchnorm, _BatchNormXd=sync_bn._BatchNormXd)


def report_missing_weights(module: ModuleType) -> None:
    """Let a ``Pretrained`` rule whose checkpoint is missing say so, and what was probably meant."""
    from etude_openmm.shared.reading.source import require_weights

    original = module.PretrainedInit.__call__

    @functools.wraps(original)
    def call(self: Any, model: Any) -> None:
        require_weights(self.checkpoint)
        original(self, model)

    module.PretrainedInit.__call__ = call


class _StandardOutput:
    """Writes to the standard output of the moment: ``etude test`` keeps the first one for its results."""

    def write(self, text: str) -> int:
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


def follow_standard_output(module: ModuleType) -> None:
    """Let progress bars go to the standard output of the moment, not to that of their import."""
    out = _StandardOutput()
    functions = (module.track_progress, module.track_iter_progress, module.track_parallel_progress)
    for function in (module.ProgressBar.__init__, *functions):
        function.__defaults__ = tuple(out if hasattr(one, "write") else one for one in function.__defaults__)


def write_whole_files(module: ModuleType) -> None:
    """Let the local backend write a file completely or not at all."""

    def put(self: Any, obj: Any, filepath: Any) -> None:
        _replace(filepath, obj if isinstance(obj, bytes) else obj.getvalue())

    def put_text(self: Any, obj: str, filepath: Any, encoding: str = "utf-8") -> None:
        _replace(filepath, obj.encode(encoding))

    module.LocalBackend.put, module.LocalBackend.put_text = put, put_text


def open_databases_once(module: ModuleType) -> None:
    """Let several backends read one LMDB, go to worker processes, and report a name that is not there."""
    kind = module.LmdbBackend
    open_one, read = kind._get_client, kind.get

    def get_client(self: Any) -> Any:
        key = os.path.realpath(self.db_path)
        if key not in _databases:
            _databases[key] = open_one(self)
        return _databases[key]

    def get(self: Any, filepath: Any) -> bytes:
        found: bytes | None = read(self, filepath)
        if found is None:
            raise FileNotFoundError(f"{self.db_path} has no {str(filepath)!r}")
        return found

    kind._get_client, kind.get = get_client, get
    kind.get_text = lambda self, filepath, encoding="utf-8": self.get(filepath).decode(encoding)
    kind.__getstate__ = lambda self: {**vars(self), "_client": None}  # each worker process opens it itself
    del kind.__del__  # which would close it for the others


def read_pickles_as_data(module: ModuleType) -> None:
    """Let pickles be read without running code, see :mod:`etude.checkpoint.formats.data_pickle`."""

    def load_from_fileobj(self: Any, file: Any, **kwargs: Any) -> Any:
        return data_pickle.load(file, _CLASSES, **kwargs)

    module.PickleHandler.load_from_fileobj = load_from_fileobj


def read_yaml_as_data(module: ModuleType) -> None:
    """Let YAML be read without making objects."""
    setattr(module, "Loader", getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: B010


def name_the_file(module: ModuleType) -> None:
    """Let ``load`` name the file that was refused."""
    original = module.load

    @functools.wraps(original)
    def load(file: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(file, *args, **kwargs)
        except data_pickle.RefusedPickle as error:
            name = os.fspath(file) if isinstance(file, str | os.PathLike) else getattr(file, "name", "")
            raise data_pickle.RefusedPickle(f"{name}: {error}" if name else str(error)) from None

    setattr(module, "load", load)  # noqa: B010


def _replace(filepath: Any, data: bytes) -> None:
    path = os.path.abspath(os.fspath(filepath))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes files that only their owner can read.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
