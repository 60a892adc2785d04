"""Freeze: keeps parameters fixed, for a while or for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from etude.core.hook import Hook
from etude.errors import ConfigError
from etude.optim.groups import named_parameters
from etude.units import Amount, parse_written

if TYPE_CHECKING:
    from etude.core.run import Run


class Freeze(Hook):
    """Keeps parameters fixed whose name matches one of ``match`` (``encoder``, ``*.bias``), from ``begin`` to
    ``until``.

    Modules that hold frozen parameters only stay in eval mode meanwhile, so that batch norms keep their statistics;
    turn that off with ``still=False``. What is frozen follows from the step alone, so a resumed run agrees.
    """

    priority = 10

    def __init__(
        self,
        match: str | Sequence[str],
        begin: str | int | Amount | None = None,
        until: str | int | Amount | None = None,
        still: bool = True,
    ) -> None:
        self.match = (match,) if isinstance(match, str) else tuple(match)
        if not self.match:
            raise ConfigError("Freeze: match names no parameters")
        self.begin, self.until, self.still = begin, until, still
        self._frozen: bool | None = None
        self._touched = False
        self._params: list[nn.Parameter] = []
        self._modules: list[nn.Module] = []
        self._window = (0.0, float("inf"))

    def attach(self, run: Run) -> None:
        """Find the parameters, so that a pattern that fits nothing is reported before training begins."""
        self._params = [named.parameter for named in named_parameters(run.model, self.match)]
        chosen = set(map(id, self._params))
        self._modules = [
            module
            for module in run.model.modules()
            if (own := list(module.parameters())) and all(id(parameter) in chosen for parameter in own)
        ]
        begin = 0 if self.begin is None else parse_written(self.begin).steps(run.steps_per_epoch)
        until = float("inf") if self.until is None else parse_written(self.until).steps(run.steps_per_epoch)
        if until <= begin:
            raise ConfigError(f"Freeze: ends at step {until}, before it begins (step {begin})")
        self._window = (begin, until)

    def describe(self) -> str:
        """Return what is frozen and when, for ``etude plan``."""
        (begin, until), count = self._window, sum(parameter.numel() for parameter in self._params)
        end = "to the end" if until == float("inf") else f"to {until:g}"
        when = "" if self._window == (0, float("inf")) else f", from step {begin + 1:g} {end}"
        return f"{', '.join(self.match)} ({count:,} parameters{when})"

    def before_run(self, run: Run) -> None:
        if not self._params:
            self.attach(run)

    def before_epoch(self, run: Run) -> None:
        self._frozen = None  # the loop has put every module into training mode

    def before_step(self, run: Run) -> None:
        begin, until = self._window
        frozen = begin <= run.step < until
        if frozen is not self._frozen:
            if frozen or self._touched:
                self._set(frozen)
            self._frozen = frozen

    def after_eval(self, run: Run) -> None:
        self._frozen = None  # as above, after an evaluation

    def _set(self, frozen: bool) -> None:
        self._touched = True
        for parameter in self._params:
            parameter.requires_grad_(not frozen)
            if frozen:
                parameter.grad = None
        if self.still:
            for module in self._modules:
                module.train(not frozen)
