"""``python -m oneflow.distributed.launch``, as ``tools/train.sh`` of LiBai calls it: starts a script on Étude."""

from __future__ import annotations

import argparse
import os
import sys

#: The folder on ``PYTHONPATH`` by which this module was found. Processes of the script must not find it.
_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def command(words: list[str]) -> list[str]:
    """Return Étude's command for the arguments of OneFlow's launcher."""
    parser = argparse.ArgumentParser(prog="oneflow.distributed.launch")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node_rank", type=int, default=0)
    parser.add_argument("--nproc_per_node", type=int, default=1)
    parser.add_argument("--master_addr", default="127.0.0.1")
    parser.add_argument("--master_port", type=int, default=29500)
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("training_script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    script = [*(["-m"] if given.module else []), given.training_script, *given.arguments]
    if given.nnodes == 1:
        return ["-m", "etude", "exec", "--nproc", str(given.nproc_per_node), *script]
    network = (
        f"--nnodes={given.nnodes}", f"--node-rank={given.node_rank}", f"--nproc-per-node={given.nproc_per_node}",
        f"--master-addr={given.master_addr}", f"--master-port={given.master_port}",
    )  # fmt: skip
    return ["-m", "torch.distributed.run", *network, "-m", "etude", "exec", *script]


if __name__ == "__main__":
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder != _FOLDER]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    os.execv(sys.executable, [sys.executable, *command(sys.argv[1:])])
