"""Path managers: files that are written beside other work, and files behind addresses of the net."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from detectron2.checkpoint import DetectionCheckpointer
from detectron2.utils.file_io import PathManager as OfDetectron2
from iopath.common.file_io import HTTPURLHandler, OneDrivePathHandler, PathManager
from torch import nn


def test_a_file_that_is_written_beside_other_work_is_there_when_it_is_closed(tmp_path: Path) -> None:
    manager, closed = PathManager(), []
    with manager.opena(str(tmp_path / "a"), "w", callback_after_file_close=lambda: closed.append(1)) as file:
        file.write("text")
        assert not closed
    file.close()
    assert (closed, manager.async_join(str(tmp_path / "a")), manager.async_close()) == ([1], True, True)
    with manager.opena(str(tmp_path / "a")) as file:
        assert file.read() == "text"


def test_weights_behind_an_address_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FVCORE_CACHE", str(tmp_path / "cache"))
    saved, loaded = nn.Linear(2, 2), nn.Linear(2, 2)
    torch.save(saved.state_dict(), tmp_path / "weights.pth")
    asked: list[str] = []

    class Serving(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.path == "/zoo/weights.pth" else 404)
            self.end_headers()
            self.wfile.write((tmp_path / "weights.pth").read_bytes())

        def log_message(self, *words: Any) -> None:
            """Nothing is said."""

    with http.server.HTTPServer(("127.0.0.1", 0), Serving) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/zoo/weights.pth"
        for _ in range(2):
            DetectionCheckpointer(loaded).load(url)
        with OfDetectron2.open(url, "rb") as file:
            assert file.read() == (tmp_path / "weights.pth").read_bytes()
        with pytest.raises(OSError, match="404") as lacking:
            DetectionCheckpointer(loaded).load(url.replace("weights", "other"))
        server.shutdown()
    assert str(lacking.value.etude_reported).startswith("MODEL.WEIGHTS")  # type: ignore[attr-defined]
    assert asked == ["/zoo/weights.pth", "/zoo/other.pth"]
    assert torch.equal(saved.weight, loaded.weight)
    assert [path.name for path in (tmp_path / "cache").rglob("*.pth")] == ["weights.pth"]
    with pytest.raises(AssertionError, match="does not support open with w mode"):
        HTTPURLHandler()._open(url, "w")


def test_short_addresses_of_onedrive_are_made_direct() -> None:
    made = OneDrivePathHandler().create_one_drive_direct_download("https://1drv.ms/u/s!Aus8VCZ_C_33gQbJsUPTIj3rQu99")
    start = "https://api.onedrive.com/v1.0/shares/u!aHR0cHM6Ly8xZHJ2Lm1zL3UvcyFBdXM4VkNaX0NfMzNnUWJKc1VQVElqM3JRdTk5"
    assert made == f"{start}/root/content"
