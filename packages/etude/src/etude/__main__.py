"""``python -m etude`` is the command ``etude``."""

import sys

from etude.cli import main

sys.exit(main())
