from tests import libai_isolation as libai_isolation
