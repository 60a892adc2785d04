"""Filters, groups, axes, links, exploring and recorded media of the board, in a real browser."""

from __future__ import annotations

import json

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from etude.events.media import Media, table_text
from etude.events.record import Record
from etude.report.notes import Notes, write_notes
from tests.board.conftest import LONG, POLLING, chart, make_run, opened, serving

DATA = "document.querySelector('.chart[data-metric=\"train/loss\"] .plot').data"


@pytest.fixture
def search(tmp_path):
    """Two learning rates with two seeds each, and their times."""
    root = tmp_path / "runs"
    for number, (rate, seed) in enumerate([(0.1, 0), (0.1, 1), (0.001, 0), (0.001, 1)]):
        plan = {"optim.lr": rate, "train.seed": seed, "train.epochs": 4}
        folder = make_run(root, f"s/20261116-10000{number}", scale=1.0 + 50 * rate + seed, plan=plan)
        began = json.loads((folder / "status.json").read_text())["began"]
        rows = [{"step": step, "epoch": 0, "time": began + 30 * step, "time/step": 30.0} for step in (1, 20)]
        (folder / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def test_labels_groups_axes_and_a_link_that_holds_them(browser, search):
    with serving(search) as address, opened(browser, address) as page:
        expect(page.locator("#runs li")).to_have_count(4, timeout=LONG)
        page.keyboard.press("a")
        expect(page.locator("#legend button")).to_have_count(4, timeout=LONG)
        expect(page.locator("#legend")).to_contain_text("lr=0.001 seed=1")
        page.locator("#group").select_option("seed")
        expect(page.locator("#legend button")).to_have_text(["lr=0.001 (2)", "lr=0.1 (2)"], timeout=LONG)
        page.wait_for_function(f"() => window.Plotly && {DATA}.length === 6", polling=POLLING)  # two means, four edges
        middle, low, high = page.evaluate(f"() => [2, 0, 1].map(at => {DATA}[at].y[9])")
        assert low < middle < high and middle == pytest.approx((1.05 + 2.05) / 2 / 10)
        page.locator("#x").select_option("time")
        expect(chart(page, "train/loss").locator(".xtitle")).to_have_text("minutes", timeout=LONG)
        page.wait_for_function(f"() => {DATA}[2].x.at(-1) === 10", polling=POLLING)
        page.locator("#metrics").fill("loss")
        link = page.evaluate("() => location.href")
        page.goto("about:blank")
        page.goto(link)
        expect(page.locator("#legend button")).to_have_count(2, timeout=LONG)
        expect(chart(page, "train/loss").locator(".xtitle")).to_have_text("minutes", timeout=LONG)
        assert page.locator("#metrics").input_value() == "loss"
        page.keyboard.press("2")
        expect(page.locator("#table tbody tr")).to_have_count(2, timeout=LONG)
        expect(page.locator("#table tbody tr").first).to_contain_text("±")
        page.locator(".columns-menu summary").click()
        page.get_by_label("optim.lr", exact=True).uncheck()
        expect(page.locator("#table thead")).not_to_contain_text("optim.lr", timeout=LONG)
        page.keyboard.press("5")
        expect(page.locator("#compare thead").first.locator("th")).to_have_count(4, timeout=LONG)


def test_filters_notes_and_exploring(browser, search):
    write_notes(search / "s/20261116-100000", Notes(("base",), "the first one"))
    write_notes(search / "s/20261116-100001", Notes(archived=True))
    with serving(search) as address, opened(browser, address) as page:
        expect(page.locator("#runs li")).to_have_count(3, timeout=LONG)
        expect(page.locator("#runs .chip")).to_have_text("base", timeout=LONG)
        page.locator("#search").fill("archived")
        expect(page.locator("#runs li")).to_have_count(1, timeout=LONG)
        page.locator("#search").fill("lr<0.01 accuracy>0.9")
        expect(page.locator("#runs li")).to_have_count(1, timeout=LONG)
        page.locator("#search").fill("acuracy>1")
        expect(page.locator("#problem")).to_contain_text("did you mean 'accuracy'", timeout=LONG)
        page.locator("#search").fill("")
        expect(page.locator("#problem")).to_be_hidden(timeout=LONG)
        page.locator("[data-tab=explore]").click()
        expect(page.locator("#scatter .points path")).to_have_count(3, timeout=LONG)
        assert page.evaluate("() => document.getElementById('scatter').layout.xaxis.type") == "log"
        expect(page.locator("#parallel .line")).to_have_count(3, timeout=LONG)
        page.locator("#parallel .line:not(.chosen)").first.dispatch_event("click")
        expect(page.locator("#runs li[aria-selected=true]")).to_have_count(2, timeout=LONG)


def test_recorded_media_are_shown_and_nothing_serious_for_screen_readers(browser, search):
    run = next(iter(sorted(search.glob("s/*"))))
    media = Media(run)
    for step in (1, 2):
        found = (
            ("image", "sample", np.full((8, 8), step / 2)),
            ("text", "said", f"<b>step {step}</b>"),
            ("histogram", "weights", np.arange(10.0)),
            ("table", "wrong", table_text([{"id": step}])),
        )
        media.write(Record(step, 0, "train", {}, 0.0, found))
    name = str(run.relative_to(search))
    with serving(search) as address, opened(browser, f"{address}/#run={name}&tab=details") as page:
        expect(page.locator(".gallery figure")).to_have_count(4, timeout=LONG)
        page.wait_for_function("() => document.querySelector('.gallery img').naturalWidth === 8", polling=POLLING)
        expect(page.locator(".gallery")).to_contain_text("<b>step 2</b>")
        page.get_by_label("step of said").fill("0")
        expect(page.locator(".gallery")).to_contain_text("<b>step 1</b>", timeout=LONG)
        axe = Axe()
        for tab in ("details", "curves", "table", "explore", "compare"):
            page.locator(f"[data-tab={tab}]").click()
            expect(page.locator(f"#{tab}")).to_be_visible(timeout=LONG)
            serious = [
                (tab, one["id"], one["nodes"][0]["html"])
                for one in axe.run(page).response["violations"]
                if one["impact"] in ("serious", "critical")
            ]
            assert not serious
