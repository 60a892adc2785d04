"""Which import names the dialect answers to, and what stands behind each."""

from __future__ import annotations

from etude.dialects.libai import names_oneflow

_LAZY = "etude.dialects.libai.lazy"
_LIVE = "etude.dialects.libai.live"
_D2 = "etude.dialects.libai.live.detectron"
_ORIGINALS = "etude.dialects.libai.originals"


def _from(module: str, names: str) -> dict[str, str]:
    """Attributes that have the same name there."""
    return {name: f"{module}:{name}" for name in names.split()}


def _as(**entries: str) -> dict[str, str]:
    return entries


# -- LiBai -------------------------------------------------------------------------------------------------------------

_CONFIG = (
    _from(f"{_LAZY}.call", "LazyCall")
    | _from(f"{_LAZY}.load", "LazyConfig")
    | _from(f"{_LAZY}.instantiate", "instantiate")
    | _from(f"{_LAZY}.configurable", "configurable")
    | _from(f"{_LAZY}.keys", "try_get_key get_config")
    | _from("etude.dialects.libai.args", "default_argument_parser")
)
_HOOKS = _from(
    f"{_LIVE}.hooks.hooks",
    "CallbackHook IterationTimer PeriodicWriter EvalHook LRScheduler EarlyStop",
) | _from(f"{_LIVE}.hooks.hooks_save", "PeriodicCheckpointer BestCheckpointer")
_TRAINER = _from(f"{_LIVE}.trainer", "HookBase TrainerBase EagerTrainer GraphTrainer")
_DEFAULT = _from(f"{_LIVE}.default", "DefaultTrainer") | _from(f"{_LIVE}.setup", "default_setup")
_STACK = _as(_CURRENT_STORAGE_STACK=f"{_LIVE}.events.storage:_STACK")
_EVENTS = (
    _from(f"{_LIVE}.events.storage", "EventStorage get_event_storage")
    | _from(f"{_LIVE}.events.writers", "EventWriter JSONWriter CommonMetricPrinter TensorboardXWriter")
    | _STACK
)
_SCHEDULERS = _from(
    f"{_LIVE}.optim.schedule",
    "WarmupCosineLR WarmupCosineAnnealingLR WarmupStepLR WarmupMultiStepLR WarmupExponentialLR WarmupPolynomialLR",
)
_OPTIM = _from(
    f"{_LIVE}.optim.build", "build_optimizer get_default_optimizer_params reduce_param_groups _expand_param_groups"
)
_LOADERS = _from(
    f"{_LIVE}.data.loaders",
    "build_nlp_train_val_test_loader build_nlp_train_loader build_nlp_test_loader "
    "build_image_train_loader build_image_test_loader",
)
_STRUCTURES = _from(f"{_LIVE}.data.structures", "DistTensorData Instance")
_SAMPLERS = _from(f"{_LIVE}.data.samplers", "CyclicSampler SingleRoundSampler")
_DIST = _from(
    f"{_LIVE}.distributed",
    "get_rank get_local_rank get_world_size get_num_nodes is_main_process is_last_process synchronize "
    "get_data_parallel_rank get_data_parallel_size get_tensor_parallel_size get_pipeline_parallel_size "
    "broadcast_py_object get_dist_util setup_dist_util convert_to_distributed_default_setting ttol tton "
    "tensor_to_rank0 set_device_type",
) | _from(f"{_LIVE}.oneflow.placements", "get_nd_sbp get_hidden_sbp same_sbp get_layer_placement")
_LIBAI_DIST = _as(dist="libai.utils.distributed")
_LOGGER = _from(f"{_LIVE}.events.logger", "setup_logger log_first_n log_every_n log_every_n_seconds")
_MISFITS = _from(
    "etude.dialects.libai.weight_names", "get_missing_parameters_message get_unexpected_parameters_message"
)
_CHECKPOINT = _from("etude.dialects.libai.files", "Checkpointer PeriodicCheckpointer")
_EVALUATORS = _from(f"{_LIVE}.evaluation.evaluators", "ClsEvaluator PPLEvaluator RegEvaluator BLEUEvaluator")
_EVALUATION = (
    _from(f"{_LIVE}.evaluation.run", "DatasetEvaluator DatasetEvaluators inference_on_dataset")
    | _from(f"{_LIVE}.evaluation.results", "flatten_results_dict print_csv_format")
    | _EVALUATORS
)
_GRAPH = _from(f"{_LIVE}.oneflow.graph", "GraphBase")

