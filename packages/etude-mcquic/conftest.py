from tests import mcquic_isolation as mcquic_isolation
