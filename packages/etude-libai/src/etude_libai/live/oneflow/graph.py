"""LiBai's graph mode: ``torch.compile`` in place of OneFlow's ``nn.Graph``."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from etude.errors import ConfigError
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.oneflow.graph_modules import GraphModule
from etude_libai.live.trainer import Amp, total_loss

logger = logging.getLogger("libai.models.utils.graph_base")

#: Errors of torch's compiler, by class name: their modules take seconds to import.
_COMPILER_ERRORS = {"InvalidCxxCompiler", "BackendCompilerFailed", "InductorError", "TritonMissing", "CppCompileError"}


class GraphBase:
    """Trains on a batch in one call (forward, backward, clip, step), or only runs forward (``is_train=False``)."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        fp16: bool = False,
        activation_checkpoint: bool = False,
        grad_acc_steps: int = 1,
        zero_optim: bool = False,
        zero_stage: int = 0,
        is_train: bool = True,
        auto_parallel_conf: Any = None,
        global_mode: Any = None,
        *,
        backend: str = "inductor",
        amp: Amp | None = None,
    ) -> None:
        device = next((p.device.type for p in model.parameters()), "cpu")
        if not topology.splits():
            require_compiler(backend, device)
        self.model, self.optimizer, self.lr_scheduler = model, optimizer, lr_scheduler
        self.is_train, self.grad_acc_steps = is_train, grad_acc_steps
        self.amp = amp or Amp(enabled=fp16, device=device)
        # By default compiled code draws other random numbers than eager mode; results should be the same.
        options: dict[str, Any] | None = {"fallback_random": True} if backend == "inductor" else None
        if topology.splits():
            say_eager()
            self._compiled: Any = model
        else:
            self._compiled = torch.compile(shared(model) if is_train else model, backend=backend, options=options)
        if activation_checkpoint:
            set_activation_checkpoint(model)

    def __call__(self, **data: Any) -> Any:
        try:
            return self._train(data) if self.is_train else self._evaluate(data)
        except Exception as error:
            if type(error).__name__ in _COMPILER_ERRORS:
                raise ConfigError(
                    f"graph.enabled=True: torch.compile failed ({str(error).splitlines()[0]})",
                    hint="set graph.enabled=False to train without compiling",
                ) from error
            raise

    def _train(self, data: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return a vector for each value of the model, with one number per micro-batch."""
        returned: dict[str, list[torch.Tensor]] = {}
        for micro_batch in _parts(data, self.grad_acc_steps):
            with self.amp.autocast():
                outputs = self._compiled(**micro_batch)
                losses = total_loss(outputs) / self.grad_acc_steps
            self.amp.backward(losses)
            for name, value in outputs.items():
                returned.setdefault(name, []).append(value.detach())
        self.amp.update(self.optimizer)
        return {name: torch.stack(values) for name, values in returned.items()}

    def train_on(self, batches: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Train on micro-batches of split tensors. Pipeline stages work on several of them at a time."""
        from etude_libai.live.split import stages

        util = topology.get_dist_util()
        order = stages.one_forward_one_backward(
            len(batches), util.pipeline_parallel_size, util.sizes.stage(util.world.rank)
        )
        under_way: dict[int, Any] = {}
        returned: dict[int, dict[str, torch.Tensor]] = {}
        with stages.overlapping():
            for forward, number in order:
                if forward:
                    with self.amp.autocast():
                        outputs = self.model(**batches[number])
                        under_way[number] = total_loss(outputs) / len(batches)
                    returned[number] = {name: value.detach() for name, value in outputs.items()}
                else:
                    self.amp.backward(under_way.pop(number))
        stages.settle()
        self.amp.update(self.optimizer)
        every = [returned[number] for number in range(len(batches))]
        return {name: torch.stack([dist.ttol(one[name]) for one in every]) for name in every[0]}

    @torch.no_grad()
    def _evaluate(self, data: Mapping[str, Any]) -> Any:
        with self.amp.autocast():
            return self._compiled(**data)

    # -- methods of a module, for evaluation -----------------------------------------------------------------------

    @property
    def training(self) -> bool:
        return self.model.training

    def train(self, mode: bool = True) -> GraphBase:
        self.model.train(mode)
        return self

    def eval(self) -> GraphBase:
        return self.train(False)

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state, which belongs to the graph in graph mode."""
        return {"optimizer": self.optimizer.state_dict()} if self.optimizer is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.optimizer is not None and "optimizer" in state:
            self.optimizer.load_state_dict(state["optimizer"])


def require_compiler(backend: str, device: str) -> None:
    """Raise an error at once if no compiler is installed, instead of torch's long errors at the first step."""
    if backend != "inductor":
        return
    off = "set graph.enabled=False to train without compiling"
    if device == "cpu":
        command = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++").split()[0]
        if shutil.which(command) is None:
            raise ConfigError(
                f"graph.enabled=True compiles the model, and there is no C++ compiler {command!r} here",
                hint=f"install one (or name it in CXX), or {off}",
            )
    elif device == "cuda":
        from importlib.util import find_spec

        if find_spec("triton") is None:
            raise ConfigError("graph.enabled=True compiles the model, which needs triton on CUDA", hint=off)


def shared(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model, wrapped in DDP if there are several processes that have all of it."""
    if topology.get_world_size() == 1 or topology.splits():
        return model
    return torch.nn.parallel.DistributedDataParallel(model)


@cache
def say_eager() -> None:
    """Log once that nothing is compiled."""
    logger.info("graph.enabled: tensors are split over processes, so the model is not compiled and runs eagerly")


def set_activation_checkpoint(model: Any) -> None:
    """Call the model's ``set_activation_checkpoint``; without one, recompute every ``TransformerLayer`` of LiBai."""
    own = getattr(model, "set_activation_checkpoint", None)
    if own is not None:
        try:
            # LiBai's models have a static method that takes the model.
            own(model)
        except TypeError:
            own()
        return
    kind = getattr(sys.modules.get("libai.layers"), "TransformerLayer", None)
    layers = [module for module in model.modules() if kind is not None and isinstance(module, kind)]
    for layer in layers:
        GraphModule(layer).activation_checkpointing = True
    if not layers:
        logger.warning(
            f"train.activation_checkpoint.enabled: {type(model).__name__} has neither a method "
            "set_activation_checkpoint() nor a TransformerLayer of LiBai; its activations are kept"
        )


def _parts(data: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    if count == 1:
        return [dict(data)]
    pieces = {
        name: value.chunk(count) if isinstance(value, torch.Tensor) else [value] * count for name, value in data.items()
    }
    return [{name: piece[index] for name, piece in pieces.items()} for index in range(count)]
