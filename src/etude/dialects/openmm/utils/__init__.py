"""Small helpers under the names that ``mmcv.utils`` and ``mmengine.utils`` give them. No torch."""

from etude.dialects.openmm.registries.managers import ManagerMeta, ManagerMixin
from etude.dialects.openmm.utils.misc import (
    _ntuple,
    apply_to,
    check_prerequisites,
    concat_list,
    deprecated_api_warning,
    deprecated_function,
    get_object_from_string,
    has_method,
    import_modules_from_strings,
    is_list_of,
    is_method_overridden,
    is_seq_of,
    is_str,
    is_tuple_of,
    iter_cast,
    list_cast,
    requires_executable,
    requires_package,
    slice_list,
    to_1tuple,
    to_2tuple,
    to_3tuple,
    to_4tuple,
    to_ntuple,
    tuple_cast,
)
from etude.dialects.openmm.utils.package import (
    call_command,
    get_installed_path,
    install_package,
    is_installed,
    package2module,
)
from etude.dialects.openmm.utils.path import (
    check_file_exist,
    find_vcs_root,
    fopen,
    is_abs,
    is_filepath,
    mkdir_or_exist,
    scandir,
    symlink,
)
from etude.dialects.openmm.utils.progress import (
    ProgressBar,
    track_iter_progress,
    track_parallel_progress,
    track_progress,
    track_progress_rich,
)
from etude.dialects.openmm.utils.timer import Timer, TimerError, check_time
from etude.dialects.openmm.utils.version import digit_version, get_git_hash, parse_version_info

__all__ = [
    "ManagerMeta", "ManagerMixin", "ProgressBar", "Timer", "TimerError", "_ntuple", "apply_to", "call_command",
    "check_file_exist", "check_prerequisites", "check_time", "concat_list", "deprecated_api_warning",
    "deprecated_function", "digit_version", "find_vcs_root", "fopen", "get_git_hash", "get_installed_path",
    "get_object_from_string", "has_method", "import_modules_from_strings", "install_package", "is_abs", "is_filepath",
    "is_installed", "is_list_of", "is_method_overridden", "is_seq_of", "is_str", "is_tuple_of", "iter_cast",
    "list_cast", "mkdir_or_exist", "package2module", "parse_version_info", "requires_executable", "requires_package",
    "scandir", "slice_list", "symlink", "to_1tuple", "to_2tuple", "to_3tuple", "to_4tuple", "to_ntuple",
    "track_iter_progress", "track_parallel_progress", "track_progress", "track_progress_rich", "tuple_cast",
]  # fmt: skip
