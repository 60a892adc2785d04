"""OneFlow's fused kernels (``oneflow._C``) in plain torch, with the same arguments and results.

Names that are not here are torch's functions of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from etude_libai.live.oneflow import flow, promotions, tensors
from etude_libai.live.oneflow.tensors import like


def cast(x: Tensor, dtype: torch.dtype, pin_memory: bool = False) -> Tensor:
    return x.to(dtype)


def __getattr__(name: str) -> Any:
    for home in (promotions, F, torch):
        if not name.startswith("__") and hasattr(home, name):
            return getattr(home, name)
    other = {"binary_cross_entropy_with_logits_loss": F.binary_cross_entropy_with_logits}
    if name in other:
        return other[name]
    raise AttributeError(f"oneflow._C.{name} has no counterpart in torch; use torch.nn.functional")


def amp_white_identity(x: Tensor) -> Tensor:
    """Return ``x``. In OneFlow this marks where mixed precision may begin; torch.autocast decides by itself."""
    return x


#: In OneFlow this marks where mixed precision must end.
amp_black_identity = amp_white_identity


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def fused_fast_gelu_mul(x: Tensor, multiplier: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh") * multiplier


def fused_bias_add_gelu(a: Tensor, b: Tensor, *, axis: int) -> Tensor:
    return F.gelu(a + _bias_along_axis(b, a, axis))


def fused_bias_add_dropout(a: Tensor, b: Tensor, *, p: float = 0.5, axis: int, generator: Any = None) -> Tensor:
    return _dropout(a + _bias_along_axis(b, a, axis), p)


def fused_scale_mask_softmax(x: Tensor, mask: Tensor, *, fill_value: float = 0.0, scale: float | None = 1.0) -> Tensor:
    """Return attention weights. A ``scale`` of None means 1: layers without query-key scaling pass it."""
    return torch.softmax((x if scale is None else x * scale).masked_fill(~mask.bool(), fill_value), dim=-1)


def fused_scale_mask_softmax_dropout(
    x: Tensor, mask: Tensor, *, fill_value: float = 0.0, scale: float | None = 1.0, p: float = 0.5,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the attention weights after and before dropout."""
    weights = fused_scale_mask_softmax(x, mask, fill_value=fill_value, scale=scale)
    return _dropout(weights, p), weights


