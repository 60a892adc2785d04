"""Makes figures and HTML for notebooks: what a run has recorded, and what a plan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from etude.errors import UserError, optional
from etude.errors.own_code import lines_of_user
from etude.preview.draw import alone, svg

Curves = Mapping[str, Sequence[tuple[float, float]]]


def shortened(error: Exception) -> Exception:
    """Return the error with the lines of the user's code alone."""
    return error.with_traceback(lines_of_user(error.__traceback__))


def figure(curves: Curves, *, title: str = "") -> Any:
    """Return a plotly figure with one panel per curve."""
    scatter = optional("plotly.graph_objects", "report", "run.plot()").Scatter
    shown = {name: points for name, points in curves.items() if points}
    if not shown:
        raise UserError("the run has recorded nothing to plot yet")
    columns = 3 if len(shown) % 3 == 0 else min(2, len(shown))
    rows = -(-len(shown) // columns)
    height = 60 + 240 * rows
    made = optional("plotly.subplots", "report", "run.plot()").make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[escape(name) for name in shown],
        horizontal_spacing=0.08,
        vertical_spacing=70 / height if rows > 1 else 0.0,
    )
    for index, (name, points) in enumerate(shown.items()):
        values = [y for _, y in points]
        dots = set(alone(values))
        line = scatter(
            x=[x for x, _ in points],
            y=values,
            name=escape(name),
            mode="lines+markers" if dots else "lines",
            line_color="#4c78e0",
            marker_size=[6 if at in dots else 0 for at in range(len(values))],
        )
        made.add_trace(line, row=index // columns + 1, col=index % columns + 1)
    made = _with_picture(made, shown)
    margin = {"t": 50, "b": 50, "l": 50}
    made.update_layout(template="plotly_white", title=escape(title), showlegend=False, height=height, margin=margin)
    made.update_xaxes(title_text="step", title_standoff=4, showgrid=False)
    made.update_annotations(font_size=13)
    return made


def _with_picture(made: Any, shown: Curves) -> Any:
    """Return the figure together with a still picture, which pages made of the notebook keep."""
    import json

    kind: type = optional("plotly.graph_objects", "report", "run.plot()").Figure

    class Plot(kind):  # type: ignore[misc]
        def _repr_mimebundle_(self, *args: Any, **settings: Any) -> dict[str, Any]:
            interactive = json.loads(self.to_json())
            return {"application/vnd.plotly.v1+json": interactive, "image/svg+xml": _picture(shown)}

        def _ipython_display_(self) -> None:
            raise NotImplementedError  # IPython then asks for the bundle

    return Plot(made)


def _picture(shown: Curves) -> str:
    """Return the curves as one SVG image."""
    drawn = svg({name: list(points) for name, points in shown.items()}, "")
    return drawn if drawn.count("<svg") == 1 and drawn.startswith("<svg") else _framed(drawn)


def _framed(html: str) -> str:
    size = 'xmlns="http://www.w3.org/2000/svg" width="760" height="600"'
    inside = f'<div xmlns="http://www.w3.org/1999/xhtml">{html}</div>'
    return f'<svg {size}><foreignObject width="100%" height="100%">{inside}</foreignObject></svg>'


def table(rows: Mapping[str, Any], *, title: str = "") -> str:
    """Return a two-column table; everything is text."""
    cells = "".join(f"<tr><th>{escape(str(key))}</th><td>{escape(str(value))}</td></tr>" for key, value in rows.items())
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"


def in_notebook() -> bool:
    """Return whether this process is the kernel of a Jupyter notebook."""
    import sys

    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return found is not None and type(found).__name__ == "ZMQInteractiveShell"
