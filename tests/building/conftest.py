from __future__ import annotations

import pytest

from tests.forget import forgotten_files

forgotten = pytest.fixture(autouse=True)(forgotten_files)
