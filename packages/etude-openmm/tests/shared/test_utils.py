"""Small helpers under their old names."""

from __future__ import annotations

import time
from collections import namedtuple
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from etude.dialects import imports
from etude.errors import OutOfScope
from etude_openmm.shared.file_io import fileio
from etude_openmm.shared.file_io.storage import BaseStorageBackend, get_file_backend, register_backend
from etude_openmm.shared.registries.managers import ManagerMixin

imports.install()

from mmengine import utils  # noqa: E402


def double(number: int) -> int:
    return 2 * number


def test_casts_and_sequence_checks() -> None:
    assert utils.list_cast([1, 2], float) == [1.0, 2.0]
    assert utils.tuple_cast("12", int) == (1, 2)
    assert utils.is_list_of([1, 2], int)
    assert not utils.is_list_of([1, "a"], int)
    assert utils.is_tuple_of((1.0,), float)
    assert utils.is_seq_of((1, "a"), (int, str))
    assert utils.slice_list([1, 2, 3, 4], [1, 3]) == [[1], [2, 3, 4]]
    assert utils.slice_list([1, 2, 3, 4], 2) == [[1, 2], [3, 4]]
    assert utils.concat_list([[1], [2, 3]]) == [1, 2, 3]
    assert utils.to_2tuple(3) == (3, 3)
    assert utils.to_2tuple([1, 2]) == [1, 2]
    with pytest.raises(ValueError):
        utils.slice_list([1, 2], [1])
    with pytest.raises(TypeError):
        utils.iter_cast(1, str)


def test_requirements_are_checked_at_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    @utils.requires_package(["json", "no_such_package_x"])
    def work() -> str:
        return "done"

    with pytest.raises(RuntimeError, match="no_such_package_x"):
        work()
    assert "no_such_package_x" in capsys.readouterr().out
    assert utils.requires_package("json")(lambda: 1)() == 1


def test_old_argument_names_are_renamed_with_a_warning() -> None:
    @utils.deprecated_api_warning({"old": "new"}, cls_name="Cls")
    def work(new: int = 0) -> int:
        return new

    with pytest.warns(DeprecationWarning, match=r"Cls\.work"):
        assert work(old=3) == 3
    with pytest.raises(AssertionError):
        work(old=1, new=2)


def test_a_deprecated_function_says_so_in_its_docstring() -> None:
    @utils.deprecated_function("1.0", "2.0", "use the other one")
    def work() -> int:
        """Short summary."""
        return 1

    assert work() == 1
    assert "deprecated:: 1.0" in (work.__doc__ or "")
    assert "Short summary." in (work.__doc__ or "")


def test_overridden_methods_are_seen_on_classes_and_objects() -> None:
    class Base:
        def a(self) -> None: ...
        def b(self) -> None: ...

    class Child(Base):
        def a(self) -> None: ...

    assert utils.is_method_overridden("a", Base, Child)
    assert not utils.is_method_overridden("b", Base, Child())
    assert utils.has_method(Child(), "a")
    with pytest.raises(AssertionError):
        utils.is_method_overridden("a", Base(), Child)  # type: ignore[arg-type]


def test_functions_apply_to_leaves_of_any_nesting() -> None:
    Pair = namedtuple("Pair", "x y")
    data = {"a": [1, "s"], "b": (2, Pair(3, "t"))}
    assert utils.apply_to(data, lambda v: isinstance(v, int), double) == {"a": [2, "s"], "b": (4, Pair(6, "t"))}


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("0.2.16", (0, 2, 16, 0, 0, 0)), ("1.2.3rc1", (1, 2, 3, 0, -1, 1)), ("1.0rc0", (1, 0, 0, 0, -1, 0)),
        ("1.2.3a0", (1, 2, 3, 0, -3, 0)), ("0.1.0b2", (0, 1, 0, 0, -2, 2)), ("1.0.post1", (1, 0, 0, 0, 1, 1)),
        ("2.13.0+cpu", (2, 13, 0, 0, 0, 0)), ("1.0.0.dev20", (1, 0, 0, 0, -4, 0)),
    ],
)  # fmt: skip
def test_versions_compare_as_digits(text: str, digits: tuple[int, ...]) -> None:
    assert utils.digit_version(text) == digits


