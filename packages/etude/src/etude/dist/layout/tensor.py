"""Splits the weights of single layers over processes that compute them together, by patterns of module names.

.. code-block:: text

    column      the outputs of a linear layer are split: wq, wk, wv, w1, the head; of an embedding, its features
    row         the inputs of a linear layer are split: wo, w2; of an embedding, its words
    sequence    a norm that each process computes for its part of the sequence
    replicate   whole on every process, as is everything that no pattern names

Between a column and a row, activations are DTensors whose shapes are those of the whole, so a model needs no change: it
reshapes into all of its heads, and each process has some of them. torch places and reduces;
:mod:`etude.dist.layout.kernels` corrects the operations in which it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from etude import torch_private
from etude.dist.layout import families, kernels
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.plan import Tensor as TensorPlan

#: Parameter that a split has replaced → the new one; for parameters that several modules share.
Memo = dict[int, tuple[nn.Parameter, str]]


def split(model: nn.Module, words: Mapping[str, str], plan: TensorPlan, mesh: Any) -> None:
    """Split ``model`` over the processes of ``mesh``, a mesh of one dimension. Every rank has the same whole model, or
    the same stage of it, which lacks some of the layers in ``words``."""
    kernels.correct(mesh.device_type)
    known = dict(model.named_modules())
    words = {name: word for name, word in words.items() if known.get(name) is not None}
    require_dividing(model, words, plan)
    in_parts = "sequence" in words.values()
    memo: Memo = {}
    styles: dict[str, ParallelStyle] = {
        name: Way(model.get_submodule(name), name, word, memo, str(plan.at), in_parts=in_parts)
        for name, word in words.items() if word != "replicate"
    }  # fmt: skip
    parallelize_module(model, mesh, styles)
    _replicate(model, mesh, memo)
    model.register_forward_pre_hook(partial(_enter, mesh), with_kwargs=True)
    model.register_forward_hook(_leave)


def words_of(model: nn.Module, plan: TensorPlan) -> dict[str, str]:
    """Return module name → word. The first pattern that fits decides; one that fits no module is a mistake."""
    given = dict(plan.plan) or families.plan_of(model)
    if not given:
        raise ConfigError(
            f"parallel.tensor: no plan is known for {type(model).__name__}", at=str(plan.at),
            hint='name its layers: plan: {"layers.*.attention.w[qkv]": column, "layers.*.attention.wo": row}',
        )  # fmt: skip
    known = [name for name, module in model.named_modules() if name and _has_weights(module)]
    words: dict[str, str] = {}
    for pattern, word in given.items():
        found = [name for name in known if fnmatchcase(name, pattern)]
        if not found:
            at = str(plan.places.get(pattern, plan.at))
            raise ConfigError(
                f"parallel.tensor.plan: no layer of the model matches {pattern!r}", at=at,
                hint=suggest(pattern, dict.fromkeys(map(_numbered, known))),
            )  # fmt: skip
        for name in found:
            words.setdefault(name, word)
    return words


def _has_weights(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _numbered(name: str) -> str:
    """Return a name as a pattern for all of its kind: ``layers.3.wq`` → ``layers.*.wq``."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


#: Attributes that count the heads of an attention, in the module that holds its layers or in the config of that.
_HEADS = (
    "heads", "n_heads", "num_heads", "n_head", "num_attention_heads", "n_kv_heads", "num_kv_heads",
    "num_key_value_heads", "nhead",
)  # fmt: skip


