// Curves with plotly: overlay, smoothing, logarithmic scale, light and dark. Shared by the report and the board.
"use strict";
const Charts = (() => {
  const COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f"];
  const colour = index => COLOURS[index % COLOURS.length];

  function smooth(values, weight) {
    let last = null, mass = 0;
    return values.map(value => {
      if (value === null) return null;
      last = (last === null ? 0 : last) * weight + (1 - weight) * value;
      mass = mass * weight + (1 - weight);
      return last / mass;
    });
  }

  function traces(curves, weight) {
    const found = [];
    for (const curve of curves) {
      const few = curve.y.length < 3;
      const line = { x: curve.x, y: curve.y, name: curve.name, type: "scatter", mode: few ? "markers+lines" : "lines",
        line: { color: curve.colour, width: 1.6 }, hovertemplate: "%{y:.5g}<extra>%{fullData.name}</extra>" };
      if (weight > 0) {
        found.push({ ...line, opacity: 0.25, hoverinfo: "skip", hovertemplate: null, showlegend: false });
        line.y = smooth(curve.y, weight);
      }
      found.push(line);
    }
    return found;
  }

  function layout(options) {
    const style = getComputedStyle(document.documentElement), css = name => style.getPropertyValue(name).trim();
    const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), color: css("--soft"), automargin: true };
    return { margin: { l: 48, r: 12, t: 8, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: css("--fg"), size: 11 }, showlegend: false, hovermode: "x unified", uirevision: options.key || "x",
      hoverlabel: { bgcolor: css("--bg"), font: { color: css("--fg") } },
      xaxis: { ...axis, title: { text: "step", standoff: 4 } },
      yaxis: { ...axis, type: options.log ? "log" : "linear", exponentformat: "e" } };
  }

  function draw(target, curves, options = {}) {
    return Plotly.react(target, traces(curves, options.smooth || 0), layout(options),
      { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] });
  }

  function panel(parent, title) {
    const box = document.createElement("section"), head = document.createElement("h3");
    const plot = document.createElement("div"), note = document.createElement("p");
    box.className = "chart"; plot.className = "plot"; note.className = "note"; note.hidden = true;
    head.textContent = title; box.dataset.metric = title;
    box.append(head, plot, note); parent.append(box);
    return { box, plot, note };
  }

  function themeButton(button, redraw) {
    button.addEventListener("click", () => {
      const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
      const now = root.dataset.theme || (dark ? "dark" : "light");
      root.dataset.theme = now === "dark" ? "light" : "dark";
      redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }
  return { colour, draw, panel, themeButton };
})();
