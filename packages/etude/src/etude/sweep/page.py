"""Writes a sweep as one HTML page that opens without a network: the result of every trial over each value."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from etude.errors import UserError, optional, printable
from etude.sweep.study import RESULTS


def is_sweep(folder: Path) -> bool:
    """Return whether ``folder`` holds the results of a sweep."""
    return (folder / RESULTS).is_file()


def sweep_page(folder: Path) -> str:
    """Return the page: a plot of the results in the order of the trials, one per value, and the table."""
    to_html = optional("plotly.io", "report", "a report").to_html
    try:
        found = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        metric, trials = str(found["metric"]), list(found["trials"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{printable(str(folder / RESULTS))} cannot be read: {error}") from None
    plots = to_html(_figure(metric, trials), include_plotlyjs=True, full_html=False)
    title = escape(printable(f"Sweep {folder}"))
    shell = f"<!doctype html><html><head><meta charset='utf-8'><title>{title}</title>{_STYLE}</head>"
    return f"{shell}<body><h1>{title}</h1>{plots}{_table(metric, trials)}</body></html>"


_STYLE = "<style>body{font:14px sans-serif;margin:2em}td,th{padding:2px 12px;text-align:left}</style>"


def _figure(metric: str, trials: list[dict[str, Any]]) -> Any:
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    done = [one for one in trials if one["value"] is not None]
    keys = list(dict.fromkeys(key for one in trials for key in one["values"]))
    figure: Figure = make_subplots(rows=1 + len(keys), cols=1, subplot_titles=["trials in order", *keys])
    for row, key in enumerate(["", *keys], 1):
        where = [one["values"].get(key) if key else one["number"] for one in done]
        names = [f"trial {one['number']}" for one in done]
        dots = Scatter(x=where, y=[one["value"] for one in done], text=names, mode="markers", showlegend=False)
        figure.add_trace(dots, row=row, col=1)
        figure.update_yaxes(title_text=metric, row=row, col=1)
        if key in {name for one in trials for name in one["log"]}:
            figure.update_xaxes(type="log", row=row, col=1)
    figure.update_layout(height=320 * (1 + len(keys)), template="plotly_white")
    return figure


def _table(metric: str, trials: list[dict[str, Any]]) -> str:
    rows = [["trial", metric, "values", "run"]]
    for one in trials:
        value = f"{one['value']:.4g}" if one["value"] is not None else one["state"]
        values = "  ".join(f"{key}={value}" for key, value in one["values"].items())
        rows.append([str(one["number"]), value, values, one["folder"]])
    lines = ["".join(f"<td>{escape(printable(cell))}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
