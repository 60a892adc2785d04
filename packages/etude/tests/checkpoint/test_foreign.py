from __future__ import annotations

import argparse
import io
import os
import pickle
import struct
import sys
import types
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.checkpoint.formats import foreign, safe_pickle
from etude.errors import ResumeError


def rich_content() -> dict[str, Any]:
    shared = torch.arange(6.0).reshape(2, 3)
    return {
        "state_dict": torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict(),
        "shared": [shared, shared[0], shared.t()],
        "half": torch.ones(3, dtype=torch.bfloat16),
        "wide": torch.tensor([1, 2], dtype=torch.uint16),
        "empty": torch.zeros(0, 4),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "lr": np.float64(0.1),
        "history": np.arange(6, dtype=np.int32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "milestones": Counter({3: 1}),
        "size": torch.Size([1, 2]),
        "dtype": torch.float16,
        "args": argparse.Namespace(batch=4, nested={"a": (1, None, True)}),
        "names": {"a", "b"},
        "bytes": b"\x00\xff",
        "key types": {0: "int", (1, 2): "tuple"},
    }


def check_rich(got: dict[str, Any]) -> None:
    want = rich_content()
    assert isinstance(got["state_dict"], OrderedDict)
    assert got["state_dict"]._metadata[""] == {"version": 1}
    assert list(got["state_dict"]) == list(want["state_dict"])
    assert got["shared"][2].tolist() == want["shared"][2].tolist()
    assert got["shared"][0].data_ptr() == got["shared"][1].data_ptr()
    for key in ("half", "wide", "empty", "parameter"):
        assert torch.equal(got[key], want[key].detach()) and got[key].dtype == want[key].dtype
    assert got["lr"] == 0.1
    for key in ("history", "fortran"):
        assert np.array_equal(got[key], want[key]) and got[key].dtype == want[key].dtype
    for key in ("milestones", "size", "dtype", "names", "bytes", "key types"):
        assert got[key] == want[key]
    assert got["args"] == {"batch": 4, "nested": {"a": (1, None, True)}}


def test_a_file_of_torch_is_read_as_plain_data(tmp_path: Path) -> None:
    torch.save(rich_content(), tmp_path / "new.pth")
    check_rich(foreign.read(tmp_path / "new.pth"))


def test_a_file_of_torch_from_before_zip_is_read_as_plain_data(tmp_path: Path) -> None:
    torch.save(rich_content(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    check_rich(foreign.read(tmp_path / "old.pth"))


def test_safetensors_are_told_by_content_not_by_name(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2, 2)}, tmp_path / "model.bin")
    assert torch.equal(foreign.read(tmp_path / "model.bin")["w"], torch.ones(2, 2))


def test_a_history_buffer_becomes_a_dict_and_no_module_is_imported(tmp_path: Path) -> None:
    module = types.ModuleType("mmengine.logging.history_buffer")
    exec(
        "class HistoryBuffer:\n"
        "    def __init__(self):\n"
        "        self._log_history, self._count_history, self._max_length = [0.5, 0.25], [1, 1], 10\n"
        "        self.statistics_methods = {'mean': HistoryBuffer.mean}\n"
        "    def mean(self): ...\n",
        module.__dict__,
    )
    names = ("mmengine", "mmengine.logging", "mmengine.logging.history_buffer")
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(dict.fromkeys(names, module))
    try:
        module.logging = module.history_buffer = module  # type: ignore[attr-defined]
        content = {"message_hub": {"log_scalars": OrderedDict(loss=module.HistoryBuffer())}}
        torch.save(content, tmp_path / "a.pth")
        torch.save(content, tmp_path / "b.pth", pickle_protocol=4)
    finally:
        for name, module_before in before.items():
            sys.modules.pop(name) if module_before is None else sys.modules.__setitem__(name, module_before)
    for name in ("a.pth", "b.pth"):
        loss = foreign.read(tmp_path / name)["message_hub"]["log_scalars"]["loss"]
        assert loss["_log_history"] == [0.5, 0.25] and loss["_max_length"] == 10


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def hostile_files(folder: Path, marker: Path) -> list[Path]:
    payload = {"state_dict": {}, "meta": Hostile(marker)}
    torch.save(payload, folder / "zip.pth")
    torch.save(payload, folder / "legacy.pth", _use_new_zipfile_serialization=False)
    (folder / "plain.pkl").write_bytes(pickle.dumps(payload))
    (folder / "magic.pth").write_bytes(pickle.dumps(Hostile(marker), protocol=2))
    return sorted(folder.glob("*.p*"))


def test_a_hostile_pickle_is_refused_by_name_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for path in hostile_files(tmp_path, marker):
        with pytest.raises(ResumeError, match=r"refused: global (os|posix)\.system"):
            foreign.read(path)
        assert not marker.exists()


@pytest.mark.parametrize(
    "name", ["builtins eval", "builtins getattr", "torch load", "torch.serialization load", "numpy load", "os system",
             "collections namedtuple", "builtins __import__", "torch.hub load", "operator attrgetter", "copyreg __newobj__"],
)  # fmt: skip
def test_names_outside_the_table_are_refused(tmp_path: Path, name: str) -> None:
    module, attribute = name.split()
    code = b"c" + module.encode() + b"\n" + attribute.encode() + b"\n(S'os'\nS'system'\ntR."
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + code)
    (tmp_path / "x.pth").write_bytes(buffer.getvalue())
    with pytest.raises(ResumeError, match="refused: global"):
        foreign.read(tmp_path / "x.pth")


