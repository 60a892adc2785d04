"""The board's server: what it refuses, what it serves, and that it stays up."""

from __future__ import annotations

import json
import re
import socket
import time
from contextlib import ExitStack

import httpx
import pytest

from tests.board.conftest import make_run, serving
from tests.cli.commands import Commands

PATIENT = httpx.Timeout(120)


@pytest.fixture
def board(root):
    with serving(root) as address, httpx.Client(base_url=address, timeout=PATIENT) as client:
        yield client


def test_foreign_hosts_and_sites_are_refused(board):
    for headers, code in (
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:6007"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({}, 200),
    ):
        assert board.get("/api/runs", headers=headers).status_code == code, headers


def test_only_reading_is_possible(board):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert board.request(method, "/api/runs").status_code == 405


def raw(board, text: bytes) -> bytes:
    with socket.create_connection((board.base_url.host, board.base_url.port), timeout=120) as connection:
        connection.sendall(text)
        connection.settimeout(120)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found


def test_paths_outside_the_folder_are_not_there(board, root):
    (root.parent / "secret.txt").write_text("hidden")
    for path in (b"/static/../../secret.txt", b"/../secret.txt", b"/static/%2e%2e%2fsecret.txt", b"//etc/passwd"):
        answer = raw(board, b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert b" 404 " in answer.split(b"\r\n")[0] and b"hidden" not in answer
    for name in ("../secret.txt", "..", "/etc", "a/../../secret.txt", ""):
        assert board.get("/api/run", params={"run": name}).status_code == 404
        assert board.get("/api/curves", params={"run": name}).json() == {}
        assert board.get("/api/diff", params={"run": [name, "a/20261116-100000"]}).status_code == 404


def test_headers_keep_the_page_to_itself(board):
    headers = board.get("/").headers
    assert (
        "default-src 'none'" in headers["content-security-policy"]
        and "unsafe-eval" not in headers["content-security-policy"]
    )
    assert headers["cache-control"] == "no-store" and headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


def test_curves_details_and_differences(board):
    names = [run["name"] for run in board.get("/api/runs").json()["runs"]]
    assert sorted(names) == ["a/20261116-100000", "b/20261116-110000"]
    curves = board.get("/api/curves", params={"run": names}).json()
    assert curves["a/20261116-100000"]["curves"]["train/loss"]["y"][0] == 1.0
    part = board.get("/api/curves", params={"run": names[0], "low": 5, "high": 8}).json()
    assert part[names[0]]["curves"]["train/loss"]["x"] == [4, 5, 6, 7, 8, 9]
    between = board.get("/api/curves", params={"run": names[0], "low": 5.2, "high": 5.8}).json()
    assert between[names[0]]["curves"]["train/loss"]["x"] == [5, 6]  # the line through an empty range
    assert between[names[0]]["curves"]["val/accuracy"]["x"] == [20]
    assert board.get("/api/run", params={"run": names[0]}).json()["log"][-1] == "last line <b>bold</b>"
    kinds = {one["kind"] for one in board.get("/api/diff", params={"run": names[:2]}).json()}
    assert kinds == {"plan", "metric"}


def test_the_best_checkpoint_is_named(board, root):
    for step in (10, 20):
        (root / "a/20261116-100000/checkpoints" / f"step-{step:09}").mkdir(parents=True)
    asked = {"run": "a/20261116-100000"}
    assert board.get("/api/run", params=asked).json()["best_checkpoint"] == ["step-000000020", "best val/accuracy"]
    (root / "a/20261116-100000/checkpoints/best").write_text("step-000000010\n")
    found = board.get("/api/run", params=asked).json()
    assert found["best_checkpoint"] == ["step-000000010", "best"] and found["checkpoints"][0] == "step-000000010"


@pytest.mark.thorough  # opens a hundred connections
def test_a_hundred_streams_and_one_that_never_reads(board, root):
    with ExitStack() as stack:
        sockets = []
        for _ in range(100):
            connection = stack.enter_context(
                socket.create_connection((board.base_url.host, board.base_url.port), timeout=120)
            )
            connection.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            sockets.append(connection)
        first = [connection.recv(4096) for connection in sockets[:99]]
        assert all(b" 200 " in text.split(b"\r\n")[0] for text in first)
        slow = stack.enter_context(socket.create_connection((board.base_url.host, board.base_url.port), timeout=120))
        slow.sendall(b"GET /static/plotly.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")  # and is never read
        assert len(board.get("/api/runs").json()["runs"]) == 2
        make_run(root, "c/20261116-120000")
        seen, deadline = b"", time.time() + 120
        while not re.search(rb"data: \w+ 2\n", seen) and time.time() < deadline:
            seen += sockets[0].recv(4096)
        assert re.search(rb"data: \w+ 2\n", seen)
        first = board.get("/api/runs", params={"board": board.get("/api/runs").json()["board"], "since": 1}).json()
        assert "b/20261116-110000" not in [run["name"] for run in first["runs"]]  # it has not changed
        while len(board.get("/api/runs").json()["runs"]) < 3:
            assert time.time() < deadline
            time.sleep(0.2)


@pytest.mark.thorough  # writes a large file
def test_a_range_of_a_large_file_is_read_whole(board, root):
    make_run(root, "long/20261116-140000", steps=200_000)
    deadline = time.time() + 120
    while not (found := board.get("/api/curves", params={"run": "long/20261116-140000"}).json()):
        assert time.time() < deadline
        board.get("/api/runs")
        time.sleep(0.2)
    assert found["long/20261116-140000"]["sampled"]
    part = board.get("/api/curves", params={"run": "long/20261116-140000", "low": 150_000.5, "high": 150_300}).json()
    part = part["long/20261116-140000"]
    steps = part["curves"]["train/loss"]["x"]
    assert not part["sampled"] and steps[1:-1] == list(range(150_001, 150_301))
    assert steps[0] <= 150_000 and steps[-1] > 150_300  # a point on either side, of those that were sampled


def test_strange_numbers_and_cut_files_are_served(board, root):
    folder = make_run(root, "odd/20261116-130000", steps=3)
    (folder / "status.json").write_text('{"state": "fini')
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(
            '{"step": 4, "split": "train", "loss": "nan"}\n{"step": 5, "split": "train", "loss": Infinity}\n{"step": 6, "spl'
        )
    deadline = time.time() + 120
    while not (found := board.get("/api/curves", params={"run": "odd/20261116-130000"}).json()):
        assert time.time() < deadline
        board.get("/api/runs")
        time.sleep(0.2)
    curve = found["odd/20261116-130000"]["curves"]["train/loss"]
    assert curve["y"][-2:] == [None, None] and curve["strange"] == 2
    json.dumps(board.get("/api/run", params={"run": "odd/20261116-130000"}).json(), allow_nan=False)


def test_others_need_a_token(root):
    with serving(root, "--host", "0.0.0.0", "--expose") as address:
        base, _, token = address.partition("/?token=")
        name, _, port = base.removeprefix("http://").rpartition(":")
        assert name == socket.gethostname()
        base = f"http://127.0.0.1:{port}"
        assert len(token) > 16
        with httpx.Client(base_url=base, timeout=PATIENT) as client:
            assert client.get("/api/runs").status_code == 401
            assert client.get("/api/runs", headers={"Authorization": "Bearer wrong"}).status_code == 401
            assert client.get("/api/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
            assert (
                client.get(
                    "/api/runs", headers={"Host": "evil.example", "Authorization": f"Bearer {token}"}
                ).status_code
                == 421
            )
            named = {"Host": f"{name.upper()}:{port}", "Authorization": f"Bearer {token}"}
            assert client.get("/api/runs", headers=named).status_code == 200
            opened = client.get("/", params={"token": token}, follow_redirects=True)
            assert opened.status_code == 200 and "token" not in str(opened.url)
            assert client.get("/api/runs").status_code == 200  # the cookie


def test_mistakes_of_the_command_line(root, capfd, monkeypatch):
    command = Commands(capfd)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = command("board", str(root), "--port", str(taken.getsockname()[1]))
        assert said.code == 2 and "is taken; choose another with --port" in said.err
    assert "add --expose" in command("board", str(root), "--host", "0.0.0.0").err
    assert "there is no folder" in command("board", str(root / "nowhere")).err
    assert "is not a port" in command("board", str(root), "--port", "99999").err
    import sys

    for name in [
        name for name in sys.modules if name.partition(".")[0] == "starlette" or name.startswith("etude.board.")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    said = command("board", str(root), "--port", "0")
    assert said.code == 2 and "pip install 'etude[board]'" in said.err
