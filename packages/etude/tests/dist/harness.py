"""A process that launches jobs on request, so that the tests pay for loading torch once.

Reads a JSON object a line: ``{"words": [...], "nproc": 2, …}``; answers ``{"code": 0}``. Everything that jobs print goes
to standard error, which is a file of the test's. With a word, it enters the network namespace of that name first.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import util
from typing import TextIO

from etude import cli
from etude.dist.jobs.launch import Launch, launch
from tests import sampling

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h


def enter(network: str) -> None:
    """Do what ``ip netns exec`` does: this process and its children have the network of another machine."""
    with open(f"/run/netns/{network}") as namespace:
        assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEW_NETWORK) == 0, ctypes.get_errno()


def keep_a_fork(answers: TextIO) -> None:
    """Let the server that ranks are forked from be a fork of this process instead of an interpreter that imports torch.

    The fork is made now, while this process has one thread. It waits until :mod:`multiprocessing` starts its server.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        answers.close()
        _serve_ranks(theirs)
        os._exit(0)
    theirs.close()
    start_fresh = util.spawnv_passfds

    def start(path: bytes, words: Sequence[str], files: Sequence[int]) -> int:
        if "multiprocessing.forkserver" not in words[-1]:
            return start_fresh(path, words, files)
        util.spawnv_passfds = start_fresh  # one that is lost is replaced by a fresh one
        socket.send_fds(ours, [json.dumps([words[-1], *files]).encode()], files)
        ours.close()
        return pid

    util.spawnv_passfds = start


def _serve_ranks(line: socket.socket) -> None:
    """Run the command that comes on ``line``, with its files at the numbers that it knows them by."""
    message, files, _, _ = socket.recv_fds(line, 1 << 16, 8)
    line.close()
    if not message:  # no server was asked for
        return
    command, *numbers = json.loads(message)
    aside = [fcntl.fcntl(file, fcntl.F_DUPFD, max(numbers) + 1) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(aside, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    with suppress(SystemExit):  # the launcher is gone
        exec(command, {})


def main() -> None:
    for network in sys.argv[1:]:
        enter(network)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if not sampling.ALL:
        keep_a_fork(answers)
    for line in sys.stdin:
        request = json.loads(line)
        words, folder = request.pop("words"), request.pop("cwd")
        os.chdir(folder)
        print(json.dumps({"code": launch(words, Launch(**request), cli.main)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
