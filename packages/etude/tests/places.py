"""Where things lie in the repository."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLES = REPOSITORY / "examples"
#: The source folders of all packages, the engine's first.
SOURCES = sorted(REPOSITORY.glob("packages/*/src"))
ENGINE = REPOSITORY / "packages" / "etude" / "src" / "etude"
#: What ``PYTHONPATH`` needs so that a process can import the tests of all packages.
TEST_PATHS = [REPOSITORY, *sorted(REPOSITORY.glob("packages/*"))]
