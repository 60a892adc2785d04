"""Names of MMEngine: runner, loops, hooks, optim wrappers, models, averaged models, strategies."""

from __future__ import annotations

from etude.dialects import ownership

_LIVE = "etude.dialects.mmengine.live"


def _from(module: str, names: str) -> dict[str, str]:
    return {name: f"{_LIVE}.{module}:{name}" for name in names.split()}


def _on_disk(module: str, name: str) -> dict[str, str]:
    """A class that only the original has, where it is installed."""
    return {name: f"mmengine.{module}:{name}"} if ownership.original("mmengine") is not None else {}


_HOOK_FILES = {
    "hook": "Hook",
    "runtime_info_hook": "RuntimeInfoHook",
    "iter_timer_hook": "IterTimerHook",
    "sampler_seed_hook": "DistSamplerSeedHook",
    "logger_hook": "LoggerHook SUFFIX_TYPE",
    "param_scheduler_hook": "ParamSchedulerHook",
    "checkpoint_hook": "CheckpointHook",
    "ema_hook": "EMAHook",
    "sync_buffer_hook": "SyncBuffersHook",
    "empty_cache_hook": "EmptyCacheHook",
    "early_stopping_hook": "EarlyStoppingHook",
    "profiler_hook": "ProfilerHook NPUProfilerHook check_kineto",
    "naive_visualization_hook": "NaiveVisualizationHook",
    "test_time_aug_hook": "PrepareTTAHook build_runner_with_tta",
}
_HOOKS = {f"mmengine.hooks.{file}": _from(f"hooks.{file}", names) for file, names in _HOOK_FILES.items()}

_LOOPS = _from(
    "loops",
    "BaseLoop EpochBasedTrainLoop IterBasedTrainLoop ValLoop TestLoop _InfiniteDataloaderIterator "
    "_parse_losses _update_losses",
)
_RUNNER = _from("runner.runner", "Runner")
_FLEXIBLE = _from("runner.flexible", "FlexibleRunner")

_WRAPPER_FILES = {
    "base": _from("optim_wrapper.base", "BaseOptimWrapper"),
    "optimizer_wrapper": _from("optim_wrapper.optim_wrapper", "OptimWrapper"),
    "amp_optimizer_wrapper": _from("optim_wrapper.amp", "AmpOptimWrapper"),
    "apex_optimizer_wrapper": _from("optim_wrapper.apex", "ApexOptimWrapper"),
    "optimizer_wrapper_dict": _from("optim_wrapper.several", "OptimWrapperDict"),
}
_WRAPPERS = {name: target for names in _WRAPPER_FILES.values() for name, target in names.items()}

_BASE_MODEL = _from("model.base_model", "BaseModel")
_AVERAGED = _from(
    "model.averaged", "BaseAveragedModel ExponentialMovingAverage MomentumAnnealingEMA StochasticWeightAverage"
)
_TTA = _from("model.test_time_aug", "BaseTTAModel")
_MODEL_WRAPPERS = {
    "distributed": _from("model.wrappers", "MMDistributedDataParallel"),
    "seperate_distributed": _from("model.wrappers", "MMSeparateDistributedDataParallel"),
    "fully_sharded_distributed": _from("model.sharded", "MMFullyShardedDataParallel"),
    "utils": _from("model.wrappers", "is_model_wrapper"),
}
_ALL_WRAPPERS = {name: target for names in _MODEL_WRAPPERS.values() for name, target in names.items()}
_MODEL_UTILS = _from("model.utils", "convert_sync_batchnorm revert_sync_batchnorm detect_anomalous_params merge_dict")

_STRATEGY_FILES = {
    "base": _from("strategy.base", "BaseStrategy"),
    "single_device": _from("strategy.single_device", "SingleDeviceStrategy"),
    "distributed": _from("strategy.distributed", "DDPStrategy"),
    "fsdp": _from("strategy.sharded", "FSDPStrategy"),
}
_STRATEGIES = {name: target for names in _STRATEGY_FILES.values() for name, target in names.items()}
_PRIORITY = _from("priority", "Priority get_priority")
_AMP = _from("amp", "autocast")

