"""Everything of torch that the engine needs and that torch does not promise to keep, in one place.

A new version of torch may move or change any of it: ``tests/test_torch_private.py`` has a test for each, which says
what is expected. Each function imports what it needs when it is called. What keeps ``torch._dynamo`` out is in
:mod:`etude.optim.dynamo`; the multi-tensor functions (``torch._foreach_…``), which torch's own optimizers consist of,
are called where they are needed.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def stores() -> Any:
    """Return the module with ``TCPStore``, ``FileStore`` and ``PrefixStore``: documented, but not for type checkers."""
    from torch import distributed

    return distributed


def default_store() -> Any:
    """Return the store in which the ranks of the default group have met."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def batch_norm() -> type[Any]:
    """Return the base of all batch norms."""
    from torch.nn.modules.batchnorm import _NormBase

    return _NormBase


def offset_of_shard(shape: Any, mesh: Any, placements: Any) -> tuple[int, ...]:
    """Return where the piece of this rank begins in a distributed tensor."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    return tuple(compute_local_shape_and_global_offset(shape, mesh, placements)[1])


def shape_of_shard(shape: Any, mesh: Any, placements: Any) -> tuple[int, ...]:
    """Return the shape of the piece of this rank."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    return tuple(compute_local_shape_and_global_offset(shape, mesh, placements)[0])


def replicate(model: Any, mesh: Any) -> None:
    """Average the gradients of ``model`` over the ranks of ``mesh``; its parameters may be spread over other ranks."""
    from torch.distributed._composable.replicate_with_fsdp import replicate as of_torch

    of_torch(model, mesh=mesh)


def mapped(call: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of containers with ``call`` applied to each leaf."""
    from torch.utils._pytree import tree_map

    return tree_map(call, tree)


def operator_mode() -> type[Any]:
    """Return the base of a context whose ``__torch_dispatch__`` is called instead of each operator inside it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    return TorchDispatchMode


def graphs() -> int:
    """Return how many graphs ``torch.compile`` has made in this process."""
    if "torch._dynamo.utils" not in sys.modules:  # which takes seconds to import
        return 0
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def has_compiler() -> bool:
    """Return whether ``torch.compile`` finds a C++ compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


def fetch_of_workers() -> Callable[..., Any]:
    """Return the method with which a worker of torch's DataLoader makes a batch: ``fetch(self, indices)``."""
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    return _MapDatasetFetcher.fetch


def set_fetch_of_workers(fetch: Callable[..., Any]) -> None:
    """Replace that method in this process."""
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    _MapDatasetFetcher.fetch = fetch  # type: ignore[method-assign]


def pinned(value: Any) -> Any:
    """Return ``value`` with its tensors in pinned memory, as torch's DataLoader does."""
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(value)  # type: ignore[no-untyped-call]


def collectives() -> list[dict[str, Any]]:
    """Return the collectives that this process has begun last, as the flight recorder keeps them."""
    import pickle

    from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]

    # Without stacks: to name functions of C++, the first dump took seven seconds.
    return list(pickle.loads(_dump_fr_trace(True, False, False)).get("entries", ()))


def ranks_of_groups() -> dict[str, list[int]]:
    """Return the ranks of each process group that this process is in, by its name."""
    from torch.distributed import distributed_c10d

    ranks = distributed_c10d._world.pg_group_ranks
    return {group.group_name: sorted(of) for group, of in ranks.items() if hasattr(group, "group_name")}


@contextmanager
def fake_tensors() -> Iterator[Callable[[Any], Any]]:
    """Let tensors that are made have no data; yield what copies an object with its tensors replaced by such ones."""
    from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def faked(value: Any) -> Any:
            with FakeCopyMode(mode):
                return copy.deepcopy(value)

        yield faked


@contextmanager
def fake_ranks(size: int) -> Iterator[None]:
    """Let this process be rank 0 of ``size`` ranks that answer at once, and with nothing."""
    if size == 1:
        yield
        return
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        distributed.destroy_process_group()


def parts_of(tensor: Any) -> list[Any]:
    """Return the tensors of this rank that a tensor consists of: of a distributed one its own piece."""
    return [tensor._local_tensor] if hasattr(tensor, "_local_tensor") else [tensor]
