// The live page. Everything that comes from a run is set as text, never as HTML.
"use strict";
const $ = id => document.getElementById(id);
const state = { runs: [], shown: [], chosen: [], at: 0, tab: "curves", data: {}, panels: new Map(), colours: new Map(), zoom: {} };

const el = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};
const number = value => typeof value === "number" ? Number(value.toPrecision(5)).toString() : value ?? "–";
const time = seconds => seconds == null ? "–" : `${Math.floor(seconds / 3600) ? Math.floor(seconds / 3600) + ":" : ""}${String(Math.floor(seconds / 60) % 60).padStart(seconds >= 3600 ? 2 : 1, "0")}:${String(Math.floor(seconds) % 60).padStart(2, "0")}`;
const get = async (path, query = []) => {
  const answer = await fetch(path + (query.length ? "?" + new URLSearchParams(query) : ""));
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};

function colourOf(name) {
  if (!state.colours.has(name)) {
    const used = new Set([...state.colours].filter(([run]) => state.chosen.includes(run)).map(([, index]) => index));
    let index = 0;
    while (used.has(index)) index += 1;
    state.colours.set(name, index);
  }
  return Charts.colour(state.colours.get(name));
}

async function loadRuns() {
  const found = await get("/api/runs");
  state.runs = found.runs;
  $("root").textContent = found.root;
  state.chosen = state.chosen.filter(name => state.runs.some(run => run.name === name));
  filter();
}

function filter() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean), wanted = $("state").value;
  const text = run => `${run.name} ${run.state} ${run.dialect} ${Object.entries(run.changed).map(pair => pair.join("=")).join(" ")}`.toLowerCase();
  state.shown = state.runs.filter(run => (!wanted || run.state === wanted) && words.every(word => text(run).includes(word)));
  state.at = Math.min(state.at, Math.max(0, state.shown.length - 1));
  $("count").textContent = state.runs.length ? `${state.shown.length} of ${state.runs.length} runs, ${state.chosen.length} chosen` : "no runs yet: they appear here as they start";
  const list = $("runs"), rows = document.createDocumentFragment();
  state.shown.forEach((run, index) => {
    const chosen = state.chosen.includes(run.name), row = el("li", null, { role: "option", "aria-selected": chosen, id: `run-${index}` });
    row.dataset.name = run.name;
    if (index === state.at) row.classList.add("at");
    const swatch = el("span", null, { class: "swatch" });
    if (chosen) swatch.style.background = colourOf(run.name);
    const changed = Object.entries(run.changed).map(([key, value]) => `${key}=${value}`).join("  ");
    row.append(swatch, el("span", run.name, { class: "name" }), el("span", run.state, { class: `state ${run.state}` }),
      el("span", `step ${run.step}${run.total ? "/" + run.total : ""} · ${time(run.seconds)}${run.metric ? ` · ${run.metric} ${number(run.best)}` : ""}`, { class: "more" }));
    if (changed) row.append(el("span", changed, { class: "more" }));
    rows.append(row);
  });
  list.replaceChildren(rows);
  list.setAttribute("aria-activedescendant", state.shown.length ? `run-${state.at}` : "");
}

function move(step) {
  state.at = Math.max(0, Math.min(state.shown.length - 1, state.at + step));
  for (const row of $("runs").children) row.classList.toggle("at", row.id === `run-${state.at}`);
  $("runs").setAttribute("aria-activedescendant", `run-${state.at}`);
  $("runs").children[state.at]?.scrollIntoView({ block: "nearest" });
}

function toggle(name) {
  state.chosen = state.chosen.includes(name) ? state.chosen.filter(other => other !== name) : [...state.chosen, name];
  history.replaceState(null, "", "#" + new URLSearchParams(state.chosen.map(run => ["run", run])));
  filter();
  show(true);
}

