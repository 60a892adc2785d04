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
from etude.checkpoint.formats import folders
from etude.checkpoint.state import collect
from etude.checkpoint.store import Store
from etude.checkpoint.tools import content
from etude.checkpoint.tools.compare import differences
from etude.config import no_code, run_files
from etude.config.files import replace_text
from etude.core.hook import Hook
from etude.core.run import Run
from etude.dist import group
from etude.dist.jobs import reports
from etude.errors import EtudeError, ResumeError, UserError, optional, printable
from etude.ledger import rows
from etude.ledger.rebuild import (
    kept,
    ledger_of,
    rebuilt,
    require_replayable,
    run_to,
    why_not_from_the_beginning,
)
from etude.ledger.trace import packages
from etude.plan import Plan

FILE = "statement.json"
_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE = "urn:etude:training:v1"
_PAYLOAD = "application/vnd.in-toto+json"
#: What a run keeps besides its checkpoints that decides its result or tells it.
_FILES = ("plan.yaml", "env.json", "code.json", "code.diff", rows.EVERY, "metrics.jsonl", "metrics.json", "*.log.json")


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
        raise UserError(f"{printable(str(folder))} cannot be attested: {found.wrong[0]}")
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
    names = [str(path.relative_to(folder)) for one in _FILES for path in sorted(folder.glob(one)) if path.is_file()]
    names += [f"config/{path.name}" for path in sorted((folder / "config").glob("*")) if path.is_file()]
    names += [name for one in _saved(folder) for name in one.files]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in dict.fromkeys(names)}


@dataclass
class _Saved:
    """A checkpoint of a run."""

    name: str
    step: int
    #: What the statement names, relative to the run: the manifest, which has the hashes of the others, or all files.
    files: list[str]


def _saved(folder: Path) -> list[_Saved]:
    """Return the checkpoints of a run in its own folder, oldest first."""
    if (folder / FOLDER).is_dir():
        return [_Saved(one.name, one.step, [f"{FOLDER}/{one.name}/manifest.json"]) for one in _store(folder).entries()]
    found = []
    for one in folders.checkpoints(str(folder)):
        path = Path(one.path)
        files = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
        found.append(_Saved(one.name, one.step, [os.path.relpath(part, folder) for part in files]))
    return found


