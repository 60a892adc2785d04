"""A process that launches jobs on request, so that the tests pay for loading torch once.

Reads a JSON object a line: ``{"words": [...], "nproc": 2, …}``; answers ``{"code": 0}``. Everything that jobs print goes
to standard error, which is a file of the test's. With a word, it enters the network namespace of that name first.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

from etude import cli
from etude.dist.launch import Launch, launch

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h


def enter(network: str) -> None:
    """Do what ``ip netns exec`` does: this process and its children have the network of another machine."""
    with open(f"/run/netns/{network}") as namespace:
        assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEW_NETWORK) == 0, ctypes.get_errno()


def main() -> None:
    for network in sys.argv[1:]:
        enter(network)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        words, folder = request.pop("words"), request.pop("cwd")
        os.chdir(folder)
        print(json.dumps({"code": launch(words, Launch(**request), cli.main)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
