"""Names of MMEngine: config, registry, base modules, checkpoint functions, files and utilities."""

from __future__ import annotations

_COMMON = "etude.dialects.openmm"


def _from(module: str, names: str) -> dict[str, str]:
    return {name: f"{_COMMON}.{module}:{name}" for name in names.split()}


_CONFIG = _from("config.config_v2", "Config ConfigDict DictAction read_base")
_LAZY = _from("reading.lazy_objects", "LazyObject LazyAttr")
_REGISTRY = (
    _from("registries.registry_v2", "Registry build_from_cfg")
    | _from("registries.scope", "DefaultScope init_default_scope")
    | _from(
        "registries.build_functions",
        "build_model_from_cfg build_runner_from_cfg build_scheduler_from_cfg build_optimizer_from_cfg "
        "traverse_registry_tree",
    )
    | _from("registries.root", "count_registered_modules")
)
_ROOT_NAMES = (
    "DATASETS DATA_SAMPLERS EVALUATOR FUNCTIONS HOOKS INFERENCERS LOG_PROCESSORS LOOPS METRICS MODELS MODEL_WRAPPERS "
    "OPTIMIZERS OPTIM_WRAPPERS OPTIM_WRAPPER_CONSTRUCTORS PARAM_SCHEDULERS RUNNERS RUNNER_CONSTRUCTORS STRATEGIES "
    "TASK_UTILS TRANSFORMS VISBACKENDS VISUALIZERS WEIGHT_INITIALIZERS"
)
_ROOTS = {name: f"etude.dialects.mmengine.live.registry:{name}" for name in _ROOT_NAMES.split()}
_BASE_MODULE = _from("init.module_v2", "BaseModule Sequential ModuleList ModuleDict")
_INIT = _from(
    "init.init_v2",
    "BaseInit Caffe2XavierInit ConstantInit KaimingInit NormalInit PretrainedInit TruncNormalInit UniformInit "
    "XavierInit bias_init_with_prob caffe2_xavier_init constant_init initialize kaiming_init normal_init "
    "trunc_normal_init uniform_init update_init_info xavier_init",
)
_TRUNC = _from("init.init_v2", "trunc_normal_")
_CHECKPOINT = _from(
    "live.checkpoint",
    "CheckpointLoader find_latest_checkpoint get_state_dict load_checkpoint load_state_dict save_checkpoint "
    "weights_to_cpu",
)
_CHECKPOINT_INNER = _from(
    "live.checkpoint", "_load_checkpoint _load_checkpoint_to_model _load_checkpoint_with_prefix"
) | _from(
    "live.loader",
    "load_from_ceph load_from_http load_from_local load_from_mmcls load_from_openmmlab load_from_pavi "
    "load_from_torchvision",
)
_FILES = _from(
    "file_io.fileio",
    "BaseStorageBackend FileClient HTTPBackend HardDiskBackend LmdbBackend LocalBackend "
    "MemcachedBackend PetrelBackend copy_if_symlink_fails copyfile "
    "copyfile_from_local copyfile_to_local copytree copytree_from_local copytree_to_local dict_from_file dump exists "
    "get get_file_backend get_local_path get_text isdir isfile join_path list_dir_or_file list_from_file load put "
    "generate_presigned_url put_text register_backend register_handler remove rmtree BaseFileHandler JsonHandler "
    "PickleHandler YamlHandler",
)
_BACKEND_TABLES = _from("file_io.storage", "backends prefix_to_backends register_backend")
_HANDLER_TABLES = _from("file_io.fileio", "file_handlers register_handler _register_handler")
_FILE_IO = _from("file_io.storage", "_get_file_backend _parse_uri_prefix backend_instances")
_BACKEND_FILES = {
    "base": "BaseStorageBackend",
    "http_backend": "HTTPBackend urlopen",
    "lmdb_backend": "LmdbBackend",
    "local_backend": "LocalBackend",
    "memcached_backend": "MemcachedBackend",
    "petrel_backend": "PetrelBackend",
}
_HANDLER_FILES = {
    "base": "BaseFileHandler",
    "json_handler": "JsonHandler set_default",
    "pickle_handler": "PickleHandler",
    "yaml_handler": "YamlHandler",
}
_EXTERNAL = _from(
    "config.external",
    "MODULE2PACKAGE PKG2PROJECT _get_cfg_metainfo _get_external_cfg_base_path _get_external_cfg_path "
    "_get_package_and_cfg_path",
)
_MANAGERS = _from("registries.managers", "ManagerMeta ManagerMixin")
_MISC = _from(
    "utils.misc",
    "_ntuple apply_to check_prerequisites concat_list deprecated_api_warning deprecated_function "
    "get_object_from_string has_method import_modules_from_strings is_list_of is_method_overridden is_seq_of is_str "
    "is_tuple_of iter_cast list_cast requires_executable requires_package slice_list to_1tuple to_2tuple to_3tuple "
    "to_4tuple to_ntuple tuple_cast",
)
_PACKAGE = _from("utils.package", "call_command get_installed_path install_package is_installed")
_PATH = _from("utils.path", "check_file_exist fopen is_abs is_filepath mkdir_or_exist scandir symlink")
_PROGRESS = _from("utils.progress", "ProgressBar track_iter_progress track_parallel_progress track_progress")
_PROGRESS_RICH = _from("utils.progress", "track_progress_rich")
_TIMER = _from("utils.timer", "Timer TimerError check_time")
_VERSION = _from("utils.version", "digit_version get_git_hash parse_version_info")
_UTILS = _MISC | _PACKAGE | _PATH | _PROGRESS | _PROGRESS_RICH | _TIMER | _VERSION | _MANAGERS
_PARROTS = _from(
    "torch_utils",
    "TORCH_VERSION DataLoader SyncBatchNorm _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _BatchNorm _ConvNd "
    "_ConvTransposeMixin _InstanceNorm _MaxPoolNd is_rocm_pytorch",
)
_DL_UTILS = _from(
    "torch_utils",
    "TORCH_VERSION TimeCounter collect_env has_batch_norm is_jit_tracing is_norm load_url mmcv_full_available "
    "set_multi_processing tensor2imgs torch_meshgrid",
)

