"""Type aliases of MMEngine, which users import for type hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.optim.scheduler.param_scheduler import _ParamScheduler

from etude_openmm.mmengine.live.device import (
    get_device,
    is_dipu_available,
    is_mlu_available,
    is_musa_available,
    is_npu_available,
)
from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import BaseOptimWrapper, OptimWrapper
from etude_openmm.mmengine.live.visualization.backend import BaseVisBackend
from etude_openmm.shared.config.config_v2 import Config
from etude_openmm.shared.config.dict_v2 import ConfigDict

DATA_BATCH = dict[Any, Any] | tuple[Any, ...] | list[Any] | None

ConfigType = dict[str, Any] | Config | ConfigDict
ParamSchedulerType = list[_ParamScheduler] | dict[str, list[_ParamScheduler]]
OptimWrapperType = OptimWrapper | dict[str, OptimWrapper]
OptimizerType = BaseOptimWrapper | torch.optim.Optimizer

CastData = Any  # nearly everything, and data samples, whose class comes from the mmengine on disk

VisBackendsType = list[dict[str, Any] | BaseVisBackend] | BaseVisBackend | dict[str, Any] | None
SUFFIX_TYPE = Sequence[str] | str

DEVICE = get_device()
IS_NPU_AVAILABLE = is_npu_available()
IS_MLU_AVAILABLE = is_mlu_available()
IS_DIPU_AVAILABLE = is_dipu_available()
IS_MUSA_AVAILABLE = is_musa_available()
