"""MMEngine's Runner: scripts construct it, and hooks, models and loops get it as an argument."""

from __future__ import annotations

import copy
import importlib
import os
from typing import Any

from torch import nn

from etude.checkpoint.formats.background import all_ours
from etude.core.run import Run
from etude.errors import DataError
from etude.hooks.signals import saving_at_signals
from etude_openmm.mmengine.live import exact
from etude_openmm.mmengine.live.dist.collectives import broadcast
from etude_openmm.mmengine.live.dist.utils import get_dist_info
from etude_openmm.mmengine.live.hooks.upkeep_hooks import length_of
from etude_openmm.mmengine.live.loops import BaseLoop
from etude_openmm.mmengine.live.runner import environment
from etude_openmm.mmengine.live.runner.building import Building
from etude_openmm.mmengine.live.runner.checkpoints import Checkpoints
from etude_openmm.mmengine.live.runner.features import turn_on_activation_checkpointing
from etude_openmm.mmengine.live.runner.hooking import Hooking
from etude_openmm.shared.config.config_v2 import Config
from etude_openmm.shared.registries.managers import DefaultScope
from etude_openmm.shared.state import unwrapped

_ARGUMENTS = (
    "train_dataloader", "val_dataloader", "test_dataloader", "train_cfg", "val_cfg", "test_cfg", "auto_scale_lr",
    "optim_wrapper", "param_scheduler", "val_evaluator", "test_evaluator", "default_hooks", "custom_hooks",
    "data_preprocessor", "load_from", "resume", "launcher", "env_cfg", "log_processor", "log_level", "visualizer",
    "default_scope", "randomness", "experiment_name",
)  # fmt: skip
_DEFAULTS: dict[str, Any] = {
    "resume": False,
    "launcher": "none",
    "env_cfg": {"dist_cfg": {"backend": "nccl"}},
    "log_level": "INFO",
    "default_scope": "mmengine",
    "randomness": {"seed": None},
}


