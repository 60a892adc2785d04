"""Weights & Biases and MLflow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from etude.dialects.mmengine.live.registry import VISBACKENDS
from etude.dialects.mmengine.live.visualization.backend import (
    TrackerVisBackend,
    flattened,
    force_init_env,
    needed,
    number,
)

_ARTIFACTS = (".json", ".log", ".py", "yaml")


@VISBACKENDS.register_module()
class WandbVisBackend(TrackerVisBackend):
    """``wandb.init(**init_kwargs)``. ``step`` is not passed on: rows of validations would go backwards and be lost."""

    def __init__(
        self,
        save_dir: str,
        init_kwargs: dict[str, Any] | None = None,
        define_metric_cfg: dict[str, str] | Sequence[dict[str, Any]] | None = None,
        commit: bool | None = True,
        log_code_name: str | None = None,
        watch_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(save_dir)
        self._init_kwargs, self._define_metric_cfg = init_kwargs, define_metric_cfg
        self._commit, self._log_code_name = commit, log_code_name
        self._watch_kwargs = watch_kwargs or {}

    def _init_env(self) -> None:
        os.makedirs(self._save_dir, exist_ok=True)
        self._wandb = needed("wandb", "WandbVisBackend")
        self._wandb.init(**{"dir": self._save_dir, **(self._init_kwargs or {})})
        metrics = self._define_metric_cfg or []
        if isinstance(metrics, dict):
            for metric, summary in metrics.items():
                self._wandb.define_metric(metric, summary=summary)
        elif isinstance(metrics, list | tuple):
            for options in metrics:
                self._wandb.define_metric(**options)
        else:
            raise ValueError(f"define_metric_cfg should be dict or list, but got {metrics!r}")

    @property
    @force_init_env
    def experiment(self) -> Any:
        return self._wandb

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        self._wandb.config.update(config.to_dict(), allow_val_change=True)
        self._wandb.run.log_code(name=self._log_code_name)

    @force_init_env
    def add_graph(self, model: torch.nn.Module, data_batch: Any, **kwargs: Any) -> None:
        self._wandb.watch(model, **self._watch_kwargs)

    @force_init_env
    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._wandb.log, {name: self._wandb.Image(image)}, commit=self._commit)

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._wandb.log, {name: value}, commit=self._commit)

    @force_init_env
    def add_scalars(
        self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        self._outbox.put(self._wandb.log, dict(scalar_dict), commit=self._commit)

    def close(self) -> None:
        if hasattr(self, "_wandb"):
            self._close(self._wandb.join if hasattr(self._wandb, "join") else self._wandb.finish)


@VISBACKENDS.register_module()
class MLflowVisBackend(TrackerVisBackend):
    """MLflow: scalars as metrics, the flattened config as parameters, text files as artifacts at the end."""

    def __init__(
        self,
        save_dir: str,
        exp_name: str | None = None,
        run_name: str | None = None,
        tags: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        tracking_uri: str | None = None,
        artifact_suffix: str | tuple[str, ...] = _ARTIFACTS,
        tracked_config_keys: dict[str, Any] | Sequence[str] | None = None,
        artifact_location: str | None = None,
    ) -> None:
        super().__init__(save_dir)
        self._exp_name, self._run_name, self._tags, self._params = exp_name, run_name, tags, params
        self._tracking_uri, self._artifact_suffix = tracking_uri, artifact_suffix
        self._tracked_config_keys, self._artifact_location = tracked_config_keys, artifact_location

    def _init_env(self) -> None:
        os.makedirs(self._save_dir, exist_ok=True)
        self._mlflow = needed("mlflow", "MLflowVisBackend")
        uri = self._tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        self._mlflow.set_tracking_uri(uri or f"file://{os.path.abspath(self._save_dir)}")
        name = self._exp_name or "Default"
        if self._mlflow.get_experiment_by_name(name) is None:
            self._mlflow.create_experiment(name, artifact_location=self._artifact_location)
        self._mlflow.set_experiment(name)
        # A thread does not see the run that another one has begun; it needs the name.
        self._run_id = (self._mlflow.active_run() or self._mlflow.start_run()).info.run_id
        if self._run_name is not None:
            self._mlflow.set_tag("mlflow.runName", self._run_name)
        if self._tags is not None:
            self._mlflow.set_tags(self._tags)
        if self._params is not None:
            self._mlflow.log_params(self._params)

    @property
    @force_init_env
    def experiment(self) -> Any:
        return self._mlflow

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        self.cfg = config
        keys = self._tracked_config_keys
        whole = config.to_dict()
        chosen = whole if keys is None else {key: whole[key] for key in keys}
        self._mlflow.log_params(self._flatten(chosen))
        self._mlflow.log_text(config.pretty_text, "config.py")

    @staticmethod
    def _flatten(config: dict[str, Any]) -> dict[str, Any]:
        return flattened(config)

    @force_init_env
    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        self._outbox.put(self._mlflow.MlflowClient().log_image, self._run_id, image.copy(), name)

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        if isinstance(value, (int, float, torch.Tensor, np.ndarray, np.number)):
            self._outbox.put(self._mlflow.log_metric, name, number(value), step, run_id=self._run_id)

    @force_init_env
    def add_scalars(
        self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        assert isinstance(scalar_dict, dict)
        assert "step" not in scalar_dict, "Please set it directly through the step parameter"
        numbers = {name: number(value) for name, value in scalar_dict.items()}
        wanted = {name: float(v) for name, v in numbers.items() if isinstance(v, (int, float))}
        self._outbox.put(self._mlflow.log_metrics, wanted, step, run_id=self._run_id)

    def close(self) -> None:
        if hasattr(self, "_mlflow"):
            self._close(lambda: None, self._artifact_suffix)
            self._mlflow.end_run()  # the run of this thread

    def _send_file(self, path: str, folder: str) -> None:
        inside = os.path.relpath(os.path.dirname(path), folder)
        self._mlflow.log_artifact(path, None if inside == os.curdir else inside, run_id=self._run_id)