_SEED = _from("runner.environment", "set_random_seed")
_RECOMPUTE = _from("runner.features", "turn_on_activation_checkpointing")

MODULES: dict[str, dict[str, str]] = {
    **_HOOKS,
    "mmengine.hooks": {name: target for names in _HOOKS.values() for name, target in names.items() if name[0] != "S"}
    | _from("hooks.sync_buffer_hook", "SyncBuffersHook"),
    "mmengine.runner": _LOOPS | _RUNNER | _FLEXIBLE | _PRIORITY | _AMP | _SEED | _RECOMPUTE,
    "mmengine.runner.runner": _RUNNER | _from("runner.dataloaders", "_SlicedDataset"),
    "mmengine.runner._flexible_runner": _FLEXIBLE,
    "mmengine.runner.loops": _LOOPS,
    "mmengine.runner.base_loop": _from("loops", "BaseLoop"),
    "mmengine.runner.priority": _PRIORITY,
    "mmengine.runner.amp": _AMP,
    "mmengine.runner.utils": _SEED
    | _from("loops", "calc_dynamic_intervals")
    | _from("runner.dataloaders", "_get_batch_size"),
    "mmengine.runner.activation_checkpointing": _RECOMPUTE,
    "mmengine.optim": _WRAPPERS,
    "mmengine.optim.optimizer": _WRAPPERS,
    **{f"mmengine.optim.optimizer.{file}": names for file, names in _WRAPPER_FILES.items()},
    "mmengine.model": _BASE_MODEL | _AVERAGED | _TTA | _ALL_WRAPPERS | _MODEL_UTILS,
    "mmengine.model.base_model": _BASE_MODEL,
    "mmengine.model.base_model.base_model": _BASE_MODEL,
    "mmengine.model.averaged_model": _AVERAGED,
    "mmengine.model.test_time_aug": _TTA,
    "mmengine.model.utils": _MODEL_UTILS | _from("model.utils", "_BatchNormXd"),
    "mmengine.model.wrappers": _ALL_WRAPPERS,
    **{f"mmengine.model.wrappers.{file}": names for file, names in _MODEL_WRAPPERS.items()},
    "mmengine._strategy": _STRATEGIES,
    **{f"mmengine._strategy.{file}": names for file, names in _STRATEGY_FILES.items()},
    "mmselfsup.models.utils.ema": _from("model.averaged", "CosineEMA"),
    "mmselfsup.models.utils": _from("model.averaged", "CosineEMA"),
}

OUT_OF_SCOPE: dict[str, str] = {}

#: What the root registries know without being asked: registry → name → where it is.
REGISTERED: dict[str, dict[str, str]] = {
    "RUNNERS": _RUNNER | _FLEXIBLE,
    "LOOPS": _from("loops", "EpochBasedTrainLoop IterBasedTrainLoop ValLoop TestLoop"),
    "HOOKS": {
        name: target
        for name, target in MODULES["mmengine.hooks"].items()
        if name not in ("Hook", "build_runner_with_tta")
    },
    "OPTIM_WRAPPERS": _from("optim_wrapper.optim_wrapper", "OptimWrapper")
    | _from("optim_wrapper.amp", "AmpOptimWrapper")
    | _from("optim_wrapper.apex", "ApexOptimWrapper")
    | _on_disk("_strategy.deepspeed", "DeepSpeedOptimWrapper"),
    "MODELS": _TTA
    | _from("model.averaged", "ExponentialMovingAverage MomentumAnnealingEMA StochasticWeightAverage CosineEMA"),
    "MODEL_WRAPPERS": {"DistributedDataParallel": "torch.nn.parallel:DistributedDataParallel"}
    | {"DataParallel": "torch.nn:DataParallel"}
    | {name: target for name, target in _ALL_WRAPPERS.items() if name != "is_model_wrapper"},
    "STRATEGIES": {name: target for name, target in _STRATEGIES.items() if name != "BaseStrategy"}
    | _on_disk("_strategy.deepspeed", "DeepSpeedStrategy")
    | _on_disk("_strategy.colossalai", "ColossalAIStrategy"),
}
