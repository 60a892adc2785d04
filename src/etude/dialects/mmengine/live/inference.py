"""The base of inferencers: from a config and weights to predictions for files, arrays or folders of them."""

from __future__ import annotations

import copy
import os
import re
import time
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
from typing import Any, ClassVar

import torch
from rich.progress import track
from torch import nn

from etude.dialects.mmengine.live.data.collate import pseudo_collate
from etude.dialects.mmengine.live.device import get_device
from etude.dialects.mmengine.live.registry import FUNCTIONS, MODELS, VISUALIZERS
from etude.dialects.mmengine.live.visualization import Visualizer
from etude.dialects.openmm.config.config_v2 import Config, ConfigDict
from etude.dialects.openmm.config.external import MODULE2PACKAGE
from etude.dialects.openmm.file_io.fileio import load
from etude.dialects.openmm.file_io.storage import get_file_backend
from etude.dialects.openmm.live.checkpoint import _load_checkpoint, _load_checkpoint_to_model
from etude.dialects.openmm.logging import print_log
from etude.dialects.openmm.registries.scope import DefaultScope

_STAGES = ("preprocess", "forward", "visualize", "postprocess")


class InferencerMeta(ABCMeta):
    """Sees to it that each argument of a call belongs to one stage."""

    def __init__(cls, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        owned = [getattr(cls, f"{stage}_kwargs") for stage in _STAGES]
        assert all(isinstance(names, set) for names in owned), f"the *_kwargs of {cls.__name__} should be sets"
        assert len(set().union(*owned)) == sum(map(len, owned)), (
            f"Class define error! {cls.__name__} should not define duplicated keys in its *_kwargs"
        )


class BaseInferencer(metaclass=InferencerMeta):
    """``inferencer(inputs)``: preprocess → forward → visualize → postprocess.

    ``model`` is a config (a file, a dict, or a name of the package's model index), ``weights`` a checkpoint; without a
    model the config is taken from the checkpoint. Subclasses say in ``preprocess_kwargs`` … ``postprocess_kwargs``
    which arguments of a call go where.
    """

    preprocess_kwargs: ClassVar[set[str]] = set()
    forward_kwargs: ClassVar[set[str]] = set()
    visualize_kwargs: ClassVar[set[str]] = set()
    postprocess_kwargs: ClassVar[set[str]] = set()

    def __init__(
        self,
        model: Any = None,
        weights: str | None = None,
        device: str | None = None,
        scope: str | None = None,
        show_progress: bool = True,
    ) -> None:
        current = DefaultScope.get_current_instance()
        self.scope = current.scope_name if scope is None and current is not None else scope
        cfg, weights = self._read(model, weights)
        self.model = self._init_model(cfg, weights, device or get_device())
        self.pipeline = self._init_pipeline(cfg)
        self.collate_fn = self._init_collate(cfg)
        self.visualizer = self._init_visualizer(cfg)
        self.cfg, self.show_progress = cfg, show_progress

    def _read(self, model: Any, weights: str | None) -> tuple[Any, str | None]:
        if isinstance(model, str):
            if os.path.isfile(model):
                return Config.fromfile(model), weights
            cfg, known = self._load_model_from_metafile(model)
            return cfg, weights or known
        if isinstance(model, Config | ConfigDict):
            return copy.deepcopy(model), weights
        if isinstance(model, dict):
            return copy.deepcopy(ConfigDict(model)), weights
        if model is not None:
            raise TypeError(f"model must be a filepath or any ConfigType object, but got {type(model)}")
        if weights is None:
            raise ValueError("If model is None, the weights must be specified: the config is taken from them")
        return ConfigDict(), weights

    def __call__(self, inputs: Any, return_datasamples: bool = False, batch_size: int = 1, **kwargs: Any) -> Any:
        before, during, drawing, after = self._dispatch_kwargs(**kwargs)
        given = self._inputs_to_list(inputs)
        batches = self.preprocess(given, batch_size=batch_size, **before)
        preds: list[Any] = []
        for batch in track(batches, description="Inference") if self.show_progress else batches:
            preds.extend(self.forward(batch, **during))
        pictures = self.visualize(given, preds, **drawing)
        return self.postprocess(preds, pictures, return_datasamples, **after)

    # -- the stages ----------------------------------------------------------------------------------------------

    def _inputs_to_list(self, inputs: Any) -> list[Any]:
        """A list of inputs: the files of a folder, the items of a list, or the one that was given."""
        if isinstance(inputs, str):
            backend = get_file_backend(inputs)
            if hasattr(backend, "isdir") and backend.isdir(inputs):
                return [backend.join_path(inputs, name) for name in backend.list_dir_or_file(inputs, list_dir=False)]
        return list(inputs) if isinstance(inputs, list | tuple) else [inputs]

    def preprocess(self, inputs: Any, batch_size: int = 1, **kwargs: Any) -> Iterator[Any]:
        """Batches of what the pipeline makes of the inputs."""
        chunks = self._get_chunk_data(map(self.pipeline, inputs), batch_size)
        yield from map(self.collate_fn, chunks)

    @torch.no_grad()
    def forward(self, inputs: Any, **kwargs: Any) -> Any:
        """Predictions for a batch."""
        return self.model.test_step(inputs)  # type: ignore[operator]

    @abstractmethod
    def visualize(self, inputs: list[Any], preds: Any, show: bool = False, **kwargs: Any) -> Any:
        """Pictures of predictions, or None."""

    @abstractmethod
    def postprocess(self, preds: Any, visualization: Any, return_datasample: bool = False, **kwargs: Any) -> Any:
        """What the call returns."""

    def _get_chunk_data(self, inputs: Iterable[Any], chunk_size: int) -> Iterator[list[Any]]:
        source = iter(inputs)
        while chunk := list(islice(source, chunk_size)):
            yield chunk

    def _dispatch_kwargs(self, **kwargs: Any) -> tuple[dict[str, Any], ...]:
        owned = [getattr(self, f"{stage}_kwargs") for stage in _STAGES]
        unknown = kwargs.keys() - set().union(*owned)
        if unknown:
            raise ValueError(f"unknown argument {unknown} for `preprocess`, `forward`, `visualize` and `postprocess`")
        return tuple({name: value for name, value in kwargs.items() if name in names} for names in owned)

    # -- the parts -----------------------------------------------------------------------------------------------

    def _init_model(self, cfg: Any, weights: str | None, device: str = "cpu") -> nn.Module:
        checkpoint = None if weights is None else _load_checkpoint(weights, map_location="cpu")
        if not cfg:
            cfg.update(_config_of(checkpoint or {}))
        if cfg.model.get("pretrained") is not None:
            del cfg.model.pretrained
        model: Any = MODELS.build(cfg.model)
        model.cfg = cfg
        self._load_weights_to_model(model, checkpoint, cfg)
        moved: nn.Module = model.to(device).eval()
        return moved

    def _load_weights_to_model(self, model: nn.Module, checkpoint: dict[str, Any] | None, cfg: Any) -> None:
        """Subclasses read further information of the checkpoint here."""
        if checkpoint is None:
            warnings.warn("Checkpoint is not loaded: the weights of the model are random", stacklevel=3)
        else:
            _load_checkpoint_to_model(model, checkpoint)

    def _init_collate(self, cfg: Any) -> Callable[..., Any]:
        try:
            wanted = cfg.test_dataloader.collate_fn
        except AttributeError:
            return pseudo_collate
        with FUNCTIONS.switch_scope_and_registry(self.scope) as registry:
            found: Callable[..., Any] = registry.get(wanted["type"] if isinstance(wanted, dict) else wanted)
        return found

    @abstractmethod
    def _init_pipeline(self, cfg: Any) -> Callable[..., Any]:
        """What makes a sample of one input."""

    def _init_visualizer(self, cfg: Any) -> Visualizer | None:
        if "visualizer" not in cfg:
            return None
        now = str(time.time())
        name = cfg.visualizer.get("name", now)
        cfg.visualizer.name = f"{name}-{now}" if Visualizer.check_instance_created(name) else name
        made: Visualizer = VISUALIZERS.build(cfg.visualizer)
        return made

    # -- the model index of a package ----------------------------------------------------------------------------

    def _load_model_from_metafile(self, model: str) -> tuple[Any, str]:
        folder = self._get_repo_or_mim_dir(_known_scope(self.scope))
        for entry in self._get_models_from_metafile(folder):
            if model.lower() in [name.lower() for name in _names_of(entry)]:
                weights = entry["Weights"]
                cfg = Config.fromfile(os.path.join(folder, entry["Config"]))
                return cfg, weights[0] if isinstance(weights, list) else weights
        raise ValueError(f"Cannot find model: {model} in {self.scope}")

    @staticmethod
    def _get_repo_or_mim_dir(scope: str) -> str:
        """The folder that holds the ``configs`` of a package."""
        try:
            package = import_module(scope).__path__[0]
        except ImportError as error:
            if scope not in MODULE2PACKAGE:
                raise KeyError(f"{scope} is not a valid scope; known: {', '.join(MODULE2PACKAGE)}") from error
            raise ImportError(f"Cannot import {scope} correctly: pip install {MODULE2PACKAGE[scope]}") from error
        for folder in (os.path.dirname(package), os.path.join(package, ".mim")):
            if os.path.exists(os.path.join(folder, "configs")):
                return folder
        raise FileNotFoundError(f"Cannot find `configs` directory in {package}; is {scope} complete?")

    @staticmethod
    def _get_models_from_metafile(dir: str) -> Iterator[dict[str, Any]]:
        for file in load(os.path.join(dir, "model-index.yml"))["Import"]:
            yield from load(os.path.join(dir, file))["Models"]

    @staticmethod
    def list_models(scope: str | None = None, patterns: str = r".*") -> list[str]:
        """The names of a package's models that ``patterns`` match."""
        folder = BaseInferencer._get_repo_or_mim_dir(_known_scope(scope))
        entries = BaseInferencer._get_models_from_metafile(folder)
        names = [name for entry in entries for name in _names_of(entry) if re.match(patterns, name)]
        print_log("".join(f"model_name: {name}\n" for name in names), logger="current")
        return names


def _known_scope(scope: str | None) -> str:
    current = DefaultScope.get_current_instance()
    found = current.scope_name if scope is None and current is not None else scope
    assert found is not None, "scope should be initialized if you want to load config from metafile."
    assert found in MODULE2PACKAGE, f"{found} not in {MODULE2PACKAGE}, please pass a valid scope."
    return found


def _names_of(entry: dict[str, Any]) -> list[str]:
    aliases = entry.get("Alias") or []
    return [entry["Name"], *([aliases] if isinstance(aliases, str) else aliases)]


def _config_of(checkpoint: dict[str, Any]) -> Any:
    """The config that a checkpoint carries."""
    text = checkpoint.get("message_hub", {}).get("runtime_info", {}).get("cfg")
    if text is None:
        assert "meta" in checkpoint, (
            "If model(config) is not provided, the checkpoint must contain the config in `meta` or `message_hub`"
        )
        text = checkpoint["meta"].get("cfg")
    if text is None:
        raise ValueError("Cannot find the config in the checkpoint.")
    return Config.fromstring(text, ".py")._cfg_dict
