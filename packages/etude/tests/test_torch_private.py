"""What the engine needs of torch's private parts is there and does what the engine expects, in every version of torch."""

from __future__ import annotations

import functools
import re
import shutil
import socket
from datetime import timedelta

import pytest
import torch
from torch import distributed, nn

from etude import torch_private
from tests import zygote
from tests.places import ENGINE

#: Where else private parts are named: each of these places has tests of its own.
ELSEWHERE = {
    "torch_private.py",
    "optim/dynamo.py",  # optim/test_dynamo.py
    "checkpoint/formats/safe_pickle.py", "checkpoint/formats/data_pickle.py",  # names in files
    "dist/jobs/launch.py", "dist/jobs/ranks.py", "cli/forks.py",  # modules to import early
}  # fmt: skip
_PRIVATE = re.compile(r"\btorch(?:\.\w+)*\._[a-z]\w*|\bdistributed_c10d\b|^\s*from torch\S* import _\w+", re.MULTILINE)


def test_private_parts_are_named_in_one_place():
    found = {}
    for path in sorted(ENGINE.rglob("*.py")):
        name = path.relative_to(ENGINE).as_posix()
        code = re.sub(r'"""[\s\S]*?"""|#.*|``[^`]*``', "", path.read_text())
        words = {word for word in _PRIVATE.findall(code) if not word.startswith(("torch._foreach_", "torch._fused_"))}
        if words and name not in ELSEWHERE:
            found[name] = words
    assert found == {}


def test_every_multi_tensor_function_is_there():
    used = set()
    for path in ENGINE.rglob("*.py"):
        used |= set(re.findall(r"\btorch\.(_(?:foreach|fused)_\w+)\(", path.read_text()))
    assert len(used) > 10 and [name for name in sorted(used) if not hasattr(torch, name)] == []


def test_a_store_listens_on_a_socket_that_it_is_given(tmp_path):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        store = torch_private.stores().TCPStore(
            "127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60),
            master_listen_fd=bound.detach(),
        )  # fmt: skip
    assert store.port == port
    other = torch_private.stores().TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    torch_private.stores().PrefixStore("a", store).set("b", "c")
    assert other.get("a/b") == b"c" and not other.check(["b"])
    file = torch_private.stores().FileStore(str(tmp_path / "store"), 1)
    file.set("a", "b")
    assert file.get("a") == b"b"


def test_the_default_store_is_that_of_the_group(tmp_path):
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        torch_private.default_store().set("key", "value")
        assert torch_private.default_store().get("key") == b"value"
    finally:
        distributed.destroy_process_group()


def test_all_batch_norms_and_no_other_norm_have_one_base():
    base = torch_private.batch_norm()
    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.InstanceNorm2d):
        assert issubclass(kind, base)
    assert not issubclass(nn.LayerNorm, base) and not issubclass(nn.GroupNorm, base)


SHARDS = """
import os, torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from etude import torch_private
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
for how in (Shard(0), Replicate()):
    tensor = distribute_tensor(torch.zeros(4, 3), mesh, [how])
    assert torch_private.offset_of_shard(tensor.shape, tensor.device_mesh, tensor.placements) == (0, 0)
    assert torch_private.shape_of_shard(tensor.shape, tensor.device_mesh, tensor.placements) == (4, 3)
model = torch.nn.Linear(3, 2)
torch_private.replicate(model, init_device_mesh("cpu", (1,), mesh_dim_names=("copy",)))
model(torch.ones(1, 3)).sum().backward()
assert model.weight.grad is not None
distributed.destroy_process_group()
"""


def test_the_place_of_a_shard_is_told_and_a_model_replicated(tmp_path):
    (tmp_path / "shards.py").write_text(SHARDS)
    done = zygote.run("shards.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_graphs_of_a_compiled_function_are_counted():
    before = torch_private.graphs()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    assert torch_private.graphs() == before + 1


def test_a_compiler_that_is_missing_is_noticed(monkeypatch):
    from torch._inductor import cpp_builder

    assert torch_private.has_compiler() == (shutil.which("g++") is not None)
    for function in vars(cpp_builder).values():
        if isinstance(function, functools._lru_cache_wrapper):
            function.cache_clear()
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
    assert not torch_private.has_compiler()


def test_a_worker_makes_a_batch_by_the_method_that_was_set():
    usual = torch_private.fetch_of_workers()

    def doubled(self, indices):
        return [2 * value for value in usual(self, indices)]

    torch_private.set_fetch_of_workers(doubled)
    try:
        loader = torch.utils.data.DataLoader([1, 2, 3, 4], batch_size=2, collate_fn=list)
        assert list(loader) == [[2, 4], [6, 8]]
    finally:
        torch_private.set_fetch_of_workers(usual)
    assert list(loader) == [[1, 2], [3, 4]]


def test_a_tree_is_mapped():
    assert torch_private.mapped(lambda value: value + 1, {"a": [1, (2,)]}) == {"a": [2, (3,)]}


def test_a_mode_is_called_instead_of_each_operator():
    seen = []

    class Mode(torch_private.operator_mode()):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **kwargs or {})

    with Mode():
        result = torch.ones(2).mul(3).add_(1)
    torch.zeros(1)
    assert result.tolist() == [4.0, 4.0] and seen == ["aten.ones.default", "aten.mul.Tensor", "aten.add_.Tensor"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="without an accelerator there is nothing to pin")
def test_values_without_tensors_are_pinned_as_they_are():
    assert torch_private.pinned({"a": [1, "b"]}) == {"a": [1, "b"]}
