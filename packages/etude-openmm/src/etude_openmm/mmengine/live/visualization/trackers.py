"""MMEngine's backends for experiment trackers (TensorBoard, W&B, MLflow …), over :mod:`etude.events.trackers`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.config.dump import redact
from etude.events.trackers.clearml import ClearMLTask
from etude.events.trackers.local import AimRun, DvcLiveRun
from etude.events.trackers.mlflow import MlflowRun
from etude.events.trackers.outbox import Outbox
from etude.events.trackers.service import Service
from etude.events.trackers.tensorboard import EventFiles
from etude.events.trackers.wandb import WandbRun
from etude_openmm.mmengine.live.visualization.backend import BaseVisBackend, force_init_env, needed, number
from etude_openmm.shared.config.config_base import pretty_public
from etude_openmm.shared.live.neptune import NeptuneRun
from etude_openmm.shared.registries.root import VISBACKENDS

_NUMBERS = (int, float, torch.Tensor, np.ndarray, np.number)


class TrackerVisBackend(BaseVisBackend):
    """The base of backends that write to a tracker. A separate thread writes, so a slow or lost tracker stops no run.

    The tracker is opened with the first call. Values of config keys that look like secrets are left out.
    """

    _kind: type[Service]
    _service: Any
    #: The attribute of the service that ``experiment`` returns; empty for the package of the tracker.
    _handle: str = ""
    #: Endings of the files below the run's folder that are sent at the end.
    _artifact_suffix: str | tuple[str, ...] = ()

    def __init__(self, save_dir: str | None = None, init_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(save_dir)  # type: ignore[arg-type]
        self._init_kwargs = init_kwargs

    def _open(self, *args: Any, **settings: Any) -> Any:
        self._kind.require(type(self).__name__)
        self._service = self._kind()
        self._outbox = Outbox(type(self).__name__, after=lambda: self._service.flush())
        return self._outbox.begin(self._kind.package, self._service.begin, *args, **settings)

    @property
    @force_init_env
    def experiment(self) -> Any:
        self._outbox.flush()  # wait until the service is open
        return getattr(self._service, self._handle) if self._handle else needed(self._kind.package, type(self).__name__)

    @force_init_env
    def _put(self, method: str, *args: Any, **options: Any) -> None:
        """Let the thread call a method of the service."""
        self._outbox.put(getattr(self._service, method), *args, **options)

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        self.cfg = config
        self._outbox.put(self._send_config, redact(config.to_dict()))

    def _send_config(self, config: dict[str, Any]) -> None:
        raise NotImplementedError

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        self._put("image", name, image.copy(), step)

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._put("scalars", {name: number(value)}, step)

    def add_scalars(
        self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        assert isinstance(scalar_dict, dict)
        assert "step" not in scalar_dict, "Please set it directly through the step parameter"
        for name, value in scalar_dict.items():
            self.add_scalar(name, value, step)

    def close(self) -> None:
        if "_outbox" not in vars(self):  # nothing was written
            return
        folder = getattr(self, "cfg", {}).get("work_dir") or self._save_dir
        endings = self._artifact_suffix if isinstance(self._artifact_suffix, str) else tuple(self._artifact_suffix)
        for path in sorted(Path(folder).rglob("*")) if folder and endings else ():
            if path.name.endswith(endings) and path.is_file():
                self._outbox.send(self._send_file, path, Path(folder))
        self._outbox.close(self._service.finish)

    def _send_file(self, path: Path, folder: Path) -> None:
        self._service.artifact(path.name, path)


@VISBACKENDS.register_module()
class TensorboardVisBackend(TrackerVisBackend):
    """Writes TensorBoard event files to ``save_dir``."""

    _kind = EventFiles
    _handle = "writer"

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir)

    def _init_env(self) -> None:
        self._open(self._save_dir)
        self._outbox.flush()

    def add_config(self, config: Any, **kwargs: Any) -> None:
        self._put("text", "config", pretty_public(config), None)

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        if isinstance(value, _NUMBERS):
            super().add_scalar(name, value, step)
        else:
            warnings.warn(
                f"Got {type(value)}, but numpy array, torch tensor, int or float are expected. skip it!", stacklevel=2
            )


@VISBACKENDS.register_module()
class WandbVisBackend(TrackerVisBackend):
    """Writes to W&B, opened with ``init_kwargs``.

    ``step`` is not passed on: validations count epochs, so their rows would go backwards, and W&B drops such rows.
    """

    _kind = WandbRun

    def __init__(
        self,
        save_dir: str,
        init_kwargs: dict[str, Any] | None = None,
        define_metric_cfg: dict[str, str] | Sequence[dict[str, Any]] | None = None,
        commit: bool | None = True,
        log_code_name: str | None = None,
        watch_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(save_dir, init_kwargs)
        self._define_metric_cfg, self._commit, self._log_code_name = define_metric_cfg, commit, log_code_name
        self._watch_kwargs = watch_kwargs or {}

    def _init_env(self) -> None:
        metrics = self._define_metric_cfg or []
        if isinstance(metrics, dict):
            metrics = [{"name": name, "summary": summary} for name, summary in metrics.items()]
        elif not isinstance(metrics, list | tuple):
            raise ValueError(f"define_metric_cfg should be dict or list, but got {metrics!r}")
        os.makedirs(self._save_dir, exist_ok=True)
        self._open(metrics, **{"dir": self._save_dir, **(self._init_kwargs or {})})

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        self._outbox.send(self._send_config, redact(config.to_dict()))

    def _send_config(self, config: dict[str, Any]) -> None:
        self._service.run.config.update(config, allow_val_change=True)
        self._service.run.log_code(name=self._log_code_name)

    @force_init_env
    def add_graph(self, model: torch.nn.Module, data_batch: Any, **kwargs: Any) -> None:
        # Wait for it: ``watch`` adds hooks to the model, which should not happen during a step.
        self._outbox.ask(lambda: self._service.run.watch(model, **self._watch_kwargs))

    @force_init_env
    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._send_image, name, image.copy())

    def _send_image(self, name: str, image: np.ndarray) -> None:
        self._service.row({name: self._service.module.Image(image)}, commit=self._commit)

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self.add_scalars({name: value})

    def add_scalars(
        self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        self._put("row", {name: number(value) for name, value in scalar_dict.items()}, commit=self._commit)


@VISBACKENDS.register_module()
class MLflowVisBackend(TrackerVisBackend):
    """Writes to MLflow: scalars as metrics, the flattened config as parameters, text files as artifacts at the end."""

    _kind = MlflowRun

    def __init__(
        self,
        save_dir: str,
        exp_name: str | None = None,
        run_name: str | None = None,
        tags: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        tracking_uri: str | None = None,
        artifact_suffix: str | tuple[str, ...] = (".json", ".log", ".py", "yaml"),
        tracked_config_keys: dict[str, Any] | Sequence[str] | None = None,
        artifact_location: str | None = None,
    ) -> None:
        super().__init__(save_dir)
        self._exp_name, self._run_name, self._tags, self._params = exp_name, run_name, tags, params
        self._tracking_uri, self._artifact_suffix = tracking_uri, artifact_suffix
        self._tracked_config_keys, self._artifact_location = tracked_config_keys, artifact_location

    def _init_env(self) -> None:
        os.makedirs(self._save_dir, exist_ok=True)
        mlflow = sys.modules.get("mlflow")
        active = mlflow.active_run() if mlflow is not None else None
        home, given = Path(self._save_dir).absolute(), self._tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        begun = self._open(
            active.info.run_id if active is not None else "",
            # MMEngine's default is a folder, which MLflow no longer writes.
            uri=given or f"sqlite:///{home / 'mlflow.db'}",
            # In a new store, the experiment "Default" would put artifacts into the current folder.
            experiment=self._exp_name or ("Default" if given else "etude"),
            location=self._artifact_location or (home / "mlartifacts").as_uri(),
            name=self._run_name,
        )
        if begun:
            self._service.activate()
        if self._tags is not None:
            self._outbox.put(self._service.tags, self._tags)
        if self._params is not None:
            self._outbox.put(self._service.params, self._params)

    @property
    def experiment(self) -> Any:
        mlflow = super().experiment
        self._service.activate()
        return mlflow

    def add_config(self, config: Any, **kwargs: Any) -> None:
        self.cfg = config
        keys = self._tracked_config_keys
        whole = redact(config.to_dict())
        self._put("params", flattened(whole if keys is None else {key: whole[key] for key in keys}))
        self._put("file", "config.py", pretty_public(config))

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        self._put("picture", name, image.copy())

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        if isinstance(value, _NUMBERS):
            super().add_scalar(name, value, step)

    def close(self) -> None:
        super().close()
        if "_outbox" in vars(self) and self._outbox.is_done:
            self._service.deactivate()

    def _send_file(self, path: Path, folder: Path) -> None:
        inside = path.parent.relative_to(folder).as_posix()
        self._service.artifact("" if inside == os.curdir else inside, path)


@VISBACKENDS.register_module()
class ClearMLVisBackend(TrackerVisBackend):
    """Writes to a ClearML task, and uploads files with ``artifact_suffix`` at the end."""

    _kind = ClearMLTask

    def __init__(
        self,
        save_dir: str | None = None,
        init_kwargs: dict[str, Any] | None = None,
        artifact_suffix: str | tuple[str, ...] = (".py", ".pth"),
    ) -> None:
        super().__init__(save_dir, init_kwargs)
        self._artifact_suffix = artifact_suffix

    def _init_env(self) -> None:
        self._open(**(self._init_kwargs or {}))

    def _send_config(self, config: dict[str, Any]) -> None:
        self._service.task.connect_configuration(config)

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._put("scalar", name, name, number(value), step)


@VISBACKENDS.register_module()
class NeptuneVisBackend(TrackerVisBackend):
    """Writes to a Neptune run, offline unless ``init_kwargs`` say otherwise."""

    _kind = NeptuneRun
    _handle = "run"

    def _init_env(self) -> None:
        self._open(**({"mode": "offline"} if self._init_kwargs is None else self._init_kwargs))

    def add_config(self, config: Any, **kwargs: Any) -> None:
        self._put("content", "config", pretty_public(config))

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        self._put("image", "images", image.copy(), step, title=name)


@VISBACKENDS.register_module()
class DVCLiveVisBackend(TrackerVisBackend):
    """Writes with DVCLive, and logs files with ``artifact_suffix`` as artifacts at the end."""

    _kind = DvcLiveRun
    _handle = "live"

    def __init__(
        self,
        save_dir: str,
        artifact_suffix: str | tuple[str, ...] = (".json", ".py"),
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(save_dir, init_kwargs)
        self._artifact_suffix = artifact_suffix

    def _init_env(self) -> None:
        os.makedirs(self._save_dir, exist_ok=True)
        options = {"dir": self._save_dir, "save_dvc_exp": True, "dvcyaml": None, "cache_images": True}
        self._open(**(self._init_kwargs or options))

    def _send_config(self, config: dict[str, Any]) -> None:
        self._service.params(config)

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        assert image.dtype == np.uint8, f"an image has values of uint8, but got {image.dtype}"
        self._put("picture", f"{name}.png", image.copy())

    def _send_file(self, path: Path, folder: Path) -> None:
        self._service.live.log_artifact(str(path))


@VISBACKENDS.register_module()
class AimVisBackend(TrackerVisBackend):
    """Writes to an Aim run."""

    _kind = AimRun
    _handle = "run"

    def _init_env(self) -> None:
        self._open(**{"repo": self._save_dir, **(self._init_kwargs or {})})

    def _send_config(self, config: dict[str, Any]) -> None:
        self._service.run["hparams"] = config


def flattened(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten ``{"a": {"b": 1}}`` to ``{"a.b": 1}``. Lists that hold mappings are flattened by index."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}{key}"
        if isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{name}.")
        else:
            flat[name] = value
    return flat