_LIBAI: dict[str, dict[str, str]] = {
    "libai": _as(__version__=f"{_ORIGINALS}:LIBAI"),
    "libai.config": _CONFIG,
    "libai.config.lazy": _from(f"{_LAZY}.call", "LazyCall") | _from(f"{_LAZY}.load", "LazyConfig"),
    "libai.config.instantiate": _from(f"{_LAZY}.instantiate", "instantiate")
    | _from(f"{_LAZY}.targets", "dump_dataclass"),
    "libai.utils.registry": _from(f"{_LAZY}.targets", "locate _convert_target_to_string")
    | _from(f"{_D2}.config.registry", "Registry"),
    "libai.config.arguments": _from("etude.dialects.libai.args", "default_argument_parser"),
    "libai.config.config": _from(f"{_LAZY}.configurable", "configurable")
    | _from(f"{_LAZY}.keys", "try_get_key get_config"),
    "libai.engine": _DEFAULT | _TRAINER,
    "libai.engine.default": _DEFAULT
    | _as(
        _check_batch_size=f"{_LIVE}.setup:check_batch_size",
    )
    | _LIBAI_DIST,
    "libai.engine.trainer": _TRAINER | _LIBAI_DIST | _from(f"{_LIVE}.events.storage", "EventStorage get_event_storage"),
    "libai.engine.hooks": _HOOKS | _from(f"{_LIVE}.trainer", "HookBase") | _LIBAI_DIST,
    "libai.utils": {},
    "libai.utils.events": _EVENTS,
    "libai.utils.history_buffer": _from(f"{_LIVE}.events.history", "HistoryBuffer"),
    "libai.utils.checkpoint": _CHECKPOINT | _MISFITS,
    "libai.utils.distributed": _DIST,
    "libai.utils.file_utils": _from(f"{_LIVE}.downloads", "cached_path download_file get_data_from_cache get_md5"),
    "libai.utils.logger": _LOGGER,
    "libai.utils.timer": _from(f"{_LIVE}.events.timer", "Timer"),
    "libai.scheduler": _SCHEDULERS | _from(f"{_LIVE}.optim.schedule", "build_lr_scheduler"),
    "libai.scheduler.lr_scheduler": _SCHEDULERS,
    "libai.scheduler.build": _from(f"{_LIVE}.optim.schedule", "build_lr_scheduler"),
    "libai.optim": _OPTIM,
    "libai.optim.build": _OPTIM,
    "libai.evaluation": _EVALUATION,
    "libai.evaluation.evaluator": _from(
        f"{_LIVE}.evaluation.run", "DatasetEvaluator DatasetEvaluators inference_on_dataset inference_context"
    ),
    "libai.evaluation.utils": _from(f"{_LIVE}.evaluation.results", "flatten_results_dict print_csv_format"),
    "libai.evaluation.cls_evaluator": _from(f"{_LIVE}.evaluation.evaluators", "ClsEvaluator"),
    "libai.evaluation.ppl_evaluator": _from(f"{_LIVE}.evaluation.evaluators", "PPLEvaluator"),
    "libai.evaluation.reg_evaluator": _from(f"{_LIVE}.evaluation.evaluators", "RegEvaluator"),
    "libai.evaluation.bleu_evaluator": _from(f"{_LIVE}.evaluation.evaluators", "BLEUEvaluator"),
    "libai.data": _STRUCTURES | _LOADERS,
    "libai.data.build": _LOADERS | _from(f"{_LIVE}.data.loaders", "trivial_batch_collator"),
    "libai.data.structures": _STRUCTURES,
    "libai.data.data_utils": {},
    "libai.data.data_utils.helpers": _from(
        f"{_LIVE}.data.helpers", "build_mapping build_blocks_mapping build_sample_idx build_blending_indices"
    ),
    "libai.data.samplers": _SAMPLERS,
    "libai.data.samplers.samplers": _SAMPLERS,
    "libai.models": {},
    "libai.models.utils": _GRAPH,
    "libai.models.utils.graph_base": _GRAPH,
    "libai.tokenizer": _from(f"{_LIVE}.default", "build_tokenizer"),
    "libai.tokenizer.build": _from(f"{_LIVE}.default", "build_tokenizer"),
}