def test_a_marked_file_is_read_with_trust_alone(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    path = hostile_files(tmp_path, marker)[-1]
    with pytest.raises(ResumeError):
        foreign.read(path)
    assert foreign.read(path, trust=True)["state_dict"] == {}
    assert marker.exists()


def test_an_archive_that_would_unpack_to_more_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10_000_000)
    with pytest.raises(ResumeError, match="compressed"):
        foreign.read(tmp_path / "bomb.pth")


@pytest.mark.parametrize(("depth", "fits"), [(190, True), (250, False)])
def test_content_that_is_nested_too_deeply_is_refused(tmp_path: Path, depth: int, fits: bool) -> None:
    content: Any = 7
    for _ in range(depth):
        content = {"in": content}
    torch.save(content, tmp_path / "deep.pth")
    if fits:
        assert foreign.read(tmp_path / "deep.pth") == content
        return
    with pytest.raises(ResumeError, match="nested too deeply"):
        foreign.read(tmp_path / "deep.pth")


def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(4)}, tmp_path / "w.pth")
    with zipfile.ZipFile(tmp_path / "w.pth") as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    name = next(name for name in entries if name.endswith("data.pkl"))
    entries[name] = entries[name].replace(b"K\x04\x85", b"J\xff\xff\xff\x7f\x85", 1)
    with zipfile.ZipFile(tmp_path / "big.pth", "w") as archive:
        for entry, data in entries.items():
            archive.writestr(entry, data)
    with pytest.raises(ResumeError, match="elements"):
        foreign.read(tmp_path / "big.pth")


def test_a_safetensors_header_that_lies_is_refused(tmp_path: Path) -> None:
    cases = {
        "huge": struct.pack("<Q", 1 << 60) + b"{" * 20,
        "overlap": b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}',
        "shape": b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,6]}}',
        "negative": b'{"a":{"dtype":"U8","shape":[-1,-6],"data_offsets":[0,6]}}',
    }
    for name, text in cases.items():
        data = text if name == "huge" else struct.pack("<Q", len(text)) + text + b"\0" * 6
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ResumeError, match="header"):
            foreign.read(tmp_path / name)


def test_every_truncation_of_a_file_is_an_error_and_never_wrong_data(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(40.0)}, tmp_path / "w.pth")
    whole = (tmp_path / "w.pth").read_bytes()
    for keep in range(0, len(whole), 37):
        (tmp_path / "cut.pth").write_bytes(whole[:keep])
        with pytest.raises(ResumeError):
            foreign.read(tmp_path / "cut.pth")