def test_version_info_and_order() -> None:
    assert utils.parse_version_info("2.0.0rc1") == (2, 0, 0, 0, "rc", 1)
    assert utils.digit_version("1.0rc1") < utils.digit_version("1.0") < utils.digit_version("1.0.post1")
    with pytest.raises(AssertionError):
        utils.digit_version("a")
    with pytest.raises(TypeError):
        utils.get_git_hash(digits="6")  # type: ignore[arg-type]


def test_folders_are_scanned_without_hidden_files(tmp_path: Path) -> None:
    for name in ("1.txt", "2.JSON", ".hidden.txt", "sub/3.txt"):
        utils.mkdir_or_exist((tmp_path / name).parent)
        (tmp_path / name).write_text("")
    assert set(utils.scandir(tmp_path)) == {"1.txt", "2.JSON"}
    assert set(utils.scandir(tmp_path, ".txt", recursive=True)) == {"1.txt", "sub/3.txt"}
    assert set(utils.scandir(tmp_path, ".json", case_sensitive=False)) == {"2.JSON"}
    with pytest.raises(TypeError):
        utils.scandir(123)
    with pytest.raises(TypeError):
        utils.scandir(tmp_path, 111)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        utils.check_file_exist(tmp_path / "nope")


def test_links_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    utils.symlink("nowhere", tmp_path / "l")
    utils.symlink("a", tmp_path / "l")
    assert (tmp_path / "l").read_text() == "a"


def test_a_timer_runs_only_when_started() -> None:
    timer = utils.Timer(start=False)
    with pytest.raises(utils.TimerError):
        timer.since_start()
    timer.start()
    assert timer.since_last_check() >= 0
    assert utils.check_time("of this test") == 0
    assert utils.check_time("of this test") > 0


def test_a_progress_bar_counts_and_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    out = StringIO()
    bar = utils.ProgressBar(10, bar_width=20, file=out)
    assert out.getvalue() == f"[{' ' * 20}] 0/10, elapsed: 0s, ETA:"
    bar.update()
    assert out.getvalue().endswith("task/s, elapsed: 2s, ETA:    18s")
    assert f"\r[>>{' ' * 18}] 1/10" in out.getvalue()
    out = StringIO()
    utils.ProgressBar(bar_width=20, file=out)
    assert out.getvalue() == "completed: 0, elapsed: 0s"


def test_tracked_work_gives_its_results() -> None:
    out = StringIO()
    assert utils.track_progress(double, [1, 2, 3], bar_width=3, file=out) == [2, 4, 6]
    assert utils.track_progress(double, (iter([1, 2]), 2), file=out) == [2, 4]
    assert [2 * n for n in utils.track_iter_progress([1, 2], file=out)] == [2, 4]
    with pytest.raises(TypeError):
        utils.track_progress(double, 3, file=out)


def test_modules_are_imported_by_name() -> None:
    assert utils.import_modules_from_strings("os.path") is __import__("os").path
    assert utils.import_modules_from_strings(["json"]) == [__import__("json")]
    assert utils.import_modules_from_strings(None) is None
    with pytest.raises(TypeError):
        utils.import_modules_from_strings(["json", 1])
    with pytest.raises(ImportError, match="not its file"):
        utils.import_modules_from_strings("some/module.py")
    with pytest.warns(UserWarning):
        assert utils.import_modules_from_strings("no_such_x", allow_failed_imports=True) is None


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
        with pytest.raises(ImportError, match="install petrel_client"):
            get_file_backend("s3://bucket/x")
        with pytest.raises(OutOfScope):
            get_file_backend(backend_args={"backend": "memcached"})
