"""Which names MMEngine's own files import from one another: users import and tests patch them at these places, too."""

from __future__ import annotations

#: File of MMEngine → names that it takes from other files.
IMPORTED: dict[str, str] = {
    "mmengine._strategy.base": (
        "Config ConfigDict broadcast get_dist_info infer_launcher is_distributed MMLogger is_model_wrapper "
        "BaseOptimWrapper OptimWrapperDict _ParamScheduler build_optim_wrapper MODELS OPTIM_WRAPPERS PARAM_SCHEDULERS "
        "digit_version TORCH_VERSION collect_env set_multi_processing"
    ),
    "mmengine._strategy.distributed": (
        "get_device init_dist is_distributed master_only convert_sync_batchnorm is_model_wrapper MODEL_WRAPPERS "
        "STRATEGIES SingleDeviceStrategy"
    ),
    "mmengine._strategy.fsdp": (
        "Config ConfigDict get_device get_rank is_main_process BaseDataPreprocessor is_model_wrapper AmpOptimWrapper "
        "BaseOptimWrapper OptimWrapper OptimWrapperDict _ParamScheduler build_optim_wrapper FUNCTIONS MODEL_WRAPPERS "
        "OPTIM_WRAPPERS PARAM_SCHEDULERS STRATEGIES Registry get_git_hash mkdir_or_exist DDPStrategy"
    ),
    "mmengine._strategy.single_device": (
        "get_device revert_sync_batchnorm BaseOptimWrapper _ParamScheduler STRATEGIES get_git_hash BaseStrategy"
    ),
    "mmengine.config.config": (
        "dump load print_log check_file_exist digit_version get_installed_path import_modules_from_strings "
        "is_installed ConfigParsingError ImportTransformer _gather_abs_import_lazyobj"
    ),
    "mmengine.config.lazy": "is_seq_of",
    "mmengine.config.utils": "load check_file_exist",
    "mmengine.dataset.base_dataset": "Config join_path list_from_file load print_log TRANSFORMS is_abs",
    "mmengine.dataset.dataset_wrapper": "print_log DATASETS BaseDataset force_full_init",
    "mmengine.dataset.sampler": "get_dist_info sync_random_seed DATA_SAMPLERS",
    "mmengine.dataset.utils": "FUNCTIONS BaseDataElement",
    "mmengine.dist.dist": (
        "get_world_size get_rank get_backend get_dist_info get_default_group barrier get_data_device get_comm_device "
        "cast_data_device digit_version TORCH_VERSION is_npu_available"
    ),
    "mmengine.dist.utils": "is_mlu_available is_npu_available is_musa_available",
    "mmengine.evaluator.evaluator": "pseudo_collate EVALUATOR METRICS BaseDataElement BaseMetric",
    "mmengine.evaluator.metric": (
        "broadcast_object_list collect_results is_main_process dump print_log METRICS BaseDataElement"
    ),
    "mmengine.fileio.file_client": "print_log is_filepath",
    "mmengine.fileio.io": "is_filepath is_str",
    "mmengine.hooks.checkpoint_hook": (
        "is_main_process master_only FileClient get_file_backend print_log HOOKS is_list_of is_seq_of Hook"
    ),
    "mmengine.hooks.early_stopping_hook": "HOOKS Hook",
    "mmengine.hooks.ema_hook": "print_log is_model_wrapper HOOKS MODELS Hook",
    "mmengine.hooks.empty_cache_hook": "HOOKS is_cuda_available is_musa_available Hook",
    "mmengine.hooks.hook": "is_method_overridden",
    "mmengine.hooks.iter_timer_hook": "HOOKS Hook",
    "mmengine.hooks.logger_hook": "FileClient dump get_file_backend Hook print_log HOOKS is_seq_of scandir",
    "mmengine.hooks.naive_visualization_hook": "Hook HOOKS",
    "mmengine.hooks.param_scheduler_hook": "_ParamScheduler HOOKS is_list_of Hook",
    "mmengine.hooks.profiler_hook": "master_only Hook print_log HOOKS",
    "mmengine.hooks.runtime_info_hook": "HOOKS get_git_hash __version__ Hook",
    "mmengine.hooks.sampler_seed_hook": "HOOKS Hook",
    "mmengine.hooks.sync_buffer_hook": "all_reduce_params is_distributed HOOKS Hook",
    "mmengine.hooks.test_time_aug_hook": "Hook HOOKS MODELS RUNNERS",
    "mmengine.logging.logger": "ManagerMixin",
    "mmengine.logging.message_hub": "ManagerMixin HistoryBuffer print_log",
    "mmengine.model.averaged_model": "print_log MODELS",
    "mmengine.model.base_model.base_model": "OptimWrapper MODELS is_list_of BaseModule BaseDataPreprocessor",
    "mmengine.model.base_model.data_preprocessor": "MODELS BaseDataElement is_seq_of",
    "mmengine.model.base_module": (
        "master_only MMLogger print_log PretrainedInit initialize update_init_info is_model_wrapper"
    ),
    "mmengine.model.test_time_aug": "MODELS BaseDataElement BaseModel",
    "mmengine.model.utils": "print_log mmcv_full_available",
    "mmengine.model.weight_init": "print_log WEIGHT_INITIALIZERS build_from_cfg",
    "mmengine.model.wrappers": "TORCH_VERSION digit_version",
    "mmengine.model.wrappers.distributed": "OptimWrapper MODEL_WRAPPERS detect_anomalous_params",
    "mmengine.model.wrappers.fully_sharded_distributed": (
        "OptimWrapper FUNCTIONS MODEL_WRAPPERS BaseDataElement digit_version is_seq_of"
    ),
    "mmengine.model.wrappers.seperate_distributed": (
        "get_device OptimWrapperDict MODEL_WRAPPERS MMDistributedDataParallel"
    ),
    "mmengine.model.wrappers.utils": "MODEL_WRAPPERS Registry",
    "mmengine.optim.optimizer.amp_optimizer_wrapper": (
        "is_cuda_available is_mlu_available is_musa_available is_npu_available OPTIM_WRAPPERS digit_version "
        "TORCH_VERSION OptimWrapper"
    ),
    "mmengine.optim.optimizer.apex_optimizer_wrapper": "OPTIM_WRAPPERS OptimWrapper",
    "mmengine.optim.optimizer.builder": (
        "Config ConfigDict is_npu_available is_npu_support_full_precision OPTIM_WRAPPER_CONSTRUCTORS OPTIMIZERS "
        "OptimWrapper"
    ),
    "mmengine.optim.optimizer.default_constructor": (
        "print_log OPTIM_WRAPPER_CONSTRUCTORS OPTIM_WRAPPERS OPTIMIZERS is_list_of mmcv_full_available OptimWrapper"
    ),
    "mmengine.optim.optimizer.optimizer_wrapper": (
        "MessageHub print_log OPTIM_WRAPPERS has_batch_norm BaseOptimWrapper"
    ),
    "mmengine.optim.optimizer.optimizer_wrapper_dict": "OptimWrapper",
    "mmengine.optim.optimizer.zero_optimizer": "is_main_process digit_version TORCH_VERSION OPTIMIZERS",
    "mmengine.optim.scheduler.lr_scheduler": (
        "PARAM_SCHEDULERS ConstantParamScheduler CosineAnnealingParamScheduler CosineRestartParamScheduler "
        "ExponentialParamScheduler LinearParamScheduler MultiStepParamScheduler OneCycleParamScheduler "
        "PolyParamScheduler ReduceOnPlateauParamScheduler StepParamScheduler"
    ),
    "mmengine.optim.scheduler.momentum_scheduler": (
        "PARAM_SCHEDULERS ConstantParamScheduler CosineAnnealingParamScheduler CosineRestartParamScheduler "
        "ExponentialParamScheduler LinearParamScheduler MultiStepParamScheduler PolyParamScheduler "
        "ReduceOnPlateauParamScheduler StepParamScheduler"
    ),
    "mmengine.optim.scheduler.param_scheduler": "print_log BaseOptimWrapper PARAM_SCHEDULERS",
    "mmengine.registry.build_functions": "Config ConfigDict ManagerMixin digit_version",
    "mmengine.registry.default_scope": "ManagerMixin",
    "mmengine.registry.registry": "get_object_from_string is_seq_of DefaultScope",
    "mmengine.registry.root": (
        "build_model_from_cfg build_optimizer_from_cfg build_runner_from_cfg build_scheduler_from_cfg Registry"
    ),
    "mmengine.registry.utils": "dump print_log",
    "mmengine.runner._flexible_runner": (
        "BaseStrategy Config ConfigDict get_rank infer_launcher master_only Evaluator FileClient join_path Hook "
        "MessageHub print_log OptimWrapper OptimWrapperDict _ParamScheduler DATA_SAMPLERS DATASETS EVALUATOR "
        "FUNCTIONS HOOKS LOG_PROCESSORS LOOPS RUNNERS STRATEGIES VISUALIZERS DefaultScope digit_version TORCH_VERSION "
        "Visualizer BaseLoop find_latest_checkpoint LogProcessor EpochBasedTrainLoop IterBasedTrainLoop TestLoop "
        "ValLoop Priority get_priority"
    ),
    "mmengine.runner.amp": (
        "get_device is_cuda_available is_mlu_available is_npu_available print_log digit_version TORCH_VERSION"
    ),
    "mmengine.runner.checkpoint": (
        "get_dist_info FileClient get_file_backend print_log BaseTTAModel is_model_wrapper apply_to "
        "deprecated_function digit_version mkdir_or_exist"
    ),
    "mmengine.runner.log_processor": (
        "get_max_cuda_memory get_max_musa_memory is_cuda_available is_musa_available LOG_PROCESSORS"
    ),
    "mmengine.runner.loops": (
        "Evaluator HistoryBuffer print_log LOOPS BaseDataElement is_list_of autocast calc_dynamic_intervals"
    ),
    "mmengine.runner.runner": (
        "Config ConfigDict get_device broadcast get_dist_info get_rank get_world_size init_dist is_distributed "
        "master_only Evaluator FileClient join_path Hook MessageHub MMLogger print_log MMDistributedDataParallel "
        "convert_sync_batchnorm is_model_wrapper revert_sync_batchnorm OptimWrapper OptimWrapperDict _ParamScheduler "
        "build_optim_wrapper DATA_SAMPLERS DATASETS EVALUATOR FUNCTIONS HOOKS LOG_PROCESSORS LOOPS MODEL_WRAPPERS "
        "MODELS OPTIM_WRAPPERS PARAM_SCHEDULERS RUNNERS VISUALIZERS DefaultScope apply_to digit_version get_git_hash "
        "is_seq_of TORCH_VERSION collect_env set_multi_processing Visualizer turn_on_activation_checkpointing "
        "BaseLoop _load_checkpoint _load_checkpoint_to_model find_latest_checkpoint save_checkpoint weights_to_cpu "
        "LogProcessor EpochBasedTrainLoop IterBasedTrainLoop TestLoop ValLoop Priority get_priority set_random_seed"
    ),
    "mmengine.runner.utils": (
        "is_cuda_available is_musa_available get_rank sync_random_seed print_log digit_version is_list_of TORCH_VERSION"
    ),
    "mmengine.structures.instance_data": "get_device BaseDataElement",
    "mmengine.structures.label_data": "BaseDataElement",
    "mmengine.structures.pixel_data": "BaseDataElement",
    "mmengine.testing.compare": "digit_version TORCH_VERSION",
    "mmengine.testing.runner_test_case": (
        "Config is_distributed BaseMetric MessageHub MMLogger BaseModel DATASETS METRICS MODELS DefaultScope Runner "
        "Visualizer"
    ),
    "mmengine.utils.dl_utils.collect_env": "is_cuda_available is_musa_available TORCH_VERSION is_rocm_pytorch",
    "mmengine.utils.dl_utils.misc": "is_tuple_of",
    "mmengine.utils.dl_utils.time_counter": "is_cuda_available is_musa_available master_only MMLogger print_log",
    "mmengine.utils.path": "is_str",
    "mmengine.utils.progressbar": "Timer",
    "mmengine.visualization.vis_backend": (
        "Config ConfigDict dump MMLogger print_log VISBACKENDS digit_version scandir TORCH_VERSION"
    ),
    "mmengine.visualization.visualizer": (
        "Config master_only VISBACKENDS VISUALIZERS BaseDataElement ManagerMixin is_seq_of BaseVisBackend"
    ),
}