# -- detectron2 and fvcore ---------------------------------------------------------------------------------------------

_D2_NODES = (
    _from(f"{_LAZY}.configurable", "configurable")
    | _from(f"{_D2}.config.nodes", "CfgNode upgrade_config downgrade_config")
    | _from(f"{_D2}.config.defaults", "get_cfg global_cfg set_global_cfg")
)
_D2_CONFIG = (
    _from(f"{_LAZY}.call", "LazyCall")
    | _as(
        LazyConfig=f"{_LAZY}.load:DetectronLazyConfig",
        instantiate=f"{_LAZY}.instantiate:instantiate_detectron2",
    )
    | _D2_NODES
)
_D2_HOOKS = (
    _from(
        f"{_D2}.hooks.hooks",
        "CallbackHook IterationTimer PeriodicWriter EvalHook LRScheduler PreciseBN AutogradProfiler TorchProfiler "
        "TorchMemoryStats EarlyStop",
    )
    | _from(f"{_D2}.hooks.hooks_save", "PeriodicCheckpointer BestCheckpointer")
    | _from(f"{_D2}.trainer", "HookBase")
)
_D2_TRAINERS = _from(f"{_D2}.trainer", "HookBase TrainerBase SimpleTrainer AMPTrainer")
_D2_DEFAULTS = _from(
    f"{_D2}.default", "DefaultTrainer DefaultPredictor default_setup default_writers create_ddp_model"
) | _as(
    default_argument_parser="etude.dialects.libai.args:detectron2_argument_parser",
)
_D2_EVENTS = (
    _from(f"{_D2}.hooks.events", "EventStorage get_event_storage has_event_storage")
    | _from(f"{_D2}.hooks.writers", "EventWriter JSONWriter CommonMetricPrinter TensorboardXWriter")
    | _STACK
)
_D2_LR = _from(f"{_D2}.schedule", "LRMultiplier WarmupCosineLR WarmupMultiStepLR") | _from(
    "etude.dialects.libai.multipliers", "WarmupParamScheduler"
)
_D2_BUILD = _from(
    f"{_D2}.optim",
    "build_optimizer build_lr_scheduler get_default_optimizer_params reduce_param_groups _expand_param_groups "
    "maybe_add_gradient_clipping GradientClipType _create_gradient_clipper "
    "_generate_optimizer_class_with_gradient_clipping",
)
_D2_EVAL = _from(
    f"{_D2}.evaluation", "DatasetEvaluator DatasetEvaluators inference_on_dataset inference_context"
) | _from(f"{_D2}.results", "flatten_results_dict print_csv_format verify_results")
_PARAM_SCHEDULERS = _from(
    "etude.dialects.libai.multipliers",
    "ParamScheduler ConstantParamScheduler CosineParamScheduler ExponentialParamScheduler LinearParamScheduler "
    "MultiStepParamScheduler PolynomialDecayParamScheduler StepParamScheduler StepWithFixedGammaParamScheduler "
    "CompositeParamScheduler",
)
#: Modules that others of the originals import, and that tests replace parts of where they are used.
_D2_COMM = _as(comm="detectron2.utils.comm")
_ZOO = _from(f"{_D2}.default", "get get_checkpoint_url get_config get_config_file")
_D2_CHECKPOINT = _from(f"{_D2}.checkpoint", "DetectionCheckpointer PeriodicCheckpointer")

