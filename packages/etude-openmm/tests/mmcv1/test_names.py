"""Every name that the dialect answers to leads somewhere; what is out of scope says so."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from etude.errors import OutOfScope
from etude_openmm.mmcv1 import names, overlay

#: Modules among mmcv's layers need an mmcv on disk: tests/projects has one.
OWN = sorted(name for name in names.MODULES if not overlay.is_layer(name.rpartition(".")[0]))


@pytest.mark.parametrize("module", OWN)
def test_a_served_module_gives_all_its_names(module: str) -> None:
    served = importlib.import_module(module)
    for name in names.MODULES[module]:
        assert getattr(served, name) is not None


def test_the_same_object_stands_at_its_deep_path() -> None:
    from mmcv import Registry
    from mmcv.runner import HOOKS, EpochBasedRunner, EvalHook, LrUpdaterHook
    from mmcv.runner.epoch_based_runner import EpochBasedRunner as DeepRunner
    from mmcv.runner.hooks import HOOKS as HOOKS_THERE
    from mmcv.runner.hooks.evaluation import EvalHook as DeepEvalHook
    from mmcv.runner.hooks.lr_updater import LrUpdaterHook as DeepLrUpdaterHook
    from mmcv.utils.registry import Registry as DeepRegistry

    assert HOOKS is HOOKS_THERE
    assert (Registry, EpochBasedRunner, EvalHook, LrUpdaterHook) == (
        DeepRegistry,
        DeepRunner,
        DeepEvalHook,
        DeepLrUpdaterHook,
    )


def test_a_backend_of_ones_own_is_registered_at_the_client() -> None:
    from mmcv.fileio import BaseStorageBackend
    from mmcv.fileio.file_client import FileClient, HardDiskBackend

    @FileClient.register_backend("shelf", prefixes="shelf")
    class Shelf(BaseStorageBackend):
        def get(self, filepath: str) -> bytes:
            return filepath.encode()

        def get_text(self, filepath: str, encoding: str = "utf-8") -> str:
            return filepath

    assert FileClient.infer_client(uri="shelf://a").get("shelf://a") == b"shelf://a"
    assert isinstance(FileClient("disk").client, HardDiskBackend)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("mmcls.datasets", "CIFAR10"),
        ("mmcls.models", "ImageClassifier"),
        ("mmcls.models.heads", "ClsHead"),
        ("mmcls.datasets.pipelines", "LoadImageFromFile"),
        ("mmcls.models.losses", "LabelSmoothLoss"),
        ("mmcls.core", "PreciseBNHook"),
        ("mmcls.datasets", "RepeatDataset"),
        ("mmtrack.core", "SiameseRPNOptimizerHook"),
        ("mmtrack.apis", "init_model"),
    ],
)
def test_a_ready_made_part_out_of_scope_says_so(module: str, name: str) -> None:
    with pytest.raises(OutOfScope, match="out of Étude's scope"):
        getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    "module",
    ["mmcv.ops", "mmcv.image", "mmdet", "mmdet.models", "mmcv.cnn.bricks", "mmcls.models.utils", "mmcls.datasets.utils",
     "mmcls.datasets.multi_label"],
)  # fmt: skip
def test_a_module_out_of_scope_says_so(module: str) -> None:
    with pytest.raises(OutOfScope, match="out of Étude's scope"):
        importlib.import_module(module)


@pytest.mark.parametrize("name", ["imread", "VideoReader"])
def test_a_function_out_of_scope_says_so(name: str) -> None:
    import mmcv

    with pytest.raises(OutOfScope, match="pip install mmcv-lite"):
        getattr(mmcv, name)


def test_a_misspelt_name_is_answered_with_the_near_one() -> None:
    import mmcv.runner

    with pytest.raises(AttributeError, match="did you mean 'EpochBasedRunner'"):
        mmcv.runner.EpochBasedRuner


#: What unchanged hooks, models and train scripts import, module by module.
SURFACE = {
    "mmcv": "Config DictAction ConfigDict build_from_cfg Registry mkdir_or_exist dump load print_log ProgressBar is_list_of "
    "is_tuple_of is_seq_of is_str digit_version symlink scandir list_from_file track_progress",
    "mmcv.runner": "HOOKS Hook RUNNERS build_runner BaseRunner EpochBasedRunner IterBasedRunner IterLoader Runner OPTIMIZERS "
    "OPTIMIZER_BUILDERS build_optimizer DefaultOptimizerConstructor OptimizerHook Fp16OptimizerHook "
    "GradientCumulativeOptimizerHook GradientCumulativeFp16OptimizerHook CheckpointHook EvalHook DistEvalHook EMAHook "
    "IterTimerHook DistSamplerSeedHook SyncBuffersHook EmptyCacheHook ProfilerHook ClosureHook LoggerHook TextLoggerHook "
    "TensorboardLoggerHook WandbLoggerHook MlflowLoggerHook NeptuneLoggerHook DvcliveLoggerHook ClearMLLoggerHook "
    "SegmindLoggerHook PaviLoggerHook LrUpdaterHook StepLrUpdaterHook CosineAnnealingLrUpdaterHook MomentumUpdaterHook "
    "OneCycleMomentumUpdaterHook Priority get_priority LogBuffer get_dist_info init_dist master_only allreduce_grads "
    "allreduce_params load_checkpoint load_state_dict save_checkpoint weights_to_cpu CheckpointLoader _load_checkpoint "
    "BaseModule Sequential ModuleList ModuleDict auto_fp16 force_fp32 wrap_fp16_model set_random_seed obj_from_dict "
    "get_host_info",
    "mmcv.runner.hooks": "HOOKS Hook LoggerHook CheckpointHook",
    "mmcv.runner.hooks.hook": "HOOKS Hook",
    "mmcv.runner.hooks.lr_updater": "LrUpdaterHook annealing_cos annealing_linear format_param",
    "mmcv.runner.hooks.checkpoint": "CheckpointHook",
    "mmcv.runner.hooks.evaluation": "EvalHook DistEvalHook",
    "mmcv.runner.hooks.logger": "LoggerHook TextLoggerHook",
    "mmcv.runner.hooks.logger.wandb": "WandbLoggerHook",
    "mmcv.runner.optimizer": "OPTIMIZERS OPTIMIZER_BUILDERS DefaultOptimizerConstructor",
    "mmcv.runner.base_module": "BaseModule",
    "mmcv.runner.dist_utils": "get_dist_info master_only",
    "mmcv.utils": "Registry build_from_cfg get_logger print_log digit_version is_seq_of import_modules_from_strings to_2tuple "
    "TORCH_VERSION is_method_overridden collect_env get_git_hash jit is_jit_tracing torch_meshgrid worker_init_fn "
    "load_url IS_CUDA_AVAILABLE IS_MLU_AVAILABLE IS_NPU_AVAILABLE",
    "mmcv.utils.parrots_wrapper": "_BatchNorm _InstanceNorm SyncBatchNorm _AvgPoolNd is_rocm_pytorch",
    "mmcv.parallel": "is_module_wrapper MMDataParallel MMDistributedDataParallel collate DataContainer scatter",
    "mmcv.parallel._functions": "Scatter scatter get_input_device",
    "mmcv.parallel.data_parallel": "MMDataParallel",
    "mmcv.parallel.distributed": "MMDistributedDataParallel",
    "mmcv.parallel.scatter_gather": "scatter scatter_kwargs",
    "mmcv.cnn": "initialize constant_init xavier_init normal_init trunc_normal_init uniform_init kaiming_init "
    "caffe2_xavier_init bias_init_with_prob MODELS is_norm",
    "mmcv.cnn.utils": "revert_sync_batchnorm",
    "mmcv.engine": "single_gpu_test multi_gpu_test collect_results_cpu collect_results_gpu",
    "mmcls.apis": "train_model single_gpu_test multi_gpu_test init_random_seed set_random_seed",
    "mmcls.core": "EvalHook DistEvalHook DistOptimizerHook Lamb multi_apply",
    "mmcls.core.utils": "allreduce_grads multi_apply sync_random_seed DistOptimizerHook",
    "mmcls.datasets": "DATASETS PIPELINES SAMPLERS BaseDataset build_dataset build_dataloader DistributedSampler",
    "mmcls.datasets.pipelines": "Compose",
    "mmcls.models": "CLASSIFIERS BACKBONES NECKS HEADS LOSSES build_classifier build_backbone build_head build_loss build_neck",
    "mmcls.utils": "get_root_logger collect_env load_json_log setup_multi_processes auto_select_device "
    "wrap_distributed_model wrap_non_distributed_model",
    "mmtrack.apis": "train_model init_random_seed",
    "mmtrack.core": "EvalHook DistEvalHook",
    "mmtrack.datasets": "DATASETS PIPELINES build_dataset build_dataloader",
    "mmtrack.models": "MODELS TRACKERS MOTION REID build_model",
    "mmtrack.utils": "get_root_logger collect_env",
}


@pytest.mark.parametrize("module", sorted(SURFACE))
def test_everything_that_unchanged_code_imports_is_there(module: str) -> None:
    for name in SURFACE[module].split():
        exec(f"from {module} import {name}", {})


@pytest.mark.parametrize("name", ["CONV_LAYERS", "HSwish", "resnet"])
def test_layers_are_out_of_scope(name: str) -> None:
    with pytest.raises(OutOfScope, match="pip install mmcv-lite"):
        exec(f"from mmcv.cnn import {name}", {})


def test_small_helpers_do_what_they_are_called(tmp_path: Path) -> None:
    from mmcls.core.utils import multi_apply
    from mmcls.utils import load_json_log
    from mmcv.utils import jit, worker_init_fn

    assert multi_apply(lambda a, b, c=0: (a + c, b), [1, 2], [3, 4], c=10) == ([11, 12], [3, 4])
    assert jit(len) is len
    assert jit(coderize=True)(len) is len
    worker_init_fn(1, num_workers=2, rank=1, seed=5)
    assert torch.initial_seed() == 8
    (tmp_path / "a.log.json").write_text('{"seed": 1}\n{"epoch": 1, "loss": 2.0}\n{"epoch": 1, "loss": 1.0}\n')
    assert load_json_log(str(tmp_path / "a.log.json")) == {1: {"loss": [2.0, 1.0]}}
