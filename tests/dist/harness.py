"""A process that launches jobs on request, so that the tests pay for loading torch once.

Reads a JSON object a line: ``{"words": [...], "nproc": 2, …}``; answers ``{"code": 0}``. Everything that jobs print goes
to standard error, which is a file of the test's.
"""

from __future__ import annotations

import json
import os
import sys

from etude import cli
from etude.dist.launch import Launch, launch


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        words, folder = request.pop("words"), request.pop("cwd")
        os.chdir(folder)
        print(json.dumps({"code": launch(words, Launch(**request), cli.main)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