async function show(again) {
  for (const tab of ["curves", "details", "compare"]) $(tab).hidden = tab !== state.tab;
  for (const button of document.querySelectorAll("[role=tab]")) button.setAttribute("aria-selected", button.dataset.tab === state.tab);
  try {
    if (state.tab === "curves") { if (again) await loadCurves(); drawCurves(); }
    else if (state.tab === "details") await drawDetails();
    else await drawCompare();
  } catch (error) { $("live").textContent = String(error.message); }
}

async function loadCurves() {
  state.data = state.chosen.length ? await get("/api/curves", state.chosen.map(name => ["run", name])) : {};
  for (const [metric, [low, high]] of Object.entries(state.zoom)) await loadZoom(metric, low, high);
}

async function loadZoom(metric, low, high) {
  const found = await get("/api/curves", [...state.chosen.map(name => ["run", name]), ["low", low], ["high", high]]);
  for (const [name, run] of Object.entries(found)) if (run.curves[metric] && state.data[name]) state.data[name].curves[metric] = run.curves[metric];
}

function drawCurves() {
  const words = $("metrics").value.toLowerCase(), clock = /^(time|memory|throughput|system)\//;
  const names = [...new Set(Object.values(state.data).flatMap(run => Object.keys(run.curves)))]
    .filter(name => name.toLowerCase().includes(words))
    .sort((a, b) => clock.test(a) - clock.test(b) || b.startsWith("val/") - a.startsWith("val/") || 0);
  $("hint").hidden = state.chosen.length > 0;
  for (const [name, panel] of state.panels) if (!names.includes(name)) { Plotly.purge(panel.plot); panel.box.remove(); state.panels.delete(name); }
  for (const name of names) {
    const fresh = !state.panels.has(name);
    if (fresh) state.panels.set(name, Charts.panel($("charts"), name));
    const panel = state.panels.get(name), curves = [];
    $("charts").append(panel.box);
    let strange = 0, sampled = false;
    for (const run of state.chosen) {
      const curve = state.data[run]?.curves[name];
      if (curve) { curves.push({ name: run, x: curve.x, y: curve.y, colour: colourOf(run) }); strange += curve.strange; sampled ||= state.data[run].sampled; }
    }
    Charts.draw(panel.plot, curves, { log: $("log").checked, smooth: Number($("smooth").value), key: name });
    panel.box.dataset.points = Math.max(0, ...curves.map(curve => curve.x.at(-1) ?? 0));
    panel.note.hidden = !strange && !sampled;
    panel.note.textContent = [strange ? `${strange} values are not finite and leave gaps` : "", sampled ? "a large file: evenly spaced samples" : ""].filter(Boolean).join("; ");
    if (fresh) panel.plot.on("plotly_relayout", change => zoomed(name, change));
  }
}

async function zoomed(metric, change) {
  if ("xaxis.range[0]" in change) {
    state.zoom[metric] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    await loadZoom(metric, ...state.zoom[metric]);
  } else if (change["xaxis.autorange"]) { delete state.zoom[metric]; await loadCurves(); } else return;
  drawCurves();
}

const table = rows => {
  const box = el("div", null, { class: "scroll" }), body = el("table");
  for (const cells of rows) {
    const row = el("tr");
    for (const cell of cells) row.append(cell instanceof Node ? cell : el("td", cell));
    body.append(row);
  }
  box.append(body);
  return box;
};
const part = (title, ...content) => { const box = el("div"); box.append(el("h2", title), ...content); return box; };

