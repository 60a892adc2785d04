from tests.cli.conftest import *  # noqa: F403
from tests.dist.conftest import jobs as jobs
