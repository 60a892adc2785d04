// The tab of curves: one chart for each metric, over steps, epochs, time or samples; runs one by one or in groups.
import { $, colourOf, el, get, groups, labels, state } from "./state.js";

const panels = new Map(), sections = new Map();
let undrawn = [];

export async function loadCurves() {
  const asked = state.chosen.join("\n");
  const found = state.chosen.length ? await get("/api/curves", state.chosen.map(name => ["run", name])) : {};
  if (asked !== state.chosen.join("\n")) return;  // another choice was made meanwhile
  state.data = found;
  for (const [metric, [low, high]] of Object.entries(state.zoom)) await loadZoom(metric, low, high);
}

// -- the x axis ------------------------------------------------------------------------------------------------------

// The value of y at x along the points of an axis; beyond its ends along its last piece.
export function along(xs, ys, x) {
  if (xs.length === 1) return ys[0];
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  const width = xs[high] - xs[low];
  return width ? ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / width : ys[low];
}
const axisOf = run => state.x === "step" ? null : state.data[run]?.axes?.[state.x];
const place = (run, steps) => { const axis = axisOf(run); return axis ? steps.map(step => along(axis.x, axis.y, step)) : state.x === "step" ? steps : null; };
const stepAt = (run, x) => { const axis = axisOf(run); return axis ? along(axis.y, axis.x, x) : x; };

function unitOf(curves) {
  if (state.x !== "time") return [1, state.x];
  const most = Math.max(0, ...curves.map(curve => curve.x.at(-1) ?? 0));
  return most > 10800 ? [3600, "hours"] : most > 300 ? [60, "minutes"] : [1, "seconds"];
}

async function loadZoom(metric, low, high) {
  const steps = [low, high].map((x, end) => Math[end ? "max" : "min"](...state.chosen.map(run => stepAt(run, x))));
  if (!steps.every(Number.isFinite)) return;
  const found = await get("/api/curves", [...state.chosen.map(name => ["run", name]), ["low", steps[0]], ["high", steps[1]]]);
  for (const [name, run] of Object.entries(found)) if (run.curves[metric] && state.data[name]) state.data[name].curves[metric] = { ...run.curves[metric], sampled: run.sampled };
}

// -- drawing ---------------------------------------------------------------------------------------------------------

export function drawCurves() {
  const words = $("metrics").value.toLowerCase();
  const names = [...new Set(Object.values(state.data).flatMap(run => Object.keys(run.curves)))].filter(name => name.toLowerCase().includes(words));
  drawHint(names);
  drawLegend();
  $("weight").textContent = Number($("smooth").value).toFixed(2);
  for (const [name, panel] of panels) if (!names.includes(name)) { if (panel.live) Plotly.purge(panel.plot); panel.box.remove(); panels.delete(name); }
  const drawn = !window.Plotly || [...panels.values()].some(panel => panel.live);
  undrawn = [];
  for (const title of Charts.GROUPS) {
    const here = names.filter(name => Charts.group(name) === title), grid = sectionOf(title);
    grid.parentElement.hidden = !here.length;
    undrawn.push(...here.map(name => [name, grid]));
  }
  if (drawn) while (undrawn.length) drawPanel(...undrawn.shift()); else drawNext();
}

// Draw one chart after the other and let the browser show each: the first is there before the last is drawn.
function drawNext() {
  if (!undrawn.length) return;
  drawPanel(...undrawn.shift());
  setTimeout(drawNext);
}

function sectionOf(title) {
  if (!sections.has(title)) {
    const box = el("section", null, { class: "group" }), head = el("h2"), button = el("button", title, { type: "button", "aria-expanded": "true" }), grid = el("div", null, { class: "grid" });
    button.addEventListener("click", () => { button.setAttribute("aria-expanded", !box.classList.toggle("closed")); for (const plot of grid.querySelectorAll(".plot")) Charts.resize(plot); });
    head.append(button); box.append(head, grid); $("charts").append(box);
    sections.set(title, grid);
  }
  return sections.get(title);
}

function drawPanel(name, grid) {
  if (!panels.has(name)) panels.set(name, Charts.panel(grid, name));
  const panel = panels.get(name);
  const found = collect(name);
  const [size, title] = unitOf(found.curves);
  for (const curve of found.curves) if (size !== 1) curve.x = curve.x.map(x => x / size);
  Charts.say(panel, found.strange, found.sampled, found.without ? `${found.without} without ${state.x}` : "");
  if (!window.Plotly) { Charts.sketch(panel.plot, found.curves); return; }
  const zoom = state.zoom[name]?.map(x => x / size);
  Charts.draw(panel.plot, found.curves, { log: $("log").checked, smooth: Number($("smooth").value), key: `${name} ${state.x}`, x: title, zoom });
  panel.unit = size;
  if (panel.live) return;
  panel.live = true;
  panel.plot.on("plotly_relayout", change => zoomed(name, change, panel));
}

