"""Names of MMEngine: datasets, samplers, schedulers, constructors, logging, visualisation, evaluation, distribution."""

from __future__ import annotations

_LIVE = "etude.dialects.mmengine.live"


def _from(module: str, names: str) -> dict[str, str]:
    return {name: f"{_LIVE}.{module}:{name}" for name in names.split()}


def _served(package: str, files: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """A package and its files: the package has the public names of all of them."""
    whole = {name: target for names in files.values() for name, target in names.items() if name[0] != "_"}
    return {package: whole, **{f"{package}.{file}": names for file, names in files.items()}}


_CURVES = [
    "Constant", "CosineAnnealing", "CosineRestart", "Exponential", "Linear", "MultiStep", "OneCycle", "Poly",
    "ReduceOnPlateau", "Step",
]  # fmt: skip
_PLACES = {"OneCycle": "onecycle", "ReduceOnPlateau": "plateau"}
_LR = _from("param_scheduler.lr", " ".join(f"{curve}LR" for curve in _CURVES))
_MOMENTUM = _from("param_scheduler.momentum", " ".join(f"{c}Momentum" for c in _CURVES if c != "OneCycle"))
_ANY: dict[str, str] = {}
for _curve in _CURVES:
    _ANY |= _from(f"param_scheduler.{_PLACES.get(_curve, 'rules')}", f"{_curve}ParamScheduler")
_SCHEDULERS = _served(
    "mmengine.optim.scheduler",
    {
        "lr_scheduler": _LR | _from("param_scheduler.lr", "LRSchedulerMixin"),
        "momentum_scheduler": _MOMENTUM | _from("param_scheduler.momentum", "MomentumSchedulerMixin"),
        "param_scheduler": _ANY | _from("param_scheduler.base", "_ParamScheduler INF"),
    },
)
_SCHEDULERS["mmengine.optim.scheduler"] |= _from("param_scheduler.base", "_ParamScheduler")

_OPTIMIZERS = "ASGD Adadelta Adagrad Adam AdamW Adamax LBFGS NAdam RAdam RMSprop Rprop SGD SparseAdam"
_TORCH_OPTIMIZERS = {name: f"torch.optim:{name}" for name in _OPTIMIZERS.split()}
_TORCH_OPTIMIZERS["TorchAdafactor"] = "torch.optim:Adafactor"
_CONSTRUCTOR = _from("optim_build.constructor", "DefaultOptimWrapperConstructor")
_ZERO = _from("optim_build.zero", "ZeroRedundancyOptimizer")
_BUILDER = _from("optim_build.build", "build_optim_wrapper")
_LISTS = _from(
    "optim_build.build",
    "TORCH_OPTIMIZERS NPU_OPTIMIZERS DADAPTATION_OPTIMIZERS LION_OPTIMIZERS SOPHIA_OPTIMIZERS BITSANDBYTES_OPTIMIZERS "
    "TRANSFORMERS_OPTIMIZERS",
)
_TABLES = _from("registry", "OPTIMIZERS OPTIM_WRAPPERS OPTIM_WRAPPER_CONSTRUCTORS")
_OPTIM = {
    "mmengine.optim.optimizer.builder": _BUILDER | _LISTS,
    "mmengine.optim.optimizer.default_constructor": _CONSTRUCTOR,
    "mmengine.optim.optimizer.zero_optimizer": _ZERO,
    "mmengine.optim.optimizer": _BUILDER | _CONSTRUCTOR | _ZERO | _TABLES,
    "mmengine.optim": _BUILDER | _CONSTRUCTOR | _ZERO | _TABLES | _SCHEDULERS["mmengine.optim.scheduler"],
}

_DATASET = _served(
    "mmengine.dataset",
    {
        "base_dataset": _from("data.base_dataset", "BaseDataset")
        | _from("data.compose", "Compose")
        | _from("data.full_init", "force_full_init"),
        "dataset_wrapper": _from("data.wrappers", "ClassBalancedDataset ConcatDataset RepeatDataset"),
        "sampler": _from("data.sampler", "DefaultSampler InfiniteSampler"),
        "utils": _from("data.collate", "COLLATE_FUNCTIONS default_collate pseudo_collate worker_init_fn"),
    },
)

_LOGGING = _served(
    "mmengine.logging",
    {
        "history_buffer": _from("logging.history_buffer", "HistoryBuffer"),
        "message_hub": _from("logging.message_hub", "MessageHub"),
        "logger": _from(
            "logging.logger",
            "MMLogger print_log MMFormatter FilterDuplicateWarning _get_rank _get_world_size _get_device_id "
            "_get_host_info _get_logging_file_handlers",
        ),
    },
)
_SEED = _from("runner.environment", "set_random_seed")
_RECOMPUTE = _from("runner.features", "turn_on_activation_checkpointing")
_PROCESSOR = _from("logging.log_processor", "LogProcessor")

_DIST = _served(
    "mmengine.dist",
    {
        "dist": _from(
            "dist.collectives",
            "all_gather all_gather_object all_reduce all_reduce_dict all_reduce_params broadcast "
            "broadcast_object_list collect_results collect_results_cpu collect_results_gpu gather gather_object "
            "sync_random_seed _get_reduce_op",
        ),
        "utils": _from(
            "dist.utils",
            "barrier cast_data_device get_backend get_comm_device get_data_device get_default_group get_dist_info "
            "get_local_group get_local_rank get_local_size get_rank get_world_size infer_launcher init_dist "
            "init_local_group is_distributed is_main_process master_only _init_dist_mpi _init_dist_pytorch "
            "_init_dist_slurm",
        ),
    },
)

_STRUCTURES = _served(
    "mmengine.structures",
    {
        "base_data_element": _from("structures.element", "BaseDataElement"),
        "instance_data": _from("structures.instances", "InstanceData"),
        "label_data": _from("structures.labels", "LabelData"),
        "pixel_data": _from("structures.pixels", "PixelData"),
    },
)

_BACKENDS = (
    _from("visualization.backend", "BaseVisBackend LocalVisBackend TensorboardVisBackend")
    | _from("visualization.trackers", "WandbVisBackend MLflowVisBackend")
    | _from("visualization.services", "ClearMLVisBackend NeptuneVisBackend DVCLiveVisBackend AimVisBackend")
)
_VISUALIZATION = _served(
    "mmengine.visualization",
    {
        "visualizer": _from("visualization.visualizer", "Visualizer"),
        "vis_backend": _BACKENDS | _from("visualization.backend", "force_init_env"),
    },
)
_VISUALIZATION["mmengine.visualization.utils"] = _from(
    "visualization.utils",
    "check_length check_type check_type_and_length color_str2rgb color_val_matplotlib convert_overlay_heatmap "
    "img_from_canvas tensor2ndarray value2list",
)

_EVALUATOR = _served(
    "mmengine.evaluator",
    {
        "evaluator": _from("evaluator.evaluator", "Evaluator"),
        "metric": _from("evaluator.metric", "BaseMetric DumpResults _to_cpu"),
        "utils": _from("evaluator.evaluator", "get_metric_value"),
    },
)

_PREPROCESSORS = _from("model.preprocessor", "BaseDataPreprocessor ImgDataPreprocessor")
_STACK = _from("model.preprocessor", "stack_batch")
_MODEL = {
    "mmengine.model": _PREPROCESSORS | _STACK,
    "mmengine.model.base_model": _PREPROCESSORS,
    "mmengine.model.base_model.data_preprocessor": _PREPROCESSORS | _STACK,
    "mmengine.model.utils": _STACK,
}

_DEVICE = _served(
    "mmengine.device",
    {
        "utils": _from(
            "device",
            "get_device get_max_cuda_memory get_max_musa_memory is_cuda_available is_dipu_available is_mlu_available "
            "is_mps_available is_musa_available is_npu_available is_npu_support_full_precision",
        )
    },
)

_COMPARISONS = _from(
    "testing",
    "assert_allclose assert_attrs_equal assert_dict_contains_subset assert_dict_has_keys assert_is_norm_layer "
    "assert_keys_equal assert_params_all_zeros check_python_script",
)
_TEST_CASE = _from("testing", "RunnerTestCase ToyModel ToyDataset ToyMetric")
_PROCESSES = _from("testing_processes", "MultiProcessTestCase")
_TESTING = {
    "mmengine.testing": _COMPARISONS | _from("testing", "RunnerTestCase"),
    "mmengine.testing.compare": _COMPARISONS,
    "mmengine.testing.runner_test_case": _TEST_CASE,
    "mmengine.testing._internal": _PROCESSES,
    "mmengine.testing._internal.distributed": _PROCESSES | _from("testing_processes", "TEST_SKIPS TestSkip"),
}

_REGISTRIES = (
    "RUNNERS RUNNER_CONSTRUCTORS LOOPS HOOKS DATASETS DATA_SAMPLERS TRANSFORMS MODELS MODEL_WRAPPERS "
    "WEIGHT_INITIALIZERS OPTIMIZERS OPTIM_WRAPPERS OPTIM_WRAPPER_CONSTRUCTORS PARAM_SCHEDULERS METRICS EVALUATOR "
    "TASK_UTILS VISUALIZERS VISBACKENDS LOG_PROCESSORS"
)
_ROOTS = _from("registry", f"{_REGISTRIES} STRATEGIES INFERENCERS FUNCTIONS")

_LARS = {"LARS": "etude.optim.lars:LARS"}
_SELFSUP_HOOKS = _from("selfsup.hooks", "SimSiamHook DenseCLHook SwAVHook")
_SELFSUP_HOOKS |= _from("selfsup.deepcluster", "DeepClusterHook ODCHook")
_SELFSUP_OPTIM = _LARS | _from("selfsup.layer_decay", "LearningRateDecayOptimWrapperConstructor")
_SELFSUP_MODEL = _from("selfsup.model", "BaseModel")
_SELFSUP_PREPROCESSOR = _from("selfsup.model", "SelfSupDataPreprocessor")
_SELFSUP = {
    "mmselfsup.registry": _from("selfsup.registry", _REGISTRIES),
    "mmselfsup.utils": _from("selfsup.utils", "get_model register_all_modules"),
    "mmselfsup.structures": _from("selfsup.structures", "SelfSupDataSample"),
    "mmselfsup.models": _SELFSUP_MODEL | _SELFSUP_PREPROCESSOR,
    "mmselfsup.models.algorithms": _SELFSUP_MODEL,
    "mmselfsup.models.algorithms.base": _SELFSUP_MODEL,
    "mmselfsup.models.utils": _SELFSUP_PREPROCESSOR,
    "mmselfsup.models.utils.data_preprocessor": _SELFSUP_PREPROCESSOR,
    "mmselfsup.engine": _SELFSUP_HOOKS | _SELFSUP_OPTIM,
    "mmselfsup.engine.hooks": _SELFSUP_HOOKS,
    **{
        f"mmselfsup.engine.hooks.{name.removesuffix('Hook').lower()}_hook": {name: target}
        for name, target in _SELFSUP_HOOKS.items()
    },
    "mmselfsup.engine.optimizers": _SELFSUP_OPTIM,
    "mmselfsup.visualization": _from("selfsup.visualizer", "SelfSupVisualizer"),
    "mmselfsup.datasets": {},
    "mmselfsup.datasets.samplers": _from("selfsup.sampler", "DeepClusterSampler"),
}

_PRETRAIN_DECAY = _from("pretrain.layer_decay", "LearningRateDecayOptimWrapperConstructor")
_PRETRAIN = {
    "mmpretrain.registry": _from("pretrain.registry", _REGISTRIES),
    "mmpretrain.engine": {},
    "mmpretrain.engine.hooks": (
        _from("pretrain.hooks", "EMAHook PreciseBNHook WarmupParamHook")
        | _from("pretrain.visualizer", "VisualizationHook")
    ),
    "mmpretrain.visualization": _from("pretrain.visualizer", "UniversalVisualizer"),
    "mmpretrain.engine.optimizers": (
        _LARS | {"Lamb": "etude.optim.lamb:LAMB"} | _from("pretrain.adan", "Adan") | _PRETRAIN_DECAY
    ),
    "mmpretrain.engine.schedulers": _from("pretrain.weight_decay", "CosineAnnealingWeightDecay"),
}


#: The version whose behaviour is kept; users' packages compare it with what they need.
VERSION = "0.10.7"
VERSION_INFO = (0, 10, 7)
_VERSION = {"__version__": f"{__name__}:VERSION", "version_info": f"{__name__}:VERSION_INFO"}


def _united(*tables: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    united: dict[str, dict[str, str]] = {}
    for table in tables:
        for module, names in table.items():
            united.setdefault(module, {}).update(names)
    return united


MODULES: dict[str, dict[str, str]] = _united(
    _SCHEDULERS, _OPTIM, _DATASET, _LOGGING, _DIST, _STRUCTURES, _VISUALIZATION, _EVALUATOR, _MODEL, _DEVICE,
    _TESTING,
    _SELFSUP, _PRETRAIN,
    {
        "mmengine": _LOGGING["mmengine.logging"] | _VERSION, "mmengine.version": _VERSION,
        "mmengine.runner": _PROCESSOR | _SEED | _RECOMPUTE, "mmengine.runner.log_processor": _PROCESSOR,
        "mmengine.runner.utils": _SEED, "mmengine.runner.activation_checkpointing": _RECOMPUTE,
        "mmengine.registry": _ROOTS, "mmengine.registry.root": _ROOTS,
    },
)  # fmt: skip

OUT_OF_SCOPE: dict[str, str] = {
    f"mmengine.runner.{name}": "the model zoo; download a checkpoint and give its path"
    for name in ("get_deprecated_model_names", "get_external_models", "get_mmcls_models", "get_torchvision_models")
}
_OWN = "register yours in a module that `custom_imports` lists"
_CALLED = "inference is not part of training; build the model from the config and call it, or use `etude test`"
OUT_OF_SCOPE |= {
    f"mmselfsup.{name}": f"MMSelfSup's own {what}; {_OWN}"
    for name, what in (
        ("models", "networks"), ("models.algorithms", "algorithms"), ("models.backbones", "networks"),
        ("models.heads", "networks"), ("models.necks", "networks"), ("models.losses", "losses"),
        ("models.memories", "networks"), ("models.target_generators", "networks"), ("models.utils", "tools"),
        ("datasets", "datasets"), ("datasets.transforms", "transforms"), ("evaluation", "evaluation"),
        ("visualization", "pictures"), ("engine", "engine parts beyond its hooks, LARS and layer decay"),
    )
}  # fmt: skip
OUT_OF_SCOPE |= {
    f"mmpretrain.{name}": f"MMPretrain's own {what}; {_OWN}"
    for name, what in (
        ("models", "networks"), ("datasets", "datasets and transforms"), ("evaluation", "metrics"),
        ("structures", "data samples"), ("utils", "tools"), ("visualization", "pictures"), ("configs", "configs"),
        ("engine", "engine parts beyond its hooks, optimizers and schedulers"),
    )
}  # fmt: skip
OUT_OF_SCOPE |= {
    "mmselfsup.apis": _CALLED, "mmpretrain.apis": _CALLED,
    **{f"mmpretrain.{name}": _CALLED for name in ("get_model", "list_models", "inference_model", "ModelHub")},
    **{f"mmselfsup.utils.{name}": f"MMSelfSup's own tools; {_OWN}"
       for name in ("AliasMethod", "batch_shuffle_ddp", "batch_unshuffle_ddp", "collect_env", "concat_all_gather",
                    "dist_forward_collect", "distributed_sinkhorn", "nondist_forward_collect")},
}  # fmt: skip

#: Registry → name → where it is; what MMSelfSup and MMPretrain add is found without their scopes, too.
REGISTERED: dict[str, dict[str, str]] = {
    "PARAM_SCHEDULERS": _LR | _MOMENTUM | _ANY | _from("pretrain.weight_decay", "CosineAnnealingWeightDecay"),
    "OPTIMIZERS": (
        _TORCH_OPTIMIZERS | _ZERO | _LARS | {"Lamb": "etude.optim.lamb:LAMB"} | _from("pretrain.adan", "Adan")
    ),
    "OPTIM_WRAPPER_CONSTRUCTORS": _CONSTRUCTOR,
    "DATASETS": _DATASET["mmengine.dataset.dataset_wrapper"],
    "DATA_SAMPLERS": _DATASET["mmengine.dataset.sampler"],
    "FUNCTIONS": _from("data.collate", "pseudo_collate default_collate"),
    "LOG_PROCESSORS": _PROCESSOR,
    "VISUALIZERS": _from("visualization.visualizer", "Visualizer")
    | _from("selfsup.visualizer", "SelfSupVisualizer")
    | _from("pretrain.visualizer", "UniversalVisualizer"),
    "VISBACKENDS": {name: target for name, target in _BACKENDS.items() if name != "BaseVisBackend"},
    "EVALUATOR": _from("evaluator.evaluator", "Evaluator"),
    "METRICS": _from("evaluator.metric", "DumpResults"),
    "MODELS": _PREPROCESSORS,
    "HOOKS": _SELFSUP_HOOKS
    | _from("pretrain.hooks", "PreciseBNHook WarmupParamHook")
    | _from("pretrain.visualizer", "VisualizationHook"),
}