MODULES: dict[str, dict[str, str]] = {
    "mmengine": _CONFIG | _FILES | _UTILS | _REGISTRY | _ROOTS,
    "mmengine.config": _CONFIG | _from("config.config_v2", "ConfigParsingError"),
    "mmengine.config.config": _CONFIG
    | _LAZY
    | _from("config.config_v2", "add_args BASE_KEY DELETE_KEY DEPRECATION_KEY RESERVED_KEYS"),
    "mmengine.config.lazy": _LAZY,
    "mmengine.config.utils": _EXTERNAL
    | _from("reading.lazy_style", "ConfigParsingError ImportTransformer _gather_abs_import_lazyobj"),
    "mmengine.registry": _REGISTRY | _ROOTS,
    "mmengine.registry.registry": _from("registries.registry_v2", "Registry")
    | _from("config.external", "MODULE2PACKAGE"),
    "mmengine.registry.default_scope": _from("registries.scope", "DefaultScope"),
    "mmengine.registry.build_functions": _REGISTRY,
    "mmengine.registry.root": _ROOTS,
    "mmengine.registry.utils": _REGISTRY,
    "mmengine.model": _BASE_MODULE | _INIT,
    "mmengine.model.base_module": _BASE_MODULE,
    "mmengine.model.weight_init": _INIT | _TRUNC,
    "mmengine.runner": _CHECKPOINT,
    "mmengine.runner.checkpoint": _CHECKPOINT | _CHECKPOINT_INNER,
    "mmengine.fileio": _FILES,
    "mmengine.fileio.io": _FILES | _BACKEND_TABLES | _HANDLER_TABLES | _FILE_IO,
    "mmengine.fileio.parse": _FILES,
    "mmengine.fileio.file_client": _FILES,
    "mmengine.fileio.backends": _FILES | _BACKEND_TABLES,
    "mmengine.fileio.backends.registry_utils": _BACKEND_TABLES,
    **{
        f"mmengine.fileio.backends.{file}": _from("file_io.storage", f"{name} BaseStorageBackend")
        for file, name in _BACKEND_FILES.items()
    },
    "mmengine.fileio.handlers": _FILES | _HANDLER_TABLES,
    "mmengine.fileio.handlers.registry_utils": _HANDLER_TABLES,
    **{
        f"mmengine.fileio.handlers.{file}": _from("file_io.fileio", f"{name} BaseFileHandler")
        for file, name in _HANDLER_FILES.items()
    },
    "mmengine.utils": _UTILS,
    "mmengine.utils.misc": _MISC,
    "mmengine.utils.manager": _MANAGERS | _from("registries.managers", "_accquire_lock _lock _release_lock"),
    "mmengine.utils.package_utils": _PACKAGE | _from("utils.package", "package2module"),
    "mmengine.utils.path": _PATH | _from("utils.path", "find_vcs_root"),
    "mmengine.utils.progressbar": _PROGRESS | _from("utils.progress", "init_pool"),
    "mmengine.utils.progressbar_rich": _PROGRESS_RICH,
    "mmengine.utils.timer": _TIMER | _from("utils.timer", "_g_timers"),
    "mmengine.utils.version_utils": _VERSION | _from("utils.version", "_minimal_ext_cmd"),
    "mmengine.utils.dl_utils": _DL_UTILS,
    "mmengine.utils.dl_utils.parrots_wrapper": _PARROTS,
    "mmengine.utils.dl_utils.collect_env": _from("torch_utils", "collect_env"),
    "mmengine.utils.dl_utils.misc": _from(
        "torch_utils", "has_batch_norm is_norm tensor2imgs torch_meshgrid mmcv_full_available"
    ),
    "mmengine.utils.dl_utils.setup_env": _from("torch_utils", "set_multi_processing"),
    "mmengine.utils.dl_utils.hub": _from("torch_utils", "load_url"),
    "mmengine.utils.dl_utils.torch_ops": _from("torch_utils", "torch_meshgrid"),
    "mmengine.utils.dl_utils.trace": _from("torch_utils", "is_jit_tracing"),
    "mmengine.utils.dl_utils.time_counter": _from("torch_utils", "TimeCounter"),
}

OUT_OF_SCOPE: dict[str, str] = {
    "mmengine.runner.get_torchvision_models": "the model zoo; download a checkpoint and give its path",
    "mmengine.runner.get_external_models": "the model zoo; download a checkpoint and give its path",
    "mmengine.runner.get_mmcls_models": "the model zoo; download a checkpoint and give its path",
    "mmengine.runner.get_deprecated_model_names": "the model zoo; download a checkpoint and give its path",
}
