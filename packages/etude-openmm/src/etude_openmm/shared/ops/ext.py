"""Stands for ``mmcv._ext``, the compiled part of mmcv, where none was built: this file is run under that name.

Functions fill the tensors that they are given, as the compiled ones do. One that is not here raises when it is called,
so that everything can be imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etude_openmm.shared.ops.attention import (
    masked_col2im_forward,
    masked_im2col_forward,
    ms_deform_attn_backward,
    ms_deform_attn_forward,
)
from etude_openmm.shared.ops.boxes import bbox_overlaps, box_iou_rotated, nms, nms_match, nms_rotated, softnms
from etude_openmm.shared.ops.deform import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
    modulated_deform_conv_backward,
    modulated_deform_conv_forward,
)
from etude_openmm.shared.ops.losses import (
    sigmoid_focal_loss_backward,
    sigmoid_focal_loss_forward,
    softmax_focal_loss_backward,
    softmax_focal_loss_forward,
)
from etude_openmm.shared.ops.missing import missing
from etude_openmm.shared.ops.regions import roi_align_backward, roi_align_forward, roi_pool_backward, roi_pool_forward
from etude_openmm.shared.ops.resampling import (
    carafe_backward,
    carafe_forward,
    carafe_naive_backward,
    carafe_naive_forward,
    fused_bias_leakyrelu,
    upfirdn2d,
)

__all__ = [
    "bbox_overlaps", "box_iou_rotated", "carafe_backward", "carafe_forward", "carafe_naive_backward",
    "carafe_naive_forward", "deform_conv_backward_input", "deform_conv_backward_parameters", "deform_conv_forward",
    "fused_bias_leakyrelu", "masked_col2im_forward", "masked_im2col_forward", "modulated_deform_conv_backward",
    "modulated_deform_conv_forward", "ms_deform_attn_backward", "ms_deform_attn_forward", "nms", "nms_match",
    "nms_rotated", "roi_align_backward", "roi_align_forward", "roi_pool_backward", "roi_pool_forward",
    "sigmoid_focal_loss_backward", "sigmoid_focal_loss_forward", "softmax_focal_loss_backward",
    "softmax_focal_loss_forward", "softnms", "upfirdn2d",
]  # fmt: skip
#: Tells this file from a compiled module.
is_plain = True


def get_compiler_version() -> str:
    """Return what ``collect_env`` of mmcv shows."""
    return "none: Étude computes mmcv.ops in plain torch"


def get_compiling_cuda_version() -> str:
    return "not available"


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_"):
        raise AttributeError(name)
    return missing(name)
