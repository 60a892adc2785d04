"""The import names of mmcv 1.x, mmcls 0.x and mmtrack 0.x, and where Étude keeps what they mean. No torch."""

from __future__ import annotations

from etude.dialects.mmcv1.names_imported import IMPORTED

_LIVE = "etude.dialects.mmcv1.live"
_COMMON = "etude.dialects.openmm"


def _at(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names.split()}


_CONFIG = _at(f"{_COMMON}.config.config_v1", "Config DictAction") | _at(f"{_COMMON}.config.dict_v1", "ConfigDict")
_REGISTRY = _at(f"{_COMMON}.registries.registry_v1", "Registry build_from_cfg")
_LOGGING = _at(f"{_COMMON}.logging_v1", "get_logger print_log logger_initialized")
_FILES = _at(
    f"{_COMMON}.file_io.fileio",
    "load dump list_from_file dict_from_file FileClient BaseStorageBackend register_handler BaseFileHandler "
    "JsonHandler PickleHandler YamlHandler",
)
_BACKENDS = _at(
    f"{_COMMON}.file_io.fileio",
    "FileClient BaseStorageBackend HardDiskBackend HTTPBackend LmdbBackend MemcachedBackend PetrelBackend",
)
_UTILS = _at(
    f"{_COMMON}.utils",
    "is_str iter_cast list_cast tuple_cast is_seq_of is_list_of is_tuple_of slice_list concat_list to_1tuple "
    "to_2tuple to_3tuple to_4tuple to_ntuple import_modules_from_strings check_prerequisites requires_package "
    "requires_executable deprecated_api_warning is_method_overridden has_method is_filepath fopen check_file_exist "
    "mkdir_or_exist symlink "
    "scandir ProgressBar track_progress track_iter_progress track_parallel_progress Timer TimerError check_time "
    "digit_version parse_version_info get_git_hash",
)
_ENVIRONMENT = _at(f"{_LIVE}.environment", "TORCH_VERSION collect_env is_cuda_available IS_CUDA_AVAILABLE")
_VERSION = {"__version__": f"{_LIVE}.environment:MMCV_VERSION"}
_DEVICES = _at(f"{_LIVE}.more_utils", "IS_IPU_AVAILABLE IS_MLU_AVAILABLE IS_MPS_AVAILABLE IS_NPU_AVAILABLE")
_WRAPPED = _at(f"{_LIVE}.environment", "_BatchNorm _InstanceNorm SyncBatchNorm _ConvNd DataLoader") | _at(
    f"{_LIVE}.more_utils",
    "PoolDataLoader _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _ConvTransposeMixin _MaxPoolNd",
)
_JIT = _at(f"{_LIVE}.more_utils", "jit skip_no_elena")
_TORCH = _at(f"{_COMMON}.torch_utils", "is_jit_tracing is_rocm_pytorch load_url torch_meshgrid")
_WORKERS = _at(f"{_LIVE}.more_utils", "worker_init_fn")
_ASSERTIONS = _at(
    "etude.dialects.mmengine.live.testing",
    "assert_attrs_equal assert_dict_contains_subset assert_dict_has_keys assert_is_norm_layer assert_keys_equal "
    "assert_params_all_zeros check_python_script",
)

