"""Takes back what a test registered in the registries of mmcv and MMEngine, and the loggers that it made."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etude_openmm.shared import logging as openmm_logging
from etude_openmm.shared.checks import lowering
from etude_openmm.shared.registries.registry_base import EVERY, registered_by_hand
from tests import isolation

#: Small packages in the place of projects that are not installed. An installed one wins.
sys.path.append(str(Path(__file__).with_name("stand_ins")))

isolation.TABLES.append(lambda: (tree._module_dict for tree in list(EVERY)))
# No config knows what modules of tests register.
lowering.registered_by_hand = lambda: {
    key: target
    for key, target in registered_by_hand().items()
    if not target.startswith(("tests.", "mmselfsup.", "mmpretrain."))
}


@contextmanager
def _loggers() -> Iterator[None]:
    before = dict(openmm_logging.logger_initialized)
    yield
    for name in set(openmm_logging.logger_initialized) - set(before):
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        del openmm_logging.logger_initialized[name]


isolation.UNDO.append(_loggers)
