"""Helpers under their old names, where Étude has its own or changes mmengine's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from etude.checkpoint.formats.data_pickle import RefusedPickle
from etude.dialects import imports
from etude_openmm.shared.importing import import_modules_from_strings
from etude_openmm.shared.registries.managers import ManagerMixin

imports.install()

from mmengine import fileio  # noqa: E402
from mmengine.fileio import BaseStorageBackend, get_file_backend, register_backend  # noqa: E402


def test_modules_are_imported_by_name() -> None:
    assert import_modules_from_strings("os.path") is __import__("os").path
    assert import_modules_from_strings(["json"]) == [__import__("json")]
    assert import_modules_from_strings(None) is None
    with pytest.raises(TypeError):
        import_modules_from_strings(["json", 1])
    with pytest.raises(ImportError, match="not its file"):
        import_modules_from_strings("some/module.py")
    with pytest.warns(UserWarning):
        assert import_modules_from_strings("no_such_x", allow_failed_imports=True) is None


def test_managed_objects_are_made_once_per_name() -> None:
    class Hub(ManagerMixin):
        def __init__(self, name: str = "", size: int = 1) -> None:
            super().__init__(name)
            self.size = size

    with pytest.raises(RuntimeError):
        Hub.get_current_instance()
    one = Hub.get_instance("one", size=3)
    two = Hub.get_instance("two")
    assert Hub.get_instance("one") is one
    assert Hub.get_current_instance() is two
    assert (one.size, one.instance_name, Hub.check_instance_created("three")) == (3, "one", False)
    with pytest.warns(UserWarning):
        Hub.get_instance("one", size=4)
    with pytest.raises(AssertionError):
        Hub("")
    with pytest.raises(AssertionError, match="name"):

        class Nameless(ManagerMixin):
            def __init__(self) -> None: ...


class TestFiles:
    @pytest.mark.parametrize("suffix", [".json", ".yaml", ".pkl"])
    def test_what_is_dumped_loads_again(self, tmp_path: Path, suffix: str) -> None:
        file = tmp_path / f"x{suffix}"
        fileio.dump({"a": [1, None]}, file)
        assert fileio.load(file) == {"a": [1, None]}
        with open(file, "rb" if suffix == ".pkl" else "r") as stream:
            assert fileio.load(stream, file_format=suffix[1:]) == {"a": [1, None]}

    def test_unknown_formats_and_missing_ones_are_told(self, tmp_path: Path) -> None:
        assert fileio.dump({"a": 1}, file_format="json") == '{"a": 1}'
        with pytest.raises(TypeError, match="Unsupported format"):
            fileio.load(tmp_path / "x.xyz")
        with pytest.raises(ValueError):
            fileio.dump({"a": 1})

    def test_lists_and_dicts_from_text_files(self, tmp_path: Path) -> None:
        (tmp_path / "l.txt").write_text("a\nb\nc\n")
        (tmp_path / "d.txt").write_text("1 cat\n2 dog cow\n")
        assert fileio.list_from_file(tmp_path / "l.txt", prefix="x/", offset=1, max_num=1) == ["x/b"]
        assert fileio.dict_from_file(tmp_path / "d.txt", key_type=int) == {1: "cat", 2: ["dog", "cow"]}

    def test_the_local_backend_does_the_usual_things(self, tmp_path: Path) -> None:
        backend = get_file_backend(tmp_path)
        backend.put_text("x", tmp_path / "deep" / "a.txt")
        assert fileio.get_text(tmp_path / "deep" / "a.txt") == "x"
        assert fileio.exists(tmp_path / "deep")
        assert fileio.isdir(tmp_path / "deep")
        assert not fileio.isfile(tmp_path / "deep")
        assert fileio.join_path(str(tmp_path), "b") == str(tmp_path / "b")
        fileio.copyfile(tmp_path / "deep" / "a.txt", tmp_path / "b.txt")
        assert set(fileio.list_dir_or_file(tmp_path, recursive=True)) == {"deep", "deep/a.txt", "b.txt"}
        fileio.remove(tmp_path / "b.txt")
        fileio.rmtree(tmp_path / "deep")
        assert list(tmp_path.iterdir()) == []
        assert fileio.FileClient.infer_client({"backend": "disk"}).allow_symlink

    def test_backends_of_ones_own_and_unknown_ones(self) -> None:
        class Mine(BaseStorageBackend):
            def get(self, filepath: Any) -> bytes:
                return b"{}"

            def get_text(self, filepath: Any, encoding: str = "utf-8") -> str:
                return '{"a": 2}'

        register_backend("mine_of_test", Mine, prefixes="mine", force=True)
        assert fileio.load("mine://x.json") == {"a": 2}
        with pytest.raises(ImportError, match="petrel_client"):
            get_file_backend("s3://bucket/x")

    def test_a_file_is_written_whole_or_not_at_all(self, tmp_path: Path) -> None:
        fileio.put_text("old", tmp_path / "a.txt")
        with pytest.raises(AttributeError):
            fileio.put(object(), tmp_path / "a.txt")
        assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
        assert fileio.get_text(tmp_path / "a.txt") == "old"

    def test_reading_makes_no_objects(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text("!!python/object/apply:os.system ['true']\n")
        with pytest.raises(yaml.constructor.ConstructorError):
            fileio.load(tmp_path / "a.yaml")
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(Path))
        with pytest.raises(RefusedPickle, match=r"a\.pkl: .*Path"):
            fileio.load(tmp_path / "a.pkl")
