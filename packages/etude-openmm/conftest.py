import pytest

from etude.dialects import imports, ownership

# Before pytest looks for tests in folders of these names, which would import an installed original.
imports.install()
if ownership.original("mmengine") is None:
    pytest.exit("mmengine is missing: pip install -c constraints.txt -e 'packages/etude-openmm[test]'", returncode=2)

from tests import openmm_isolation as openmm_isolation  # noqa: E402
