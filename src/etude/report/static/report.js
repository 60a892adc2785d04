"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const panels = [];
const smoothing = document.getElementById("smooth"), log = document.getElementById("log");

function redraw() {
  for (const { plot, note, name } of panels) {
    const curves = [];
    let strange = 0;
    data.runs.forEach((run, index) => {
      const curve = run.curves[name];
      if (curve) { curves.push({ name: run.name, x: curve.x, y: curve.y, colour: Charts.colour(index) }); strange += curve.strange; }
    });
    Charts.draw(plot, curves, { log: log.checked, smooth: Number(smoothing.value), key: name });
    note.hidden = strange === 0;
    note.textContent = `${strange} values are not finite and leave gaps`;
  }
}
for (const grid of document.querySelectorAll("[data-curves]")) {
  for (const name of JSON.parse(grid.dataset.curves)) panels.push({ ...Charts.panel(grid, name), name });
}
const timeline = document.getElementById("timeline");
if (timeline) {
  const rows = data.runs.flatMap((run, index) => Object.entries(run.timeline).map(([what, steps]) => ({
    x: steps, y: steps.map(() => `${what}${data.runs.length > 1 ? " · " + run.name : ""}`), type: "scatter", mode: "markers",
    marker: { color: Charts.colour(index), symbol: "line-ns-open", size: 12 }, hovertemplate: "step %{x}<extra></extra>" })));
  const style = getComputedStyle(document.documentElement);
  Plotly.newPlot(timeline, rows, { margin: { l: 10, r: 10, t: 8, b: 34 }, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", font: { color: style.getPropertyValue("--soft").trim() },
    yaxis: { automargin: true }, xaxis: { title: { text: "step" } } }, { displaylogo: false, responsive: true });
}
smoothing.addEventListener("input", redraw);
log.addEventListener("change", redraw);
Charts.themeButton(document.getElementById("theme"), redraw);
redraw();
