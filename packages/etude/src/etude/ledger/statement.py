"""Writes and checks a statement about a run: which config, code, data and packages made which checkpoints.

The statement has the form of in-toto (a list of subjects with SHA-256 digests, and a predicate), in the envelope DSSE
if it is signed. It chains the ledger and the checkpoints: each checkpoint holds the rolling digest of the ledger at its
step. Hashes show that nothing has changed since; only a signature shows who wrote the statement.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from etude import __version__
from etude.api import load_plan
from etude.checkpoint import plan_changes
from etude.checkpoint.find import FOLDER
from etude.checkpoint.state import collect
from etude.checkpoint.store import Store
from etude.config import no_code, run_files
from etude.config.files import replace_text
from etude.core.hook import Hook
from etude.core.loop import train
from etude.core.run import Run
from etude.errors import EtudeError, ResumeError, UserError, optional, printable
from etude.ledger import rows
from etude.ledger.replay import Comparing, rebuilt, require_reached, require_replayable
from etude.ledger.trace import packages

FILE = "statement.json"
_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE = "urn:etude:training:v1"
_PAYLOAD = "application/vnd.in-toto+json"
#: What a run keeps besides its checkpoints that decides its result or tells it.
_FILES = ("plan.yaml", "env.json", "code.json", "code.diff", rows.FILE, "metrics.jsonl")


@dataclass
class Verdict:
    """The outcome of a verification: what is wrong, and what was found in order."""

    wrong: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)


# -- writing -----------------------------------------------------------------------------------------------------------


def attest(folder: Path, key: str = "") -> Path:
    """Write the statement of a run into its folder and return its path. ``key``: a PEM file with an Ed25519 key."""
    found = inspect(folder)
    if found.wrong:
        raise ResumeError(f"{printable(str(folder))} cannot be attested: {found.wrong[0]}")
    body = json.dumps(statement(folder), indent=1, sort_keys=True)
    path = folder / FILE
    replace_text(path, (json.dumps(_signed(body, key), indent=1) if key else body) + "\n")
    return path


def statement(folder: Path) -> dict[str, Any]:
    """Return the statement about a run as it is now."""
    ledger = rows.read(folder)
    environment = run_files.environment(folder)
    subjects = [{"name": name, "digest": {"sha256": sha}} for name, sha in sorted(_hashes(folder).items())]
    predicate = {
        "etude": __version__,
        "config": sorted(name for name in _hashes(folder) if name.startswith("config/")),
        "git": environment.get("git"),
        "data": environment.get("data"),
        "environment": {key: environment.get(key) for key in ("python", "torch", "platform", "devices")},
        "packages": packages(),
        "ledger": {"rows": len(ledger), "digest": f"{int(ledger['digest'][-1]):016x}" if len(ledger) else ""},
        "checkpoints": list(_chain(folder)),
    }
    return {"_type": _TYPE, "subject": subjects, "predicateType": _PREDICATE, "predicate": predicate}


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the run's files by name; of a checkpoint that of its manifest, which has the others."""
    names = [name for name in _FILES if (folder / name).is_file()]
    names += [f"config/{path.name}" for path in sorted((folder / "config").glob("*")) if path.is_file()]
    names += [f"{FOLDER}/{one.name}/manifest.json" for one in _store(folder).entries()]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _chain(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the checkpoints, oldest first, each with a hash that holds all before it."""
    before = ""
    for entry in _store(folder).entries():
        manifest = (folder / FOLDER / entry.name / "manifest.json").read_bytes()
        before = hashlib.sha256(before.encode() + manifest).hexdigest()
        yield {"name": entry.name, "step": entry.step, "chain": before}


def _store(folder: Path) -> Store:
    return Store(folder / FOLDER, write=False, say=lambda _: None)


# -- checking ----------------------------------------------------------------------------------------------------------


def verify(folder: Path, *, replays: int = 0, key: str = "") -> Verdict:
    """Check a run against its statement and against itself; re-execute ``replays`` random segments."""
    found = inspect(folder)
    _compare_statement(folder, key, found)
    if replays and not found.wrong:
        _replay_segments(folder, replays, found)
    return found


def inspect(folder: Path) -> Verdict:
    """Check a run against itself: its ledger, each checkpoint, and that these belong together."""
    found = Verdict()
    try:
        ledger = rows.read(folder)
    except ResumeError as error:
        found.wrong.append(str(error))
        return found
    found.right.append(f"ledger: {len(ledger)} rows follow from one another")
    plan = None
    try:
        plan = plan_changes.facts(load_plan(folder)[0])
    except EtudeError as error:
        if no_code.is_forbidden():
            raise
        found.wrong.append(f"plan.yaml: {error}")
    data = run_files.environment(folder).get("data") or {}
    entries = _store(folder).entries() if (folder / FOLDER).is_dir() else []
    for entry in entries:
        try:
            state = _store(folder).load(entry.name).state
        except ResumeError as error:
            found.wrong.append(str(error))
            continue
        found.wrong += _of_checkpoint(entry.name, entry.step, state, ledger, plan, data)
    names = {entry.name for entry in entries}
    if (folder / FOLDER).is_dir():
        unread = sorted(path.name for path in (folder / FOLDER).glob("step-*") if path.is_dir())
        found.wrong += [f"{name}: its manifest cannot be read" for name in unread if name not in names]
    if not found.wrong:
        found.right.append(f"checkpoints: {len(entries)} verify, and belong to this ledger, plan and data")
    return found


def _of_checkpoint(
    name: str, step: int, state: Mapping[str, Any], ledger: rows.Rows, plan: Any, data: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is wrong about a checkpoint that is whole in itself."""
    writers = state.get("events", {}).get("writers", {})
    mine = next((one for key, one in writers.items() if key.startswith("Ledger")), None)
    if mine is None:
        yield f"{name}: it was made without a ledger"
        return
    count = int(mine["rows"])
    if count > len(ledger) or (count and f"{int(ledger['digest'][count - 1]):016x}" != mine["digest"]):
        yield f"{name}: it does not belong to this ledger: the history before step {step} is another one"
    elif count and int(ledger["step"][count - 1]) != step:
        yield f"{name}: the ledger has step {int(ledger['step'][count - 1])} in the place of its step {step}"
    if plan is not None and "plan" in state:
        changes = [one for one in plan_changes.compare(state["plan"], plan) if not one.harmless]
        if changes:
            yield f"{name}: it was made with another plan: {changes[0]}"
    mark = state.get("data.train", {}).get("fingerprint")
    if mark and data.get("train") and mark != data["train"]:
        yield f"{name}: it was made with other training data ({mark}, env.json says {data['train']})"


def _compare_statement(folder: Path, key: str, found: Verdict) -> None:
    path = folder / FILE
    if not path.is_file():
        found.wrong.append(f"there is no {FILE}: `etude attest` writes one")
        return
    try:
        body = _opened(json.loads(path.read_text(encoding="utf-8")), key, found)
        subjects = {str(one["name"]): str(one["digest"]["sha256"]) for one in body["subject"]}
        if body["_type"] != _TYPE or body["predicateType"] != _PREDICATE:
            raise ValueError("it is a statement of another kind")
        chain = body["predicate"]["checkpoints"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found.wrong.append(f"{FILE} cannot be read: {type(error).__name__}: {error}")
        return
    now = _hashes(folder)
    before = len(found.wrong)
    for name, sha in subjects.items():
        if name not in now:
            found.wrong.append(f"{name} is gone")
        elif now[name] != sha:
            found.wrong.append(f"{name} has changed since the statement was written")
    found.wrong += [f"{name} is not in the statement" for name in now if name not in subjects]
    if chain != list(_chain(folder)):
        found.wrong.append("the chain of checkpoints is not the one in the statement")
    if len(found.wrong) == before:
        found.right.append(f"statement: {len(subjects)} files are those it names")


class _Arriving(Hook):
    """Keeps the state of a run right after a step, as a checkpoint of that step would."""

    priority = 110

    def __init__(self, step: int) -> None:
        self.step, self.state = step, dict[str, Any]()

    def after_step(self, run: Run) -> None:
        self._look(run)

    def after_epoch(self, run: Run) -> None:
        self._look(run)

    def _look(self, run: Run) -> None:
        if run.done == self.step and not self.state:
            self.state = {"model": {name: value.clone() for name, value in collect(run)["model"].items()}}


def _replay_segments(folder: Path, count: int, found: Verdict) -> None:
    """Run random pieces between two checkpoints again, and compare every step and the weights at the end."""
    require_replayable(folder)
    ledger, store = rows.read(folder), _store(folder)
    entries = [one for one in store.entries() if one.manifest.kind == "full" and not one.manifest.tag]
    starts = ["", *(entry.name for entry in entries[:-1])]
    segments = list(zip(starts, entries, strict=True))
    if not segments:
        found.wrong.append("there is no checkpoint to replay up to")
        return
    for start, entry in random.sample(segments, min(count, len(segments))):
        with rebuilt(folder, str(folder / FOLDER / start) if start else "") as (run, session):
            arriving, comparing = _Arriving(entry.step), Comparing(ledger, entry.step)
            run.hooks.add(arriving)
            run.hooks.add(comparing)
            with session:
                train(run)
        require_reached(run, comparing, entry.step)
        where = f"{start or 'the beginning'} to {entry.name}"
        if comparing.different:
            step, what = comparing.different
            found.wrong.append(f"replay from {where}: step {step} came out differently: {what}")
            continue
        weights = store.load(entry.name, only=["model"]).state["model"]
        other = [name for name, value in weights.items() if not _same(value, arriving.state.get("model", {}).get(name))]
        if other:
            found.wrong.append(f"replay from {where}: the weights differ, first {other[0]}")
        else:
            found.right.append(f"replay: {where} is bitwise identical")


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return bool(a == b)
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.equal(a.view(torch.uint8) if a.ndim else a, b.view(torch.uint8) if b.ndim else b)
    )


# -- signatures --------------------------------------------------------------------------------------------------------


def _signed(body: str, key: str) -> dict[str, Any]:
    """Return the DSSE envelope of a statement."""
    _, private = _keys(key, private=True)
    payload = body.encode()
    signature = private.sign(_to_sign(payload))
    text = base64.b64encode(payload).decode()
    return {"payloadType": _PAYLOAD, "payload": text, "signatures": [{"sig": base64.b64encode(signature).decode()}]}


def _opened(content: Any, key: str, found: Verdict) -> Any:
    """Return the statement in a file, and check its signature if a key is given."""
    if "payload" not in content:
        if key:
            found.wrong.append(f"{FILE} is not signed")
        return content
    payload = base64.b64decode(content["payload"], validate=True)
    if key:
        from cryptography.exceptions import InvalidSignature

        public, _ = _keys(key, private=False)
        try:
            public.verify(base64.b64decode(content["signatures"][0]["sig"]), _to_sign(payload))
            found.right.append("signature: made with this key")
        except InvalidSignature:
            found.wrong.append(f"{FILE}: the signature was not made with this key")
    return json.loads(payload)


def _to_sign(payload: bytes) -> bytes:
    kind = _PAYLOAD.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _keys(path: str, *, private: bool) -> tuple[Any, Any]:
    """Return the public key in a PEM file, and the private one if it has that."""
    purpose = "signing a statement" if private else "checking a signature"
    serialization = optional("cryptography.hazmat.primitives.serialization", "sign", purpose)
    ed25519 = optional("cryptography.hazmat.primitives.asymmetric.ed25519", "sign", purpose)
    try:
        text = Path(path).read_bytes()
        if b"PRIVATE KEY" in text:
            own = serialization.load_pem_private_key(text, None)
            if isinstance(own, ed25519.Ed25519PrivateKey):
                return own.public_key(), own
        elif not private:
            public = serialization.load_pem_public_key(text)
            if isinstance(public, ed25519.Ed25519PublicKey):
                return public, None
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"--key {path}: {error}") from error
    what = "a private Ed25519 key" if private else "an Ed25519 key"
    raise UserError(
        f"--key {path}: {os.path.basename(path)} is not {what} in PEM; `openssl genpkey -algorithm ed25519` makes one"
    )
