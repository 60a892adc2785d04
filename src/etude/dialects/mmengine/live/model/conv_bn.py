"""A convolution and the batch norm behind it as one convolution, wherever the norm is in evaluation mode.

A norm with fixed statistics is linear, so it can be moved into the kernel: one operation less, and no output of the
convolution to keep for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd


def efficient_conv_bn_eval_forward(bn: _BatchNorm, conv: _ConvNd, x: Tensor) -> Tensor:
    """The convolution with the norm's statistics, scale and shift in its kernel."""
    assert bn.running_var is not None and bn.running_mean is not None, "the norm keeps no statistics"
    scale = torch.rsqrt(bn.running_var + bn.eps)
    if bn.weight is not None:
        scale = bn.weight * scale
    shift = -bn.running_mean if conv.bias is None else conv.bias - bn.running_mean
    bias = scale * shift if bn.bias is None else bn.bias + scale * shift
    kernel = conv.weight * scale.reshape(-1, *[1] * (conv.weight.dim() - 1))
    out: Tensor = conv._conv_forward(x, kernel, bias)
    return out


def efficient_conv_bn_eval_control(bn: _BatchNorm, conv: _ConvNd, x: Tensor) -> Tensor:
    """One operation while the norm's statistics are fixed, the two as they were while they are learnt."""
    if not bn.training and bn.running_var is not None:
        return efficient_conv_bn_eval_forward(bn, conv, x)
    out: Tensor = bn(conv._conv_forward(x, conv.weight, conv.bias))
    return out


def efficient_conv_bn_eval_graph_transform(fx_model: fx.GraphModule) -> None:
    """Replace every convolution whose only reader is a batch norm, in place."""
    modules = dict(fx_model.named_modules())
    graph = fx_model.graph
    for norm in list(graph.nodes):
        conv = _conv_before(norm, modules)
        if conv is None:
            continue
        with graph.inserting_before(norm):
            parts = (graph.get_attr(str(norm.target)), graph.get_attr(str(conv.target)))
            joined = graph.call_function(efficient_conv_bn_eval_control, (*parts, conv.args[0]))
        norm.replace_all_uses_with(joined)
        graph.erase_node(norm)
        graph.erase_node(conv)
    graph.lint()
    fx_model.recompile()


def _conv_before(node: fx.Node, modules: dict[str, nn.Module]) -> fx.Node | None:
    if node.op != "call_module" or not isinstance(modules[str(node.target)], _BatchNorm):
        return None
    source: Any = node.args[0]
    if not isinstance(source, fx.Node) or source.op != "call_module" or len(source.users) > 1:
        return None
    return source if isinstance(modules[str(source.target)], _ConvNd) else None


def turn_on_efficient_conv_bn_eval_for_single_model(model: nn.Module) -> None:
    """Let ``model`` run with its pairs joined."""
    traced = fx.symbolic_trace(model)
    efficient_conv_bn_eval_graph_transform(traced)
    model.forward = traced.forward


def turn_on_efficient_conv_bn_eval(model: nn.Module, modules: list[str] | str) -> None:
    """The same for the parts of ``model`` that are named."""
    for name in [modules] if isinstance(modules, str) else modules:
        turn_on_efficient_conv_bn_eval_for_single_model(model.get_submodule(name))
