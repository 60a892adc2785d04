"""What converted configs name: parts of mmcv 1.x at work in the native engine.

``etude convert`` writes native configs; where mmcv's way cannot be said in native words without changing a bit of the
result, they name one of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.dialects.mmcv1.live.hook import HOOKS as MMCV_HOOKS
from etude.dialects.mmcv1.live.log_buffer import LogBuffer
from etude.dialects.mmcv1.live.mmcls.data import build_dataset
from etude.dialects.mmcv1.live.mmcls.models import build_classifier
from etude.dialects.mmcv1.live.parallel import collate, scatter
from etude.dialects.openmm.raw import restored
from etude.registry import COLLATES, DATASETS, HOOKS, MODELS, SAMPLERS, UPDATES


@MODELS.register(name="mmcv1.Model")
def model(config: Mapping[str, Any]) -> Any:
    """The model of mmcls' registries, its weights initialised as the train script does."""
    made = build_classifier(restored(config))
    if hasattr(made, "init_weights"):
        made.init_weights()
    return made


@DATASETS.register(name="mmcv1.Dataset")
def dataset(config: Mapping[str, Any]) -> Any:
    return build_dataset(restored(config))


@COLLATES.register(name="mmcv1.Collate")
class Collate:
    """mmcv's way to make a batch, its containers unpacked."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __call__(self, batch: Sequence[Any]) -> Any:
        return scatter(collate(batch, samples_per_gpu=self.samples), [-1])[0]


@SAMPLERS.register(name="mmcv1.Order")
class Order:
    """The order in which torch's shuffling loader would have gone through the data.

    That loader draws from the global generator: one number for its workers and one for the order at every epoch, two
    more at a validation epoch of the workflow (after every ``validate_every`` epochs), and one at every evaluation
    (``evaluate_every``). The draws are repeated here from the state that
    the generator had when the model was built, so that an epoch can be asked for by its number.
    """

    def __init__(self, dataset: Any, evaluate_every: int = 0, validate_every: int = 0) -> None:
        self.size, self.epoch = len(dataset), 0
        self.evaluate_every, self.validate_every = evaluate_every, validate_every
        self._state = torch.get_rng_state()

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.set_state(self._state)
        before = sum(self._draws(epoch + 1) for epoch in range(self.epoch)) + 1
        for _ in range(before):
            _draw(generator)
        order = torch.Generator().manual_seed(_draw(generator))
        yield from torch.randperm(self.size, generator=order).tolist()

    def _draws(self, done: int) -> int:
        """How many numbers an epoch takes, with what follows it; ``done`` counts it already."""
        evaluated = bool(self.evaluate_every) and done % self.evaluate_every == 0
        validated = bool(self.validate_every) and done % self.validate_every == 0
        return 2 + evaluated + 2 * validated


def _draw(generator: torch.Generator) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


@UPDATES.register(name="mmcv1.TrainStep")
class TrainStep:
    """``model.train_step``, then what mmcv's OptimizerHook does: clear, backward, clip, step."""

    def __init__(
        self, forward: Any, optimizers: Mapping[str, torch.optim.Optimizer], grad_clip: Mapping[str, Any] | None = None
    ) -> None:
        self.model = forward.model
        self.optimizer = next(iter(optimizers.values()))
        self.grad_clip = dict(grad_clip) if grad_clip else None

    def __call__(self, run: Run, batch: Any) -> Any:
        outputs = self.model.train_step(batch, self.optimizer)
        run.outputs = outputs
        if run.hooks.after_forward:
            run.hooks.after_forward(run)
        self.optimizer.zero_grad()
        outputs["loss"].backward()
        if self.grad_clip is not None:
            self._clip(run)
        if run.hooks.before_update:
            run.hooks.before_update(run)
        self.optimizer.step()
        for name, value in outputs.get("log_vars", {}).items():
            run.events.put(name, value)
        return outputs

    def _clip(self, run: Run) -> None:
        parameters = [p for p in self.model.parameters() if p.requires_grad and p.grad is not None]
        if parameters:
            run.events.put("grad_norm", torch.nn.utils.clip_grad_norm_(parameters, **(self.grad_clip or {})))


class View:
    """As much of a runner as hooks of mmcv look at, read from a native run."""

    mode = "train"
    #: The native store brings everything back by itself.
    restored = None

    def __init__(self, run: Run) -> None:
        self.run = run
        self.log_buffer, self.logger = LogBuffer(), logging.getLogger("mmcv")
        self.meta: dict[str, Any] = {}
        self.rank, self.world_size = run.world.rank, run.world.size

    @property
    def epoch(self) -> int:
        return self.run.epoch

    @property
    def iter(self) -> int:
        return self.run.step

    @property
    def inner_iter(self) -> int:
        return self.run.step_in_epoch

    @property
    def max_epochs(self) -> int | None:
        return self.run.max_epochs

    @property
    def max_iters(self) -> int | None:
        return self.run.total_steps

    @property
    def model(self) -> Any:
        return self.run.model

    @property
    def optimizer(self) -> Any:
        return next(iter(self.run.optimizers.values()))

    @property
    def outputs(self) -> Any:
        return self.run.outputs

    @property
    def data_loader(self) -> Any:
        return self.run.data["train"]

    @property
    def work_dir(self) -> str:
        return str(self.run.folder or ".")


_STAGES = {
    "before_run": "before_run", "before_epoch": "before_train_epoch", "before_step": "before_train_iter",
    "after_step": "after_train_iter", "after_epoch": "after_train_epoch", "after_run": "after_run",
}  # fmt: skip


@HOOKS.register(name="mmcv1.Hook")
class Hook(EngineHook):
    """A hook of mmcv. ``epochs: false`` leaves out its epoch stages, which an iteration runner never calls."""

    def __init__(self, config: Mapping[str, Any], epochs: bool = True) -> None:
        self.hook = MMCV_HOOKS.build(restored(config))
        self.epochs = epochs
        self._view: View | None = None

    @property
    def name(self) -> str:
        return type(self.hook).__name__

    def calls(self) -> Mapping[str, Callable[[Run], Any]]:
        stages = {
            point: self._caller(stage)
            for point, stage in _STAGES.items()
            if self.hook.acts_at(stage) and (self.epochs or not point.endswith("epoch"))
        }
        return {**stages, "before_run": self.attach} if "before_run" in stages else stages

    def attach(self, run: Run) -> None:
        """Let the hook begin before a checkpoint is loaded: what it adds to the model must be there by then."""
        if self._view is None:
            self._view = View(run)
            self.hook.before_run(self._view)

    def _caller(self, stage: str) -> Callable[[Run], Any]:
        method = getattr(self.hook, stage)

        def call(run: Run) -> None:
            self.attach(run)
            method(self._view)

        return call

    def state_dict(self) -> dict[str, Any]:
        return dict(self.hook.state_dict()) if hasattr(self.hook, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if hasattr(self.hook, "load_state_dict"):
            self.hook.load_state_dict(state)
