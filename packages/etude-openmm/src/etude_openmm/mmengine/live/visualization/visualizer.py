"""MMEngine's Visualizer, which gets the scalars, config and images of a run."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmengine.utils import is_seq_of

from etude.dialects.properties import leads_to
from etude_openmm.mmengine.live.dist.utils import master_only
from etude_openmm.mmengine.live.visualization.backend import BaseVisBackend
from etude_openmm.mmengine.live.visualization.drawing import Drawing
from etude_openmm.shared.logging import log_warning
from etude_openmm.shared.registries.managers import ManagerMixin
from etude_openmm.shared.registries.root import VISBACKENDS, VISUALIZERS


@VISUALIZERS.register_module()
class Visualizer(Drawing, ManagerMixin):
    """Passes everything on to its backends, which write below ``<save_dir>/vis_data``, on rank 0 only.

    Methods that draw come from the installed mmengine, see :class:`Drawing`.
    """

    def __init__(
        self,
        name: str = "visualizer",
        image: np.ndarray | None = None,
        vis_backends: Sequence[dict[str, Any] | BaseVisBackend] | dict[str, Any] | BaseVisBackend | None = None,
        save_dir: str | None = None,
        fig_save_cfg: dict[str, Any] | None = None,
        fig_show_cfg: dict[str, Any] | None = None,
    ) -> None:
        ManagerMixin.__init__(self, name)
        self.fig_save_cfg = fig_save_cfg or {"frameon": False}
        self.fig_show_cfg = fig_show_cfg or {"frameon": False}
        self._dataset_meta: dict[str, Any] | None = None
        self._vis_backends: dict[str, BaseVisBackend] = {}
        self._lost: set[str] = set()
        folder = None if save_dir is None else os.path.join(save_dir, "vis_data")
        if isinstance(vis_backends, dict | BaseVisBackend):
            vis_backends = [vis_backends]
        if not is_seq_of(vis_backends or [], (dict, BaseVisBackend)):
            raise TypeError("vis_backends must be a list of dicts or a list of BaseBackend instances")
        for backend in vis_backends or ():
            self._add_backend(backend, folder)
        if image is not None:
            self.set_image(image)

    @classmethod
    def get_instance(cls, name: str, **kwargs: Any) -> Visualizer:
        """Return the visualizer called ``name``. An instance of a subclass is also the newest one of ``Visualizer``."""
        made = super().get_instance(name, **kwargs)
        Visualizer._instance_dict[name] = made  # every class has instances of its own
        return made

    def _add_backend(self, backend: dict[str, Any] | BaseVisBackend, folder: str | None) -> None:
        name = None
        made: Any = backend
        if isinstance(backend, dict):
            options = {"save_dir": folder, **backend}
            name = options.pop("name", None)
            made = VISBACKENDS.build(options)
        if _lacks_folder(made):
            warnings.warn(
                f"Failed to add {type(made)}: `Visualizer` backend is not initialized because save_dir is None.",
                stacklevel=3,
            )
            return
        name = name or type(made).__name__
        if name in self._vis_backends:
            raise RuntimeError(f"vis_backend name {name} already exists")
        self._vis_backends[name] = made

    #: The metainfo of the dataset: class names, colours.
    dataset_meta: dict[str, Any] | None = leads_to("_dataset_meta")

    def get_backend(self, name: str) -> BaseVisBackend | None:
        """Return the backend of that name, if there is one."""
        return self._vis_backends.get(name)

    @master_only
    def add_config(self, config: Any, **kwargs: Any) -> None:
        """Record the config."""
        self._call_backends("add_config", config, **kwargs)

    @master_only
    def add_graph(self, model: torch.nn.Module, data_batch: Sequence[dict[str, Any]], **kwargs: Any) -> None:
        """Record the model's graph."""
        self._call_backends("add_graph", model, data_batch, **kwargs)

    @master_only
    def add_image(self, name: str, image: np.ndarray, step: int = 0) -> None:
        """Record an image, H × W × 3 in RGB, as uint8."""
        self._call_backends("add_image", name, image, step)

    @master_only
    def add_scalar(self, name: str, value: int | float, step: int = 0, **kwargs: Any) -> None:
        """Record a number."""
        self._call_backends("add_scalar", name, value, step, **kwargs)

    @master_only
    def add_scalars(
        self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        """Record several numbers of one step. ``file_path`` is an additional JSON file beside the backend's own."""
        self._call_backends("add_scalars", scalar_dict, step, file_path, **kwargs)

    @master_only
    def add_datasample(
        self,
        name: str,
        image: np.ndarray,
        data_sample: Any = None,
        draw_gt: bool = True,
        draw_pred: bool = True,
        show: bool = False,
        wait_time: int = 0,
        step: int = 0,
    ) -> None:
        """Draw a sample. This does nothing; subclasses implement it."""

    def close(self) -> None:
        """Close all backends."""
        self._call_backends("close")

    def _call_backends(self, method: str, *args: Any, **kwargs: Any) -> None:
        """Call ``method`` of all backends. A backend whose disk or network fails is given up; the run continues."""
        for name, backend in self._vis_backends.items():
            if name in self._lost:
                continue
            try:
                getattr(backend, method)(*args, **kwargs)
            except OSError as error:
                self._lost.add(name)
                log_warning(f"{name} is given up, the run continues without it: {error}")


def _lacks_folder(backend: BaseVisBackend) -> bool:
    """Return whether the backend needs a folder and has none."""
    wanted = inspect.signature(type(backend).__init__).parameters.get("save_dir")
    required = wanted is not None and wanted.default is inspect.Parameter.empty
    return required and getattr(backend, "_save_dir", "") is None
