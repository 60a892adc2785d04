"""The board and the report in a real browser. Without chromium these tests fail: `.ci/run` installs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests import zygote
from tests.board.conftest import CODE, LONG, POLLING, chart, make_run, opened, serving
from tests.cli.commands import CONFIG
from tests.sampling import ALL

HOSTILE = "<img src=x onerror=alert(1)>"


def test_open_search_overlay_compare_and_keys(browser, root):
    with serving(root) as address, opened(browser, address) as page:
        expect(page.locator("#runs li")).to_have_count(2, timeout=LONG)
        expect(chart(page, "train/loss").locator(".scatterlayer .trace")).to_have_count(1, timeout=LONG)
        page.locator("#runs li[aria-selected=false]").click()
        expect(chart(page, "train/loss").locator(".scatterlayer .trace")).to_have_count(2, timeout=LONG)
        page.keyboard.press("2")
        expect(page.locator("#table tbody tr")).to_have_count(2, timeout=LONG)
        page.locator("#table th", has_text="val/accuracy").click()
        expect(page.locator("#table tbody tr").first).to_contain_text("a/20261116-100000", timeout=LONG)
        page.keyboard.press("5")
        expect(page.locator("#compare")).to_contain_text("optim.lr", timeout=LONG)
        expect(page.locator("#compare .better").first).to_be_visible(timeout=LONG)
        page.keyboard.press("1")
        page.keyboard.press("/")
        page.keyboard.type("b/2026")
        expect(page.locator("#runs li")).to_have_count(1, timeout=LONG)
        page.keyboard.press("Escape")
        expect(page.locator("#runs li")).to_have_count(2, timeout=LONG)
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("#details")).to_contain_text("last line <b>bold</b>", timeout=LONG)
        for step in range(1, 12):
            (root / "a/20261116-100000/checkpoints" / f"step-{step:09}").mkdir(parents=True)
        (root / "a/20261116-100000/checkpoints/best").write_text("step-000000002\n")
        page.keyboard.press("4")
        expect(page.locator("#details tr", has=page.locator(".chip"))).to_have_text("step-000000002best", timeout=LONG)
        expect(page.locator("#details")).to_contain_text("and 2 older", timeout=LONG)
        page.keyboard.press("?")
        expect(page.locator("#keys")).to_be_visible(timeout=LONG)


@pytest.mark.thorough  # what is drawn in the end is seen above
def test_curves_are_sketched_until_the_library_is_there(browser, root):
    with serving(root) as address, opened(browser, "about:blank") as page:
        held, seen = [], []
        page.route("**/plotly.min.js*", lambda route: route.continue_() if seen else held.append(route))
        page.goto(address, wait_until="commit")
        expect(chart(page, "train/loss").locator(".sketch path")).to_have_count(1, timeout=LONG)
        seen.append(True)
        for route in held:
            route.continue_()
        expect(chart(page, "train/loss").locator(".scatterlayer .trace")).to_have_count(1, timeout=LONG)
        expect(page.locator(".sketch")).to_have_count(0, timeout=LONG)


@pytest.mark.thorough  # a detail of the drawing
def test_a_value_between_gaps_is_a_dot(browser, root):
    losses = [1.0, "NaN", 0.5, "NaN", 0.4, 0.3]
    folder = make_run(root, "gaps/20261116-120000", steps=1)
    rows = [{"step": step, "split": "train", "gaps": loss} for step, loss in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(root) as address, opened(browser, f"{address}/#run=gaps/20261116-120000") as page:
        dots = chart(page, "train/gaps").locator(".scatterlayer .points path")
        expect(dots.first).to_be_attached(timeout=LONG)
        shown = dots.evaluate_all("found => found.map(dot => dot.getBoundingClientRect().width > 3)")
        assert sorted(shown) == [False] * (len(shown) - 2) + [True, True]


def test_log_scale_smoothing_and_zoom(browser, root):
    folder = make_run(root, "long/20261116-120000", steps=4000)
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(f'{{"step": {step}, "split": "train", "lr": 0.0041}}\n' for step in (10, 4000))
    with serving(root) as address, opened(browser, f"{address}/#run=long/20261116-120000") as page:
        box = chart(page, "train/loss")
        expect(box.locator(".scatterlayer .trace")).to_have_count(1, timeout=LONG)
        expect(box.locator(".xtitle")).to_have_text("step")
        expect(chart(page, "train/lr").locator(".scatterlayer .trace")).to_have_count(1, timeout=LONG)
        axis = "() => document.querySelector('.chart[data-metric=\"train/lr\"] .plot').layout.yaxis.range"
        low, high = page.evaluate(axis)
        assert 0.003 < low < 0.0041 < high < 0.005  # a constant curve is not drawn from -1 to 1
        page.keyboard.press("l")
        page.wait_for_function(
            "() => document.querySelector('.chart[data-metric=\"train/loss\"] .plot').layout.yaxis.type === 'log'",
            polling=POLLING,
        )
        low, high = page.evaluate(axis)
        assert 0.003 < 10**low < 0.0041 < 10**high < 0.005
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 4001, "split": "train", "lr": 0.1}\n')
        os.utime(folder / "status.json")  # a run that goes on writes its status first
        page.wait_for_function(f"() => ({axis})()[1] >= -1", polling=POLLING)  # it follows a curve that moves again
        page.locator("#smooth").fill("0.9")
        expect(box.locator(".scatterlayer .trace")).to_have_count(2, timeout=LONG)
        page.locator("#smooth").fill("0")
        points = "() => document.querySelector('.chart[data-metric=\"train/loss\"] .plot').data[0].x.filter(x => x >= 100 && x <= 300).length"
        before = page.evaluate(points)
        page.evaluate(
            "() => Plotly.relayout(document.querySelector('.chart[data-metric=\"train/loss\"] .plot'), {'xaxis.range[0]': 100, 'xaxis.range[1]': 300})"
        )
        page.wait_for_function(f"() => ({points})() === 201", polling=POLLING)
        assert before < 201


def test_live_curves_while_a_real_training_writes(browser, root, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(f"{CONFIG}\nimports: [slow.py]\nhooks: [{{type: slow.slow, point: after_step}}]\n")
    (tmp_path / "slow.py").write_text("import time\n\ndef slow(run):\n    time.sleep(0.02)\n")
    training = None
    with serving(root) as address, opened(browser, address) as page:
        expect(page.locator("#live")).to_have_text("live", timeout=LONG)
        try:
            words = ("train", str(config), "train.epochs=4000", "-q", "--folder", str(root / "now"))
            training = zygote.start("-m", "etude", *words, cwd=tmp_path)
            row = page.locator("#runs li", has_text="now")
            expect(row.locator(".state")).to_have_text("running", timeout=LONG)
            row.click()
            expect(chart(page, "train/loss").locator(".scatterlayer .trace")).to_have_count(2, timeout=LONG)
            seen = "() => Math.max(...document.querySelector('.chart[data-metric=\"train/loss\"] .plot').data.map(line => line.x.at(-1)))"
            page.wait_for_function(f"() => ({seen})() > 25", polling=POLLING)
            first = page.evaluate(seen)
            page.wait_for_function(f"() => ({seen})() > {first}", polling=POLLING)
            training.send_signal(signal.SIGTERM)
            training.wait()
            expect(row.locator(".state")).to_have_text("resumable", timeout=LONG)
        finally:
            if training is not None and training.poll() is None:
                training.kill()
                training.wait()


def test_dark_light_and_phone_width(browser, root):
    phone = {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}}
    with serving(root) as address, opened(browser, address, **phone) as page:
        expect(chart(page, "train/loss")).to_be_visible(timeout=LONG)
        colour = "() => getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(colour) == "rgb(15, 18, 22)"
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        page.locator("#menu").click()
        expect(page.locator("#runs li")).to_have_count(2, timeout=LONG)
        page.locator("#menu").click()
        page.keyboard.press("t")
        assert page.evaluate(colour) == "rgb(255, 255, 255)"


def test_hostile_names_are_text(browser, root):
    name = HOSTILE.replace("/", "")
    folder = make_run(root, name)
    (folder / "log.txt").write_text(HOSTILE)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "split": "train", "<script>alert(2)</script>": 1}\n')
    with serving(root) as address, opened(browser, f"{address}/#{urlencode({'run': name})}") as page:
        expect(page.locator("#runs li").filter(has_text="onerror")).to_have_attribute(
            "aria-selected", "true", timeout=LONG
        )
        expect(page.locator(".chart h3", has_text="alert(2)")).to_be_visible(timeout=LONG)
        page.locator("#search").fill("onerror")
        page.locator("[data-tab=details]").click()
        expect(page.locator("#details pre").last).to_contain_text(HOSTILE, timeout=LONG)
        assert page.locator("img").count() == 0


@pytest.mark.thorough  # writes thousands of runs
def test_very_many_runs_are_listed_and_searched(browser, tmp_path):
    root = tmp_path / "many"
    many = 1000 if ALL else 210
    for number in range(many):
        make_run(root, f"r{number:04}", steps=3, scale=1 + number % 7)
    with serving(root) as address, opened(browser, address) as page:
        expect(page.locator("#count")).to_contain_text(f"{many} of {many} runs", timeout=LONG)
        page.locator("#search").fill("optim.lr=3")
        expect(page.locator("#count")).to_contain_text(f"{-(-(many - 2) // 7)} of {many} runs", timeout=LONG)
        page.locator("#search").fill("r0177")
        page.locator("#runs li").click()
        expect(chart(page, "train/loss")).to_be_visible(timeout=LONG)


def test_a_report_opens_offline(browser, root, tmp_path):
    hostile = make_run(root, HOSTILE.replace("/", ""))
    target = tmp_path / "report.html"
    done = subprocess.run(
        [sys.executable, "-c", CODE, "report", str(root / "a"), str(root / "b"), str(hostile), "-o", str(target)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with opened(browser, target.as_uri(), offline=True) as page:
        expect(chart(page, "train/loss").locator(".scatterlayer .trace")).to_have_count(3, timeout=LONG)
        page.locator("#log").check()
        page.locator("#smooth").fill("0.5")
        expect(chart(page, "train/loss").locator(".scatterlayer .trace")).to_have_count(6, timeout=LONG)
        expect(page.locator("main")).to_contain_text("Where the time went")
        assert page.locator("img").count() == 0
    assert os.path.getsize(target) < 8e6
