"""Names of MMEngine: kinds of values for type hints, and small helpers."""

from __future__ import annotations

from etude.dialects.mmengine.names_engine import _HOOK_FILES

_LIVE = "etude.dialects.mmengine.live"


def _from(module: str, names: str) -> dict[str, str]:
    return {name: f"{_LIVE}.{module}:{name}" for name in names.split()}


_BATCH = _from("kinds", "DATA_BATCH")
_RUNNER = _from("kinds", "ConfigType OptimWrapperType ParamSchedulerType") | _from(
    "runner.dataloaders", "_get_batch_size"
)
_DRAWING = _from(
    "visualization.utils",
    "check_type check_type_and_length color_str2rgb color_val_matplotlib convert_overlay_heatmap img_from_canvas "
    "tensor2ndarray value2list",
)

_CONV_BN = _from("model.conv_bn", "turn_on_efficient_conv_bn_eval")

MODULES: dict[str, dict[str, str]] = {
    "mmengine.model.efficient_conv_bn_eval": _CONV_BN
    | _from(
        "model.conv_bn",
        "efficient_conv_bn_eval_control efficient_conv_bn_eval_forward efficient_conv_bn_eval_graph_transform "
        "turn_on_efficient_conv_bn_eval_for_single_model",
    ),
    **{f"mmengine.hooks.{file}": dict(_BATCH) for file in _HOOK_FILES},
    "mmengine.hooks.runtime_info_hook": _BATCH | _from("hooks.runtime_info_hook", "_is_scalar"),
    "mmengine.runner.runner": _RUNNER | _CONV_BN,
    "mmengine.runner._flexible_runner": _RUNNER,
    "mmengine.runner.checkpoint": {"load_url": "etude.dialects.openmm.torch_utils:load_url"},
    "mmengine._strategy.base": _from("kinds", "ParamSchedulerType"),
    "mmengine.model.test_time_aug": _BATCH
    | _from("kinds", "EnhancedBatchDataSamples EnhancedBatchInputs MergedDataSamples"),
    "mmengine.model.base_model.data_preprocessor": _from("kinds", "CastData"),
    "mmengine.model.weight_init": {
        "_get_bases_name": "etude.dialects.openmm.init.rules:_get_bases_name",
        "_no_grad_trunc_normal_": "etude.dialects.openmm.init.init_v2:trunc_normal_",
    },
    "mmengine.optim.scheduler.param_scheduler": _from("kinds", "OptimizerType"),
    "mmengine.structures.instance_data": _from("kinds", "BoolTypeTensor IndexType LongTypeTensor"),
    "mmengine.visualization.vis_backend": _from("kinds", "SUFFIX_TYPE"),
    "mmengine.visualization.visualizer": _DRAWING
    | _from("kinds", "VisBackendsType")
    | _from("visualization.drawing", "wait_continue"),
    "mmengine.visualization.utils": _from("visualization.drawing", "wait_continue"),
    "mmengine.device.utils": _from(
        "kinds", "DEVICE IS_DIPU_AVAILABLE IS_MLU_AVAILABLE IS_MUSA_AVAILABLE IS_NPU_AVAILABLE"
    ),
    "mmengine.version": {"parse_version_info": "etude.dialects.openmm.utils.version:parse_version_info"},
}

OUT_OF_SCOPE: dict[str, str] = {}