_D2_DATASETS = _from(
    f"{_D2}.data.loaders",
    "AspectRatioGroupedDataset DatasetFromList MapDataset ToIterableDataset trivial_batch_collator",
)
_D2_LOADERS = _from(
    f"{_D2}.data.loaders",
    "build_batch_data_loader build_detection_train_loader build_detection_test_loader trivial_batch_collator "
    "worker_init_reset_seed",
)
_D2_LAUNCH = _from(f"{_D2}.launch", "launch DEFAULT_TIMEOUT")
#: What the defaults are made of, and code takes from there.
_D2_LOADED = (
    _from(f"{_D2}.checkpoint", "DetectionCheckpointer")
    | _from(f"{_D2}.data.loaders", "build_detection_train_loader build_detection_test_loader")
    | _from(f"{_D2}.config.registry", "build_model")
    | _from(f"{_D2}.optim", "build_optimizer build_lr_scheduler")
    | _from(f"{_D2}.evaluation", "DatasetEvaluator inference_on_dataset")
    | _from(f"{_D2}.results", "print_csv_format verify_results")
    | _from(f"{_D2}.hooks.writers", "CommonMetricPrinter JSONWriter TensorboardXWriter")
    | _from(f"{_D2}.utils.logger", "setup_logger")
)
_D2_SAMPLERS = _from(
    f"{_D2}.data.samplers",
    "TrainingSampler RandomSubsetTrainingSampler RepeatFactorTrainingSampler InferenceSampler GroupedBatchSampler",
)