def test_what_is_no_checkpoint_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".metadata").write_bytes(b"\x80")
    (tmp_path / "text").write_text("hello, this is a text")
    (tmp_path / "empty").write_bytes(b"")
    torch.save([1, 2], tmp_path / "list")
    for name, words in {
        "folder": "torch.distributed.checkpoint",
        "text": "neither",
        "empty": "empty",
        "missing": "no such file",
        "list": "holds a list",
    }.items():
        with pytest.raises(ResumeError, match=words):
            foreign.read(tmp_path / name)


def test_a_header_of_any_length_is_one_of_safetensors(tmp_path: Path) -> None:
    """One of 128 bytes begins with the byte that pickles begin with."""
    from safetensors.torch import save_file

    lengths = set()
    for size in range(1, 120, 3):
        save_file({"w" * size: torch.ones(2)}, tmp_path / "w.safetensors")
        lengths.add((tmp_path / "w.safetensors").read_bytes()[0])
        assert list(foreign.read(tmp_path / "w.safetensors")) == ["w" * size]
        assert list(foreign.skim(tmp_path / "w.safetensors")) == ["w" * size]
    assert 0x80 in lengths


@pytest.mark.parametrize("code", ["<f999", "O8", "U3", "<V8", "x"])
def test_arrays_of_anything_but_plain_numbers_are_refused(code: str) -> None:
    with pytest.raises(ResumeError, match="refused: numpy data of type"):
        safe_pickle._Dtype(code).real()
    kept = safe_pickle._Dtype("<c16")
    assert kept.real() == np.dtype("<c16") and safe_pickle._Dtype("?").real() == np.bool_
    kept.__setstate__((3, ">"))
    assert kept.real() == np.dtype(">c16")


def archive_of(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"archive/data.pkl": b"N.", "archive/code/a.py": b""}, "a TorchScript program, not a checkpoint"),
        ({"archive/data.pkl": b"N.", "archive/constants.pkl": b""}, "a TorchScript program, not a checkpoint"),
        ({"readme.txt": b""}, "a zip file, but not one of torch"),
        ({"archive/mydata.pkl": b"N."}, "a zip file, but not one of torch"),
        ({"archive/data.pkl": b"N.", "archive/byteorder": b"big"}, "of the other byte order"),
        ({"archive/data.pkl": b"N."}, "holds a NoneType, where a dict is needed"),
        ({"archive/data.pkl": b"N.", "archive/byteorder": b"little\n"}, "holds a NoneType"),
        ({"data.pkl": b"N.", "byteorder": b"little"}, "holds a NoneType"),
        ({"archive/data.pkl": b"(lp0\nQ."}, "refused: an outside reference"),
        ({"archive/data.pkl": b"(S'module'\ntQ."}, "refused: an outside reference"),
    ],
)
def test_an_archive_is_read_if_torch_wrote_it_on_such_a_machine(
    tmp_path: Path, entries: dict[str, bytes], message: str
) -> None:
    with pytest.raises(ResumeError, match=message):
        foreign.read(archive_of(tmp_path / "x.pth", entries))


@pytest.mark.parametrize(
    ("numel", "message"), [(4, ""), (3, ""), (5, "is cut short"), (-1, "is cut short"), (0, "needs 3 elements")]
)
def test_a_storage_has_the_bytes_that_its_elements_need(tmp_path: Path, numel: int, message: str) -> None:
    code = (
        b"\x80\x02}U\x01wctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpu"
        + b"J" + struct.pack("<i", numel) + b"tQK\x00K\x03\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs."
    )  # fmt: skip
    path = archive_of(tmp_path / "w.pth", {"a/data.pkl": code, "a/data/0": struct.pack("<4f", 1, 2, 3, 4)})
    if message:
        with pytest.raises(ResumeError, match=message):
            foreign.read(path)
        return
    assert foreign.read(path)["w"].tolist() == [1.0, 2.0, 3.0]
    skimmed = foreign.skim(path)["w"]
    assert skimmed.device.type == "meta" and skimmed.shape == (3,)


