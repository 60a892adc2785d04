// Curves with plotly: overlay, smoothing, logarithmic scale, light and dark. Shared by the report and the board.
"use strict";
const Charts = (() => {
  const COLOURS = ["#4c78e0", "#f0883e", "#2fa36b", "#d9527a", "#9a6fe0", "#1ba7b8", "#c9a01c", "#8d6e5a", "#5f7d95", "#b5489b"];
  const colour = index => COLOURS[index % COLOURS.length];
  const CLOCK = /^(time|memory|throughput|system)\//, RATE = /(^|\/)(lr|base_lr|learning_rate|momentum)(\/|$)/;
  const GROUPS = ["Validation", "Training", "Learning rate and momentum", "Throughput, time and memory"];

  function group(name) {
    if (CLOCK.test(name)) return GROUPS[3];
    if (RATE.test(name)) return GROUPS[2];
    return name.startsWith("train/") ? GROUPS[1] : GROUPS[0];
  }

  function smooth(values, weight) {
    let last = 0, mass = 0;
    return values.map(value => {
      if (value === null) return null;
      last = last * weight + (1 - weight) * value;
      mass = mass * weight + (1 - weight);
      return last / mass;
    });
  }

  // A value between two gaps has no line: it is drawn as a dot.
  const dotted = values => values.map((value, at) => value !== null && (values.length < 3 || (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null));

  function traces(curves, weight) {
    const found = [];
    for (const curve of curves) {
      const dots = dotted(curve.y);
      const line = { x: curve.x, y: curve.y, name: curve.name, type: "scatter", mode: dots.some(Boolean) ? "markers+lines" : "lines",
        line: { color: curve.colour, width: curve.strong ? 3 : 1.7 }, marker: { color: curve.colour, size: dots.map(dot => dot ? 6 : 0), opacity: 1 }, opacity: curve.faint ? 0.25 : 1,
        hovertemplate: "%{y:.5g}<extra>%{fullData.name}</extra>" };
      if (curve.low) {  // the spread of a group
        const edge = { ...line, mode: "lines", line: { width: 0 }, hoverinfo: "skip", hovertemplate: null, showlegend: false };
        found.push({ ...edge, y: weight > 0 ? smooth(curve.low, weight) : curve.low }, { ...edge, y: weight > 0 ? smooth(curve.high, weight) : curve.high, fill: "tonexty", fillcolor: curve.colour + (curve.faint ? "11" : "2b") });
      }
      if (weight > 0 && !curve.low) {
        found.push({ ...line, opacity: 0.22, hoverinfo: "skip", hovertemplate: null, showlegend: false });
      }
      if (weight > 0) line.y = smooth(curve.y, weight);
      found.push(line);
    }
    return found;
  }

  // Around a curve that is constant the library draws from one less to one more, whatever the size of its values.
  function aroundConstant(curves, log) {
    const values = new Set(curves.flatMap(curve => curve.y).filter(value => value !== null)), [only] = values;
    if (values.size !== 1 || !only || log && only < 0) return {};
    const range = [0.9 * only, 1.1 * only].sort((a, b) => a - b);
    return { range: log ? range.map(Math.log10) : range };
  }

  function layout(options, curves) {
    const style = getComputedStyle(document.documentElement), css = name => style.getPropertyValue(name).trim();
    const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), color: css("--soft"), automargin: true, nticks: 6, fixedrange: false };
    return { margin: { l: 46, r: 14, t: 6, b: 36 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: css("--fg"), size: 11, family: getComputedStyle(document.body).fontFamily }, showlegend: false, hovermode: "x unified", uirevision: options.key || "x",
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",  // a finger scrolls the page
      hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--line"), font: { color: css("--fg"), size: 11 }, namelength: 32 },
      xaxis: { ...axis, showgrid: false, ...(["step", "samples", undefined].includes(options.x) ? { tickformat: "~s", hoverformat: ",d" } : { hoverformat: ".4~g" }), title: { text: options.x || "step", standoff: 4 },
        ...(options.zoom ? { range: options.zoom } : {}) },
      yaxis: { ...axis, ...aroundConstant(curves, options.log), type: options.log ? "log" : "linear", exponentformat: "e", ...(options.log ? { dtick: null } : {}) } };
  }

  // The library is large: it is run when the rest of the page is there. Call this when it is needed.
  let loading = null;
  const ready = () => loading ??= window.Plotly ? Promise.resolve() : new Promise((done, failed) => {
    const script = document.createElement("script");
    script.addEventListener("load", done);
    script.addEventListener("error", () => failed(new Error("plotly.min.js does not load")));
    script.src = document.getElementById("plotly").href;
    document.head.append(script);
  });

  // Plain lines and the ends of both axes, until the library is there.
  function sketch(target, curves) {
    const make = (tag, attributes) => { const node = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value); return node; };
    const xs = curves.flatMap(curve => curve.x), ys = curves.flatMap(curve => curve.y).filter(value => value !== null);
    const range = values => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    const [left, right] = range(xs), [low, high] = range(ys), picture = make("svg", { class: "sketch", viewBox: "0 0 100 100", preserveAspectRatio: "none" });
    for (const curve of curves) {
      let path = "", open = false;  // a value that is not finite is null and leaves a gap
      curve.x.forEach((x, at) => {
        const y = curve.y[at];
        if (y !== null) path += `${open ? "L" : "M"}${100 * (x - left) / (right - left || 1)},${100 - 100 * (y - low) / (high - low || 1)}${open ? "" : "h0"}`;
        open = y !== null;
      });
      picture.append(make("path", { d: path, fill: "none", stroke: curve.colour, "stroke-width": 1.7, "stroke-linecap": "round", "vector-effect": "non-scaling-stroke" }));
    }
    const label = (place, value) => { const node = document.createElement("span"); node.className = `end ${place}`; node.textContent = Number.isFinite(value) ? Number(value.toPrecision(3)) : ""; return node; };
    target.replaceChildren(picture, label("top", high), label("bottom", low), label("left", left), label("right", right));
  }

  function draw(target, curves, options = {}) {
    if (target.querySelector(".sketch")) target.replaceChildren();
    return Plotly.react(target, traces(curves, options.smooth || 0), layout(options, curves),
      { displayModeBar: false, responsive: true, doubleClick: "reset+autosize" });
  }

  // Points of runs; those with a colour are chosen. ``pick`` gets the name of a point that is clicked.
  function scatter(target, points, options, pick) {
    const base = layout({ key: options.key }, [{ y: points.map(point => point.y) }]);
    base.hovermode = "closest";
    base.xaxis = { ...base.xaxis, type: options.xlog ? "log" : points.some(point => typeof point.x === "string") ? "category" : "linear", title: { text: options.x, standoff: 4 }, tickformat: "", hoverformat: "", exponentformat: "e", showgrid: true };
    base.yaxis = { ...base.yaxis, type: options.ylog ? "log" : "linear", title: { text: options.y } };
    const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
    const trace = { x: points.map(point => point.x), y: points.map(point => point.y), text: points.map(point => point.name), mode: "markers", type: "scatter",
      marker: { size: points.map(point => point.colour ? 12 : 9), color: points.map(point => point.colour || accent), opacity: points.map(point => point.colour ? 1 : 0.6) },
      hovertemplate: "%{text}<br>%{x} → %{y:.5g}<extra></extra>" };
    Plotly.react(target, [trace], base, { displayModeBar: false, responsive: true });
    target.removeAllListeners?.("plotly_click");
    target.on("plotly_click", event => pick(event.points[0].text));
  }

  const resize = plot => { if (plot.layout) Plotly.Plots.resize(plot); };  // a sketch fits by itself

  // A box with a title, a plot of a fixed height, and a button that makes it large.
  function panel(parent, title) {
    const make = (tag, name, text) => { const node = document.createElement(tag); node.className = name; if (text) node.textContent = text; return node; };
    const box = make("section", "chart"), head = make("div", "head"), name = make("h3", "", title), note = make("p", "note"), plot = make("div", "plot");
    const large = make("button", "icon", "⤢");
    name.title = title; note.hidden = true; box.dataset.metric = title;
    large.type = "button"; large.title = "larger or smaller"; large.setAttribute("aria-label", `larger: ${title}`);
    large.addEventListener("click", () => { box.classList.toggle("wide"); resize(plot); });
    head.append(name, note, large); box.append(head, plot); parent.append(box);
    return { box, plot, note };
  }

  function say(panel, strange, sampled, more = "") {
    const text = [strange ? `${strange} not finite` : "", sampled ? "sampled" : "", more].filter(Boolean).join(" · ");
    panel.note.hidden = !text;
    panel.note.textContent = text;
    panel.note.title = [strange ? `${strange} values are not finite and leave gaps` : "", sampled ? "the file is large: evenly spaced samples are drawn; zoom in for more" : ""].filter(Boolean).join("; ");
  }

  // The choice of light or dark is remembered where the browser lets a page do so.
  function themeButton(button, redraw) {
    const root = document.documentElement;
    try { const kept = localStorage.getItem("etude-theme"); if (kept) root.dataset.theme = kept; } catch { /* a file may have no storage */ }
    button.addEventListener("click", () => {
      const dark = matchMedia("(prefers-color-scheme: dark)").matches, now = root.dataset.theme || (dark ? "dark" : "light");
      root.dataset.theme = now === "dark" ? "light" : "dark";
      try { localStorage.setItem("etude-theme", root.dataset.theme); } catch { /* as above */ }
      redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }
  return { GROUPS, colour, group, ready, sketch, draw, scatter, panel, resize, say, themeButton };
})();