_INIT = _at(
    f"{_COMMON}.init.init_v1",
    "INITIALIZERS ConstantInit XavierInit NormalInit TruncNormalInit UniformInit KaimingInit Caffe2XavierInit "
    "PretrainedInit initialize constant_init xavier_init normal_init trunc_normal_init uniform_init kaiming_init "
    "caffe2_xavier_init bias_init_with_prob update_init_info",
)
_BASE_MODULE = _at(f"{_COMMON}.init.module_v1", "BaseModule Sequential ModuleList ModuleDict")
_CHECKPOINT = _at(
    f"{_COMMON}.live.checkpoint_v1",
    "CheckpointLoader _load_checkpoint _load_checkpoint_with_prefix load_checkpoint load_state_dict save_checkpoint "
    "weights_to_cpu get_state_dict",
)
_LOADERS = _at(
    f"{_COMMON}.live.loader",
    "load_from_local load_from_http load_from_torchvision load_from_openmmlab load_from_mmcls load_from_pavi "
    "load_from_ceph",
)
_DIST = _at(f"{_LIVE}.dist_utils", "get_dist_info init_dist master_only allreduce_grads allreduce_params")
_FP16 = _at(f"{_LIVE}.fp16_utils", "auto_fp16 force_fp32 wrap_fp16_model cast_tensor_type")
_PRIORITY = _at(f"{_LIVE}.hooks.priority", "Priority get_priority")
_OPTIMIZER = _at(
    f"{_LIVE}.optimizers",
    "OPTIMIZERS OPTIMIZER_BUILDERS DefaultOptimizerConstructor build_optimizer build_optimizer_constructor",
) | {"TORCH_OPTIMIZERS": f"{_LIVE}.optimizers:TORCH_OPTIMIZERS"}

_HOOK = _at(f"{_LIVE}.hooks.all_hooks", "HOOKS Hook")
_LR = _at(
    f"{_LIVE}.hooks.lr_updater",
    "LrUpdaterHook FixedLrUpdaterHook StepLrUpdaterHook ExpLrUpdaterHook PolyLrUpdaterHook InvLrUpdaterHook "
    "CosineAnnealingLrUpdaterHook FlatCosineAnnealingLrUpdaterHook CosineRestartLrUpdaterHook CyclicLrUpdaterHook "
    "OneCycleLrUpdaterHook LinearAnnealingLrUpdaterHook",
)
_CURVES = _at(f"{_LIVE}.hooks.annealing", "annealing_cos annealing_linear") | _at(
    f"{_LIVE}.hooks.lr_updater", "get_position_from_periods format_param"
)
_MOMENTUM = _at(
    f"{_LIVE}.hooks.momentum_updater",
    "MomentumUpdaterHook StepMomentumUpdaterHook CosineAnnealingMomentumUpdaterHook CyclicMomentumUpdaterHook "
    "OneCycleMomentumUpdaterHook LinearAnnealingMomentumUpdaterHook",
)
_OPTIMIZER_HOOKS = _at(
    f"{_LIVE}.hooks.optimizer_hook",
    "OptimizerHook GradientCumulativeOptimizerHook Fp16OptimizerHook GradientCumulativeFp16OptimizerHook",
)
_CHECKPOINT_HOOK = _at(f"{_LIVE}.hooks.checkpoint_hook", "CheckpointHook")
_EVALUATION = _at(f"{_LIVE}.hooks.evaluation", "EvalHook DistEvalHook")
_EMA = _at(f"{_LIVE}.hooks.ema", "EMAHook")
_SMALL = _at(
    f"{_LIVE}.hooks.small_hooks", "IterTimerHook DistSamplerSeedHook SyncBuffersHook EmptyCacheHook ClosureHook"
)
_PROFILER = _at(f"{_LIVE}.hooks.profiler", "ProfilerHook")
_TEXT = _at(f"{_LIVE}.logger.text", "TextLoggerHook")
_LOGGER_BASE = _at(f"{_LIVE}.logger.base", "LoggerHook")
_TRACKERS = _at(
    f"{_LIVE}.logger.trackers",
    "TensorboardLoggerHook WandbLoggerHook MlflowLoggerHook NeptuneLoggerHook ClearMLLoggerHook DvcliveLoggerHook "
    "SegmindLoggerHook PaviLoggerHook",
)
_LOGGERS = _LOGGER_BASE | _TEXT | _TRACKERS
_HOOKS = (
    _HOOK | _LR | _MOMENTUM | _OPTIMIZER_HOOKS | _CHECKPOINT_HOOK | _EVALUATION | _EMA | _SMALL | _PROFILER | _LOGGERS
)  # fmt: skip
_LOG_BUFFER = _at(f"{_LIVE}.runner.log_buffer", "LogBuffer")
_RUNNERS = _at(
    f"{_LIVE}.runner.runners",
    "RUNNERS RUNNER_BUILDERS BaseRunner EpochBasedRunner IterBasedRunner IterLoader Runner DefaultRunnerConstructor "
    "build_runner get_host_info obj_from_dict",
)
_SEED = _at(f"{_LIVE}.seeding", "set_random_seed")
_TIME = _at(f"{_LIVE}.environment", "get_time_str")
_TESTING = _at(
    f"{_LIVE}.testing", "single_gpu_test multi_gpu_test collect_results_cpu collect_results_gpu"
)  # fmt: skip