def require_dividing(model: nn.Module, words: Mapping[str, str], plan: TensorPlan) -> None:
    """Refuse widths and numbers of heads that so many processes cannot share evenly."""
    for name, word in words.items():
        module = model.get_submodule(name)
        at = next((str(plan.places[pattern]) for pattern in plan.places if fnmatchcase(name, pattern)), str(plan.at))
        if word == "sequence":
            if not isinstance(getattr(module, "weight", None), Tensor) or isinstance(module, nn.Linear | nn.Embedding):
                raise ConfigError(
                    f"parallel.tensor.plan: {name} is a {type(module).__name__}; only norms are computed by sequence",
                    at=at, hint="write column or row",
                )  # fmt: skip
            continue
        if word == "replicate":
            continue
        splits = splits_of(module, word)
        if splits is None:
            raise ConfigError(
                f"parallel.tensor.plan: {name} is a {type(module).__name__}, which cannot be split by {word}",
                at=at, hint="linear layers and embeddings can",
            )  # fmt: skip
        weight: Any = module.weight
        _require_multiple(plan.size, weight.shape[splits["weight"]], f"{_width_name(module, word)} of {name}", at)
        if word == "column":
            parent = model.get_submodule(name.rpartition(".")[0])
            for holder in (parent, getattr(parent, "config", None)):
                for heads in _HEADS:
                    count = getattr(holder, heads, None)
                    if type(count) is int and not isinstance(module, nn.Embedding) and _is_attention(parent):
                        _require_multiple(plan.size, count, f"{heads} of {name.rpartition('.')[0]}", at)


def _is_attention(module: nn.Module) -> bool:
    return "att" in type(module).__name__.lower()


def _width_name(module: nn.Module, word: str) -> str:
    if isinstance(module, nn.Embedding):
        return "the features" if word == "column" else "the vocabulary"
    return "the outputs" if word == "column" else "the inputs"


def _require_multiple(size: int, count: int, what: str, at: str) -> None:
    if count % size:
        fitting = [n for n in range(2, min(count, 64) + 1) if count % n == 0]
        near = ", ".join(str(n) for n in sorted(sorted(fitting, key=lambda n: abs(n - size))[:3]))
        raise ConfigError(
            f"parallel.tensor: {size} processes cannot share {what}, of which there are {count}", at=at,
            hint=f"size: {near} would fit" if near else "nothing but 1 divides it",
        )  # fmt: skip


def splits_of(module: nn.Module, word: str) -> dict[str, int] | None:
    """Return the dimension along which each parameter of ``module`` is split; None if it cannot be."""
    if isinstance(module, nn.Embedding):
        return {"weight": 1 if word == "column" else 0}
    if isinstance(module, nn.Linear):
        return {"weight": 0, "bias": 0} if word == "column" else {"weight": 1}
    if type(module).__name__ == "Conv1D" and getattr(module, "weight", torch.empty(0)).ndim == 2:
        # That of transformers: a linear layer whose weight is transposed.
        return {"weight": 1, "bias": 0} if word == "column" else {"weight": 0}
    return None


class Way(ParallelStyle):
    """Splits one module: its parameters, what comes in, and what goes out."""

    def __init__(self, module: nn.Module, name: str, word: str, memo: Memo, at: str, *, in_parts: bool) -> None:
        super().__init__()
        self.name, self.memo, self.at = name, memo, at
        self.splits = {} if word == "sequence" else splits_of(module, word) or {}
        # Between blocks a sequence lies in parts if norms are computed so; otherwise it is whole.
        between: Placement = Shard(1) if in_parts else Replicate()
        embeds = isinstance(module, nn.Embedding)
        self.in_parts = in_parts
        self.comes: Placement = Replicate()
        self.goes: Placement | None = between if word == "row" or embeds else None
        if word == "row" and not embeds:
            self.comes = Shard(-1)
        if word == "sequence":
            self.comes, self.goes = Shard(1), Replicate()

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        for name, param in list(module.named_parameters(recurse=False)):
            how: Placement = Shard(self.splits[name]) if name in self.splits else Replicate()
            module.register_parameter(name, _placed(param, device_mesh, how, f"{self.name}.{name}", self.memo, self.at))
        module.register_forward_pre_hook(partial(self._before, device_mesh))
        module.register_forward_hook(partial(self._after, device_mesh))
        return module

    def _before(self, mesh: Any, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(_as(one, mesh, self.comes) for one in inputs)

    def _after(self, mesh: Any, module: nn.Module, inputs: Any, output: Any) -> Any:
        if self.goes is None or not isinstance(output, DTensor):
            return output
        made = output.redistribute(placements=[_fitting(self.goes, output)])
        if self.in_parts and self.goes.is_replicate():
            # Gradients of what uses it are summed in parts; they are reduced on their way back into the sequence.
            made._etude_sums = True  # type: ignore[attr-defined]
        return made


def _fitting(how: Placement, tensor: Tensor) -> Placement:
    """Return ``how`` for a tensor that may have no sequence to split."""
    if isinstance(how, Shard) and how.dim == 1 and tensor.ndim < 3:
        return Replicate()
    return Shard(how.dim % tensor.ndim) if isinstance(how, Shard) else how


def _as(value: Any, mesh: Any, how: Placement) -> Any:
    if not isinstance(value, Tensor):
        return value
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, [Replicate()], run_check=False)
    wanted = _fitting(how, value)
    if value.placements == (wanted,):
        return _reduced_once(value) if wanted.is_replicate() and value.requires_grad else value
    return value.redistribute(placements=[wanted])


