"""Time of `etude runs`, and of the board to its first curve, for 1,000 runs and for a run of 1,000,000 points.

    python bench/board.py

Where chromium is installed, a page is opened too, until its first curve is drawn. CPU seconds stand beside wall time,
because they mean something on a busy machine too.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

CODE = "import sys; from etude.cli import main; sys.exit(main(sys.argv[1:]))"


def make_runs(root: Path, count: int, steps: int) -> None:
    for number in range(count):
        folder = root / f"run-{number:04}"
        folder.mkdir(parents=True)
        rows = ({"step": s, "epoch": 0, "split": "train", "loss": 1 / s, "lr": 0.1} for s in range(1, steps + 1))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        best = {"val/accuracy": [number / count, steps]}
        plan = {f"part.key{key}": key for key in range(40)} | {"optim.lr": number % 5}
        status = {
            "state": "finished", "step": steps, "total": steps, "dialect": "native", "plan": plan, "best": best,
            "last": {"train/loss": 1 / steps}, "began": 1.7e9 + number, "seconds": 60.0,
        }  # fmt: skip
        (folder / "status.json").write_text(json.dumps(status))


def children_cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def first_curve(address: str, run: str) -> tuple[float, float] | None:
    """Return the seconds until a browser shows a curve, and until it can be zoomed; None without a browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        began = time.perf_counter()
        page.goto(f"{address}/#run={run}", wait_until="commit")
        times = []
        for what in (".sketch path, .scatterlayer .trace", ".scatterlayer .trace"):
            page.locator(what).first.wait_for(state="attached", timeout=120_000)
            times.append(time.perf_counter() - began)
        browser.close()
    return times[0], times[1]


def measure(root: Path, run: str) -> tuple[float, float, float, float, tuple[float, float] | None]:
    """Return seconds until it listens, the list and the curves are there, megabytes, and seconds in a browser."""
    began = time.perf_counter()
    words = [sys.executable, "-c", CODE, "board", str(root), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://[^/\s]+", process.stdout.readline())[0]
        up = time.perf_counter()
        with httpx.Client(base_url=address, timeout=120) as client:
            client.get("/api/runs").raise_for_status()
            listed = time.perf_counter()
            client.get("/api/curves", params={"run": run}).raise_for_status()
            drawn = time.perf_counter()
            seen = first_curve(address, run)
        memory = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024
    finally:
        process.terminate()
        process.wait()
    return up - began, listed - up, drawn - listed, memory, seen


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        many, long = Path(folder) / "many", Path(folder) / "long"
        make_runs(many, 1000, 50)
        make_runs(long, 1, 500_000)  # two values each: a million points
        began, spent = time.perf_counter(), children_cpu()
        subprocess.run([sys.executable, "-c", CODE, "runs", str(many)], stdout=subprocess.DEVNULL, check=True)
        wall, cpu = time.perf_counter() - began, children_cpu() - spent
        print(f"etude runs, 1,000 runs: {wall:.2f} s, {cpu:.2f} s of CPU")
        for what, root in (("1,000 runs", many), ("1,000,000 points", long)):
            spent = children_cpu()
            up, listed, drawn, memory, seen = measure(root, "run-0000")
            times = f"listens {up:.2f} s, list {listed:.2f} s, curves {drawn:.2f} s, {memory:.0f} MB"
            page = f", first curve in a browser {seen[0]:.2f} s, zoom {seen[1]:.2f} s" if seen is not None else ""
            print(f"{what:<17} {times}{page}; {children_cpu() - spent:.2f} s of CPU in all")


if __name__ == "__main__":
    main()