_PARALLEL = _at(
    f"{_LIVE}.parallel",
    "DataContainer MMDataParallel MMDistributedDataParallel MODULE_WRAPPERS collate is_module_wrapper scatter "
    "scatter_kwargs",
)

_CNN_MODELS = _at(f"{_LIVE}.models_registry", "MODELS build_model_from_cfg")
_SYNC_BN = _at("etude.dialects.mmengine.live.model.utils", "revert_sync_batchnorm")

_MMCV: dict[str, dict[str, str]] = {
    "mmcv": _CONFIG | _REGISTRY | _FILES | _UTILS | _at(f"{_COMMON}.logging_v1", "print_log") | _VERSION,
    "mmcv.version": _VERSION,
    "mmcv.fileio": _FILES,
    "mmcv.fileio.io": _FILES,
    "mmcv.fileio.parse": _FILES,
    "mmcv.fileio.handlers": _FILES,
    **{f"mmcv.fileio.handlers.{name}": _FILES for name in ("base", "json_handler", "pickle_handler", "yaml_handler")},
    "mmcv.fileio.file_client": _BACKENDS,
    "mmcv.utils": _CONFIG | _REGISTRY | _LOGGING | _UTILS | _ENVIRONMENT | _DEVICES | _WRAPPED | _JIT | _TORCH
    | _WORKERS | _ASSERTIONS,
    "mmcv.device": _at(f"{_LIVE}.more_utils", "get_device"),
    "mmcv.utils.device_type": _DEVICES,
    "mmcv.utils.ext_loader": _at(f"{_LIVE}.overlay.ops", "load_ext check_ops_exist"),
    "mmcv.utils.hub": _at(f"{_COMMON}.torch_utils", "load_url"),
    "mmcv.utils.parrots_jit": _JIT,
    "mmcv.utils.seed": _WORKERS,
    "mmcv.utils.testing": _ASSERTIONS,
    "mmcv.utils.torch_ops": _at(f"{_COMMON}.torch_utils", "torch_meshgrid"),
    "mmcv.utils.trace": _at(f"{_COMMON}.torch_utils", "is_jit_tracing"),
    "mmcv.utils.config": _CONFIG | _at(f"{_COMMON}.config.config_v1", "BASE_KEY DELETE_KEY DEPRECATION_KEY add_args"),
    "mmcv.utils.env": _ENVIRONMENT,
    "mmcv.utils.registry": _REGISTRY,
    "mmcv.utils.logging": _LOGGING,
    "mmcv.utils.misc": _UTILS,
    "mmcv.utils.path": _UTILS,
    "mmcv.utils.progressbar": _UTILS,
    "mmcv.utils.timer": _UTILS,
    "mmcv.utils.version_utils": _UTILS,
    "mmcv.utils.parrots_wrapper": _WRAPPED | _at(f"{_LIVE}.environment", "TORCH_VERSION")
    | _at(f"{_COMMON}.torch_utils", "is_rocm_pytorch"),
    "mmcv.parallel": _PARALLEL,
    "mmcv.parallel.data_container": _at(f"{_LIVE}.parallel", "DataContainer"),
    "mmcv.parallel.collate": _at(f"{_LIVE}.parallel", "collate"),
    "mmcv.parallel.utils": _at(f"{_LIVE}.parallel", "is_module_wrapper"),
    "mmcv.parallel.registry": _at(f"{_LIVE}.parallel", "MODULE_WRAPPERS"),
    "mmcv.parallel.data_parallel": _at(f"{_LIVE}.parallel", "MMDataParallel"),
    "mmcv.parallel.distributed": _at(f"{_LIVE}.parallel", "MMDistributedDataParallel"),
    "mmcv.parallel.distributed_deprecated": _at(f"{_LIVE}.parallel", "MMDistributedDataParallel"),
    "mmcv.parallel.scatter_gather": _at(f"{_LIVE}.parallel", "scatter scatter_kwargs"),
    "mmcv.parallel._functions": _at(f"{_LIVE}.scattering", "Scatter get_input_device scatter"),
    "mmcv.cnn": _INIT | _CNN_MODELS | _at(f"{_COMMON}.torch_utils", "is_norm"),
    "mmcv.cnn.bricks.registry": _at(
        f"{_LIVE}.overlay.registries",
        "CONV_LAYERS NORM_LAYERS ACTIVATION_LAYERS PADDING_LAYERS UPSAMPLE_LAYERS PLUGIN_LAYERS DROPOUT_LAYERS "
        "POSITIONAL_ENCODING ATTENTION FEEDFORWARD_NETWORK TRANSFORMER_LAYER TRANSFORMER_LAYER_SEQUENCE",
    ),
    "mmcv.cnn.builder": _CNN_MODELS,
    "mmcv.cnn.utils": _INIT | _SYNC_BN,
    "mmcv.cnn.utils.sync_bn": _SYNC_BN,
    "mmcv.cnn.utils.weight_init": _INIT | _at(f"{_COMMON}.init.rules", "BaseInit")
    | _at(f"{_COMMON}.init.functions", "trunc_normal_"),
    "mmcv.engine": _TESTING,
    "mmcv.engine.test": _TESTING,
    "mmcv.runner": _RUNNERS | _HOOKS | _OPTIMIZER | _CHECKPOINT | _DIST | _FP16 | _PRIORITY | _LOG_BUFFER | _SEED
    | _TIME | _BASE_MODULE,
    "mmcv.runner.base_module": _BASE_MODULE,
    "mmcv.runner.base_runner": _RUNNERS,
    "mmcv.runner.builder": _RUNNERS,
    "mmcv.runner.checkpoint": _CHECKPOINT | _LOADERS,
    "mmcv.runner.dist_utils": _DIST,
    "mmcv.runner.epoch_based_runner": _RUNNERS,
    "mmcv.runner.iter_based_runner": _RUNNERS,
    "mmcv.runner.fp16_utils": _FP16,
    "mmcv.runner.log_buffer": _LOG_BUFFER,
    "mmcv.runner.priority": _PRIORITY,
    "mmcv.runner.utils": _SEED | _TIME | _at(f"{_LIVE}.runner.runners", "get_host_info obj_from_dict"),
    "mmcv.runner.optimizer": _OPTIMIZER,
    "mmcv.runner.optimizer.builder": _OPTIMIZER,
    "mmcv.runner.optimizer.default_constructor": _OPTIMIZER,
    "mmcv.runner.hooks": _HOOKS,
    "mmcv.runner.hooks.hook": _HOOK,
    "mmcv.runner.hooks.lr_updater": _LR | _CURVES,
    "mmcv.runner.hooks.momentum_updater": _MOMENTUM,
    "mmcv.runner.hooks.optimizer": _OPTIMIZER_HOOKS,
    "mmcv.runner.hooks.checkpoint": _CHECKPOINT_HOOK,
    "mmcv.runner.hooks.evaluation": _EVALUATION,
    "mmcv.runner.hooks.ema": _EMA,
    "mmcv.runner.hooks.profiler": _PROFILER,
    "mmcv.runner.hooks.iter_timer": _SMALL,
    "mmcv.runner.hooks.sampler_seed": _SMALL,
    "mmcv.runner.hooks.sync_buffer": _SMALL,
    "mmcv.runner.hooks.memory": _SMALL,
    "mmcv.runner.hooks.closure": _SMALL,
    "mmcv.runner.hooks.logger": _LOGGERS,
    "mmcv.runner.hooks.logger.base": _LOGGER_BASE,
    "mmcv.runner.hooks.logger.text": _TEXT,
    **{f"mmcv.runner.hooks.logger.{name}": _TRACKERS
       for name in ("tensorboard", "wandb", "mlflow", "neptune", "clearml", "dvclive", "segmind", "pavi")},
}  # fmt: skip

