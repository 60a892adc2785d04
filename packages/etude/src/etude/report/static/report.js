"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const panels = [];

function redraw() {
  $("weight").textContent = Number($("smooth").value).toFixed(2);
  for (const panel of panels) {
    const curves = [];
    let strange = 0;
    data.runs.forEach((run, index) => {
      const curve = run.curves[panel.name];
      if (curve) { curves.push({ name: run.name, x: curve.x, y: curve.y, colour: Charts.colour(index) }); strange += curve.strange; }
    });
    Charts.draw(panel.plot, curves, { log: $("log").checked, smooth: Number($("smooth").value), key: panel.name });
    Charts.say(panel, strange, data.runs.some(run => run.sampled));
  }
  drawTimeline();
}

// A row per hook and run, a mark per step at which the hook acted.
function drawTimeline() {
  const target = $("timeline");
  if (!target) return;
  const style = getComputedStyle(document.documentElement), css = name => style.getPropertyValue(name).trim();
  const rows = data.runs.flatMap((run, index) => Object.entries(run.timeline).map(([what, steps]) => ({
    x: steps, y: steps.map(() => `${what}${data.runs.length > 1 ? " · " + run.name : ""}  `), type: "scatter", mode: "markers",
    marker: { color: Charts.colour(index), symbol: "line-ns", size: 9, line: { width: 1.4, color: Charts.colour(index) } },
    hovertemplate: "step %{x}<extra></extra>" })));
  target.style.height = `${70 + 22 * rows.length}px`;
  Plotly.react(target, rows, { margin: { l: 10, r: 14, t: 8, b: 40 }, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: css("--soft"), size: 11, family: getComputedStyle(document.body).fontFamily }, uirevision: "x",
    yaxis: { automargin: true, autorange: "reversed", gridcolor: css("--line") }, xaxis: { gridcolor: css("--line"), zeroline: false, tickformat: "~s", title: { text: "step", standoff: 4 } } },
    { displayModeBar: false, responsive: true });
}

for (const grid of document.querySelectorAll("[data-curves]")) {
  for (const name of JSON.parse(grid.dataset.curves)) panels.push({ ...Charts.panel(grid, name), name });
}
$("smooth").addEventListener("input", redraw);
$("log").addEventListener("change", redraw);
$("differences")?.addEventListener("change", event => document.body.classList.toggle("only-differences", event.target.checked));
Charts.themeButton($("theme"), redraw);
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
  if (event.key === "l") $("log").click();
  if (event.key === "t") $("theme").click();
});
redraw();
