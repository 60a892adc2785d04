"""``etude fetch`` against a real server on this machine: list, download, go on, refuse."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from etude.checkpoint import fetch

CONTENT = bytes(range(256)) * 8000  # two megabytes
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves ``CONTENT`` under any name, also a part of it. ``broken`` ends the next answer after half of it."""

    broken = False
    ranges = True
    asked: list[str] = []

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Range", "whole"))
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        if "gone" in self.path:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        if first >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(CONTENT) - first))
        self.end_headers()
        if body:
            end = len(CONTENT) // 2 if type(self).broken else len(CONTENT)
            type(self).broken = False
            self.wfile.write(CONTENT[first:end])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Handler.broken, Handler.ranges, Handler.asked = False, True, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


@pytest.fixture
def config(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text(
        f"model: {{type: MLP, sizes: [4, 2]}}\ninit_from: {{path: '{server}/net-{DIGEST[:8]}.pth'}}\n"
        f"data: {{train: {{dataset: {{type: mine.Data, url: '{server}/page'}}}}}}\n"
    )
    return path


def test_a_config_is_listed_and_its_files_are_downloaded_once(command, config, server):
    said = command("fetch", "c.yaml", "--list")
    assert said.code == 5 and "2.0 MB" in said.out and "/page" not in said.out
    assert Handler.asked == []

    said = command("fetch", "c.yaml")
    place = fetch.folder() / f"net-{DIGEST[:8]}.pth"
    assert said.code == 0 and DIGEST in said.out, said.err
    assert place.read_bytes() == CONTENT
    assert (place.parent / fetch.SUMS).read_text() == f"{DIGEST}  {place.name}\n"
    assert command("fetch", "c.yaml").code == 0
    assert Handler.asked == ["whole"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_broke_off_goes_on(command, server, ranges):
    Handler.broken, Handler.ranges = True, ranges
    said = command("fetch", f"{server}/net.pth")
    assert said.code == 5 and f"after {len(CONTENT) // 2} of {len(CONTENT)} bytes; try again" in said.err
    assert not (fetch.folder() / "net.pth").exists()

    assert command("fetch", f"{server}/net.pth").code == 0
    assert (fetch.folder() / "net.pth").read_bytes() == CONTENT
    assert Handler.asked == ["whole", f"bytes={len(CONTENT) // 2}-"]


def test_a_part_that_is_longer_than_the_file_is_begun_again(command, server):
    part = fetch.folder() / "net.pth.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT + b"more")
    assert command("fetch", f"{server}/net.pth").code == 0
    assert (fetch.folder() / "net.pth").read_bytes() == CONTENT


def test_a_file_of_another_checksum_is_not_kept(command, server):
    said = command("fetch", f"{server}/net-0123abcd.pth")
    assert said.code == 5 and "begins with" in said.err and "0123abcd" in said.err
    assert [path.name for path in fetch.folder().iterdir()] == []


def test_what_the_server_lacks_and_a_machine_without_a_network(command, server, tmp_path):
    said = command("fetch", f"{server}/gone.pth")
    assert said.code == 5 and "404" in said.err and str(fetch.folder() / "gone.pth") in said.out
    said = command("fetch", "http://127.0.0.1:9/net.pth", "--list")
    assert said.code == 5 and "cannot be reached" in said.err and str(fetch.folder() / "net.pth") in said.out


def test_a_config_without_addresses_and_a_scheme_that_nobody_downloads_by(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text("model: {type: MLP, sizes: [4, 2]}\n")
    assert command("fetch", "c.yaml").out.strip() == "c.yaml names no file by an address"
    assert command("fetch", "s3://bucket/x.pth").code == 2
    assert command("fetch", "nix.yaml").code == 2
