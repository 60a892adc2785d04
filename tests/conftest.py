"""What all tests share: registries filled, and nothing left behind in the process or the working directory."""

from __future__ import annotations

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported: tests share the cores, also with children
# Some virtual machines advertise AMX and then refuse its instructions, which kills the process at the first bf16 product.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
from hypothesis import HealthCheck, settings

from etude import registry
from tests import isolation

isolation.watch()
# A forked child inherits the garbage of earlier tests. Finalizers that run in the wrong process (of DataLoader's workers,
# say) raise there, and the report of that inside an ast.parse breaks it (a SystemError of Python 3.11).
os.register_at_fork(after_in_child=gc.freeze)
settings.register_profile(
    "etude", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("etude")


@pytest.fixture(scope="session", autouse=True)
def filled_registries():
    registry.load_builtins()


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory):
    """Whatever a test imports from its folder, registers or logs to is gone after it."""
    with isolation.isolated(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """An empty working directory of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
