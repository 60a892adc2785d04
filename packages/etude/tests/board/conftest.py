from __future__ import annotations

import json
import re
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from playwright.sync_api import sync_playwright

LONG = 120_000
#: Milliseconds between two looks at a page. By default every frame is looked at, and so drawn.
POLLING = 200
CODE = "import sys; from etude.cli import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def serving(root, *words):
    """A real board in a process of its own; gives its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, "board", str(root), "--port", "0", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        ready, _, _ = select.select([process.stdout], [], [], 180)
        line = process.stdout.readline() if ready else ""
        found = re.search(r"http://\S+", line)
        assert found, f"the board did not start: {line!r}, {process.poll()}"
        yield found[0].rstrip("/") if "token" not in found[0] else found[0]
    finally:
        process.terminate()
        try:
            process.wait(600)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_run(root, name, *, steps=20, state="finished", scale=1.0, plan=None):
    folder = root / name
    folder.mkdir(parents=True)
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range(1, steps + 1):
            file.write(json.dumps({"step": step, "epoch": 0, "split": "train", "loss": scale / step}) + "\n")
        file.write(json.dumps({"step": steps, "epoch": 0, "split": "val", "accuracy": 1 - scale / steps}) + "\n")
    status = {
        "state": state,
        "step": steps,
        "total": steps,
        "began": time.time() - 100,
        "seconds": 12.0,
        "plan": plan or {"optim.lr": scale},
        "last": {"train/loss": scale / steps},
        "best": {"val/accuracy": [1 - scale / steps, steps]},
        "time": {"forward/backward": 9.0, "data": 3.0},
    }
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "log.txt").write_text("first line\nlast line <b>bold</b>\n")
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "runs"
    make_run(folder, "a/20261116-100000", scale=1.0)
    make_run(folder, "b/20261116-110000", scale=2.0)
    return folder


@pytest.fixture(scope="module")
def browser():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "these tests need chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def opened(browser, address, **settings):
    """A page whose console stays clean and that never asks another host for anything."""
    context = browser.new_context(**({"viewport": {"width": 1300, "height": 850}} | settings))
    context.set_default_timeout(LONG)
    page = context.new_page()
    wrong, hosts = [], set()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: (wrong.append("a dialog was opened"), dialog.dismiss()))
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.goto(address)
    try:
        yield page
        assert not wrong
        assert all(host.startswith(("127.0.0.1", "")) and "." not in host.replace("127.0.0.1", "") for host in hosts)
    finally:
        context.close()


def chart(page, metric):
    return page.locator(f'.chart[data-metric="{metric}"]')
