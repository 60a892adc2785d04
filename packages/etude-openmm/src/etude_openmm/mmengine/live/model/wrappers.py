"""DDP wrappers of MMEngine models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from mmengine.model.utils import detect_anomalous_params
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from etude_openmm.mmengine.live.device import default_device
from etude_openmm.mmengine.live.model.base_model import BaseModel, learn
from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper
from etude_openmm.shared.registries.root import MODEL_WRAPPERS
from etude_openmm.shared.state import add_wrapper, is_wrapper


class MMDistributedDataParallel(DistributedDataParallel):
    """DDP with ``train_step``, ``val_step`` and ``test_step``. Only training goes through DDP's forward.

    ``detect_anomalous_params`` logs parameters that the loss does not depend on.
    """

    def __init__(self, module: nn.Module, detect_anomalous_params: bool = False, **kwargs: Any) -> None:
        super().__init__(module=module, **kwargs)
        self.detect_anomalous_params = detect_anomalous_params

    def train_step(self, data: Any, optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        loss, log_vars = learn(self, self.module, data, optim_wrapper)
        if self.detect_anomalous_params:
            detect_anomalous_params(loss, model=self)
        return log_vars

    def val_step(self, data: Any) -> Any:
        return self.module.val_step(data)

    def test_step(self, data: Any) -> Any:
        return self.module.test_step(data)

    _run_forward = BaseModel._run_forward


class MMSeparateDistributedDataParallel(nn.Module):
    """Wraps each child module in its own DDP, for models whose ``train_step`` updates them in turn (GANs)."""

    def __init__(
        self,
        module: nn.Module,
        broadcast_buffers: bool = False,
        find_unused_parameters: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.module = module
        for name, child in module.named_children():
            made = child.to(default_device())
            # DDP refuses a module without trainable parameters.
            if any(parameter.requires_grad for parameter in child.parameters()):
                made = MMDistributedDataParallel(
                    module=made,
                    broadcast_buffers=broadcast_buffers,
                    find_unused_parameters=find_unused_parameters,
                    **kwargs,
                )
            module._modules[name] = made

    def train_step(self, data: Any, optim_wrapper: Any) -> Any:
        return self.module.train_step(data, optim_wrapper)  # type: ignore[operator]

    def val_step(self, data: Any) -> Any:
        return self.module.val_step(data)  # type: ignore[operator]

    def test_step(self, data: Any) -> Any:
        return self.module.test_step(data)  # type: ignore[operator]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Skip gradient synchronisation of all children."""
        with ExitStack() as stack:
            for child in self.module.children():
                if isinstance(child, DistributedDataParallel):
                    stack.enter_context(child.no_sync())
            yield

    def train(self, mode: bool = True) -> MMSeparateDistributedDataParallel:
        super().train(mode)
        self.module.train(mode)
        return self


add_wrapper(MMSeparateDistributedDataParallel)


def is_model_wrapper(model: nn.Module, registry: Any = None) -> bool:
    """Return whether the class of ``model`` is registered in MODEL_WRAPPERS (or ``registry``) or a child registry."""
    if registry is None or registry is MODEL_WRAPPERS:
        return is_wrapper(model)
    kinds = tuple(kind for kind in registry._module_dict.values() if isinstance(kind, type))
    return isinstance(model, kinds) or any(is_model_wrapper(model, child) for child in registry.children.values())
