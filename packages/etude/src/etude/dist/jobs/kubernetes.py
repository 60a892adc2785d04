"""Makes the manifest of a Kubernetes Job that trains a config on several machines. Imports no torch.

An indexed Job has one pod a machine, and a headless Service gives each of them a name, so that they meet at the first.
A pod that ends with 75 has saved itself and is made again; one that ends with a mistake of yours fails the Job at once.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from etude.dist.jobs import secret
from etude.errors import UserError

#: Exit codes that another try does not help: config, your code, divergence, data, nothing to resume from.
_FINAL = [2, 3, 4, 5, 7]
_PORT = 29_400


def manifests(
    argv: Sequence[str],
    *,
    name: str,
    image: str,
    folder: str,
    nodes: int = 1,
    nproc: int = 1,
    gpus: int = 0,
    claim: str = "",
) -> list[dict[str, Any]]:
    """Return the Service and the Job that run ``etude WORDS`` in ``image``; ``claim`` is the volume that holds
    ``folder``."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", name):
        raise UserError(f"--name {name}: a name of Kubernetes has small letters, digits and dashes, up to 52 of them")
    meeting = ["--nnodes", str(nodes), "--rdzv-endpoint", f"{name}-0.{name}:{_PORT}"] if nodes > 1 else []
    command = ["etude", *argv, "--nproc", str(nproc), *meeting]
    container: dict[str, Any] = {
        "name": "train",
        "image": image,
        # In place of the shell, so that signals reach the training.
        "command": ["sh", "-c", f"exec {shlex.join(command)}"],
    }
    if nodes > 1:
        container["env"] = [{"name": secret.NAME, "value": secret.draw()}]
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    pod: dict[str, Any] = {
        "subdomain": name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
        "containers": [container],
    }
    if claim:
        container["volumeMounts"] = [{"name": "runs", "mountPath": folder}]
        pod["volumes"] = [{"name": "runs", "persistentVolumeClaim": {"claimName": claim}}]
    labels = {"app.kubernetes.io/name": name}
    rules = [
        {"action": "FailJob", "onExitCodes": {"containerName": "train", "operator": "In", "values": _FINAL}},
        {"action": "Ignore", "onExitCodes": {"containerName": "train", "operator": "In", "values": [75]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 3 * nodes,
            "podFailurePolicy": {"rules": rules},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"clusterIP": "None", "selector": labels, "ports": [{"name": "meet", "port": _PORT}]},
    }
    return [service, job] if nodes > 1 else [job]