_CLS_MODELS = _at(
    f"{_LIVE}.mmcls.models",
    "MODELS BACKBONES NECKS HEADS LOSSES CLASSIFIERS ATTENTION build_backbone build_neck build_head build_loss "
    "build_classifier BaseClassifier ImageClassifier GlobalAveragePooling ClsHead LinearClsHead Accuracy "
    "accuracy",
) | _at(f"{_LIVE}.mmcls.losses", "CrossEntropyLoss cross_entropy binary_cross_entropy")
_CLS_BACKBONE = _at(f"{_LIVE}.mmcls.bases", "BaseBackbone")
_CLS_HEAD = _at(f"{_LIVE}.mmcls.bases", "BaseHead")
_CLS_WRAPPERS = _at(f"{_LIVE}.mmcls.wrappers", "ConcatDataset RepeatDataset ClassBalancedDataset KFoldDataset")
_CLS_DATA = (
    _at(
        f"{_LIVE}.mmcls.data",
        "DATASETS PIPELINES SAMPLERS build_dataset build_dataloader build_sampler BaseDataset Compose "
        "DistributedSampler ToTensor ImageToTensor Collect",
    )
    | _CLS_WRAPPERS
)
_CLS_HOOKS = _at(
    f"{_LIVE}.mmcls.hooks",
    "EvalHook DistEvalHook DistOptimizerHook PreciseBNHook ClassNumCheckHook CosineAnnealingCooldownLrUpdaterHook",
) | _at(f"{_LIVE}.mmcls.wandb_hook", "MMClsWandbHook")
_CLS_CORE_UTILS = _at(f"{_LIVE}.more_utils", "allreduce_grads multi_apply sync_random_seed")
_LAMB = {"Lamb": "etude.optim.lamb:LAMB"}
_CLS_SCORES = _at(
    f"{_LIVE}.mmcls.scores", "calculate_confusion_matrix precision_recall_f1 precision recall f1_score support"
)
_CLS_APIS = _at(f"{_LIVE}.mmcls.train", "train_model init_random_seed") | _SEED | _TESTING
_DOWNSTREAM_UTILS = _at(f"{_LIVE}.environment", "setup_multi_processes collect_env") | _at(
    f"{_LIVE}.mmcls.train", "wrap_distributed_model wrap_non_distributed_model auto_select_device"
)
_CLS_LOGS = _at(f"{_LIVE}.mmcls.train", "get_root_logger") | _at(f"{_LIVE}.more_utils", "load_json_log")

