"""ClearML, Neptune, DVCLive and Aim."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from etude.dialects.mmengine.live.registry import VISBACKENDS
from etude.dialects.mmengine.live.visualization.backend import ByName, force_init_env, needed, number


@VISBACKENDS.register_module()
class ClearMLVisBackend(ByName):
    """A ClearML task; files with ``artifact_suffix`` are uploaded at the end."""

    def __init__(
        self,
        save_dir: str | None = None,
        init_kwargs: dict[str, Any] | None = None,
        artifact_suffix: str | tuple[str, ...] = (".py", ".pth"),
    ) -> None:
        super().__init__(save_dir)  # type: ignore[arg-type]
        self._init_kwargs, self._artifact_suffix = init_kwargs, artifact_suffix

    def _init_env(self) -> None:
        self._clearml = needed("clearml", "ClearMLVisBackend")
        options = self._init_kwargs or {}
        self._task = self._clearml.Task.init(**options)
        self._logger = self._task.get_logger()

    @property
    @force_init_env
    def experiment(self) -> Any:
        return self._clearml

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        self.cfg = config
        self._task.connect_configuration(config.to_dict())

    @force_init_env
    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._logger.report_image, name, name, iteration=step, image=image.copy())

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._logger.report_scalar, name, name, value=number(value), iteration=step)

    def close(self) -> None:
        if hasattr(self, "_clearml"):
            self._close(self._task.close, self._artifact_suffix)

    def _send_file(self, path: str, folder: str) -> None:
        self._task.upload_artifact(os.path.basename(path), path)


@VISBACKENDS.register_module()
class NeptuneVisBackend(ByName):
    """A Neptune run; offline unless ``init_kwargs`` say otherwise."""

    def __init__(self, save_dir: str | None = None, init_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(save_dir)  # type: ignore[arg-type]
        self._init_kwargs = init_kwargs

    def _init_env(self) -> None:
        options = {"mode": "offline"} if self._init_kwargs is None else self._init_kwargs
        self._neptune = needed("neptune", "NeptuneVisBackend").init_run(**options)

    @property
    @force_init_env
    def experiment(self) -> Any:
        return self._neptune

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        self._neptune["config"].upload(
            needed("neptune.types", "NeptuneVisBackend").File.from_content(config.pretty_text)
        )

    @force_init_env
    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        file = needed("neptune.types", "NeptuneVisBackend").File.as_image(image.astype(np.float32) / 255)
        self._outbox.put(self._neptune["images"].append, file, name=name, step=step)

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._neptune[name].append, number(value), step=step)

    def close(self) -> None:
        if hasattr(self, "_neptune"):
            self._close(self._neptune.stop)


@VISBACKENDS.register_module()
class DVCLiveVisBackend(ByName):
    """DVCLive's files; those with ``artifact_suffix`` are logged as artifacts at the end."""

    def __init__(
        self,
        save_dir: str,
        artifact_suffix: str | tuple[str, ...] = (".json", ".py"),
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(save_dir)
        self._artifact_suffix, self._init_kwargs = artifact_suffix, init_kwargs

    def _init_env(self) -> None:
        os.makedirs(self._save_dir, exist_ok=True)
        options = {"dir": self._save_dir, "save_dvc_exp": True, "dvcyaml": None, "cache_images": True}
        self._dvclive = needed("dvclive", "DVCLiveVisBackend").Live(**(self._init_kwargs or options))

    @property
    @force_init_env
    def experiment(self) -> Any:
        return self._dvclive

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        self.cfg = config
        self._dvclive.log_params(config.to_dict())

    @force_init_env
    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        assert image.dtype == np.uint8, f"an image has values of uint8, but got {image.dtype}"
        self._outbox.put(self._dvclive.log_image, f"{name}.png", image.copy())

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._send, name, number(value), step)

    def _send(self, name: str, value: Any, step: int) -> None:
        self._dvclive.step = step
        self._dvclive.log_metric(name, value)

    def close(self) -> None:
        if hasattr(self, "_dvclive"):
            self._close(self._dvclive.end, self._artifact_suffix)

    def _send_file(self, path: str, folder: str) -> None:
        self._dvclive.log_artifact(path)


@VISBACKENDS.register_module()
class AimVisBackend(ByName):
    """An Aim run."""

    def __init__(self, save_dir: str | None = None, init_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(save_dir)  # type: ignore[arg-type]
        self._init_kwargs = init_kwargs or {}

    def _init_env(self) -> None:
        self._aim = needed("aim", "AimVisBackend")
        self._aim_run = self._aim.Run(**{"repo": self._save_dir, **self._init_kwargs})

    @property
    @force_init_env
    def experiment(self) -> Any:
        return self._aim_run

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        self._aim_run["hparams"] = config.to_dict()

    @force_init_env
    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._aim_run.track, name=name, value=self._aim.Image(image), step=step)

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._aim_run.track, name=name, value=number(value), step=step)

    def close(self) -> None:
        if hasattr(self, "_aim_run"):
            self._close(self._aim_run.close)