def fused_bias_add_scale_mask_softmax_dropout(
    x: Tensor, bias: Tensor, mask: Tensor, *, fill_value: float = 0.0, scale: float | None = 1.0, p: float = 0.5,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return fused_scale_mask_softmax_dropout(x + bias, mask, fill_value=fill_value, scale=scale, p=p)


def fused_scale_tril_softmax_mask_scale(
    a: Tensor, *, p: float = 0.5, diagonal: int = 0, tril_scale_value: float | None = 1.0, tril_fill_value: float = 0.0,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return causal attention weights after and before dropout. Entries above the diagonal get the fill value."""
    seen = like(torch.ones(a.shape[-2:], dtype=torch.bool, device=a.device).tril(diagonal), a)
    return fused_scale_mask_softmax_dropout(a, seen, fill_value=tril_fill_value, scale=tril_scale_value, p=p)


def fused_self_attention(hidden_states: Tensor, head_size: int = 8, alpha: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return scores and values, batch first, from projections (sequence × batch × heads · (query, key, value))."""
    length, batch = hidden_states.shape[:2]
    parts = hidden_states.view(length, batch, -1, 3 * head_size).permute(1, 2, 0, 3)
    query, key, value = parts.chunk(3, dim=-1)
    return alpha * query @ key.transpose(-1, -2), value


def fused_multi_head_attention_inference_v2(
    query: Tensor, query_layout: str, query_head_size: int | None = None, *, key: Tensor | None = None,
    key_layout: str | None = None, value: Tensor | None = None, value_layout: str | None = None,
    output_layout: str = "BM(HK)", scale: float | None = None, causal: bool = False, causal_diagonal_offset: int = 0,
    attn_bias: Tensor | None = None, **ignored: Any,
) -> Tensor:  # fmt: skip
    """Return attention over tensors with the given layouts: B batch, H heads, M sequence, K channels of a head."""
    size = query_head_size
    q = _heads_first(query, query_layout, size)
    k = q if key is None else _heads_first(key, key_layout or query_layout, size)
    v = k if value is None else _heads_first(value, value_layout or key_layout or query_layout, size)
    bias: Tensor | None = attn_bias
    if causal:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(causal_diagonal_offset)
        hidden = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill(~seen, float("-inf"))
        hidden = like(hidden, q)
        bias = hidden if bias is None else bias + hidden
    context = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
    return _in_layout(context, output_layout)


def matmul(a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0) -> Tensor:
    return flow.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, alpha=alpha)


def transpose(x: Tensor, perm: Sequence[int]) -> Tensor:
    return x.permute(*perm)


def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Return the slices of ``x`` at ``indices`` along ``axis``, in the shape of ``indices``: an embedding."""
    if axis == 0 and x.ndim == 2:
        return F.embedding(indices, x)
    taken = x.index_select(axis, indices.flatten())
    return taken.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def global_arange(
    start: float,
    end: float,
    step: float = 1,
    *,
    dtype: torch.dtype | None = None,
    placement: Any = None,
    sbp: Any = None,
) -> Tensor:
    made: Tensor = flow.arange(start, end, step, dtype=dtype, placement=placement, sbp=sbp)
    return made


def layer_norm(x: Tensor, *, begin_norm_axis: int, begin_params_axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    return F.layer_norm(x, x.shape[begin_norm_axis:], eps=epsilon)


def layer_norm_affine(
    x: Tensor, gamma: Tensor, beta: Tensor, *, begin_norm_axis: int, begin_params_axis: int = -1, epsilon: float = 1e-5
) -> Tensor:
    return F.layer_norm(x, x.shape[begin_norm_axis:], gamma, beta, epsilon)


def rms_norm(x: Tensor, weight: Tensor | None, normalized_shape: Sequence[int], epsilon: float = 1e-6) -> Tensor:
    return F.rms_norm(x, tuple(normalized_shape), weight, epsilon)


def sparse_softmax_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Return the loss of every sample."""
    if tensors.is_global(logits):
        from etude_libai.live.split import vocabulary

        return vocabulary.cross_entropy(logits, label.long())
    return F.cross_entropy(logits, label.long(), reduction="none")


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    return promotions.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


class _AddAndRelu:
    """OneFlow's fused batch norm: batch norm, addition, ReLU."""

    def forward(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        normalised: Tensor = super().forward(x)  # type: ignore[misc]
        return F.relu(normalised if addend is None else normalised + addend)


class FusedBatchNorm1d(_AddAndRelu, torch.nn.BatchNorm1d):
    pass


class FusedBatchNorm2d(_AddAndRelu, torch.nn.BatchNorm2d):
    pass


class FusedBatchNorm3d(_AddAndRelu, torch.nn.BatchNorm3d):
    pass


def _dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout only if gradients are recorded: these kernels do not know whether the model is training."""
    return F.dropout(x, p, training=torch.is_grad_enabled())


def _bias_along_axis(bias: Tensor, x: Tensor, axis: int) -> Tensor:
    shape = [1] * x.ndim
    shape[axis] = -1
    return bias.view(shape)


def _heads_first(x: Tensor, layout: str, size: int | None) -> Tensor:
    """Return ``x`` as batch × heads × sequence × channels."""
    axes = layout.replace("(", "").replace(")", "")
    if "(HK)" in layout:
        assert size, f"layout {layout} needs query_head_size"
        x = x.reshape(*x.shape[:-1], -1, size)
    return x.permute(*(axes.index(axis) for axis in "BHMK"))


def _in_layout(x: Tensor, layout: str) -> Tensor:
    axes = layout.replace("(", "").replace(")", "")
    x = x.permute(*("BHMK".index(axis) for axis in axes))
    return x.flatten(-2) if "(HK)" in layout else x
