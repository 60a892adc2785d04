"""What all tests share: registries filled, and nothing left behind in the process or the working directory."""

from __future__ import annotations

import compileall
import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported: tests share the cores, also with children
# Some virtual machines advertise AMX and then refuse its instructions: the process dies at the first bf16 product.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest

from tests.golden.whole_cases import whole_case as whole_case
from tests.sampling import ALL, examples

# A forked child inherits the garbage of earlier tests. Finalizers that run in the wrong process (of DataLoader workers,
# say) raise there, and the report of that inside an ast.parse breaks it (a SystemError of Python 3.11).
os.register_at_fork(after_in_child=gc.freeze)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once, and keep the asserts of tests that pytest rewrites.

    Where PYTHONDONTWRITEBYTECODE is set, hundreds of child processes, and all processes of pytest-xdist, would do it.
    """
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):
        for source in Path(__file__).parent.glob("packages/*/src"):
            compileall.compile_dir(source, quiet=2)
    if config.getoption("dist", "no") == "no":  # the process that deals out tests to others needs no torch
        _prepare_to_test()


def _prepare_to_test() -> None:
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "etude",
        deadline=None,
        max_examples=examples(100),
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=bool(os.environ.get("CI")),
    )
    settings.load_profile("etude")


#: Rooms and modules whose tests take long, and about how long in comparison.
LONG = {
    "dist": 10, "projects": 8, "faults": 5, "board": 3, "examples": 2, "sweep": 2, "test_processes": 2,
    "test_verify_resume": 1, "test_kills": 1,
}  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave ``thorough`` tests to ``make test-all``, and put the others in order."""
    if not ALL:
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
    _put_long_ones_first(config, items)


def _put_long_ones_first(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let every worker of pytest-xdist begin with long tests, so that short ones are left to share at the end.

    Each worker starts with as many tests as the others, in this order. A room stays together: its tests share what they
    have imported and trained, and those of ``dist``, which often wait, leave the processor to the other workers.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    rooms: dict[str, list[pytest.Item]] = {name: [] for name in LONG}
    short: list[pytest.Item] = []
    for item in items:
        rooms.get(item.path.stem, rooms.get(item.path.parent.name, short)).append(item)
    queues: list[list[pytest.Item]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for name, room in rooms.items():
        first = loads.index(min(loads))
        queues[first] += room
        loads[first] += LONG[name]
    total = len(items)
    items.clear()
    for number, queue in enumerate(queues, 1):
        missing = max(0, total * number // workers - len(items) - len(queue))
        items += [*queue, *short[:missing]]
        del short[:missing]
    items += short


@pytest.fixture(scope="session", autouse=True)
def filled_registries():
    from etude import registry

    registry.load_builtins()


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory):
    """Whatever a test imports from its folder, registers or logs to is gone after it."""
    from tests import isolation

    with isolation.isolated(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """An empty working directory of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def elsewhere(workdir):
    """Not the repository: a run records imported code below its working directory, and there it would be all tests."""