def _reduced_once(value: DTensor) -> DTensor:
    """Return a whole tensor whose gradient is reduced once, however many layers use it: q, k and v are three."""
    if hasattr(value, "_etude_sums"):
        return value
    known: DTensor | None = getattr(value, "_etude_reduced", None)
    if known is None or known.requires_grad != torch.is_grad_enabled():
        known = value.redistribute(placements=value.placements)
        value._etude_reduced = known  # type: ignore[attr-defined]
    return known


def _placed(param: nn.Parameter, mesh: Any, how: Placement, name: str, memo: Memo, at: str) -> nn.Parameter:
    """Return ``param`` in its placement; a parameter that several modules share is one afterwards, too."""
    if id(param) in memo:
        made, other = memo[id(param)]
        if made.placements != (how,):  # type: ignore[attr-defined]
            raise ConfigError(
                f"parallel.tensor.plan: {name} and {other} are one parameter, and the plan splits them in two ways",
                at=at, hint="an embedding by row goes with a head by column",
            )  # fmt: skip
        return made
    whole = distribute_tensor(param.detach(), mesh, [how], src_data_rank=None)
    made = nn.Parameter(whole, requires_grad=param.requires_grad)
    memo[id(param)] = made, name
    memo[id(made)] = made, name
    # The old one is kept, so that nothing else gets its address.
    made._etude_before = param  # type: ignore[attr-defined]
    return made


def _replicate(model: nn.Module, mesh: Any, memo: Memo) -> None:
    """Make DTensors of all other parameters too, so that gradients and norms of all are of one kind."""
    for prefix, module in model.named_modules():
        for name, param in list(module.named_parameters(recurse=False)):
            if isinstance(param, DTensor):
                continue
            known = memo.get(id(param))
            made = known[0] if known else _placed(param, mesh, Replicate(), f"{prefix}.{name}", memo, "")
            module.register_parameter(name, made)
    for made, _ in memo.values():
        made.__dict__.pop("_etude_before", None)
    memo.clear()  # the hooks of layers keep it, and what FSDP shards next should not stay in memory


def _enter(mesh: Any, module: nn.Module, inputs: Any, named: Any) -> Any:
    """Make DTensors of the inputs that have gradients: those of a stage of a pipeline."""

    def entered(value: Any) -> Any:
        is_plain = isinstance(value, Tensor) and not isinstance(value, DTensor) and value.requires_grad
        return DTensor.from_local(value, mesh, [Replicate()], run_check=False) if is_plain else value

    return torch_private.mapped(entered, inputs), torch_private.mapped(entered, named)


def _leave(module: nn.Module, inputs: Any, output: Any) -> Any:
    """Return plain tensors, except for scores whose classes are split: a loss can take these as they are."""
    return torch_private.mapped(partial(plain, keep_classes=True), output)


def plain(value: Any, *, keep_classes: bool = False) -> Any:
    """Return a DTensor as the whole tensor that it represents, and any other value as it is."""
    if not isinstance(value, DTensor):
        return value
    if keep_classes and value.ndim > 1 and _splits_classes(value):
        return value
    return value.redistribute(placements=[Replicate()] * value.device_mesh.ndim).to_local()


def _splits_classes(value: DTensor) -> bool:
    """Return whether a tensor of scores is split along its classes, last or second, and nowhere else."""
    return all(one.is_shard(value.ndim - 1) or (one.is_shard(1) and value.ndim != 3) for one in value.placements)