_MMCLS: dict[str, dict[str, str]] = {
    "mmcls": {"__version__": f"{_LIVE}.environment:MMCLS_VERSION"} | _at(f"{_COMMON}.utils", "digit_version"),
    "mmcls.version": {"__version__": f"{_LIVE}.environment:MMCLS_VERSION"},
    "mmcls.apis": _CLS_APIS,
    "mmcls.apis.train": _CLS_APIS,
    "mmcls.apis.test": _TESTING,
    "mmcls.core": _CLS_HOOKS | _CLS_SCORES | _CLS_CORE_UTILS | _LAMB,
    "mmcls.core.evaluation": _CLS_HOOKS | _CLS_SCORES,
    "mmcls.core.evaluation.eval_hooks": _CLS_HOOKS,
    "mmcls.core.hook": _CLS_HOOKS,
    "mmcls.core.hook.wandblogger_hook": _CLS_HOOKS,
    "mmcls.core.optimizers": _LAMB,
    "mmcls.core.utils": _CLS_HOOKS | _CLS_CORE_UTILS,
    "mmcls.datasets": _CLS_DATA,
    "mmcls.datasets.base_dataset": _CLS_DATA,
    "mmcls.datasets.builder": _CLS_DATA,
    "mmcls.datasets.dataset_wrappers": _CLS_WRAPPERS,
    "mmcls.datasets.pipelines": _CLS_DATA,
    "mmcls.datasets.samplers": _CLS_DATA,
    "mmcls.models": _CLS_MODELS | _CLS_BACKBONE | _CLS_HEAD,
    "mmcls.models.builder": _CLS_MODELS,
    "mmcls.models.backbones": _CLS_BACKBONE,
    "mmcls.models.backbones.base_backbone": _CLS_BACKBONE,
    "mmcls.models.classifiers": _CLS_MODELS,
    "mmcls.models.classifiers.base": _CLS_MODELS,
    "mmcls.models.heads": _CLS_MODELS | _CLS_HEAD,
    "mmcls.models.heads.base_head": _CLS_HEAD,
    "mmcls.models.necks": _CLS_MODELS,
    "mmcls.models.losses": _CLS_MODELS,
    "mmcls.utils": _DOWNSTREAM_UTILS | _CLS_LOGS,
    "mmcls.utils.logger": _CLS_LOGS,
}

