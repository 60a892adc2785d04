"""Run on two ranks: operations that torch's DTensor gets wrong or has no rule for, against plain torch, in value and
gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from etude.dist import group
from etude.dist.layout import kernels, tensor
from etude.dist.world import World
from etude.losses.outputs import fitted
from etude.models.text import CharTransformer
from etude.plan import Tensor as Tensors
from tests.dist import language

group.join(World.from_environment())
mesh = init_device_mesh("cpu", (2,))
kernels.correct("cpu")


def compare(what: str, compute: Callable[..., Tensor], given: list[Tensor], how: list[Any], *fixed: Any) -> None:
    """``compute`` of whole tensors, and of tensors split as ``how`` says; the first ``given`` have gradients."""
    plain = [one.clone().requires_grad_() for one in given]
    split = [
        distribute_tensor(one, mesh, [place], src_data_rank=None).requires_grad_()
        for one, place in zip(given, how, strict=True)
    ]
    wanted, got = compute(*plain, *fixed), compute(*split, *fixed)
    whole = got.full_tensor() if isinstance(got, DTensor) else got
    torch.testing.assert_close(whole, wanted, rtol=1e-5, atol=1e-6, msg=lambda text: f"{what}: {text}")
    weights = torch.linspace(0.5, 1.5, wanted.numel()).view(wanted.shape)
    (wanted * weights).sum().backward()
    (whole * weights).sum().backward()
    for one, other in zip(plain, split, strict=True):
        torch.testing.assert_close(
            other.grad.full_tensor(), one.grad, rtol=1e-5, atol=1e-6, msg=lambda text: f"gradient of {what}: {text}"
        )


def single_values() -> None:
    x = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)], src_data_rank=None)
    assert x.sum().item() == float(x.sum()) == 28.0 and f"{x.sum().item():.0f}" == "28"
    assert bool((x.sum() > 27).item()) and x.mean().item() == 3.5


def mean_losses() -> None:
    torch.manual_seed(0)
    output, target = torch.rand(4, 6), torch.rand(4, 6)
    for loss in (
        F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy, F.soft_margin_loss, F.l1_loss,
        F.binary_cross_entropy_with_logits,
    ):  # fmt: skip
        for place in (Shard(0), Shard(1)):
            for reduction in ("mean", "sum", "none"):
                split = distribute_tensor(target, mesh, [place], src_data_rank=None)

                def compute(x: Tensor, loss: Any = loss, reduction: str = reduction, split: Any = split) -> Tensor:
                    return loss(x, split if isinstance(x, DTensor) else target, reduction=reduction)

                compare(f"{loss.__name__} {reduction} {place}", compute, [output], [place])


def classes() -> None:
    torch.manual_seed(0)
    scores, weight = torch.randn(6, 8), torch.rand(8) + 0.5
    labels = torch.tensor([0, -100, 7, 3, -100, -100])
    for place in (Shard(0), Shard(1), Replicate()):
        for options in ({}, {"weight": weight}, {"reduction": "sum"}, {"reduction": "none"}):
            compare(
                f"cross_entropy {list(options)} {place}",
                lambda x, o=options: F.cross_entropy(x, labels, **o),
                [scores],
                [place],
            )
        smooth = fitted(torch.nn.CrossEntropyLoss(label_smoothing=0.1))
        compare(f"smoothed labels {place}", lambda x, loss=smooth: loss(x, labels), [scores], [place])
        compare(f"log_softmax {place}", lambda x: F.log_softmax(x, 1) ** 2, [scores], [place])
    pictures, marks = torch.randn(2, 8, 3, 4), torch.randint(0, 8, (2, 3, 4))
    for place in (Shard(0), Shard(1)):
        compare(f"cross_entropy of pictures {place}", lambda x: F.cross_entropy(x, marks), [pictures], [place])


def draws() -> None:
    x = torch.ones(6, 4)
    for place in (Shard(0), Shard(1), Replicate()):
        for draw in (
            lambda y: F.dropout(y, 0.5), torch.rand_like, torch.randn_like, lambda y: torch.bernoulli(y * 0.5),
            lambda y: torch.empty_like(y).normal_(), lambda y: torch.multinomial(y, 2), lambda y: y.clone().uniform_(),
        ):  # fmt: skip
            torch.manual_seed(3)
            wanted = draw(x)
            torch.manual_seed(3)
            got = draw(distribute_tensor(x, mesh, [place], src_data_rank=None))
            assert torch.equal(got.full_tensor(), wanted), place
    states = group.gather(torch.get_rng_state())
    assert torch.equal(*states)


def attention() -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 4, 5, 8) for _ in range(3)]
    mask = torch.rand(4, 5, 5) > 0.3
    mask[..., 0] = True
    for place in (Shard(0), Shard(1), Shard(3), Replicate()):
        for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
            compare(
                f"attention {list(options)} {place}",
                lambda q, k, v, o=options: F.scaled_dot_product_attention(q, k, v, **o), given, [place] * 3,
            )  # fmt: skip


def convolutions() -> None:
    torch.manual_seed(0)
    picture, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    for place in (Shard(0), Shard(2), Replicate()):
        compare(f"conv2d {place}", lambda x, w: F.conv2d(x, w, padding=1), [picture, weight], [place, Replicate()])
    compare("conv2d of plain pictures", lambda w: F.conv2d(picture, w, padding=1), [weight], [Replicate()])
    half = DTensor.from_local(picture / 2, mesh, [Partial()], run_check=False)
    split = distribute_tensor(weight, mesh, [Replicate()], src_data_rank=None)
    torch.testing.assert_close(F.conv2d(half, split).full_tensor(), F.conv2d(picture, weight), rtol=1e-5, atol=1e-5)


def family() -> None:
    """A model whose plan is known by its names: attention of torch, which stays whole, and layers that are split."""
    torch.manual_seed(0)
    whole = CharTransformer(vocabulary=16, width=16, heads=4, depth=2, length=8)
    model = copy.deepcopy(whole)
    text, plan = torch.randint(0, 16, (2, 8)), Tensors(size=2)
    words = tensor.words_of(model, plan)
    assert sorted(words.values()) == ["column", "column", "row", "row"]
    tensor.split(model, words, plan, mesh)
    losses = [F.cross_entropy(tensor.plain(one(text)), text) for one in (whole, model)]
    for loss in losses:
        loss.backward()
    kernels.finish(model.parameters())
    torch.testing.assert_close(losses[1], losses[0])
    for wanted, got in zip(whole.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad.full_tensor(), wanted.grad)


def writes() -> None:
    """Writing into a part of a tensor does what it does to a whole one, or is refused."""
    part = slice(1, 4)
    every: dict[str, Callable[[Tensor], Any]] = {
        "step": lambda x: x.__setitem__((slice(None), slice(0, None, 2)), torch.ones(4, 3)),
        "range": lambda x: x.__setitem__((slice(None), part), torch.ones(4, 3)),
        "select": lambda x: x.__setitem__((slice(None), 2), torch.ones(4)),
        "whole": lambda x: x.__setitem__(slice(None), torch.ones(4, 6)),
        "rows": lambda x: x.__setitem__(slice(1, 3), torch.ones(2, 6)),
        "add_": lambda x: x[:, part].add_(2.0),
        "chunk": lambda x: x.chunk(3, 1)[1].mul_(2.0),
        "view": lambda x: x.view(2, 2, 6)[1].add_(1.0),
        "all": lambda x: x.add_(1.0),
        "turned": lambda x: x.t().mul_(3.0),
    }
    refused: dict[str, set[str]] = {}
    for place in (Shard(1), Shard(0), Replicate()):
        for name, write in every.items():
            wanted = torch.arange(24.0).view(4, 6)
            split = distribute_tensor(wanted.clone(), mesh, [place], src_data_rank=None)
            write(wanted)
            try:
                write(split)
                assert torch.equal(split.full_tensor(), wanted), (place, name)
            except RuntimeError as error:
                assert "a dimension that is split" in str(error), (place, name, error)
                refused.setdefault(str(place), set()).add(name)
    along = {"step", "range", "select", "add_", "chunk"}
    assert refused == {str(Shard(1)): along, str(Shard(0)): {"rows", "view"}}, refused


def messages() -> None:
    """A block sends two messages forward and two backward: q, k and v, and w1 and w3, share theirs."""
    # With norms by sequence, what follows the block is whole, which takes two more.
    parts = {"allgather_into_tensor_coalesced_": 6, "reduce_scatter_tensor_coalesced_": 4}
    for sequence, kinds in ((False, {"allreduce_": 4}), (True, parts)):
        torch.manual_seed(0)
        model = language.Llama(layers=1)
        words = {"attention.w[qkv]": "column", "attention.wo": "row", "feed_forward.w[13]": "column"}
        words |= {"feed_forward.w2": "row"} | ({"*_norm": "sequence"} if sequence else {})
        plan = Tensors(size=2, plan={f"layers.*.{name}": word for name, word in words.items()})
        whole = copy.deepcopy(model)
        tensor.split(model, tensor.words_of(model, plan), plan, mesh)
        text = torch.randint(0, 64, (2, 16))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            loss = tensor.plain(model(text)).square().mean()
            loss.backward()
        sent = {event.key: event.count for event in profile.key_averages() if event.key.startswith("c10d::")}
        (whole(text).square().mean()).backward()
        kernels.finish(model.parameters())
        for wanted, got in zip(whole.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(got.grad.full_tensor(), wanted.grad)
        assert sent == {f"c10d::{kind}": count for kind, count in kinds.items()}, sent


for check in (writes, messages, family, single_values, mean_losses, classes, draws, attention, convolutions):
    check()
group.barrier()
group.leave()
