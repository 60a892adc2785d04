"""Writes runs as one HTML page that opens without a network: curves, times, groups, hooks, plan, environment."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from etude.config import run_files
from etude.config.files import replace_text
from etude.errors import UserError, optional, printable
from etude.preview.draw import COLOURS
from etude.report.compare import plan_of
from etude.report.downsample import thin
from etude.report.records import CLOCK, Records
from etude.report.runs import RunInfo, changed_keys, name_of, summarise, unusual_keys
from etude.report.text import checkpoints, slow_lines, spent_time
from etude.units import duration

#: Points per curve in the page; more are not seen on a screen.
POINTS = 2000
_MOST_IMAGES, _MOST_MARKS = 8, 2000


def write_report(folders: Sequence[Path], target: Path) -> None:
    """Write the page about ``folders`` to ``target``, whole or not at all."""
    write_page(page(folders), target)


def write_page(text: str, target: Path) -> None:
    """Write ``text`` to ``target``, whole or not at all."""
    try:
        replace_text(target, text)
    except OSError as error:
        raise UserError(f"{printable(str(target))} cannot be written: {error.strerror or error}") from error


def page(folders: Sequence[Path]) -> str:
    """Return the page as text."""
    library = optional("plotly.offline", "report", "a report").get_plotlyjs()
    runs = [_Run(folder) for folder in folders]
    title = ", ".join(run.info.name for run in runs)
    shown = {head: body for head, body in _sections(runs).items() if body}
    # The data is in a script element, which a "</script" in a name would end.
    content = json.dumps({"runs": [run.data() for run in runs]}, allow_nan=False).replace("<", "\\u003c")
    return asset("report.html").format(
        title=escape(printable(title)),
        css=asset("page.css"),
        links="".join(f'<a href="#{_anchor(head)}">{head}</a>' for head in shown),
        body="\n".join(f'<h2 id="{_anchor(head)}">{head}</h2>{body}' for head, body in shown.items()),
        data=content,
        library=library.replace("</script", "<\\/script"),
        charts=asset("charts.js"),
        script=asset("report.js"),
    )


def _sections(runs: list[_Run]) -> dict[str, str]:
    """Return headline → what is below it; empty where the runs have nothing of the kind."""
    chart = '<div class="chart"><div id="timeline"></div></div>'
    return {
        "Overview": _overview(runs) + _notices(runs),
        **_curves(runs),
        "Where the time went": _times(runs),
        "Slow steps": _slow(runs),
        "When hooks acted": chart if any(run.timeline() for run in runs) else "",
        "Images": _images(runs),
        "Plan": _merged(runs, [run.plan for run in runs], [run.places for run in runs]),
        "Parameter groups": _folded(runs, [run.groups for run in runs]),
        "Hooks": _folded(runs, [run.hooks for run in runs]),
        "Environment": _merged(runs, [run.environment for run in runs], None),
    }


def _slow(runs: list[_Run]) -> str:
    return "".join(f"<pre>{escape(chr(10).join(lines))}</pre>" for run in runs if (lines := slow_lines(run.status, 20)))


def _curves(runs: list[_Run]) -> dict[str, str]:
    """Return the sections of curves; every curve is in one of them."""
    names = list(dict.fromkeys(name for run in runs for name in run.records.curves))
    return {
        "Validation": _grid([n for n in names if not n.startswith(("train/", *CLOCK)) and not _is_rate(n)]),
        "Training": _grid([n for n in names if n.startswith("train/") and not _is_rate(n)]),
        "Learning rate and momentum": _grid([n for n in names if _is_rate(n)]),
        "Throughput, time and memory": _grid([n for n in names if n.startswith(CLOCK)]),
    }


def asset(name: str) -> str:
    """Return the text of a file of this page."""
    return (files("etude.report") / "static" / name).read_text(encoding="utf-8")


class _Run:
    """One run, read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = Records(folder)
        self.records.update()
        self.info: RunInfo = summarise(folder, records=self.records)
        self.status = run_files.status(folder)
        facts = run_files.facts(folder)
        self.plan = plan_of(folder)
        self.places = facts["places"]
        self.groups, self._hooks = facts["groups"], facts["hooks"]
        self.hooks = [{**hook, "points": ", ".join(hook["points"])} for hook in self._hooks]
        self.environment = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in run_files.environment(folder).items()
        }

    def data(self) -> dict[str, Any]:
        curves = {name: thin(curve, POINTS) for name, curve in self.records.curves.items()}
        name = printable(self.info.name)
        return {"name": name, "curves": curves, "timeline": self.timeline(), "sampled": self.records.sampled}

    def timeline(self) -> dict[str, list[int]]:
        """Return at which steps each hook acted that does so at times, and which checkpoints are kept."""
        marks: dict[str, set[int]] = {}
        for hook in self._hooks:
            every = hook.get("steps")
            if isinstance(every, int) and every > 0:
                last = self.info.step
                marks[str(hook.get("name"))] = set(range(every, last + 1, max(every, last // _MOST_MARKS * every)))
        for name, curve in self.records.curves.items():
            if not name.startswith(CLOCK):
                kind = "Log" if name.startswith("train/") else "Evaluate"
                marks.setdefault(kind, set()).update(int(step) for step in curve.steps[-_MOST_MARKS:])
        saved = {name.removeprefix("step-") for name in checkpoints(self.folder)}
        marks["checkpoints kept"] = {int(name) for name in saved if name.isdigit()}
        return {name: sorted(found) for name, found in marks.items() if found}


def _overview(runs: list[_Run]) -> str:
    metrics = list(dict.fromkeys(n for run in runs for n in run.info.best if not n.startswith("train/")))[:6]
    changed = unusual_keys(changed_keys([run.info for run in runs]))
    rows = []
    for index, run in enumerate(runs):
        info = run.info
        best = "".join(f'<td class="number">{_best(info, name)}</td>' for name in metrics)
        whole = f" / {info.total}" if info.total else ""
        chips = "".join(f'<span class="chip">{_text(f"{k}={v}")}</span>' for k, v in changed[run.folder].items())
        rows.append(
            f'<tr><td class="key">{_swatch(index)}{_text(info.name)}</td>'
            f'<td><span class="state {info.state}">{info.state}</span></td>{best}'
            f'<td class="number">{info.step}{whole}</td>'
            f'<td class="number">{duration(info.seconds) if info.seconds else "–"}</td>'
            f'<td>{_text(info.dialect)}</td><td><div class="chips">{chips}</div></td></tr>'
        )
    heads = "".join(f'<th class="number">best {_text(name)}</th>' for name in metrics)
    head = (
        f'<tr><th>run</th><th>state</th>{heads}<th class="number">step</th><th class="number">time</th>'
        "<th>system</th><th>differs</th></tr>"
    )
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _best(info: RunInfo, name: str) -> str:
    if name not in info.best:
        return "–"
    value, step = info.best[name]
    return f'<span title="step {step}">{value:.5g}</span>'


def _notices(runs: list[_Run]) -> str:
    """Return errors and warnings, each with the run that it is about."""
    found = []
    for run in runs:
        texts = [("bad", str(run.status["error"]))] if run.status.get("error") else []
        texts += [("", text) for text in run.status.get("warnings", ())]
        name = _text(run.info.name)
        found += [f'<div class="notice {kind}"><b>{name}</b> {_text(text)}</div>' for kind, text in texts]
    return "".join(found)


def _grid(names: list[str]) -> str:
    return f'<div class="grid" data-curves="{escape(json.dumps(names), quote=True)}"></div>' if names else ""


def _times(runs: list[_Run]) -> str:
    """Return a bar per run; what the time was spent on has the same colour in all of them."""
    spent = [(run, times, sum(times.values())) for run in runs if (times := spent_time(run.status))]
    totals: dict[str, float] = {}
    for _, times, _ in spent:
        for name, seconds in times.items():
            totals[name] = totals.get(name, 0.0) + seconds
    names = sorted(totals, key=lambda name: -totals[name])
    if not names:
        return ""
    heads = "".join(f'<th class="number">{_text(run.info.name)}</th>' for run, _, _ in spent)
    bars = "".join(
        f'<td class="number"><div class="bar">{_bar(names, times, whole)}</div></td>' for _, times, whole in spent
    )
    rows = [f"<tr><th></th>{heads}</tr>", f'<tr><td class="key">share</td>{bars}</tr>']
    for index, name in enumerate(names):
        shares = (_share(times.get(name, 0.0), whole) for _, times, whole in spent)
        rows.append(f'<tr><td class="key">{_swatch(index)}{_text(name)}</td>{"".join(shares)}</tr>')
    total = "".join(f'<td class="number">{whole:.1f} s</td>' for _, _, whole in spent)
    rows.append(f'<tr><td class="key">in all</td>{total}</tr>')
    return f'<div class="scroll"><table class="times">{"".join(rows)}</table></div>'


def _bar(names: list[str], times: Mapping[str, float], whole: float) -> str:
    shown = [(index, name, times[name]) for index, name in enumerate(names) if times.get(name, 0.0) > 0]
    return "".join(
        f'<i style="width:{100 * seconds / whole:.2f}%;background:{COLOURS[index % len(COLOURS)]}" '
        f'title="{_text(name)}: {seconds:.1f} s, {seconds / whole:.0%}"></i>'
        for index, name, seconds in shown
    )


def _share(seconds: float, whole: float) -> str:
    text = f"{seconds:.1f} s · {seconds / whole:.0%}" if seconds and whole else "–"
    return f'<td class="number">{text}</td>'


def _images(runs: list[_Run]) -> str:
    """Return the pictures that runs recorded with the writer ``media``: of each name the latest, the newest first."""
    rows = []
    for index, run in enumerate(runs):
        named: dict[str, list[Path]] = {}
        for path in sorted((run.folder / "media").glob("*.png"), reverse=True):
            named.setdefault(path.stem.rpartition("-")[0], []).append(path)
        for name, paths in sorted(named.items()):
            pictures = "".join(_figure(path, name) for path in paths[:_MOST_IMAGES])
            title = f"<h3>{_swatch(index)}{_text(name)} <span class='soft'>{_text(run.info.name)}</span></h3>"
            rows.append(f'{title}<div class="images">{pictures}</div>')
    return "".join(rows)


def _figure(path: Path, name: str) -> str:
    code, step = base64.b64encode(path.read_bytes()).decode(), int(path.stem.rpartition("-")[2] or 0)
    source = f"data:image/png;base64,{code}"
    return f'<figure><img alt="{_text(name)}" src="{source}"><figcaption class="soft">step {step}</figcaption></figure>'


def _merged(runs: list[_Run], values: list[dict[str, Any]], places: list[dict[str, Any]] | None) -> str:
    """Return one table of all runs' values: a value that all share is shown once, others side by side."""
    keys = list(dict.fromkeys(key for own in values for key in own))
    if not keys:
        return ""
    rows, differing = [], 0
    for key in keys:
        here = [own.get(key) for own in values]
        same = all(value == here[0] for value in here)
        differing += not same
        cells = (
            f'<td colspan="{len(runs)}">{_text(here[0])}</td>'
            if same
            else "".join(f"<td>{_text('–' if value is None else value)}</td>" for value in here)
        )
        origin = [str(own.get(key, "")) for own in places] if places is not None else []
        where = (
            f'<td class="soft origin">{_text(", ".join(dict.fromkeys(filter(None, origin))))}</td>' if origin else ""
        )
        mark = "same" if same else "differs"
        rows.append(f'<tr class="{mark}"><td class="key">{_text(key)}</td>{cells}{where}</tr>')
    named = "".join(f"<th>{_swatch(i)}{_text(run.info.name)}</th>" for i, run in enumerate(runs))
    head = f"<tr><th>key</th>{named}{'<th>from</th>' if places is not None else ''}</tr>"
    choice = ""
    if places is not None and len(runs) > 1:
        choice = f'<p><label><input id="differences" type="checkbox"> only the {differing} differences</label></p>'
    return f'{choice}<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _folded(runs: list[_Run], tables: list[list[dict[str, Any]]]) -> str:
    """Return each different table once, with the runs that it belongs to."""
    owners: dict[str, list[str]] = {}
    for run, rows in zip(runs, tables, strict=True):
        if rows:
            owners.setdefault(_table(rows), []).append(run.info.name)
    if not owners:
        return ""
    single = len(owners) == 1
    return "".join(
        f"<details{' open' if single else ''}><summary>{_owners(names, runs)}</summary>{table}</details>"
        for table, names in owners.items()
    )


def _owners(names: list[str], runs: list[_Run]) -> str:
    return "all runs" if len(names) == len(runs) > 1 else _text(", ".join(names))


def _table(rows: list[dict[str, Any]]) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    numeric = {key for key in keys if all(isinstance(row.get(key, 0), int | float) for row in rows)}
    marks = {key: ' class="number"' if key in numeric else "" for key in keys}
    head = "".join(f"<th{marks[key]}>{_text(key)}</th>" for key in keys)
    body = "".join(
        "<tr>" + "".join(f"<td{marks[key]}>{_text(row.get(key, ''))}</td>" for key in keys) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _swatch(index: int) -> str:
    return f'<span class="swatch" style="background:{COLOURS[index % len(COLOURS)]}"></span>'


def _anchor(head: str) -> str:
    return head.lower().replace(",", "").replace(" ", "-")


def _is_rate(name: str) -> bool:
    return any(part in ("lr", "base_lr", "learning_rate", "momentum") for part in name.split("/"))


def _text(value: Any) -> str:
    """Return a value as text that HTML may hold; nothing is a dash."""
    if value is None or value == "null":
        return "–"
    return escape(printable(f"{value:.6g}" if isinstance(value, float) else str(value)), quote=True)


def name_for(folders: Sequence[Path]) -> str:
    """Return a file name for a report about ``folders``."""
    return f"{name_of(folders[0]).replace('/', '-')}.html" if len(folders) == 1 else "report.html"