_DETECTRON2: dict[str, dict[str, str]] = {
    "detectron2": _as(__version__=f"{_ORIGINALS}:DETECTRON2"),
    "detectron2.config": _D2_CONFIG,
    "detectron2.config.lazy": _from(f"{_LAZY}.call", "LazyCall") | _as(LazyConfig=f"{_LAZY}.load:DetectronLazyConfig"),
    "detectron2.config.config": _D2_NODES,
    "detectron2.config.compat": _from(f"{_D2}.config.nodes", "upgrade_config downgrade_config guess_version"),
    "detectron2.config.defaults": _as(_C=f"{_D2}.config.defaults:DEFAULT_CONFIG"),
    "detectron2.config.instantiate": _as(instantiate=f"{_LAZY}.instantiate:instantiate_detectron2")
    | _from(f"{_LAZY}.targets", "dump_dataclass"),
    "detectron2.engine": _D2_DEFAULTS | _D2_TRAINERS | _D2_HOOKS | _D2_LAUNCH,
    "detectron2.engine.defaults": _D2_DEFAULTS
    | _D2_TRAINERS
    | _D2_LOADED
    | _from(f"{_D2}.default", "_try_get_key seed_all_rng")
    | _as(hooks="detectron2.engine.hooks")
    | _D2_COMM,
    "detectron2.engine.train_loop": _D2_TRAINERS
    | _D2_COMM
    | _from(f"{_D2}.hooks.events", "EventStorage get_event_storage"),
    "detectron2.engine.launch": _D2_LAUNCH,
    "detectron2.engine.hooks": _D2_HOOKS
    | _from(f"{_D2}.hooks.events", "EventStorage")
    | _from(f"{_D2}.hooks.writers", "EventWriter")
    | _from(f"{_D2}.results", "flatten_results_dict")
    | _D2_COMM,
    "detectron2.layers": _from(f"{_D2}.utils.helpers", "ShapeSpec"),
    "detectron2.layers.shape_spec": _from(f"{_D2}.utils.helpers", "ShapeSpec"),
    "detectron2.model_zoo": _ZOO,
    "detectron2.model_zoo.model_zoo": _ZOO,
    "detectron2.solver": _D2_LR | _D2_BUILD,
    "detectron2.solver.build": _D2_BUILD | _D2_LR | _PARAM_SCHEDULERS,
    "detectron2.solver.lr_scheduler": _D2_LR | _from(f"{_D2}.schedule", "_get_warmup_factor_at_iter"),
    "detectron2.checkpoint": _from(f"{_D2}.checkpoint", "Checkpointer") | _D2_CHECKPOINT,
    "detectron2.checkpoint.detection_checkpoint": _from(f"{_D2}.checkpoint", "DetectionCheckpointer"),
    "detectron2.evaluation": _D2_EVAL,
    "detectron2.evaluation.evaluator": _from(
        f"{_D2}.evaluation", "DatasetEvaluator DatasetEvaluators inference_on_dataset inference_context"
    ),
    "detectron2.evaluation.testing": _from(f"{_D2}.results", "flatten_results_dict print_csv_format verify_results"),
    "detectron2.data": _D2_LOADERS | _D2_DATASETS,
    "detectron2.data.build": _D2_LOADERS,
    "detectron2.data.common": _D2_DATASETS
    | _from(f"{_D2}.data.loaders", "set_default_dataset_from_list_serialize_method"),
    "detectron2.data.samplers": _D2_SAMPLERS,
    "detectron2.data.samplers.distributed_sampler": _D2_SAMPLERS,
    "detectron2.data.samplers.grouped_batch_sampler": _from(f"{_D2}.data.samplers", "GroupedBatchSampler"),
    "detectron2.utils": {},
    "detectron2.utils.events": _D2_EVENTS,
    "detectron2.utils.comm": _from(
        f"{_D2}.utils.comm",
        "get_rank get_local_rank get_local_size get_world_size is_main_process synchronize all_gather gather "
        "shared_random_seed reduce_dict",
    ),
    "detectron2.utils.logger": _from(f"{_D2}.utils.logger", "setup_logger log_first_n log_every_n log_every_n_seconds")
    | _from(f"{_D2}.utils.helpers", "create_small_table"),
    "detectron2.utils.collect_env": _from(f"{_D2}.utils.helpers", "collect_env_info"),
    "detectron2.utils.memory": _from(f"{_D2}.utils.helpers", "retry_if_cuda_oom"),
    "detectron2.utils.env": _from(f"{_D2}.default", "seed_all_rng TORCH_VERSION")
    | _from(f"{_D2}.utils.helpers", "setup_environment"),
    "detectron2.utils.serialize": _from(f"{_D2}.data.loaders", "PicklableWrapper"),
    "detectron2.utils.testing": _from(f"{_D2}.utils.helpers", "reload_lazy_config"),
    "detectron2.utils.registry": _from(f"{_D2}.config.registry", "Registry locate")
    | _from(f"{_LAZY}.targets", "_convert_target_to_string"),
    "detectron2.modeling": _from(f"{_D2}.config.registry", "META_ARCH_REGISTRY build_model"),
    "detectron2.modeling.meta_arch": _from(f"{_D2}.config.registry", "META_ARCH_REGISTRY build_model"),
    "detectron2.modeling.meta_arch.build": _from(f"{_D2}.config.registry", "META_ARCH_REGISTRY build_model"),
    "fvcore": _as(__version__=f"{_ORIGINALS}:FVCORE"),
    "fvcore.common": {},
    "fvcore.common.param_scheduler": _PARAM_SCHEDULERS,
    "fvcore.common.checkpoint": _from(f"{_D2}.checkpoint", "Checkpointer PeriodicCheckpointer")
    | _as(_IncompatibleKeys="etude.dialects.libai.files:IncompatibleKeys")
    | _MISFITS,
    "fvcore.common.history_buffer": _from(f"{_LIVE}.events.history", "HistoryBuffer"),
    "fvcore.common.timer": _from(f"{_LIVE}.events.timer", "Timer"),
    "fvcore.common.registry": _from(f"{_D2}.config.registry", "Registry"),
    "hydra": {},
    "hydra.errors": _from(
        f"{_LAZY}.errors", "HydraException CompactHydraException OverrideParseException InstantiationException"
    ),
}

