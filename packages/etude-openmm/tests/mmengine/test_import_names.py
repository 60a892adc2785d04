"""The import names that users' code relies on."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from etude.dialects import imports
from etude.errors import OutOfScope
from etude.registry import resolve
from etude_openmm.mmengine import names, overlay

imports.install()

SURFACE = {
    "mmengine": "Config ConfigDict DictAction MMLogger MessageHub print_log mkdir_or_exist load dump __version__",
    "mmengine.registry": "HOOKS MODELS FUNCTIONS Registry DefaultScope build_from_cfg build_scheduler_from_cfg "
    "init_default_scope count_registered_modules traverse_registry_tree",
    "mmengine.runner": "BaseLoop EpochBasedTrainLoop FlexibleRunner LogProcessor Priority Runner autocast "
    "find_latest_checkpoint get_priority load_checkpoint set_random_seed turn_on_activation_checkpointing",
    "mmengine.optim": "OptimWrapper AmpOptimWrapper OptimWrapperDict DefaultOptimWrapperConstructor OPTIMIZERS "
    "build_optim_wrapper ZeroRedundancyOptimizer OneCycleLR ReduceOnPlateauMomentum PolyParamScheduler _ParamScheduler",
    "mmengine.optim.scheduler": "CosineRestartLR CosineRestartMomentum CosineRestartParamScheduler",
    "mmengine.optim.scheduler.lr_scheduler": "LinearLR CosineAnnealingLR",
    "mmengine.optim.optimizer.amp_optimizer_wrapper": "AmpOptimWrapper",
    "mmengine.dataset": "BaseDataset ConcatDataset RepeatDataset ClassBalancedDataset Compose DefaultSampler "
    "InfiniteSampler default_collate pseudo_collate worker_init_fn force_full_init COLLATE_FUNCTIONS",
    "mmengine.dataset.sampler": "DefaultSampler InfiniteSampler",
    "mmengine.evaluator": "BaseMetric DumpResults Evaluator get_metric_value",
    "mmengine.visualization": "Visualizer BaseVisBackend AimVisBackend ClearMLVisBackend DVCLiveVisBackend "
    "LocalVisBackend MLflowVisBackend NeptuneVisBackend TensorboardVisBackend WandbVisBackend",
    "mmengine.dist": "all_gather all_reduce all_reduce_params barrier broadcast collect_results get_dist_info "
    "infer_launcher init_dist is_distributed is_main_process master_only sync_random_seed",
    "mmengine.model": "BaseModel BaseModule BaseDataPreprocessor ImgDataPreprocessor stack_batch is_model_wrapper",
    "mmengine.device": "get_device is_cuda_available is_mps_available is_npu_available get_max_cuda_memory",
    "mmengine.hooks.hook": "Hook DATA_BATCH",
    "mmengine.hooks.checkpoint_hook": "CheckpointHook DATA_BATCH",
    "mmengine.runner.runner": "Runner ConfigType ParamSchedulerType OptimWrapperType _get_batch_size",
    "mmengine.visualization.visualizer": "Visualizer VisBackendsType",
    "mmengine.device.utils": "DEVICE get_device",
    "mmengine.utils.manager": "ManagerMixin ManagerMeta _lock",
}


@pytest.mark.parametrize("module", SURFACE)
def test_a_module_has_the_names_that_are_imported_from_it(module: str) -> None:
    served = importlib.import_module(module)
    for name in SURFACE[module].split():
        assert getattr(served, name) is not None, f"{module}.{name}"


def test_every_served_name_leads_somewhere() -> None:
    for table in (*names.MODULES.values(), *names.REGISTERED.values()):
        for target in table.values():
            if overlay.is_layer(target.partition(":")[0]):
                continue  # comes from the mmengine on disk, and may need more than is installed here
            assert (resolve(target) if ":" in target else importlib.import_module(target)) is not None


@pytest.mark.parametrize("registry", sorted(names.REGISTERED))
def test_a_registry_finds_its_entries_by_name(registry: str) -> None:
    table = getattr(importlib.import_module("mmengine.registry"), registry)
    for name in names.REGISTERED[registry].keys() - {"NaiveVisualizationHook"}:  # which needs OpenCV
        assert table.get(name) is not None, name


def test_what_is_out_of_scope_says_what_to_use() -> None:
    import mmengine.runner

    with pytest.raises(OutOfScope, match="model zoo"):
        mmengine.runner.get_torchvision_models


@pytest.mark.parametrize("package", ["mmselfsup", "mmpretrain"])
def test_a_project_that_is_not_installed_says_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("stand_ins")])
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(OutOfScope, match=f"it is a project of its own: pip install {package}"):
        importlib.import_module(package)


def test_the_tables_of_names_need_no_torch() -> None:
    code = "import sys, etude_openmm.mmengine.names; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
