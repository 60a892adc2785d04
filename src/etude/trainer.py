"""The engine without any config: objects in, a finished run out.

>>> import torch, etude
>>> from etude.data import Digits
>>> from etude.metrics import Accuracy
>>> _ = torch.manual_seed(0)
>>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
>>> trainer = etude.Trainer(
...     model,
...     loss=torch.nn.CrossEntropyLoss(),
...     optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3),
...     metrics=[Accuracy()],
...     quiet=True,
... )
>>> run = trainer.fit(Digits("train"), val=Digits("val"), batch_size=64, epochs=3)
>>> run.step, run.metrics["accuracy"] > 0.9
(69, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from etude.build import Options, pick_device, require_alone
from etude.core import loop
from etude.core.evaluation import Evaluation, metric_name
from etude.core.hook import FunctionHook, Hook, HookTable
from etude.core.run import Run
from etude.core.update import Forward, Step
from etude.data.loader import Loader
from etude.data.replay import Replay
from etude.dist.world import World
from etude.errors import UserError
from etude.hooks.evaluate import Evaluate
from etude.hooks.log import Log
from etude.hooks.timer import Timer
from etude.session.session import Session
from etude.units import parse

Data = Iterable[Any] | Any


class Trainer:
    """A model and how it learns; :meth:`fit` says from what and for how long.

    ``hooks`` may be :class:`~etude.Hook` objects or plain functions of the run, called after every step.
    ``folder`` keeps metrics, log and checkpoints; without it nothing is written.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        optimizer: torch.optim.Optimizer,
        loss: Callable[..., torch.Tensor] | None = None,
        metrics: Sequence[Any] = (),
        hooks: Sequence[Hook | Callable[[Run], Any]] = (),
        folder: str | Path | None = None,
        device: str = "auto",
        precision: str = "fp32",
        accumulate: int = 1,
        clip_norm: float | None = None,
        nonfinite: str = "stop",
        seed: int = 0,
        quiet: bool = False,
    ) -> None:
        require_alone(World.from_environment())
        self.device = pick_device(device)
        self.model = model.to(self.device)
        self.forward = Forward(model, {"loss": loss} if loss is not None else {})
        self.optimizers = {"": optimizer}
        self.update = Step(
            self.forward,
            self.optimizers,
            accumulate=accumulate,
            clip_norm=clip_norm,
            precision=precision,
            nonfinite=nonfinite,
            device=self.device,
        )
        self.metrics = {metric_name(metric): metric for metric in metrics}
        self.hooks = [hook if isinstance(hook, Hook) else FunctionHook(hook, "after_step") for hook in hooks]
        self.folder, self.seed, self.quiet = folder, seed, quiet

    def fit(
        self,
        train: Data,
        *,
        val: Data | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        batch_size: int = 32,
        validate: str = "1ep",
        log: str = "50step",
        checkpoint: str | Hook | None = None,
        resume: bool = False,
    ) -> Run:
        """Train on a dataset (made into batches here) or on anything that gives batches, for epochs or steps."""
        if (epochs is None) == (steps is None):
            raise UserError("say either epochs or steps: trainer.fit(data, epochs=10)")
        run = self._run(train, val, batch_size=batch_size, epochs=epochs, steps=steps)
        for hook in self._own_hooks(validate if val is not None else None, log, checkpoint):
            run.hooks.add(hook)
        options = Options(
            folder=Path(self.folder) if self.folder else None, resume="" if resume else None, quiet=self.quiet
        )
        with Session(run, options, lasting=self.folder is not None) as session:
            session.train()
        return run

    def evaluate(self, data: Data, *, batch_size: int = 256) -> dict[str, float]:
        """Losses and metrics on a dataset or on batches; nothing is learnt."""
        run = self._run(data, None, batch_size=batch_size, epochs=0, steps=None)
        return loop.evaluate(run, self._loader(data, batch_size, shuffle=False), run.evaluation)

    def _run(self, train: Data, val: Data | None, *, batch_size: int, epochs: int | None, steps: int | None) -> Run:
        data = {"train": self._loader(train, batch_size, shuffle=True)}
        if val is not None:
            data["val"] = self._loader(val, batch_size, shuffle=False)
        length = _length(data["train"])
        total = steps if steps is not None else epochs * length if length is not None and epochs is not None else None
        return Run(
            model=self.model,
            update=self.update,
            loop=loop.epochs if steps is None else loop.steps,
            hooks=HookTable(self.hooks, steps_per_epoch=length),
            data=data,
            optimizers=self.optimizers,
            evaluation=Evaluation(self.forward, self.metrics, autocast=self.update.autocast),
            max_epochs=epochs,
            total_steps=total,
            steps_per_epoch=length,
        )

    def _loader(self, data: Data, batch_size: int, *, shuffle: bool) -> Any:
        gives_samples = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list | tuple)
        if not gives_samples or isinstance(data, torch.utils.data.DataLoader):
            return data if hasattr(data, "load_state_dict") else Replay(data)
        device = None if self.device.type == "cpu" else self.device
        return Loader(data, batch_size=batch_size, shuffle=shuffle, seed=self.seed, device=device)

    def _own_hooks(self, validate: str | None, log: str, checkpoint: str | Hook | None) -> list[Hook]:
        logging = Log()
        logging.every = parse(log)
        hooks: list[Hook] = [Timer(), logging]
        if validate is not None:
            evaluating = Evaluate()
            evaluating.every = parse(validate)
            hooks.append(evaluating)
        if isinstance(checkpoint, Hook):
            hooks.append(checkpoint)
        elif checkpoint is not None:
            from etude.hooks.checkpoint import Checkpoint

            saving = Checkpoint()
            saving.every = parse(checkpoint)
            hooks.append(saving)
        return hooks


def _length(loader: Any) -> int | None:
    """Batches of an epoch; None for a stream."""
    try:
        return len(loader)
    except TypeError:
        return None