def _chain(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the checkpoints, oldest first, each with a hash that holds all before it."""
    before = ""
    for one in _saved(folder):
        content = b"".join((folder / name).read_bytes() for name in one.files)
        before = hashlib.sha256(before.encode() + content).hexdigest()
        yield {"name": one.name, "step": one.step, "chain": before}


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
        ledgers = {rank: rows.read(folder, rank) for rank in range(run_files.processes(folder))}
    except UserError as error:
        found.wrong.append(str(error))
        return found
    each = f" on each of {len(ledgers)} ranks" if len(ledgers) > 1 else ""
    found.right.append(f"ledger: {len(ledgers[0])} rows follow from one another{each}")
    plan = None
    try:
        plan = load_plan(folder)[0]
    except EtudeError as error:
        if no_code.is_forbidden():
            raise
        found.wrong.append(f"plan.yaml: {error}")
    native = (folder / FOLDER).is_dir()
    count = 0
    for name, step, state in (_own_checkpoints if native else _foreign_checkpoints)(folder, found):
        count += 1
        marks = dict(_marks(state))
        found.wrong += _of_history(name, step, marks, ledgers)
        if native:
            found.wrong += [] if marks else [f"{name}: it was made without a ledger"]  # others save weights alone, too
            found.wrong += _of_plan(name, state, plan, run_files.environment(folder).get("data") or {})
    if not found.wrong:
        found.right.append(f"checkpoints: {count} verify, and belong to this ledger, plan and data")
    return found


def _own_checkpoints(folder: Path, found: Verdict) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield name, step and state of Étude's checkpoints; what is damaged is noted."""
    store = _store(folder)
    entries = store.entries()
    for entry in entries:
        try:
            yield entry.name, entry.step, store.load(entry.name).state
        except ResumeError as error:
            found.wrong.append(str(error))
    names = {entry.name for entry in entries}
    unread = sorted(path.name for path in (folder / FOLDER).glob("step-*") if path.is_dir())
    found.wrong += [f"{name}: its manifest cannot be read" for name in unread if name not in names]


def _foreign_checkpoints(folder: Path, found: Verdict) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield name, step and content of checkpoints in another system's layout; what is damaged is noted."""
    for one in folders.checkpoints(str(folder)):
        if wrong := folders.damage(one.path):
            found.wrong.append(f"{one.name}: {wrong}")
        else:
            yield one.name, one.step, one.about


def _marks(state: Any, rank: int = 0, depth: int = 6) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield what a checkpoint says of the ledger of each rank, wherever its system keeps that."""
    if not isinstance(state, Mapping) or not depth:
        return
    if isinstance(state.get("rows"), int) and isinstance(state.get("digest"), str):
        yield rank, state
        return
    for key, value in state.items():
        if key == "ranks" and isinstance(value, Mapping):
            for number, own in value.items():
                if isinstance(own, Mapping) and str(number).isdecimal():
                    yield from _marks({"ledger": own.get("ledger")}, int(number))
            for number, own in enumerate(value.get("ledgers") or ()):
                yield from _marks(own, number) if number else ()
        elif key not in ("state_dict", "model", "optimizer"):
            yield from _marks(value, rank, depth - 1)


def _of_history(
    name: str, step: int, marks: Mapping[int, Mapping[str, Any]], ledgers: Mapping[int, rows.Rows]
) -> Iterator[str]:
    """Yield what is wrong about a checkpoint that is whole in itself: it belongs to another history."""
    for rank, mark in marks.items():
        ledger, who = ledgers.get(rank), f" of rank {rank}" if len(ledgers) > 1 else ""
        if ledger is None:
            continue  # a resume by fewer processes
        count = int(mark["rows"])
        if count > len(ledger) or (count and f"{int(ledger['digest'][count - 1]):016x}" != mark["digest"]):
            yield f"{name}: it does not belong to this ledger{who}: the history before step {step} is another one"
        elif count and int(ledger["step"][count - 1]) != step:
            yield f"{name}: the ledger{who} has step {int(ledger['step'][count - 1])} in the place of its step {step}"


def _of_plan(name: str, state: Mapping[str, Any], plan: Plan | None, data: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong about the plan and the data that Étude's checkpoint was made with."""
    if plan is not None and "plan" in state:
        changes = [one for one in plan_changes.compare(state["plan"], plan_changes.facts(plan)) if not one.harmless]
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
    """Keeps the weights of a run right after a step, as a checkpoint of that step would."""

    priority = 110

    def __init__(self, step: int) -> None:
        self.step, self.weights = step, dict[str, Any]()

    def after_step(self, run: Run) -> None:
        if run.train_fn is None:
            self._look(run)

    def after_epoch(self, run: Run) -> None:
        if run.train_fn is None:
            self._look(run)

    def finish(self, run: Run) -> None:
        if run.train_fn is not None:
            self._look(run)

    def _look(self, run: Run) -> None:
        if run.done == self.step and not self.weights:
            model = collect(run)["model"] if run.train_fn is None else run.model.state_dict()
            self.weights = {name: value.clone() for name, value in model.items() if isinstance(value, torch.Tensor)}


def _replay_segments(folder: Path, count: int, found: Verdict) -> None:
    """Run random pieces between two checkpoints again, and compare every step and the weights at the end."""
    ledger = ledger_of(folder)
    require_replayable(folder)
    entries = kept(folder, load_plan(folder)[0])
    starts = ["", *(path for _, path in entries[:-1])]
    segments = [(start, path, step) for start, (step, path) in zip(starts, entries, strict=True)]
    if segments and why_not_from_the_beginning(folder, load_plan(folder)[0], int(ledger["step"][0])):
        del segments[0]
    if not segments:
        found.wrong.append("there is no checkpoint to replay up to")
        return
    # Every rank draws the same pieces, before there is a group in which one could tell the others.
    chance = random.Random(os.environ.get(reports.LAUNCHER))
    for start, end, step in chance.sample(segments, min(count, len(segments))):
        arriving = _Arriving(step)
        with rebuilt(folder, start) as (run, session):
            comparing = run_to(step, run, session, ledger, [arriving], save=True)
            other = _other_values(end, arriving.weights, run)
        where = f"{os.path.basename(start) or 'the beginning'} to {os.path.basename(end)}"
        differences = group.gather(comparing.different)
        wrong = next(((rank, one) for rank, one in enumerate(differences) if one is not None), None)
        if wrong is not None:
            rank, (at, what) = wrong
            who = f" on rank {rank}" if len(differences) > 1 else ""
            found.wrong.append(f"replay from {where}: step {at} came out differently{who}: {what}")
            continue
        if other:
            found.wrong.append(f"replay from {where}: {other}")
        else:
            found.right.append(f"replay: {where} is bitwise identical")


def _other_values(checkpoint: str, weights: Mapping[str, Any], run: Run) -> str:
    """Return in words what differs from a checkpoint after its part of the run was run again; empty if nothing does.

    Another system changes weights after the step, too, so its own new file is compared, where it has saved one.
    """
    if run.train_fn is None:
        above, _, name = checkpoint.rpartition("/")
        stored = Store(above, write=False, say=lambda _: None).load(name, only=["model"]).state["model"]
        other = [name for name, value in stored.items() if not _same(value, weights.get(name))]
        return f"the weights differ, first {other[0]}" if other else ""
    again = os.path.join(str(run.folder), os.path.basename(checkpoint))
    there = os.path.exists(again)
    sides = [content.read(path) for path in ((checkpoint, again) if there else (checkpoint,))]
    if there:
        found = differences(sides[0].weights(), sides[1].weights()) or differences(*(one.optimizer() for one in sides))
        return f"the saved values differ, first {found[0].path}" if found else ""
    mine = {name.removeprefix("module."): value for name, value in weights.items()}
    kept = {name.removeprefix("module."): value for name, value in sides[0].weights().items()}
    other = [name for name, value in mine.items() if not _same(value, kept.get(name))]
    return f"the weights differ, first {other[0]}" if other else ""


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
