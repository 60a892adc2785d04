from tests import libai_isolation as libai_isolation
from tests import mcquic_isolation as mcquic_isolation
from tests import openmm_isolation as openmm_isolation
