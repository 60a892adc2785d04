"""Writes runs as one HTML page that opens without a network: curves, times, groups, hooks, plan, environment."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from etude.errors import MissingExtra, UserError, printable
from etude.report.compare import plan_of
from etude.report.records import CLOCK, Records
from etude.report.runs import RunInfo, name_of, summarise
from etude.report.status import read_json
from etude.report.text import checkpoints, duration, spent_time

#: Points per curve in the page; more are not seen on a screen.
POINTS = 2000
_COLOURS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#17becf",
    "#bcbd22",
    "#7f7f7f",
)
_MOST_IMAGES = 24


def write_report(folders: Sequence[Path], target: Path) -> None:
    """Write the page about ``folders`` to ``target``, whole or not at all."""
    write_page(page(folders), target)


def write_page(text: str, target: Path) -> None:
    """Write ``text`` to ``target``, whole or not at all."""
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(f"{printable(str(target))} cannot be written: {error.strerror or error}") from error


def page(folders: Sequence[Path]) -> str:
    """Return the page as text."""
    library = _plotly()
    runs = [_Run(folder) for folder in folders]
    names = list(dict.fromkeys(name for run in runs for name in run.records.curves))
    title = ", ".join(run.info.name for run in runs)
    body = [
        _overview(runs),
        _grid("Training and validation", [n for n in names if not _is_rate(n) and not n.startswith(CLOCK)]),
        _grid("Learning rate and momentum", [n for n in names if _is_rate(n)]),
        _grid("Throughput, time and memory", [n for n in names if n.startswith(CLOCK)]),
        _times(runs),
        '<h2>When things happened</h2><div class="chart"><div id="timeline" class="plot"></div></div>',
        _images(runs),
        *(part for run in runs for part in run.sections()),
    ]
    content = json.dumps({"runs": [run.data() for run in runs]}, allow_nan=False).replace("<", "\\u003c")
    return _SHELL.format(
        title=escape(printable(title)),
        css=asset("page.css"),
        body="\n".join(filter(None, body)),
        data=content,
        library=library,
        charts=asset("charts.js"),
        script=asset("report.js"),
    )


def asset(name: str) -> str:
    """Return the text of a file of this page."""
    return (files("etude.report") / "static" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingExtra("plotly", "report", "a report") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")


class _Run:
    """One run, read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = Records(folder)
        self.records.update()
        self.info: RunInfo = summarise(folder, records=self.records)
        self.status = read_json(folder / "status.json")
        self.facts = read_json(folder / "facts.json")

    def data(self) -> dict[str, Any]:
        from etude.report.thin import thin

        curves = {name: thin(curve, POINTS) for name, curve in self.records.curves.items()}
        return {"name": printable(self.info.name), "curves": curves, "timeline": self.timeline()}

    def timeline(self) -> dict[str, list[int]]:
        """Return at which steps log lines, evaluations and saves came."""
        steps: dict[str, set[int]] = {"log": set(), "evaluation": set()}
        for name, curve in self.records.curves.items():
            if not name.startswith(CLOCK):
                kind = "log" if name.startswith("train/") else "evaluation"
                steps[kind] |= {int(step) for step in curve.steps[-2000:]}
        saved = [name.removeprefix("step-") for name in checkpoints(self.folder)]
        steps["checkpoint (kept)"] = {int(name) for name in saved if name.isdigit()}
        return {name: sorted(found) for name, found in steps.items() if found}

    def sections(self) -> list[str]:
        name = escape(printable(self.info.name))
        found = []
        if self.status.get("error"):
            found.append(f"<h2>Error · {name}</h2>{_pre(str(self.status['error']))}")
        if isinstance(warned := self.status.get("warnings"), list) and warned:
            found.append(f"<h2>Warnings · {name}</h2><ul>{''.join(f'<li>{_text(w)}</li>' for w in warned)}</ul>")
        if isinstance(groups := self.facts.get("groups"), list) and groups:
            found.append(f"<h2>Parameter groups · {name}</h2>{_table(groups)}")
        if isinstance(hooks := self.facts.get("hooks"), list) and hooks:
            rows = [dict(hook) | {"points": ", ".join(map(str, hook.get("points", ())))} for hook in hooks]
            found.append(f"<h2>Hooks, in the order they act · {name}</h2>{_table(rows)}")
        plan, places = plan_of(self.folder), self.facts.get("places")
        if plan:
            where = places if isinstance(places, dict) else {}
            rows = [{"key": k, "value": v, "from": where.get(k, "")} for k, v in plan.items()]
            found.append(f"<h2>Plan · {name}</h2>{_table(rows)}")
        environment = read_json(self.folder / "env.json")
        if environment:
            rows = [{"": key, "value": json.dumps(value, ensure_ascii=False)} for key, value in environment.items()]
            found.append(f"<h2>Environment · {name}</h2>{_table(rows)}")
        return found