// The lines of one chart: a run each, or the mean of a group with its spread.
function collect(metric) {
  const text = labels(state.chosen), single = new Map();
  let strange = 0, sampled = false, without = 0;
  for (const run of state.chosen) {
    const curve = state.data[run]?.curves[metric];
    if (!curve) continue;
    const x = place(run, curve.x);
    if (x === null) { without += 1; continue; }
    single.set(run, { name: text.get(run), x, y: curve.y, colour: colourOf(run), strong: run === state.strong, faint: state.strong && run !== state.strong });
    strange += curve.strange;
    sampled ||= curve.sampled ?? state.data[run].sampled;
  }
  const grouped = groups([...single.keys()]);
  const curves = grouped ? [...grouped].map(([label, runs]) => mean(label, runs.map(run => single.get(run)))) : [...single.values()];
  return { curves, strange, sampled, without };
}

// The mean of curves, and one standard deviation on either side, where at least one of them has a value.
export function mean(label, curves) {
  const [first] = curves, whole = { ...first, name: `${label} (${curves.length})` };
  if (curves.length === 1) return whole;
  const xs = [...new Set(curves.flatMap(curve => curve.x))].sort((a, b) => a - b), found = { x: [], y: [], low: [], high: [] };
  for (const x of xs) {
    const values = curves.map(curve => valueAt(curve, x)).filter(value => value !== null);
    if (!values.length) continue;
    const middle = values.reduce((a, b) => a + b, 0) / values.length;
    const spread = values.length > 1 ? Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1)) : 0;
    found.x.push(x); found.y.push(middle); found.low.push(middle - spread); found.high.push(middle + spread);
  }
  return { ...whole, ...found };
}

function valueAt({ x: xs, y: ys }, x) {
  if (!xs.length || x < xs[0] || x > xs.at(-1)) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  if (xs[low] === x) return ys[low];
  if (xs[high] === x) return ys[high];
  return ys[low] === null || ys[high] === null ? null : along([xs[low], xs[high]], [ys[low], ys[high]], x);
}

// A sentence where a picture would be: no runs, none chosen, nothing recorded, nothing that matches.
export function drawHint(names = [...panels.keys()]) {
  const box = $("hint"), say = (title, ...text) => { box.hidden = false; box.replaceChildren(el("b", title), ...text); };
  box.hidden = true;
  if (!state.all.size) say("No runs yet", "Start one with ", el("code", "etude train CONFIG"), ". It appears here by itself.");
  else if (!state.chosen.length) say("Choose runs to see their curves", "Click one in the list, or move with ", el("kbd", "j"), " ", el("kbd", "k"), " and choose with ", el("kbd", "space"), ".");
  else if (!names.length && $("metrics").value) say("No curve matches", "Clear the filter to see all of them.");
  else if (!names.length) say("Nothing is recorded yet", state.chosen.map(name => state.all.get(name)).some(run => run?.state === "failed") ? "A chosen run failed before its first record: see the tab Run." : "The curves appear with the first record.");
}

function drawLegend() {
  const text = labels(state.chosen), grouped = groups(state.chosen);
  const entries = grouped ? [...grouped].map(([label, runs]) => [`${label} (${runs.length})`, runs]) : state.chosen.map(name => [text.get(name), [name]]);
  $("legend").replaceChildren(...entries.map(([label, runs]) => {
    const button = el("button", null, { type: "button", title: `drop ${runs.join(", ")}` }), swatch = el("span", null, { class: "swatch" });
    swatch.style.background = colourOf(runs[0]);
    button.append(swatch, el("span", label));
    button.addEventListener("click", () => { state.strong = ""; $("runs").dispatchEvent(new CustomEvent("choose", { detail: state.chosen.filter(name => !runs.includes(name)) })); });
    button.addEventListener("mouseenter", () => emphasise(runs[0]));
    button.addEventListener("mouseleave", () => emphasise(""));
    return button;
  }));
}

function emphasise(name) {
  if (state.strong === name || state.chosen.length < 2 && name) return;
  state.strong = name;
  for (const [metric, panel] of panels) drawPanel(metric, panel.box.parentElement);
}

async function zoomed(metric, change, panel) {
  if ("xaxis.range[0]" in change) {
    state.zoom[metric] = [change["xaxis.range[0]"] * panel.unit, change["xaxis.range[1]"] * panel.unit];
    await loadZoom(metric, ...state.zoom[metric]);
  } else if (change["xaxis.autorange"]) { delete state.zoom[metric]; await loadCurves(); } else return;
  $("runs").dispatchEvent(new CustomEvent("zoomed"));
  drawCurves();
}
