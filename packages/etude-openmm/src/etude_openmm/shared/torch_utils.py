"""Helpers of mmcv and MMEngine that need torch: norm layers, environment info, multiprocessing, images."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

TORCH_VERSION = torch.__version__
SyncBatchNorm = nn.SyncBatchNorm
#: The layers that mmcv and MMEngine count as norms: RMSNorm is none of them.
NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm)


def is_norm(layer: nn.Module, exclude: Any = None) -> bool:
    """Return whether ``layer`` is a normalisation layer and no instance of ``exclude``."""
    if exclude is not None:
        classes = exclude if isinstance(exclude, tuple) else (exclude,)
        if not all(isinstance(cls, type) for cls in classes):
            raise TypeError(f'"exclude" must be either None or type or a tuple of types, but got {type(exclude)}')
        if isinstance(layer, classes):
            return False
    return isinstance(layer, NORMS)


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in model.modules())


def parameters_behind(loss: torch.Tensor) -> set[int]:
    """Return the ids of the parameters that ``loss`` was computed from."""
    found: set[int] = set()
    seen: set[Any] = set()
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        # Only the nodes that add to a parameter's gradient have it.
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting.extend(parent for parent, _ in node.next_functions)
    return found


def is_jit_tracing() -> bool:
    tracing: Any = torch.jit.is_tracing  # type: ignore[attr-defined]
    return bool(tracing())


def torch_meshgrid(*tensors: Any) -> Any:
    return torch.meshgrid(*tensors, indexing="ij")


def is_rocm_pytorch() -> bool:
    return torch.version.hip is not None


def mmcv_full_available() -> bool:
    """Return False: compiled operators are out of scope."""
    return False


def load_url(url: str, *args: Any, map_location: Any = None, **kwargs: Any) -> Any:
    """Load a checkpoint from a URL, without running code from it."""
    from etude_openmm.shared.live.loader import load_from_http

    return load_from_http(url, map_location)


def set_multi_processing(mp_start_method: str = "fork", opencv_num_threads: int = 0, distributed: bool = False) -> None:
    """Set the start method of worker processes, and one thread each in distributed runs if nothing is set."""
    if platform.system() != "Windows":
        current = torch.multiprocessing.get_start_method(allow_none=True)
        if current is not None and current != mp_start_method:
            warnings.warn(
                f"Multi-processing start method `{mp_start_method}` is different from the previous `{current}`.",
                stacklevel=2,
            )
        torch.multiprocessing.set_start_method(mp_start_method, force=True)
    if importlib.util.find_spec("cv2") is not None:
        importlib.import_module("cv2").setNumThreads(opencv_num_threads)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if distributed and name not in os.environ:
            os.environ[name] = "1"


def collect_env() -> dict[str, Any]:
    """Return information about the environment: system, Python, torch, devices."""
    env: dict[str, Any] = {"sys.platform": sys.platform, "Python": sys.version.replace("\n", "")}
    env["CUDA available"] = torch.cuda.is_available()
    env["MUSA available"] = False
    env["numpy_random_seed"] = int(np.random.get_state(legacy=True)[1][0])  # type: ignore[index]
    if torch.cuda.is_available():
        devices: dict[str, list[str]] = defaultdict(list)
        for index in range(torch.cuda.device_count()):
            devices[torch.cuda.get_device_name(index)].append(str(index))
        env.update({f"GPU {','.join(numbers)}": name for name, numbers in devices.items()})
    env["GCC"] = _first_line(["gcc", "--version"])
    env["PyTorch"] = torch.__version__
    env["PyTorch compiling details"] = torch.__config__.show()
    env["OpenCV"] = _version("cv2")
    env["MMEngine"] = "0.10.7"
    return env


def _version(package: str) -> str:
    try:
        return str(importlib.import_module(package).__version__)
    except ImportError:
        return "not installed"


def _first_line(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "n/a"


def tensor2imgs(
    tensor: torch.Tensor,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    to_bgr: bool = True,
) -> list[np.ndarray]:
    """Return the images of a batch (N, C, H, W) as arrays (H, W, C), with normalisation undone."""
    assert torch.is_tensor(tensor) and tensor.ndim == 4, "a batch of images has four dimensions"
    channels = tensor.size(1)
    assert channels in (1, 3), f"an image has 1 or 3 channels, not {channels}"
    mean, std = mean or (0,) * channels, std or (1,) * channels
    assert len(mean) == len(std) == channels, f"{channels} channels need as many means and deviations"
    assert channels == 3 or not to_bgr, "one channel cannot be turned around"
    pictures = tensor.permute(0, 2, 3, 1) * tensor.new_tensor(std) + tensor.new_tensor(mean)
    arrays = pictures.detach().cpu().numpy()
    return [np.ascontiguousarray(array[..., ::-1] if to_bgr else array) for array in arrays]
