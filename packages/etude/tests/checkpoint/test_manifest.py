"""What a manifest says, and which manifests are believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.checkpoint.manifest import FORMAT, Damaged, Manifest, Stored, Withheld, is_plain_name, parse
from etude.errors import ResumeError

WHOLE = Manifest(
    step=7, epoch=2, metrics={"loss": 0.5}, parts={"model": "m.safetensors", "counters": None},
    files={"state.json": Stored(10, "ab"), "m.safetensors": Stored(5, "cd")},
)  # fmt: skip
SHARDED = Manifest(
    step=7, epoch=2, parts={"model": "m.0"}, shards={"model": ("m.1", "m.2")}, world=3,
    files={name: Stored(number, str(number)) for number, name in enumerate(("state.json", "m.0", "m.1", "m.2"), start=1)},
)  # fmt: skip


def signed(body: dict[str, Any]) -> bytes:
    """Return a manifest with any content and the right checksum."""
    plain = json.dumps(body, sort_keys=True, ensure_ascii=True).encode()
    return json.dumps(body | {"digest": hashlib.sha256(plain).hexdigest()}).encode()


def changed(change: Callable[[dict[str, Any]], Any], manifest: Manifest = WHOLE) -> bytes:
    body = json.loads(manifest.to_json())
    del body["digest"]
    change(body)
    return signed(body)


@pytest.mark.parametrize(("manifest", "version"), [(WHOLE, 1), (SHARDED, FORMAT)])
def test_a_manifest_comes_back_as_it_was_written(manifest: Manifest, version: int) -> None:
    text = manifest.to_json()
    assert parse(text) == manifest and json.loads(text)["format"] == manifest.format == version
    assert manifest.size == sum(stored.size for stored in manifest.files.values())


#: As the counters of torch.
LARGEST = (1 << 63) - 1


@given(
    st.integers(0, LARGEST), st.integers(0, LARGEST), st.text(max_size=5), st.integers(1, LARGEST),
    st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3),
)  # fmt: skip
def test_any_numbers_and_words_come_back(
    step: int, epoch: int, tag: str, world: int, metrics: dict[str, float]
) -> None:
    files = {"state.json": Stored(step, tag)}
    manifest = Manifest(step=step, epoch=epoch, tag=tag, kind=tag, metrics=metrics, world=world, files=files)
    assert parse(manifest.to_json()) == manifest


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b"{}", b"[" * 100_000, b"\xff", b'{"digest": "x"}'])
def test_what_is_no_manifest_is_damaged(text: bytes) -> None:
    with pytest.raises(Damaged, match="its manifest is damaged"):
        parse(text)


@pytest.mark.parametrize("version", [FORMAT + 1, 99])
def test_a_newer_format_is_withheld_whatever_its_checksum(version: int) -> None:
    for text in (changed(lambda body: body.update(format=version)), b'{"format": %d}' % version):
        with pytest.raises(Withheld, match=f"its format {version} needs a newer etude"):
            parse(text)


@pytest.mark.parametrize("version", [1, FORMAT])
def test_a_known_format_with_another_checksum_is_damaged(version: int) -> None:
    with pytest.raises(Damaged, match=r"checksum of manifest\.json differs"):
        parse(b'{"format": %d, "digest": "x"}' % version)
    with pytest.raises(Damaged, match="checksum"):
        parse(b'{"format": "x"}')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body.pop("step"), r"its manifest is damaged \('step'\)"),
        (lambda body: body.update(step=None), r"its manifest is damaged \("),
        (lambda body: body.update(files=3), r"its manifest is damaged \("),
        (lambda body: body.update(metrics={"loss": "low"}), r"its manifest is damaged \("),
        (lambda body: body["files"].pop("state.json"), r"does not list state\.json$"),
        (lambda body: body["files"].pop("m.safetensors"), r"does not list m\.safetensors$"),
        (lambda body: body["files"].clear(), r"does not list m\.safetensors$"),
        (lambda body: body.update(shards={"model": ["m.9", "m.8"]}), r"does not list m\.9$"),
    ],
)  # fmt: skip
def test_a_manifest_with_a_hole_is_damaged(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(Damaged, match=message):
        parse(changed(change))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["files"].update({"../x": {"size": 1, "sha256": ""}}),
        lambda body: body["parts"].update({"x": "/etc/passwd"}),
        lambda body: body.update(shards={"model": ["m.safetensors", "a/b"]}),
    ],
)
def test_a_file_elsewhere_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(ResumeError, match="a file outside of it"):
        parse(changed(change))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a", True), ("a" * 201, True), ("a" * 202, False), ("", False), (".a", False), ("a/b", False), ("a b", False),
        ("_x.#+-9", True), ("-a", False), ("é", False), ("..", False), ("a\n", False),
    ],
)  # fmt: skip
def test_a_plain_name_is_one_on_any_file_system(name: str, plain: bool) -> None:
    assert is_plain_name(name) is plain


def test_texts_are_readable_and_their_checksum_is_that_of_every_version() -> None:
    text = changed(lambda body: body.update(tag="é"))
    assert parse(text).tag == "é"
    assert '"tag": "é"' in parse(text).to_json().decode()
