"""MMEngine's ZeroRedundancyOptimizer, in a separate module: importing torch's compiles a dozen optimizers."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer as TorchZeroRedundancyOptimizer

from etude_openmm.mmengine.live.dist.utils import is_main_process
from etude_openmm.shared.registries.root import OPTIMIZERS


@OPTIMIZERS.register_module()
class ZeroRedundancyOptimizer(TorchZeroRedundancyOptimizer):
    """torch's class, with the inner optimizer given by name. Rank 0 gathers the state before it is saved."""

    def __init__(self, params: Any, optimizer_type: str = "Adam", **kwargs: Any) -> None:
        found = getattr(torch.optim, optimizer_type, None)
        assert found is not None, f"torch.optim has no optimizer called {optimizer_type!r}"
        # torch expects a list of tensors or groups; a generator could be read only once
        super().__init__(list(params), found, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state on rank 0, nothing on the others."""
        self.consolidate_state_dict()
        return super().state_dict() if is_main_process() else {}