async function drawDetails() {
  const name = state.shown[state.at]?.name ?? state.chosen[0], target = $("details");
  if (name === undefined) { target.replaceChildren(el("p", "Choose a run on the left.", { class: "soft" })); return; }
  const run = await get("/api/run", [["run", name]]), log = el("pre", run.log.join("\n") || "no log yet");
  const head = el("h2", run.name), columns = el("div", null, { class: "columns" });
  head.append(" ", el("span", run.state, { class: `state ${run.state}` }));
  const whole = Object.values(run.time).reduce((a, b) => a + b, 0);
  if (run.error) columns.append(part("Error", el("pre", run.error)));
  columns.append(part("Best", table(Object.entries(run.best_values).map(([key, best]) => [key, number(best.value), `step ${best.step}`]))));
  if (whole) columns.append(part("Where the time went", table(Object.entries(run.time).sort((a, b) => b[1] - a[1]).map(([key, spent]) => [key, `${spent.toFixed(1)} s`, `${(100 * spent / whole).toFixed(0)} %`]))));
  columns.append(part("Checkpoints", el("p", run.checkpoints.join(", ") || "none")));
  if (run.warnings.length) columns.append(part("Warnings", ...run.warnings.map(text => el("p", text))));
  const environment = Object.entries(run.environment).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]);
  target.replaceChildren(head, columns, part("Log", log), part("Plan", table(Object.entries(run.plan).map(([key, value]) => [key, value, el("td", run.places[key] ?? "", { class: "soft" })]))), part("Environment", table(environment)));
  log.scrollTop = log.scrollHeight;
}

async function drawCompare() {
  const target = $("compare");
  if (state.chosen.length < 2) { target.replaceChildren(el("p", "Choose two runs on the left to compare them.", { class: "soft" })); return; }
  const [a, b] = state.chosen.slice(-2), found = await get("/api/diff", [["a", a], ["b", b]]);
  const cell = text => { const box = el("td"); box.append(text.includes("\n") ? el("pre", text) : text); return box; };
  const rows = found.map(one => [one.kind, one.key, cell(one.a), cell(one.b)]);
  target.replaceChildren(el("h2", `${a} and ${b}`), rows.length ? table([[el("th", "kind"), el("th", "key"), el("th", a), el("th", b)], ...rows]) : el("p", "No difference."));
}

const press = {
  "/": () => $("search").focus(), j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
  " ": () => state.shown[state.at] && toggle(state.shown[state.at].name), Enter: () => go("details"),
  1: () => go("curves"), 2: () => go("details"), 3: () => go("compare"), t: () => $("theme").click(), "?": () => $("keys").showModal(),
  l: () => { $("log").checked = !$("log").checked; drawCurves(); },
};
const go = tab => { state.tab = tab; show(true); };

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  const typing = event.target.matches("input[type=search], select");
  if (typing && event.key === "Escape") { event.target.value = ""; filter(); drawCurves(); event.target.blur(); return; }
  if (typing && event.target.id === "search" && event.key === "ArrowDown") { $("runs").focus(); event.preventDefault(); return; }
  if (typing || event.target.matches("button") && (event.key === " " || event.key === "Enter") || event.target.type === "range") return;
  if (press[event.key]) { event.preventDefault(); press[event.key](); }
});
$("runs").addEventListener("click", event => {
  const row = event.target.closest("li");
  if (row) { state.at = [...$("runs").children].indexOf(row); toggle(row.dataset.name); }
});
$("search").addEventListener("input", filter);
$("state").addEventListener("change", filter);
$("metrics").addEventListener("input", drawCurves);
$("smooth").addEventListener("input", drawCurves);
$("log").addEventListener("change", drawCurves);
$("help").addEventListener("click", press["?"]);
for (const button of document.querySelectorAll("[role=tab]")) button.addEventListener("click", () => go(button.dataset.tab));
Charts.themeButton($("theme"), () => drawCurves());

(async () => {
  state.chosen = new URLSearchParams(location.hash.slice(1)).getAll("run");
  await loadRuns();
  if (!state.chosen.length && state.runs.length) state.chosen = [state.runs[0].name];
  filter();
  await show(true);
  const stream = new EventSource("/events");
  let version = null, busy = false, again = false;
  const renew = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try { await loadRuns(); await show(true); } catch (error) { $("live").textContent = String(error.message); }
    busy = false;
    if (again) { again = false; renew(); }
  };
  stream.onmessage = event => {
    $("live").textContent = "live";
    if (version !== null && version !== event.data) renew();
    version = event.data;
  };
  stream.onerror = () => { $("live").textContent = "the board does not answer; trying again"; };
})();