def test_a_storage_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    code = b"\x80\x02((U\x07storageU\x01xU\x010U\x03cpuK\x01tQ."
    with pytest.raises(ResumeError, match="refused: a storage of an unknown kind"):
        foreign.read(archive_of(tmp_path / "w.pth", {"a/data.pkl": code}))


def legacy(*parts: Any, tail: bytes = b"") -> bytes:
    return b"".join(one if isinstance(one, bytes) else pickle.dumps(one, protocol=2) for one in parts) + tail


MAGIC, PROTOCOL, MACHINE = 0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}


def a_storage(numel: int, view: bytes = b"N") -> bytes:
    return (
        b"\x80\x02}U\x01wctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuJ"
        + struct.pack("<i", numel) + view + b"tQK\x00K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs."
    )  # fmt: skip


NUMBERS = struct.pack("<Q4f", 4, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (legacy(5), "a pickle, but not one of torch"),
        (legacy(MAGIC, 1002, MACHINE), "unknown protocol or byte order"),
        (legacy(MAGIC, PROTOCOL, {"little_endian": False}), "unknown protocol or byte order"),
        (legacy(MAGIC, PROTOCOL, MACHINE, a_storage(1 << 20), ["0"]), "refused: a storage larger than the file"),
        (legacy(MAGIC, PROTOCOL, MACHINE, a_storage(-1), ["0"]), "refused: a storage larger than the file"),
        (legacy(MAGIC, PROTOCOL, MACHINE, a_storage(3), ["0"], tail=NUMBERS), "does not have its declared size"),
        (legacy(MAGIC, PROTOCOL, MACHINE, a_storage(4), ["0"], tail=NUMBERS[:-1]), "cut short"),
    ],
)
def test_an_old_file_is_read_if_all_its_parts_are_right(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "old.pth").write_bytes(content)
    with pytest.raises(ResumeError, match=message):
        foreign.read(tmp_path / "old.pth")


@pytest.mark.parametrize(("view", "want"), [(b"N", [1.0, 2.0]), (b"(U\x011K\x01K\x02t", [2.0, 3.0])])
@pytest.mark.parametrize("machine", [MACHINE, {}])
def test_an_old_file_may_have_views_of_a_storage(
    tmp_path: Path, view: bytes, want: list[float], machine: dict[str, bool]
) -> None:
    (tmp_path / "old.pth").write_bytes(legacy(MAGIC, PROTOCOL, machine, a_storage(4, view), ["0"], tail=NUMBERS))
    assert foreign.read(tmp_path / "old.pth")["w"].tolist() == want
    skimmed = foreign.skim(tmp_path / "old.pth")["w"]
    assert skimmed.device.type == "meta" and skimmed.shape == (2,)


def test_a_link_to_a_file_is_followed_and_a_folder_is_no_file(tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "real.pth")
    (tmp_path / "link.pth").symlink_to(tmp_path / "real.pth")
    assert foreign.read(tmp_path / "link.pth") == {"a": 1}
    with pytest.raises(ResumeError, match="a folder, where a file is needed"):
        foreign.read(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x02X\x02\x00\x00\x00a{.", "a pickle, but not one of torch"),
        (struct.pack("<Q", 1000) + b"{}", "the safetensors header is cut short"),
        (struct.pack("<Q", 2) + b"[]", "neither a torch file nor safetensors"), (b"\x80", "damaged or not a checkpoint"),
        (b"PK\x03\x04", "damaged or not a checkpoint"), (b"PK", "neither a torch file nor safetensors"),
    ],
)  # fmt: skip
def test_a_file_is_told_by_its_first_bytes(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ResumeError, match=message):
        foreign.read(tmp_path / "x")
