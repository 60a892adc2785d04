"""MMEngine's FlexibleRunner, which leaves building model, optimizers and schedulers to a strategy."""

from __future__ import annotations

from typing import Any

from torch import nn

from etude_openmm.mmengine.live.dist.utils import infer_launcher
from etude_openmm.mmengine.live.runner.runner import Runner
from etude_openmm.mmengine.live.strategies import BaseStrategy
from etude_openmm.shared.registries.root import STRATEGIES


class FlexibleRunner(Runner):
    """A :class:`Runner` with a ``strategy`` and ``compile`` as arguments, and a ``resume`` that may be a path.

    As in :class:`Runner`, hooks get ``before_run`` before anything is loaded, so that hooks which prepare there (EMA)
    can resume.
    """

    def __init__(
        self,
        *,
        model: nn.Module | dict[str, Any],
        work_dir: str = "work_dirs",
        strategy: BaseStrategy | dict[str, Any] | None = None,
        launcher: str | None = None,
        resume: bool | str = False,
        load_from: str | None = None,
        compile: bool | dict[str, Any] = False,
        **kwargs: Any,
    ) -> None:
        if not isinstance(compile, bool | dict):
            raise TypeError(f"compile should be a bool or dict, but got {type(compile)}")
        if isinstance(resume, str):
            if load_from is not None:
                raise ValueError(f"If resume is a str, load_from should be None, but got {load_from}")
            load_from, resume = resume, True
        self._strategy_cfg, self._compile = strategy, compile
        super().__init__(
            model=model,
            work_dir=work_dir,
            launcher=infer_launcher() if launcher is None else launcher,
            resume=resume,
            load_from=load_from,
            **kwargs,
        )

    @classmethod
    def from_cfg(cls, cfg: Any) -> Any:
        """Return a runner from a config, whose keys are the arguments."""
        cfg, given = cls._arguments(cfg)
        given |= {
            "work_dir": cfg.get("work_dir", "work_dirs"),
            "launcher": cfg.get("launcher"),
            "strategy": cfg.get("strategy"),
            "compile": cfg.get("compile", False),
        }
        return cls(cfg=cfg, **given)

    def _placed(self, model: nn.Module) -> nn.Module:
        """Return the model as it is: the strategy places it, when a loop begins."""
        self.strategy = self.build_strategy(self._strategy_cfg)
        return model

    def build_strategy(self, strategy: BaseStrategy | dict[str, Any] | None = None) -> BaseStrategy:
        """Return the strategy. The default is DDP if there are several processes, else a single device."""
        if isinstance(strategy, BaseStrategy):
            return strategy
        options = {"type": "DDPStrategy" if self.distributed else "SingleDeviceStrategy", **(strategy or {})}
        known = {
            "work_dir": self.work_dir,
            "experiment_name": self.experiment_name,
            "auto_scale_lr": self.auto_scale_lr,
        }
        made: BaseStrategy = STRATEGIES.build(options, default_args=known)
        return made

    def _build_for_training(self) -> None:
        self._train_loop = self.build_train_loop(self._train_loop)
        if self._val_loop is not None:
            self._val_loop = self.build_val_loop(self._val_loop)
        loop = self._train_loop
        self.strategy.prepare(
            self.model,
            optim_wrapper=self.optim_wrapper,
            param_scheduler=self.param_schedulers,
            compile=self._compile,
            dispatch_kwargs={
                "epoch_length": len(loop.dataloader),
                "max_epochs": loop.max_epochs,
                "max_iters": loop.max_iters,
                "train_micro_batch_size_per_gpu": getattr(loop.dataloader, "batch_size", None),
            },
        )
        self._take_prepared()
        self._tell_the_run()

    def _take_prepared(self) -> None:
        for name in ("model", "optim_wrapper", "param_schedulers"):
            if getattr(self.strategy, name) is not None:
                setattr(self, name, getattr(self.strategy, name))

    def _init_model_weights(self) -> None:
        """Do nothing: the strategy has initialised the weights."""

    def _run_alone(self, loop: Any) -> dict[str, float]:
        wanted = self.cfg.get("init_weights_for_test_or_val", True)
        self.strategy.prepare(self.model, dispatch_kwargs={"init_weights_for_test_or_val": wanted})
        self._take_prepared()
        return super()._run_alone(loop)
