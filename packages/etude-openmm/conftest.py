from tests import openmm_isolation as openmm_isolation
