"""Which names mmcv's own files take from one another: users import, and tests patch, them at these places, too."""

from __future__ import annotations

_HOOK = "HOOKS Hook"
_TRACKER = "HOOKS LoggerHook TORCH_VERSION digit_version master_only scandir is_tuple_of FileClient"

#: Import name → names that are at home elsewhere.
IMPORTED: dict[str, str] = {
    "mmcv": (
        "DataLoader IS_CUDA_AVAILABLE IS_IPU_AVAILABLE IS_MLU_AVAILABLE IS_MPS_AVAILABLE IS_NPU_AVAILABLE "
        "PoolDataLoader SyncBatchNorm TORCH_VERSION assert_attrs_equal assert_dict_contains_subset "
        "assert_dict_has_keys assert_is_norm_layer assert_keys_equal assert_params_all_zeros check_python_script "
        "collect_env get_logger is_jit_tracing is_rocm_pytorch jit load_url skip_no_elena torch_meshgrid worker_init_fn"
    ),
    "mmcv.cnn.utils.weight_init": "Registry build_from_cfg get_logger print_log",
    "mmcv.engine.test": "get_dist_info",
    "mmcv.fileio.file_client": "has_method is_filepath",
    "mmcv.fileio.io": "is_list_of FileClient",
    "mmcv.parallel.collate": "DataContainer",
    "mmcv.parallel.data_parallel": "scatter_kwargs",
    "mmcv.parallel.distributed": "TORCH_VERSION digit_version print_log scatter_kwargs",
    "mmcv.parallel.registry": "Registry",
    "mmcv.parallel.scatter_gather": "DataContainer",
    "mmcv.parallel.utils": "MODULE_WRAPPERS",
    "mmcv.runner.base_module": "master_only get_logger logger_initialized print_log",
    "mmcv.runner.base_runner": (
        "HOOKS Hook LogBuffer Priority get_priority get_dist_info get_time_str is_module_wrapper load_checkpoint"
    ),
    "mmcv.runner.builder": "Registry",
    "mmcv.runner.checkpoint": "FileClient load_url get_dist_info is_module_wrapper mkdir_or_exist digit_version",
    "mmcv.runner.default_constructor": "RUNNERS RUNNER_BUILDERS DefaultRunnerConstructor",
    "mmcv.runner.dist_utils": "IS_MLU_AVAILABLE IS_NPU_AVAILABLE",
    "mmcv.runner.epoch_based_runner": "save_checkpoint get_host_info",
    "mmcv.runner.fp16_utils": "IS_NPU_AVAILABLE TORCH_VERSION allreduce_grads digit_version",
    "mmcv.runner.hooks.checkpoint": f"{_HOOK} FileClient allreduce_params master_only",
    "mmcv.runner.hooks.closure": _HOOK,
    "mmcv.runner.hooks.ema": f"{_HOOK} is_module_wrapper",
    "mmcv.runner.hooks.evaluation": "FileClient Hook LoggerHook is_seq_of",
    "mmcv.runner.hooks.hook": "Registry is_method_overridden",
    "mmcv.runner.hooks.iter_timer": _HOOK,
    "mmcv.runner.hooks.logger.base": "Hook",
    **{
        f"mmcv.runner.hooks.logger.{name}": _TRACKER
        for name in ("text", "tensorboard", "wandb", "mlflow", "neptune", "clearml", "dvclive", "segmind", "pavi")
    },
    "mmcv.runner.hooks.lr_updater": _HOOK,
    "mmcv.runner.hooks.memory": _HOOK,
    "mmcv.runner.hooks.momentum_updater": f"{_HOOK} annealing_cos annealing_linear format_param",
    "mmcv.runner.hooks.optimizer": (
        f"{_HOOK} IS_NPU_AVAILABLE TORCH_VERSION allreduce_grads digit_version wrap_fp16_model"
    ),
    "mmcv.runner.hooks.profiler": f"{_HOOK} master_only",
    "mmcv.runner.hooks.sampler_seed": _HOOK,
    "mmcv.runner.hooks.sync_buffer": f"{_HOOK} allreduce_params",
    "mmcv.runner.iter_based_runner": "IterTimerHook save_checkpoint get_host_info",
    "mmcv.utils.config": "check_file_exist digit_version import_modules_from_strings",
    "mmcv.utils.parrots_wrapper": "IS_CUDA_AVAILABLE is_cuda_available",
    "mmcv.utils.registry": "deprecated_api_warning is_seq_of",
    "mmcv.utils.trace": "digit_version",
}