MODULES: dict[str, dict[str, str]] = {**_LIBAI, **names_oneflow.MODULES, **_DETECTRON2}
FALLBACK = names_oneflow.FALLBACK
#: Compiled modules of the original that Étude has a stand-in for where they were not built.
COMPILED = ("libai.data.data_utils.helpers",)
#: What Étude serves even where the original is installed or checked out; models, layers, data sets and tokenizers are
#: the original's.
ENGINE = (
    "detectron2.checkpoint",
    "detectron2.config",
    "detectron2.engine",
    "detectron2.evaluation.evaluator",
    "detectron2.evaluation.testing",
    "detectron2.solver",
    "detectron2.utils.comm",
    "detectron2.utils.events",
    "oneflow",
    "libai.config",
    "libai.data.build",
    "libai.data.samplers",
    "libai.data.structures",
    "libai.engine",
    "libai.evaluation",
    "libai.models.utils.graph_base",
    "libai.optim",
    "libai.scheduler",
    "libai.utils.checkpoint",
    "libai.utils.distributed",
    "libai.utils.events",
    "libai.utils.file_utils",
    "libai.utils.history_buffer",
    "libai.utils.logger",
    "libai.utils.timer",
)

_BRING = "bring the class as a file of your own and import it from there"
_INSTALL = "it is a package of its own: pip install 'etude[detectron2]'"
_ORIGINAL = "it comes with detectron2, which is not installed here"
OUT_OF_SCOPE: dict[str, str] = {
    **names_oneflow.OUT_OF_SCOPE,
    "libai.models": f"models of LiBai are written for OneFlow; {_BRING}",
    "libai.tokenizer": f"tokenizers of LiBai are not part of the engine; {_BRING}",
    "libai.layers": f"OneFlow's parallel layers have no counterpart; use torch.nn, or {_BRING}",
    "libai.data.data_utils": f"indexed data sets of LiBai are not part of the engine; {_BRING}",
    "libai.data.datasets": f"data sets of LiBai are not part of the engine; {_BRING}",
    "libai.onnx_export": "use torch.onnx.export on the trained model",
    "libai.inference": "load the weights with torch and call the model",
    "detectron2.data": f"detection data sets and their mappers are not part of the engine; {_BRING}",
    "detectron2.modeling": f"detection models are not part of the engine; {_BRING}",
    "detectron2.structures": f"detection structures are not part of the engine; {_BRING}",
    "detectron2.export": "use torch.export on the trained model",
    "detectron2.layers": f"layers of detection models are not part of the engine; use torch.nn, or {_BRING}",
    "detectron2.tracking": f"tracking is not part of the engine; {_BRING}",
    "detectron2.utils.analysis": f"counting the operations of a model is not part of the engine; {_BRING}",
    "detectron2.utils.visualizer": f"drawing of detections is not part of the engine; {_BRING}",
    "detectron2.utils.video_visualizer": f"drawing of detections is not part of the engine; {_BRING}",
    **{
        f"detectron2.evaluation.{name}": f"evaluators of detections are not part of the engine; {_BRING}"
        for name in (
            "COCOEvaluator",
            "COCOPanopticEvaluator",
            "CityscapesInstanceEvaluator",
            "CityscapesSemSegEvaluator",
            "LVISEvaluator",
            "PascalVOCDetectionEvaluator",
            "RotatedCOCOEvaluator",
            "SemSegEvaluator",
        )
    },
    "fvcore": _INSTALL,
    "iopath": _INSTALL,
    "yacs": _INSTALL,
    "libai.utils.file_io": "it comes with a checkout of LiBai; iopath has the same names: pip install iopath",
    "detectron2.utils.file_io": _ORIGINAL,
    "detectron2.checkpoint.c2_model_loading": _ORIGINAL,
    "detectron2.data.DatasetCatalog": _ORIGINAL,
    "detectron2.data.MetadataCatalog": _ORIGINAL,
    "detectron2.data.get_detection_dataset_dicts": _ORIGINAL,
    "detectron2.projects": f"projects of detectron2 are not part of the engine; {_BRING}",
}