def _overview(runs: list[_Run]) -> str:
    rows = []
    for index, run in enumerate(runs):
        info = run.info
        best = ", ".join(f"{n} {v:.5g} (step {s})" for n, (v, s) in info.best.items() if not n.startswith("train/"))
        spent = duration(info.seconds) if info.seconds else "–"
        whole = f"/{info.total}" if info.total else ""
        swatch = f'<span class="swatch" style="background:{_COLOURS[index % len(_COLOURS)]}"></span>'
        rows.append(
            f'<tr><td>{swatch}{_text(info.name)}</td><td><span class="state {info.state}">{info.state}</span></td>'
            f"<td>{info.step}{whole}</td><td>{spent}</td><td>{_text(info.dialect)}</td><td>{_text(best)}</td></tr>"
        )
    head = "<tr><th>run</th><th>state</th><th>step</th><th>time</th><th>system</th><th>best</th></tr>"
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _grid(title: str, names: list[str]) -> str:
    if not names:
        return ""
    return f"<h2>{title}</h2><div class='grid' data-curves=\"{escape(json.dumps(names), quote=True)}\"></div>"


def _times(runs: list[_Run]) -> str:
    found = []
    for run in runs:
        spent = spent_time(run.status)
        whole = sum(spent.values())
        if whole <= 0:
            continue
        rows = sorted(spent.items(), key=lambda row: -row[1])
        bar = "".join(
            f'<i style="width:{100 * s / whole:.2f}%;background:{_COLOURS[i % len(_COLOURS)]}" title="{_text(n)}"></i>'
            for i, (n, s) in enumerate(rows)
        )
        cells = "".join(
            f'<tr><td><span class="swatch" style="background:{_COLOURS[i % len(_COLOURS)]}"></span>{_text(n)}</td>'
            f'<td class="number">{s:.1f} s</td><td class="number">{s / whole:.1%}</td></tr>'
            for i, (n, s) in enumerate(rows)
        )
        head = f"<h2>Where the time went · {_text(run.info.name)}</h2>"
        found.append(f'{head}<div class="bar">{bar}</div><table>{cells}</table>')
    return "\n".join(found)


def _images(runs: list[_Run]) -> str:
    """Return the pictures that runs recorded with the writer ``files``."""
    found = []
    for run in runs:
        for path in sorted((run.folder / "media").glob("*.png"))[-_MOST_IMAGES:]:
            code = base64.b64encode(path.read_bytes()).decode()
            label = _text(f"{path.stem} · {run.info.name}")
            caption = f'<figcaption class="soft">{label}</figcaption>'
            found.append(f'<figure><img alt="{label}" src="data:image/png;base64,{code}">{caption}</figure>')
    return f'<h2>Images</h2><div class="images">{"".join(found)}</div>' if found else ""


def _table(rows: list[Any]) -> str:
    plain = [row for row in rows if isinstance(row, dict)]
    keys = list(dict.fromkeys(key for row in plain for key in row))
    head = "".join(f"<th>{_text(key)}</th>" for key in keys)
    body = "".join("<tr>" + "".join(f"<td>{_text(row.get(key, ''))}</td>" for key in keys) + "</tr>" for row in plain)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _is_rate(name: str) -> bool:
    return any(part in ("lr", "momentum") for part in name.split("/"))


def _text(value: Any) -> str:
    return escape(printable(f"{value:.6g}" if isinstance(value, float) else str(value)), quote=True)


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


_SHELL = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{css}</style></head><body>
<header><h1>Étude report</h1><span class="soft grow">{title}</span>
<label>smoothing <input id="smooth" type="range" min="0" max="0.99" step="0.01" value="0"></label>
<label><input id="log" type="checkbox"> log scale</label><button id="theme" type="button">light / dark</button></header>
<main>
{body}
</main>
<script type="application/json" id="data">{data}</script>
<script>{library}</script>
<script>{charts}</script>
<script>{script}</script>
</body></html>
"""


def name_for(folders: Sequence[Path]) -> str:
    """Return a file name for a report about ``folders``."""
    return f"{name_of(folders[0]).replace('/', '-')}.html" if len(folders) == 1 else "report.html"
