"""Tests of :mod:`etude.dist.objects` with real processes."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os, sys
from torch import distributed
from etude.dist import objects
from etude.errors import PeerError

rank, store = int(sys.argv[1]), sys.argv[2]
class Payload:
    def __reduce__(self):
        return os.mkdir, (store + "-executed",)

distributed.init_process_group("gloo", store=distributed.FileStore(store, 3), rank=rank, world_size=3)
pair = distributed.new_group([1, 2])
try:
    value = Payload() if sys.argv[3] == "stranger" and rank == 1 else {"rank": rank, "text": "x" * 100 * rank}
    print([one["rank"] for one in objects.all_gather(value)])
    print(objects.broadcast(value, 2)["rank"])
    found = objects.gather(value, 1)
    print(found and [len(one["text"]) for one in found])
    if rank:
        print(objects.broadcast(value, 2, pair)["rank"], [one["rank"] for one in objects.all_gather(value, pair)])
except PeerError as error:
    print(error)
    os._exit(8)
distributed.destroy_process_group()
"""


def ran(tmp_path, kind, secrets):
    environment = [os.environ | {"ETUDE_JOB_SECRET": one, "GLOO_SOCKET_IFNAME": "lo"} for one in secrets]
    words = [[sys.executable, "-c", SCRIPT, str(rank), str(tmp_path / "store"), kind] for rank in range(3)]
    started = [
        subprocess.Popen(word, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for word, env in zip(words, environment, strict=True)
    ]
    said = [process.communicate(timeout=300) for process in started]
    return [(process.returncode, out.splitlines(), err) for process, (out, err) in zip(started, said, strict=True)]


def test_objects_go_to_all_ranks_and_within_a_group(tmp_path):
    found = ran(tmp_path, "honest", ["same"] * 3)
    assert [code for code, _, _ in found] == [0, 0, 0], found
    assert [out for _, out, _ in found] == [
        ["[0, 1, 2]", "2", "None"],
        ["[0, 1, 2]", "2", "[0, 100, 200]", "2 [1, 2]"],
        ["[0, 1, 2]", "2", "None", "2 [1, 2]"],
    ]


def test_an_object_without_the_seal_of_the_job_is_not_read(tmp_path):
    found = ran(tmp_path, "stranger", ["same", "another", "same"])
    for rank in (0, 2):
        code, out, _ = found[rank]
        assert code == 8 and "not by a process of this job: somebody else writes to the ranks" in out[-1]
    assert not (tmp_path / "store-executed").exists()