_TRACK_MODELS = _at(
    f"{_LIVE}.mmtrack.models",
    "MODELS TRACKERS MOTION REID AGGREGATORS build_model build_tracker build_motion build_reid build_aggregator",
)
_TRACK_DATA = _at(f"{_LIVE}.mmtrack.data", "DATASETS PIPELINES build_dataset build_dataloader")
_TRACK_HOOKS = _at(f"{_LIVE}.mmtrack.hooks", "EvalHook DistEvalHook SiameseRPNLrUpdaterHook") | _at(
    f"{_LIVE}.mmtrack.siamese", "SiameseRPNOptimizerHook SiameseRPNFp16OptimizerHook"
)
#: Hooks that configs of mmtracking name, although mmdet has them.
DETECTION_HOOKS = _at(
    f"{_LIVE}.hooks.detection_hooks",
    "ExpMomentumEMAHook LinearMomentumEMAHook YOLOXLrUpdaterHook SyncNormHook CheckInvalidLossHook",
)
_TRACK_TESTING = _TESTING | _at(f"{_LIVE}.mmtrack.testing", "single_gpu_test multi_gpu_test")
_TRACK_APIS = _at(f"{_LIVE}.mmtrack.train", "train_model init_random_seed") | _SEED | _TRACK_TESTING

_MMTRACK: dict[str, dict[str, str]] = {
    "mmtrack": {"__version__": f"{_LIVE}.environment:MMTRACK_VERSION"},
    "mmtrack.version": {"__version__": f"{_LIVE}.environment:MMTRACK_VERSION"},
    "mmtrack.apis": _TRACK_APIS,
    "mmtrack.apis.train": _TRACK_APIS,
    "mmtrack.apis.test": _TRACK_TESTING,
    "mmtrack.core": _TRACK_HOOKS,
    "mmtrack.core.evaluation": _TRACK_HOOKS,
    "mmtrack.core.optimizer": _TRACK_HOOKS,
    "mmtrack.core.utils": {},
    "mmtrack.datasets": _TRACK_DATA,
    "mmtrack.datasets.builder": _TRACK_DATA,
    "mmtrack.models": _TRACK_MODELS,
    "mmtrack.models.builder": _TRACK_MODELS,
    "mmtrack.utils": _DOWNSTREAM_UTILS | _at(f"{_LIVE}.mmtrack.train", "get_root_logger"),
    "mmtrack.utils.logger": _at(f"{_LIVE}.mmtrack.train", "get_root_logger"),
}

_HOMES = _TRACKERS | _CURVES | _PARALLEL | _BACKENDS | _MMCV["mmcv.utils"] | _MMCV["mmcv.runner"]
for _module, _names in IMPORTED.items():
    _MMCV[_module] = {name: _HOMES[name] for name in _names.split()} | _MMCV.get(_module, {})

MODULES: dict[str, dict[str, str]] = _MMCV | _MMCLS | _MMTRACK
#: What Étude serves even where the original is installed, and the module that finds the rest of it on the disk.
ENGINE = ("mmcv",)
OVERLAY = "etude.dialects.mmcv1.overlay.layers"

