"""A command of Étude with little memory: ``python -m tests.security.limited BYTES SECONDS train config.yaml``."""

from __future__ import annotations

import resource
import sys

from etude.cli import main

if __name__ == "__main__":
    memory, seconds = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    sys.argv[1:3] = []
    sys.exit(main(sys.argv[1:]))