class TrainStep:
    """Makes one update by calling ``train_step`` of the model."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def __call__(self, run: Run, batch: Any) -> Any:
        wrapper = self.runner.optim_wrapper
        outputs = run.model.train_step(batch, optim_wrapper=wrapper)  # type: ignore[operator]
        run.norm = wrapper.__dict__.pop("norm", None)
        return outputs


class Runner(Building, Checkpoints, Hooking):
    """Holds everything of a run. Loops, dataloaders, optimizers and schedulers are built when they are first needed.

    ``train()`` builds them, calls ``before_run``, initialises and loads weights, and runs the train loop. The
    steps themselves are Étude's (``engine``).
    """

    def __init__(
        self,
        model: nn.Module | dict[str, Any],
        work_dir: str,
        train_dataloader: Any = None,
        val_dataloader: Any = None,
        test_dataloader: Any = None,
        train_cfg: dict[str, Any] | None = None,
        val_cfg: dict[str, Any] | None = None,
        test_cfg: dict[str, Any] | None = None,
        auto_scale_lr: dict[str, Any] | None = None,
        optim_wrapper: Any = None,
        param_scheduler: Any = None,
        val_evaluator: Any = None,
        test_evaluator: Any = None,
        default_hooks: dict[str, Any] | None = None,
        custom_hooks: list[Any] | None = None,
        data_preprocessor: Any = None,
        load_from: str | None = None,
        resume: bool = False,
        launcher: str = "none",
        env_cfg: dict[str, Any] = {"dist_cfg": {"backend": "nccl"}},  # noqa: B006
        log_processor: Any = None,
        log_level: int | str = "INFO",
        visualizer: Any = None,
        default_scope: str | None = "mmengine",
        randomness: dict[str, Any] = {"seed": None},  # noqa: B006
        experiment_name: str | None = None,
        cfg: Config | dict[str, Any] | None = None,
    ) -> None:
        self._work_dir = os.path.abspath(work_dir)
        os.makedirs(self._work_dir, exist_ok=True)
        self.cfg = copy.deepcopy(cfg) if isinstance(cfg, Config) else Config(dict(cfg or {}))

        _all_or_none(train_dataloader=train_dataloader, train_cfg=train_cfg, optim_wrapper=optim_wrapper)
        _all_or_none(val_dataloader=val_dataloader, val_cfg=val_cfg, val_evaluator=val_evaluator)
        _all_or_none(test_dataloader=test_dataloader, test_cfg=test_cfg, test_evaluator=test_evaluator)
        if param_scheduler is not None and optim_wrapper is None:
            raise ValueError(f"param_scheduler should be None when optim_wrapper is None, but got {param_scheduler}")
        self._check_scheduler_cfg(param_scheduler)
        self._train_dataloader, self._train_loop = train_dataloader, train_cfg
        self._val_dataloader, self._val_loop, self._val_evaluator = val_dataloader, val_cfg, val_evaluator
        self._test_dataloader, self._test_loop, self._test_evaluator = test_dataloader, test_cfg, test_evaluator
        self.optim_wrapper, self.auto_scale_lr = optim_wrapper, auto_scale_lr
        self.param_schedulers = param_scheduler
        self._load_from, self._resume, self._has_loaded = load_from, resume, False

        self._start(launcher, env_cfg, randomness)
        self._open_logs(experiment_name, default_scope, log_processor, log_level)
        self._log_env(env_cfg)
        self.message_hub = self.build_message_hub()
        self.visualizer = self.build_visualizer(visualizer)
        if self.cfg:
            self.visualizer.add_config(self.cfg)

        self._hooks = []
        self._settle_hooks()  # so that call_hook works while there are none
        self._make_model(model, data_preprocessor)
        self.register_hooks(default_hooks, custom_hooks)
        self.logger.info(f"Hooks will be executed in the following order:\n{self.get_hooks_info()}")
        self.dump_config()

    @classmethod
    def from_cfg(cls, cfg: Any) -> Any:
        """Build a runner from a config whose keys are the arguments. Other keys stay readable as ``runner.cfg``."""
        cfg, given = cls._arguments(cfg)
        return cls(work_dir=cfg["work_dir"], cfg=cfg, **given)

    @staticmethod
    def _arguments(cfg: Any) -> tuple[Any, dict[str, Any]]:
        """Return a copy of the config, and the arguments that it gives."""
        cfg = copy.deepcopy(cfg)
        given = {name: cfg.get(name, copy.deepcopy(_DEFAULTS.get(name))) for name in _ARGUMENTS}
        return cfg, {"model": cfg["model"], **given}

    # -- setting up ----------------------------------------------------------------------------------------------

    def _start(self, launcher: str, env_cfg: dict[str, Any], randomness: dict[str, Any]) -> None:
        self._launcher = launcher
        self._distributed = launcher != "none"
        self.setup_env(env_cfg)
        self._randomness_cfg = dict(randomness)
        self.set_randomness(**self._randomness_cfg)

    def _open_logs(
        self, experiment_name: str | None, default_scope: str | None, log_processor: Any, log_level: int | str
    ) -> None:
        """Set the experiment name, the log folder, and the default scope in which registries look up names."""
        self._experiment_name = environment.unique_name(experiment_name, self.cfg.filename, self._timestamp)
        self._log_dir = os.path.join(self._work_dir, self._timestamp)
        os.makedirs(self._log_dir, exist_ok=True)
        self.default_scope: DefaultScope | None = None
        if default_scope is not None:
            self.default_scope = DefaultScope.get_instance(self._experiment_name, scope_name=default_scope)
        self.log_processor = self.build_log_processor({} if log_processor is None else log_processor)
        self.logger = self.build_logger(log_level=log_level)

    def setup_env(self, env_cfg: dict[str, Any]) -> None:
        """Set up processes, threads and file limits, and the timestamp of this run."""
        environment.setup_env(env_cfg, self._launcher)
        self._rank, self._world_size = get_dist_info()
        self._timestamp = environment.common_timestamp()

    def set_randomness(self, seed: int | None, diff_rank_seed: bool = False, deterministic: bool = False) -> None:
        """Seed every generator. ``deterministic`` also forbids nondeterministic operations."""
        self._deterministic = deterministic
        self._seed = environment.set_random_seed(seed, deterministic=deterministic, diff_rank_seed=diff_rank_seed)

    def _log_env(self, env_cfg: dict[str, Any]) -> None:
        self.logger.info(environment.describe(env_cfg, self))

    def _make_model(self, model: nn.Module | dict[str, Any], data_preprocessor: Any) -> None:
        if isinstance(model, dict) and data_preprocessor is not None:
            model = {"data_preprocessor": data_preprocessor, **model}
        made = self._placed(self.build_model(model))
        self.engine = Run(model=made, update=TrainStep(self), loop=self._train_run, runner=self)
        self._model_name = type(unwrapped(made)).__name__

    def _train_run(self, run: Run) -> None:
        self.train()

    def _placed(self, model: nn.Module) -> nn.Module:
        """Return the model on its device, wrapped where that is needed."""
        return self.wrap_model(self.cfg.get("model_wrapper_cfg"), model)

    # -- running -------------------------------------------------------------------------------------------------

    def train(self) -> nn.Module:
        """Train to the end and return the model."""
        self._require("train", self._train_loop, "train_dataloader, train_cfg and optim_wrapper", "train_step")
        if self._val_loop is not None:
            self._require("train", self._val_loop, "", "val_step")
        self._build_for_training()
        with saving_at_signals(self.engine, processes=self.world_size):
            return self._train()

    def _train(self) -> nn.Module:
        self.call_hook("before_run")
        self._init_model_weights()
        self._turn_on_features()
        self.load_or_resume()
        self.optim_wrapper.initialize_count_status(self.model, self._train_loop.iter, self._train_loop.max_iters)
        self._maybe_compile("train_step")
        self._settle_hooks()  # hooks may have been added or given methods in before_run
        try:
            with self.later.running(self.logger.error):
                model = self.train_loop.run()
        except Exception:
            self._save_before_validation()
            raise
        self._save_if_stopped()
        self.call_hook("after_run")
        self._forget_if_over()
        return model  # type: ignore[no-any-return]

    def all_is_ours(self) -> bool:
        """Return whether no user-defined code acts between two steps: no hook, no loop, no runner."""
        return all_ours([self, self.train_loop, *self.hooks])

    def val(self) -> dict[str, float]:
        """Validate and return the metrics."""
        self._require("val", self._val_loop, "val_dataloader, val_cfg and val_evaluator", "val_step")
        self._val_loop = self.build_val_loop(self._val_loop)
        return self._run_alone(self._val_loop)

    def test(self) -> dict[str, float]:
        """Test and return the metrics."""
        self._require("test", self._test_loop, "test_dataloader, test_cfg and test_evaluator", "test_step")
        self._test_loop = self.build_test_loop(self._test_loop)
        return self._run_alone(self._test_loop)

    def _run_alone(self, loop: BaseLoop) -> dict[str, float]:
        self.call_hook("before_run")
        self.load_or_resume()
        metrics: dict[str, float] = loop.run()
        self.call_hook("after_run")
        return metrics

    def _require(self, verb: str, loop: Any, arguments: str, step: str) -> None:
        if loop is None:
            raise RuntimeError(f"`self._{verb}_loop` should not be None when calling {verb} method: give {arguments}")
        purpose = {"train_step": "train", "val_step": "validate", "test_step": "test"}[step]
        assert hasattr(unwrapped(self.model), step), (
            f"If you want to {purpose} your model, please make sure your model has implemented `{step}`: "
            f"{self._model_name} has none"
        )

    def _build_for_training(self) -> None:
        self._train_loop = self.build_train_loop(self._train_loop)
        self.optim_wrapper = self.build_optim_wrapper(self.optim_wrapper)
        self.scale_lr(self.optim_wrapper, self.auto_scale_lr)  # before the schedulers, which keep the first rate
        if self.param_schedulers is not None:
            self.param_schedulers = self.build_param_scheduler(self.param_schedulers)
        if self._val_loop is not None:
            self._val_loop = self.build_val_loop(self._val_loop)
        self._tell_the_run()
        self._require_data()

    def _require_data(self) -> None:
        """Raise a ``DataError`` if the command line would train on no data. Scripts may do so, as in MMEngine."""
        if self.engine.plan is not None and length_of(self.train_dataloader) == 0:
            raise DataError("train_dataloader gives no batch: its dataset is empty, or drop_last leaves nothing of it")

    def _tell_the_run(self) -> None:
        """Give Étude's run the parts that are built late."""
        run, loop = self.engine, self._train_loop
        run.data["train"] = self.train_dataloader
        run.optimizers = {name: wrapper.optimizer for name, wrapper in exact.named(self.optim_wrapper)}
        run.max_epochs, run.total_steps = getattr(loop, "max_epochs", None), getattr(loop, "max_iters", None)

    def _init_model_weights(self) -> None:
        model = unwrapped(self.model)
        if hasattr(model, "init_weights"):
            model.init_weights()
            for tensor in model.state_dict().values():  # each process has drawn its own numbers
                broadcast(tensor)

    def _turn_on_features(self) -> None:
        turn_on_activation_checkpointing(unwrapped(self.model), self.cfg.get("activation_checkpointing") or [])
        joined = self.cfg.get("efficient_conv_bn_eval")
        if joined:
            # It comes from the installed mmengine, see overlay.py.
            original = importlib.import_module("mmengine.model.efficient_conv_bn_eval")
            original.turn_on_efficient_conv_bn_eval(unwrapped(self.model), joined)

    def _save_if_stopped(self) -> None:
        """Save a file to resume from if the run was asked to stop, inside an epoch too."""
        if self.engine.stopping is None or (self.iter >= self.max_iters and not self.owes_validation):
            return
        name = self._save_here()
        self.logger.info(f"stopped ({self.engine.stopping}) at iteration {self.iter}, saved {name}")

    def _save_before_validation(self) -> None:
        """Save what was trained before a validation that failed, whatever the next periodic save would be."""
        if self.owes_validation and self.engine.plan is not None:
            name = self._save_here()
            self.logger.error(f"the validation failed; what was trained before it is saved as {name}, for --resume")

    def _save_here(self) -> str:
        """Save as ``iter_N.pth`` and return that name. Processes wait for each other with a time limit."""
        name = f"iter_{self.iter}.pth"
        several = self.world_size > 1 and self.engine.stopping is not None
        if several:
            self._shares = exact.shares(self, exact.share_of(self))
        self.save_checkpoint(self.work_dir, name, meta={"epoch": self.epoch, "iter": self.iter}, by_epoch=False)
        self._point_to(name)
        if several:
            exact.wait_for_save(self)
        return name


def _all_or_none(**parts: Any) -> None:
    given = [value is not None for value in parts.values()]
    if any(given) and not all(given):
        words = ", ".join(parts)
        values = ", ".join(f"{name}={value!r}" for name, value in parts.items())
        raise ValueError(f"{words} should be either all None or not None, but got {values}")
