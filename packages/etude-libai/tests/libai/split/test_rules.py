"""Operations that DTensor has no rule for or gets wrong: equal to plain torch in value and gradient, however split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.libai.split.processes import in_processes, set_up

B, S0, S1 = "broadcast", "split_0", "split_1"
Case = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], list[tuple[list[str], ...]]]


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def cases() -> dict[str, Case]:
    """Name → (function, its tensors, how they are split over (data, tensor))."""
    x, y = drawn(8, 6), drawn(6, 8).T.contiguous()
    labels = torch.tensor([1, -100, 3, -100, -100, 0, 2, -100])
    rows = [([S0, B], [S0, B]), ([S0, S1], [S0, S1]), ([B, S0], [B, S0]), ([B, B], [B, B])]
    made: dict[str, Case] = {
        name: (lambda a, b, loss=loss, more=more: loss(a, b.detach(), **more), (x, y), rows)
        for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy, F.soft_margin_loss, F.l1_loss)
        for reduction in ("mean", "sum")
        for name, more in ((f"{loss.__name__} {reduction}", {"reduction": reduction}),)
    }
    samples = [([S0, B], [S0, B]), ([S0, S0], [S0, S0]), ([B, B], [B, B]), ([S0, S1], [S0, B])]
    for name, more in (
        ("plain", {"ignore_index": -1}), ("ignored", {}), ("weighted", {"weight": drawn(6) + 0.5}),
        ("summed", {"reduction": "sum"}),
    ):  # fmt: skip
        own = labels.clamp(min=0) if name == "plain" else labels

        def entropy(a: torch.Tensor, b: torch.Tensor, more: Any = more) -> torch.Tensor:
            return F.cross_entropy(a, b, **more)

        made[f"cross_entropy {name}"] = (entropy, (x, own), samples)
    made["cross_entropy of each"] = (
        lambda a, b: F.cross_entropy(a, b, reduction="none").square().sum(), (x, labels), samples
    )  # fmt: skip
    pictures, kernel, bias = drawn(8, 3, 6, 6), drawn(4, 3, 3, 3), drawn(4)
    made["conv2d"] = (
        lambda a, w, b: F.conv2d(a, w, b, padding=1).square().sum(), (pictures, kernel, bias),
        [([S0, B], [B, B], [B, B]), ([S0, "split_2"], [B, B], [B, B]), ([B, "partial_sum"], [B, B], [B, B])],
    )  # fmt: skip
    heads = (drawn(4, 4, 6, 8), drawn(4, 4, 6, 8) - 0.5, drawn(4, 4, 6, 8) + 1)
    ways = [([S0, S1],) * 3, ([S0, B],) * 3, ([S0, "split_3"],) * 3, ([B, S1],) * 3]
    made["attention"] = (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v).square().sum(), heads, ways
    )  # fmt: skip
    made["attention causal"] = (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum(), heads, ways
    )  # fmt: skip
    made["attention masked"] = (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m > 0.3).square().sum(),
        (*heads, drawn(4, 1, 6, 6)), [(*way, [S0, B]) for way in ways],
    )  # fmt: skip
    made["pool"] = (lambda a: F.adaptive_avg_pool1d(a, 1).square().sum(), (drawn(8, 4, 6),), [([S0, B],), ([S0, S1],)])

    def assigned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        made = a * 2
        made[:, 0::2] = b[:, 0::2] * 3
        return made.square().sum()

    made["setitem"] = (assigned, (x, y), rows)
    sums = [([B, "partial_sum"],), ([S0, B],), ([B, S1],), ([B, S0],)]
    made["any"] = (lambda a: a.sum() * (a > 0.9).any().float() + (a > 0.9).any(1).float().sum(), (x,), sums)
    made["fill"] = (lambda a: (a * 1).fill_(3.0).square().sum() + a.sum(), (x,), sums)
    made["cosine_embedding_loss"] = (
        lambda a: F.cosine_embedding_loss(a, a + 1, (a.detach()[:, 0] > 0.5).float() * 2 - 1), (x,), sums
    )  # fmt: skip
    return made


def works(rank: int) -> None:
    flow = set_up(tensor=2)
    place = flow.placement("cpu", [[0, 1], [2, 3]] if torch.distributed.get_world_size() == 4 else [0, 1])
    flat = torch.distributed.get_world_size() == 2
    from etude_libai.live.split import meshes

    def sbp(words: list[str]) -> list[Any]:
        parts = [word.partition("_") for word in words[1 if flat else 0 :]]
        return [flow.sbp.split(int(d)) if w == "split" else getattr(flow.sbp, w + u + d) for w, u, d in parts]

    mesh = meshes.mesh_of(place)
    wrong = []
    for name, (compute, tensors, ways) in cases().items():
        plain = [t.clone().requires_grad_() if t.is_floating_point() else t for t in tensors]
        wanted = compute(*plain)
        wanted.backward()
        for way in ways:
            own = []
            for tensor, words in zip(tensors, way, strict=True):
                if "partial_sum" in words:  # each rank has an equal part
                    parts = 1
                    for size, word in zip(mesh.shape, words[1 if flat else 0 :], strict=True):
                        parts *= size if word == "partial_sum" else 1
                    made = torch.distributed.tensor.DTensor.from_local(
                        tensor / parts, mesh, meshes.to_torch(sbp(words), mesh, tensor.ndim), run_check=False
                    )
                else:
                    made = meshes.pieces(tensor, mesh, meshes.to_torch(sbp(words), mesh, tensor.ndim))
                own.append(made.detach().requires_grad_() if tensor.is_floating_point() else made)
            got = compute(*own)
            got.backward()
            gap = abs(got.item() - wanted.item())
            gaps = [
                (meshes.whole(b.grad) - a.grad).abs().max().item() / max(1.0, a.grad.abs().max().item())
                for a, b in zip(plain, own, strict=True)
                if a.grad is not None
            ]
            if gap > 2e-5 * max(1.0, abs(wanted.item())) or max(gaps, default=0.0) > 2e-5:
                wrong.append((name, way, gap, gaps))
    assert not wrong, wrong


def test_two_processes_compute_what_one_does() -> None:
    in_processes(2, works)


@pytest.mark.thorough  # data and tensor parallel at once; in two processes above
def test_four_processes_compute_what_one_does() -> None:
    in_processes(4, works)


def reads(rank: int) -> None:
    flow = set_up(tensor=2)
    x = flow.arange(8, dtype=flow.float32, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    assert x.to_local().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]][rank]
    total = x.sum()
    assert total.sbp == (flow.sbp.partial_sum,)
    assert total.item() == float(total) == 28.0 and f"{total}" == "28.0" and total.tolist() == 28.0 and bool(total)
    assert x.tolist() == list(range(8)) and x.numpy().tolist() == list(range(8))
    assert x.max().item() == 7.0 and x.mean().item() == 3.5
    apart = x.to_global(sbp=flow.sbp.broadcast)
    assert apart.to_local().tolist() == list(range(8)) and apart.is_global and not apart.is_local
    assert apart.placement == flow.placement("cpu", [0, 1]) and not torch.zeros(1).is_global


def test_values_are_those_of_the_whole_tensor() -> None:
    in_processes(2, reads)


def draws(rank: int) -> None:
    flow = set_up(tensor=2)
    place, split = flow.placement("cpu", [0, 1]), flow.sbp.split(0)
    ways: dict[str, Callable[[Any], Any]] = {
        "dropout": lambda x: F.dropout(x, 0.5),
        "rand_like": torch.rand_like,
        "randn_like": torch.randn_like,
        "normal_": lambda x: x.clone().normal_(),
        "uniform_": lambda x: x.clone().uniform_(),
        "bernoulli": lambda x: torch.bernoulli(x * 0 + 0.5),
        "exponential_": lambda x: x.clone().exponential_(),
        "multinomial": lambda x: torch.multinomial(x + 1, 3),
        "trunc_normal_": lambda x: torch.nn.init.trunc_normal_(x.clone(), std=2.0),
        "orthogonal_": lambda x: torch.nn.init.orthogonal_(x.clone()),
        "kaiming_uniform_": lambda x: torch.nn.init.kaiming_uniform_(x.clone()),
    }
    for name, draw in ways.items():
        torch.manual_seed(3)
        wanted = draw(torch.ones(4, 6))
        after = torch.get_rng_state()
        torch.manual_seed(3)
        got = draw(flow.ones(4, 6, placement=place, sbp=split))
        assert torch.equal(got.to_global(sbp=flow.sbp.broadcast).to_local(), wanted), name
        assert torch.equal(torch.get_rng_state(), after), name
    torch.manual_seed(3)
    wanted = torch.rand(4, 2)
    torch.manual_seed(3)
    assert flow.rand(4, 2, placement=place, sbp=split).tolist() == wanted.tolist()


def test_random_numbers_are_those_of_one_process() -> None:
    in_processes(2, draws)


def conversions(rank: int) -> None:
    flow = set_up(tensor=2)
    place = flow.placement("cpu", [0, 1])
    x = torch.full((2, 3), float(rank), requires_grad=True)
    whole = x.to_global(placement=place, sbp=flow.sbp.broadcast)
    assert whole.to_local().tolist() == [[0.0] * 3] * 2  # that of the first rank
    assert x.to_global(placement=place, sbp=flow.sbp.split(0)).shape == (4, 3)
    with pytest.raises(Exception, match=r"pieces of one shape; this tensor is \(2, 1\) on rank 0, \(2, 2\) on rank 1"):
        torch.zeros(2, rank + 1).to_global(placement=place, sbp=flow.sbp.split(0))
    with pytest.raises(Exception, match="to_global of a local tensor needs placement= and sbp="):
        x.to_global(sbp=flow.sbp.broadcast)
    with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
        whole + x
    parts = flow.ones(4, 2, placement=place, sbp=flow.sbp.split(0))
    for change in (
        lambda x: x[1:3].mul_(2), lambda x: x[1].fill_(0.0), lambda x: x.narrow(0, 1, 2).zero_(),
        lambda x: x.t()[:, 1:].add_(1),
    ):  # fmt: skip
        with pytest.raises(Exception, match="changes a part of a tensor in place, along a dimension that is split"):
            change(parts)
    parts[1:3] = 2 * parts[1:3]
    parts[:, 1].mul_(3)
    parts.add_(1).view(-1).mul_(2)
    assert parts.tolist() == [[4.0, 8.0], [6.0, 14.0], [6.0, 14.0], [4.0, 8.0]]
    with pytest.raises(RuntimeError, match="aten.nonzero.default"):
        whole.nonzero()
    split = flow.ones(4, 2, placement=place, sbp=flow.sbp.split(0)).requires_grad_()
    (split.to_global(grad_sbp=flow.sbp.split(0)) * 2).sum().backward()
    assert split.grad.tolist() == [[2.0, 2.0]] * 4


def loads(rank: int) -> None:
    """As LiBai's loaders of weights do: rank 0 reads, and the others have nothing."""
    flow = set_up(tensor=2)
    own = flow.arange(8).reshape(4, 2).float() if rank == 0 else flow.Tensor(None)
    assert isinstance(own, flow.Tensor) and issubclass(torch.nn.Parameter, flow.Tensor)
    there = flow.to_global(own, sbp=flow.sbp.broadcast, placement=flow.placement("cpu", ranks=[0]))
    assert there.shape == (4, 2)
    both = flow.to_global(there, sbp=[flow.sbp.split(0)], placement=flow.placement("cpu", ranks=[0, 1]))
    assert both.to_local().tolist() == [[4.0 * rank, 4.0 * rank + 1], [4.0 * rank + 2, 4.0 * rank + 3]]
    count = flow.to_global(
        torch.tensor(3) if rank == 0 else flow.Tensor(None), sbp=flow.sbp.broadcast, placement=there.placement
    )
    assert count.dtype is torch.int64 and count.item() == 3


def test_one_process_reads_for_all() -> None:
    in_processes(2, loads)


def test_conversions_say_what_they_need() -> None:
    in_processes(2, conversions)