_VISION = "it works on images; use torchvision, Pillow or OpenCV directly"
_LAYERS = "compiled or ready-made layers; use torch.nn, or torchvision.ops"
_DATA_SETS = "ready-made data sets are not served; derive one from mmcls.datasets.BaseDataset and register it"
_TRACKING = "networks, trackers and motion models are users' own code here: register them in mmtrack.models.MODELS"
_SCORES = "of the scores accuracy, precision, recall, f1_score and support are served; scikit-learn has the others"
_INFERENCE = "inference is not part of training; call the model"
_BUILDING = "nothing is compiled; use torch.utils.cpp_extension"

OUT_OF_SCOPE: dict[str, str] = {
    "mmcv.model_zoo": "nothing is downloaded by itself; give the path of a file",
    **{f"mmcv.utils.{name}": _BUILDING
       for name in ("BuildExtension", "CUDAExtension", "CppExtension", "_get_cuda_home", "get_build_config")},
    **{f"mmcv.device.{name}": "devices other than CPU and CUDA have no part of their own; torch.device names them"
       for name in ("ipu", "mlu", "mps", "npu")},
    "mmcv.runner.LossScaler": "half precision scales losses by torch.amp.GradScaler",
    **{f"mmcls.apis.{name}": _INFERENCE for name in ("inference_model", "init_model", "show_result_pyplot")},
    **{f"mmtrack.apis.{name}": _INFERENCE
       for name in ("inference_mot", "inference_sot", "inference_vid", "init_model")},
    "mmcls.models.backbones.ResNet": _LAYERS,
    "mmcls.models.utils": _LAYERS,
    "mmcls.datasets.utils": _DATA_SETS,
    "mmcls.datasets.multi_label": _DATA_SETS,
    **{f"mmcls.datasets.{name}": _DATA_SETS
       for name in ("CIFAR10", "CIFAR100", "CUB", "CustomDataset", "FashionMNIST", "ImageNet", "ImageNet21k", "MNIST",
                    "MultiLabelDataset", "VOC")},
    **{f"mmcls.datasets.{module}{name}": _VISION
       for module in ("", "pipelines.")
       for name in ("AutoAugment", "CenterCrop", "ColorJitter", "LoadImageFromFile", "Normalize", "Pad", "RandAugment",
                    "RandomCrop", "RandomErasing", "RandomFlip", "RandomGrayscale", "RandomResizedCrop", "Resize")},
    **{f"mmcls.models.{module}{name}": "of the losses only CrossEntropyLoss is served; register one of your own"
       for module in ("", "losses.")
       for name in ("AsymmetricLoss", "FocalLoss", "LabelSmoothLoss", "SeesawLoss", "label_smooth_loss")},
    "mmcls.core.visualization": _VISION,
    "mmcls.core.export": "exports are not part of training; use torch.onnx",
    "mmcls.core.evaluation.mAP": _SCORES,
    **{f"mmcls.core.evaluation.{name}": _SCORES for name in ("average_precision", "average_performance")},
    "mmtrack.core.visualization": _VISION,
    **{f"mmtrack.core.{name}": _TRACKING for name in ("track", "anchor", "bbox", "mask", "motion")},
    **{f"mmtrack.models.{name}": _TRACKING
       for name in ("mot", "sot", "vid", "vis", "reid", "motion", "track_heads", "trackers", "aggregators", "backbones",
                    "losses", "roi_heads", "layers")},
    "mmtrack.datasets.pipelines": _VISION,
    **{f"mmtrack.datasets.{name}": "ready-made data sets are not served; register one of your own in mmtrack.datasets"
       for name in ("CocoVideoDataset", "CocoVID", "MOTChallengeDataset", "ImagenetVIDDataset", "ReIDDataset",
                    "LaSOTDataset", "GOT10kDataset", "TrackingNetDataset", "UAV123Dataset", "VOTDataset",
                    "OTB100Dataset", "SOTCocoDataset", "SOTImageNetVIDDataset", "BaseSOTDataset", "YouTubeVISDataset",
                    "TaoDataset", "DanceTrackDataset", "SOTTrainDataset", "SOTTestDataset",
                    "RandomSampleConcatDataset")},
    "mmdet": "detection is not served; install mmdet beside Étude, or bring your own modules by custom_imports",
}  # fmt: skip
