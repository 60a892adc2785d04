"""``etude ckpt convert`` and ``diff``: what goes to another layout comes back in the same bits, and can be compared."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.checkpoint import warm_start
from etude.checkpoint.formats import safetensors
from etude.checkpoint.store import Store
from etude.checkpoint.tools import content
from etude.cli import main
from tests.checkpoint.conftest import small_state
from tests.sampling import examples

Weights = dict[str, torch.Tensor]
#: Layout → the name of a file of it.
LAYOUTS = {"safetensors": "x.safetensors", "state_dict": "x.pth", "mmcv": "x.pth", "mmengine": "x.pth", "etude": "x"}
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.uint8, torch.bool,
    torch.complex64, torch.float8_e4m3fn, torch.uint16,
)  # fmt: skip


def etude(*words: Any) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["ckpt", *map(str, words)])
    return code, out.getvalue(), err.getvalue()


@st.composite
def weights(draw: Callable[..., Any]) -> Weights:
    """Tensors of all kinds: scalars, empty ones, views that are not contiguous, several names of one memory."""
    made: Weights = {}
    for number in range(draw(st.integers(1, 4))):
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        dtype = draw(st.sampled_from(DTYPES))
        raw = torch.frombuffer(bytearray(draw(st.binary(min_size=512, max_size=512))), dtype=torch.uint8)
        raw = raw % 2 if dtype is torch.bool else raw
        count = torch.Size(shape).numel()
        value = raw[: count * dtype.itemsize].view(dtype).reshape(shape)
        name = draw(st.sampled_from(["weight", "block.0.weight", "ünï.bias", "a b"])) + str(number)
        made[name] = value.t() if value.dim() == 2 and draw(st.booleans()) else value
        if draw(st.booleans()):
            made[f"{name}.tied"] = made[name]
    return made


def save_native(folder: Path, made: Weights) -> Path:
    store = Store(folder)
    store.save({"model": made, "counters": {"step": 7, "epoch": 2}}, step=7, epoch=2)
    store.close()
    return folder / "step-000000007"


def bits(made: Weights) -> dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]:
    return {
        name: (value.dtype, tuple(value.shape), bytes(safetensors.bytes_of(value.contiguous())))
        for name, value in made.items()
    }


@settings(max_examples=examples(12))
@given(made=weights(), layout=st.sampled_from(list(LAYOUTS)))
def test_weights_of_every_kind_come_back_in_the_same_bits(made: Weights, layout: str) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        native = save_native(folder / "run", made)
        there = folder / LAYOUTS[layout]
        assert etude("convert", native, there, "--to", layout)[0] == 0
        assert etude("convert", there, folder / "back", "--to", "etude")[0] == 0
        back = content.read(str(folder / "back"))
        assert bits(back.weights()) == bits(made)
        for pair in ((native, there), (there, native), (folder / "back", native), (there, folder / "back")):
            code, out, _ = etude("diff", *pair)
            assert code == 0 and "difference" not in out


@settings(max_examples=examples(12))
@given(made=weights(), first=st.sampled_from(list(LAYOUTS)), second=st.sampled_from(list(LAYOUTS)))
def test_any_layout_goes_to_any_other(made: Weights, first: str, second: str) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        torch.save(made, folder / "plain.pt")
        (folder / "b").mkdir()
        assert etude("convert", folder / "plain.pt", folder / LAYOUTS[first], "--to", first)[0] == 0
        assert etude("convert", folder / LAYOUTS[first], folder / "b" / LAYOUTS[second], "--to", second)[0] == 0
        assert bits(content.read(str(folder / "b" / LAYOUTS[second])).weights()) == bits(made)
        assert etude("diff", folder / "plain.pt", folder / "b" / LAYOUTS[second])[0] == 0


@pytest.fixture
def native(tmp_path: Path) -> Path:
    store = Store(tmp_path / "run")
    store.save(small_state(3), step=3, epoch=0)
    store.close()
    return tmp_path / "run" / "step-000000003"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_diff_compares_what_both_have_and_names_what_only_one_has(native: Path, tmp_path: Path, layout: str) -> None:
    there = tmp_path / LAYOUTS[layout]
    etude("convert", native, there, "--to", layout)
    code, out, _ = etude("diff", native, there)
    last = out.splitlines()[-1]
    assert (
        code == 0 and "only in" in out and "optimizer" in out and last.startswith("the same in what both have: model")
    )
    assert etude("diff", native, there, "--strict")[0] == 1
    code, out, _ = etude("diff", there, native)
    assert code == 0 and f"only in {native}: " in out


def test_diff_tells_weights_that_differ_across_layouts(native: Path, tmp_path: Path) -> None:
    torch.save({"state_dict": {"w": torch.ones(4, 3), "b": torch.zeros(3)}, "meta": {"iter": 9}}, tmp_path / "a.pth")
    code, out, _ = etude("diff", native, tmp_path / "a.pth")
    assert code == 1 and "model.w\n" in out and "largest difference 2" in out and "step\n  - 3\n  + 9" in out
    torch.save({"w": torch.full((4, 3), 3.0)}, tmp_path / "b.pth")
    code, out, _ = etude("diff", native, tmp_path / "b.pth")
    assert code == 1 and "model.b\n  - float32 3  0 … 0\n  + (none)\n" in out and out.endswith("1 difference\n")


@pytest.mark.parametrize("layout", ["mmcv", "mmengine", "etude"])
def test_an_optimizer_goes_there_and_back(native: Path, tmp_path: Path, layout: str) -> None:
    there = tmp_path / LAYOUTS[layout]
    assert etude("convert", native, there, "--to", layout, "--optimizer")[0] == 0
    assert etude("convert", there, tmp_path / "back", "--to", "etude", "--optimizer")[0] == 0
    code, out, _ = etude("diff", native, tmp_path / "back")
    assert code == 0 and "the same in what both have: model, optimizer" in out


@pytest.mark.parametrize(
    ("target", "flags", "words"),
    [
        ("x.safetensor", (), "use .safetensors, or pass --to"),
        ("x.onnx", (), "use .safetensors or .pth, or pass --to"),
        ("x", (), "unknown layout"),
        ("x.pth", ("--to", "safetensors"), "use the ending .safetensors"),
        ("x.safetensors", ("--to", "mmcv"), "use the ending .pth"),
        ("x.pth", ("--to", "etude"), "leave the ending .pth out"),
        ("x.pth", ("--optimizer",), "holds weights alone"),
        ("nowhere/x.pth", (), "there is no folder"),
    ],
)
def test_a_target_that_says_nothing_or_something_else_is_refused(
    native: Path, tmp_path: Path, target: str, flags: tuple[str, ...], words: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, _, said = etude("convert", native, tmp_path / target, *flags)
    assert code == 2 and words in said and sorted(tmp_path.rglob("*")) == before


def test_what_a_layout_cannot_hold_is_said(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2, dtype=torch.complex128)}, tmp_path / "w.pth")
    code, _, said = etude("convert", tmp_path / "w.pth", tmp_path / "w.safetensors")
    assert code == 2 and "safetensors has no complex128" in said
    assert etude("convert", tmp_path / "w.pth", tmp_path / "v", "--to", "etude")[0] == 0
    assert etude("diff", tmp_path / "w.pth", tmp_path / "v")[0] == 0


def test_an_average_names_what_does_not_fit(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2), "n": torch.tensor(1)}, tmp_path / "a.pth")
    torch.save({"w": torch.ones(3), "m": torch.tensor(1)}, tmp_path / "b.pth")
    code, _, said = etude("average", tmp_path / "a.pth", tmp_path / "b.pth", "-o", tmp_path / "c.pth")
    assert code == 2 and "shape    w: the first has (2,), the other (3,)" in said and "missing  n" in said
    code, _, said = etude("average", tmp_path / "a.pth", tmp_path / "a.pth", "-o", tmp_path / "c.zip")
    assert code == 2 and "unknown layout" in said


def test_a_target_on_another_file_system(native: Path) -> None:
    assert etude("convert", native, "memory://tools/w.safetensors")[1].startswith("wrote memory://tools/w.safetensors")
    assert etude("diff", native, "memory://tools/w.safetensors")[0] == 0
    assert etude("convert", "memory://tools/w.safetensors", "memory://tools/run", "--to", "etude")[0] == 0
    assert etude("verify", "memory://tools/run")[:2] == (0, "weights-000000000  ok\n")
    assert "weights-000000000" in etude("ls", "memory://tools/run")[1]
    assert etude("diff", native, "memory://tools/run")[0] == 0
    assert etude("convert", f"file://{native}", f"file://{native.parent}/w.pth")[0] == 0
    assert etude("average", "memory://tools/run", f"file://{native.parent}/w.pth", "-o", "memory://tools/m.pth")[0] == 0
    assert etude("diff", "memory://tools/m.pth", native)[0] == 0


def test_averaged_weights_are_taken_by_their_place(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    average = {"w": torch.full((2,), 7.0)}
    store.save({"model": {"w": torch.ones(2)}, "hook.Ema": {"updates": 3, "average": average}}, step=1)
    store.close()
    for target, flags in (("a.pth", ()), ("b", ("--to", "etude"))):
        assert etude("convert", tmp_path / "run", tmp_path / target, "--key", "hook.Ema.average", *flags)[0] == 0
        assert content.read(str(tmp_path / target)).weights()["w"].tolist() == [7, 7]
    sources = (tmp_path / "run", tmp_path / "run")
    assert etude("average", *sources, "-o", tmp_path / "m.pth", "--key", "hook.Ema.average")[0] == 0
    assert content.read(str(tmp_path / "m.pth")).weights()["w"].tolist() == [7, 7]
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(2))
    assert warm_start.init_from(model, tmp_path / "run", key="hook.Ema.average").exact and model.w.tolist() == [7, 7]
    code, _, said = etude("convert", tmp_path / "run", tmp_path / "c.pth", "--key", "hook.Emma")
    assert code == 7 and "no 'hook.Emma' in it; it has model, hook.Ema" in said


def test_what_is_made_for_others_is_readable_as_the_umask_says(native: Path, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        etude("convert", native, tmp_path / "w.safetensors")
        etude("average", native, native, "-o", tmp_path / "m.pth")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("w.safetensors", "m.pth")] == [0o640, 0o640]
