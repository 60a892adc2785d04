// The live page. Everything that comes from a run is set as text, never as HTML.
"use strict";
const $ = id => document.getElementById(id);
const STATES = ["running", "finished", "failed", "interrupted", "resumable", "unknown"];
const TABS = ["curves", "table", "details", "compare"];
const state = { board: "", version: 0, all: new Map(), shown: [], chosen: [], at: "", tab: "curves", wanted: "", data: {},
  panels: new Map(), undrawn: [], groups: new Map(), colours: new Map(), zoom: {}, strong: "", sort: { key: "began", up: false } };

const el = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};
const number = value => typeof value === "number" ? Number(value.toPrecision(4)).toString() : value ?? "–";
const two = value => String(Math.floor(value)).padStart(2, "0");
const time = seconds => seconds == null ? "–" : seconds >= 3600 ? `${Math.floor(seconds / 3600)}:${two(seconds / 60 % 60)}:${two(seconds % 60)}` : `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
const ago = began => {
  const passed = Date.now() / 1000 - began;
  return passed < 90 ? "now" : passed < 5400 ? `${Math.round(passed / 60)}m ago` : passed < 129600 ? `${Math.round(passed / 3600)}h ago` : `${Math.round(passed / 86400)}d ago`;
};
const get = async (path, query = []) => {
  const answer = await fetch(path + (query.length ? "?" + new URLSearchParams(query) : ""));
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};
const best = run => run.metric ? run.best[run.metric] : undefined;
const lowerIsBetter = name => /loss|error|err$|perplexity|ppl|mae|mse|rmse/i.test(name);

function colourOf(name) {
  if (!state.colours.has(name)) {
    const used = new Set([...state.colours].filter(([run]) => state.chosen.includes(run)).map(([, index]) => index));
    let index = 0;
    while (used.has(index)) index += 1;
    state.colours.set(name, index);
  }
  return Charts.colour(state.colours.get(name));
}

// Ask for what changed since the last answer; return the names of the runs that did.
async function loadRuns(then = () => {}) {
  const found = await get("/api/runs", [["board", state.board], ["since", state.version]]);
  if (found.board !== state.board) state.all.clear();
  for (const name of found.gone) state.all.delete(name);
  for (const run of found.runs) {
    run.text = `${run.name} ${run.state} ${run.dialect} ${Object.entries(run.changed).map(pair => pair.join("=")).join(" ")}`.toLowerCase();
    state.all.set(run.name, run);
  }
  state.board = found.board;
  state.version = found.version;
  $("root").textContent = found.root;
  state.chosen = state.chosen.filter(name => state.all.has(name));
  then();
  filter();
  return found.runs.map(run => run.name);
}

// The newest run that has something to show.
function firstRun() {
  const newest = [...state.all.values()].sort(ORDERS.began);
  return newest.find(run => run.metric) ?? newest[0];
}

const ORDERS = {
  began: (a, b) => (b.began ?? 0) - (a.began ?? 0),
  name: (a, b) => a.name.localeCompare(b.name),
  best: (a, b) => {
    const [x, y] = [best(a), best(b)];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return a.metric === b.metric ? (lowerIsBetter(a.metric) ? x - y : y - x) : a.metric.localeCompare(b.metric);
  },
};

function filter() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean), all = [...state.all.values()];
  const found = all.filter(run => words.every(word => run.text.includes(word)));
  const counts = Object.fromEntries(STATES.map(name => [name, found.filter(run => run.state === name).length]));
  state.shown = found.filter(run => !state.wanted || run.state === state.wanted).sort(ORDERS[$("sort").value]);
  $("states").replaceChildren(...STATES.filter(name => counts[name] || name === state.wanted).map(name => {
    const button = el("button", null, { type: "button", "aria-pressed": name === state.wanted, "data-state": name });
    button.append(el("span", name, { class: `state ${name}` }), " ", el("b", counts[name]));
    return button;
  }));
  $("count").textContent = all.length ? `${state.shown.length} of ${all.length} runs, ${state.chosen.length} chosen` : "no runs yet";
  if (!state.shown.some(run => run.name === state.at)) state.at = state.shown[0]?.name ?? "";
  drawList();
  if (state.tab === "table") drawTable();
}

function drawList() {
  const rows = state.shown.map((run, index) => {
    const chosen = state.chosen.includes(run.name), row = el("li", null, { role: "option", "aria-selected": chosen, id: `run-${index}` });
    row.dataset.name = run.name;
    row.title = run.name;
    if (run.name === state.at) row.classList.add("at");
    const swatch = el("span", null, { class: "swatch" });
    if (chosen) swatch.style.background = swatch.style.borderColor = colourOf(run.name);
    const cut = run.name.lastIndexOf("/") + 1, name = el("span", run.name.slice(0, cut), { class: "name" });
    if (cut) name.append(el("small", run.name.slice(cut))); else name.textContent = run.name;
    const more = el("span", null, { class: "more" });
    const steps = run.total && run.step !== run.total ? `${run.step}/${run.total}` : run.step;
    more.append(el("span", run.state, { class: `state ${run.state}` }), ` · ${steps} · ${time(run.seconds)}`);
    if (run.began) more.append(` · ${ago(run.began)}`);
    const line = (...cells) => { const box = el("div"); box.append(...cells); return box; };
    row.append(swatch, line(name, el("span", run.metric ? number(best(run)) : "", { class: "best" })), line(more),
      line(el("span", run.unusual.map(key => `${key}=${run.changed[key]}`).join("  "), { class: "keys" }), el("span", run.metric.replace(/^(val|test)\//, ""), { class: "metric" })));
    return row;
  });
  const list = $("runs"), top = list.scrollTop;
  list.replaceChildren(...rows);
  list.scrollTop = top;
  list.setAttribute("aria-activedescendant", rows.length ? `run-${state.shown.findIndex(run => run.name === state.at)}` : "");
}

function move(step) {
  const index = state.shown.findIndex(run => run.name === state.at);
  const next = Math.max(0, Math.min(state.shown.length - 1, index + step));
  state.at = state.shown[next]?.name ?? "";
  for (const row of $("runs").children) row.classList.toggle("at", row.dataset.name === state.at);
  $("runs").setAttribute("aria-activedescendant", `run-${next}`);
  $("runs").children[next]?.scrollIntoView({ block: "nearest" });
  if (state.tab === "details") show();
}

function choose(names) {
  state.chosen = names;
  history.replaceState(null, "", "#" + new URLSearchParams(state.chosen.map(run => ["run", run])));
  filter();
  show(true);
}
const toggle = name => choose(state.chosen.includes(name) ? state.chosen.filter(other => other !== name) : [...state.chosen, name]);

async function show(again) {
  for (const tab of TABS) $(tab).hidden = tab !== state.tab;
  $("drawing").hidden = state.tab !== "curves";
  for (const button of document.querySelectorAll("[role=tab]")) button.setAttribute("aria-selected", button.dataset.tab === state.tab);
  try {
    if (state.tab === "curves") { if (again) { await loadCurves(); if (!window.Plotly) { drawCurves(); await Charts.ready(); } } drawCurves(); }
    else if (state.tab === "table") drawTable();
    else if (state.tab === "details") await drawDetails();
    else await drawCompare();
  } catch (error) { alive(false, String(error.message)); }
}
const go = tab => { state.tab = tab; show(true); };

async function loadCurves() {
  const asked = state.chosen.join("\n");
  const found = state.chosen.length ? await get("/api/curves", state.chosen.map(name => ["run", name])) : {};
  if (asked !== state.chosen.join("\n")) return;  // another choice was made meanwhile
  state.data = found;
  for (const [metric, [low, high]] of Object.entries(state.zoom)) await loadZoom(metric, low, high);
}

async function loadZoom(metric, low, high) {
  const found = await get("/api/curves", [...state.chosen.map(name => ["run", name]), ["low", low], ["high", high]]);
  for (const [name, run] of Object.entries(found)) if (run.curves[metric] && state.data[name]) state.data[name].curves[metric] = { ...run.curves[metric], sampled: run.sampled };
}

function drawCurves() {
  const words = $("metrics").value.toLowerCase();
  const names = [...new Set(Object.values(state.data).flatMap(run => Object.keys(run.curves)))].filter(name => name.toLowerCase().includes(words));
  drawHint(names);
  drawLegend();
  $("weight").textContent = Number($("smooth").value).toFixed(2);
  for (const [name, panel] of state.panels) if (!names.includes(name)) { if (panel.live) Plotly.purge(panel.plot); panel.box.remove(); state.panels.delete(name); }
  const drawn = !window.Plotly || [...state.panels.values()].some(panel => panel.live);
  state.undrawn = [];
  for (const title of Charts.GROUPS) {
    const here = names.filter(name => Charts.group(name) === title), grid = groupOf(title);
    grid.parentElement.hidden = !here.length;
    state.undrawn.push(...here.map(name => [name, grid]));
  }
  if (drawn) while (state.undrawn.length) drawPanel(...state.undrawn.shift()); else drawNext();
}

// Draw one chart after the other and let the browser show each: the first is there before the last is drawn.
function drawNext() {
  if (!state.undrawn.length) return;
  drawPanel(...state.undrawn.shift());
  setTimeout(drawNext);
}

function groupOf(title) {
  if (!state.groups.has(title)) {
    const box = el("section", null, { class: "group" }), head = el("h2"), button = el("button", title, { type: "button" }), grid = el("div", null, { class: "grid" });
    button.addEventListener("click", () => { box.classList.toggle("closed"); for (const plot of grid.querySelectorAll(".plot")) Charts.resize(plot); });
    head.append(button); box.append(head, grid); $("charts").append(box);
    state.groups.set(title, grid);
  }
  return state.groups.get(title);
}

function drawPanel(name, grid) {
  if (!state.panels.has(name)) state.panels.set(name, Charts.panel(grid, name));
  const panel = state.panels.get(name), curves = [];
  let strange = 0, sampled = false;
  for (const run of state.chosen) {
    const curve = state.data[run]?.curves[name];
    if (!curve) continue;
    curves.push({ name: run, x: curve.x, y: curve.y, colour: colourOf(run), strong: run === state.strong, faint: state.strong && run !== state.strong });
    strange += curve.strange;
    sampled ||= curve.sampled ?? state.data[run].sampled;
  }
  Charts.say(panel, strange, sampled);
  if (!window.Plotly) { Charts.sketch(panel.plot, curves); return; }
  Charts.draw(panel.plot, curves, { log: $("log").checked, smooth: Number($("smooth").value), key: name });
  if (panel.live) return;
  panel.live = true;
  panel.plot.on("plotly_relayout", change => zoomed(name, change));
}

// A sentence where a picture would be: no runs, none chosen, nothing recorded, nothing that matches.
function drawHint(names) {
  const box = $("hint"), say = (title, ...text) => { box.hidden = false; box.replaceChildren(el("b", title), ...text); };
  box.hidden = true;
  if (!state.all.size) say("No runs yet", "Start one with ", el("code", "etude train CONFIG"), ". It appears here by itself.");
  else if (!state.chosen.length) say("Choose runs to see their curves", "Click one in the list, or move with ", el("kbd", "j"), " ", el("kbd", "k"), " and choose with ", el("kbd", "space"), ".");
  else if (!names.length && $("metrics").value) say("No curve matches", "Clear the filter to see all of them.");
  else if (!names.length) say("Nothing is recorded yet", state.chosen.map(name => state.all.get(name)).some(run => run?.state === "failed") ? "A chosen run failed before its first record: see the tab Run." : "The curves appear with the first record.");
}

function drawLegend() {
  $("legend").replaceChildren(...state.chosen.map(name => {
    const button = el("button", null, { type: "button", title: `drop ${name}` }), swatch = el("span", null, { class: "swatch" });
    swatch.style.background = colourOf(name);
    button.append(swatch, el("span", name));
    button.addEventListener("click", () => { state.strong = ""; toggle(name); });
    button.addEventListener("mouseenter", () => emphasise(name));
    button.addEventListener("mouseleave", () => emphasise(""));
    return button;
  }));
}

function emphasise(name) {
  if (state.strong === name || state.chosen.length < 2 && name) return;
  state.strong = name;
  for (const [metric, panel] of state.panels) drawPanel(metric, panel.box.parentElement);
}

async function zoomed(metric, change) {
  if ("xaxis.range[0]" in change) {
    state.zoom[metric] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    await loadZoom(metric, ...state.zoom[metric]);
  } else if (change["xaxis.autorange"]) { delete state.zoom[metric]; await loadCurves(); } else return;
  drawCurves();
}

const table = (head, rows) => {
  const box = el("div", null, { class: "scroll" }), whole = el("table"), body = el("tbody");
  if (head.length) { const top = el("thead"), row = el("tr"); row.append(...head); top.append(row); whole.append(top); }
  for (const cells of rows) {
    const row = el("tr");
    for (const cell of cells) row.append(cell instanceof Node ? cell : el("td", cell));
    body.append(row);
  }
  whole.append(body);
  box.append(whole);
  return box;
};
const share = part => { const cell = el("td", null, { class: "share" }), bar = el("i"); bar.style.width = `${(100 * part).toFixed(1)}%`; cell.append(bar); return cell; };
const right = text => el("td", text, { class: "number" });
const part = (title, ...content) => { const box = el("div"); box.append(el("h2", title), ...content); return box; };

// All listed runs with their best values and changed keys; a click on a head sorts.
function drawTable() {
  const runs = state.shown, often = pick => {
    const counts = new Map();
    for (const run of runs) for (const name of pick(run)) counts.set(name, (counts.get(name) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  };
  const metrics = often(run => Object.keys(run.best)).sort((a, b) => a.startsWith("train/") - b.startsWith("train/")).slice(0, 6), keys = often(run => run.unusual).slice(0, 10);
  const columns = [["run", run => run.name], ["state", run => run.state], ...metrics.map(name => [name, run => run.best[name]]), ["step", run => run.step],
    ["time", run => run.seconds, time], ["began", run => run.began, began => began ? new Date(began * 1000).toLocaleString() : "–"], ...keys.map(key => [key, run => run.changed[key]])];
  const column = columns.find(([name]) => name === state.sort.key) ?? columns.find(([name]) => name === "began"), sign = state.sort.up ? 1 : -1;
  const compare = (a, b) => {
    const [x, y] = [column[1](a), column[1](b)];
    if (x == null || y == null) return (x == null) - (y == null);
    const both = [Number(x), Number(y)];
    return sign * (both.every(Number.isFinite) ? both[0] - both[1] : String(x).localeCompare(String(y)));
  };
  const isNumber = pick => runs.some(run => typeof pick(run) === "number");
  const head = columns.map(([name, pick]) => {
    const cell = el("th", name, { scope: "col", class: isNumber(pick) ? "number" : "" });
    if (name === column[0]) cell.setAttribute("aria-sort", state.sort.up ? "ascending" : "descending");
    cell.addEventListener("click", () => { state.sort = { key: name, up: state.sort.key === name && !state.sort.up }; drawTable(); });
    return cell;
  });
  const listed = [...runs].sort(compare), box = table(head, listed.map(run => columns.map(([name, pick, form]) => {
    const value = pick(run), text = form ? form(value) : typeof value === "number" ? number(value) : value ?? "–";
    const cell = el("td", name === "state" ? null : text, { class: isNumber(pick) ? "number" : "" });
    if (name === "state") cell.append(el("span", value, { class: `state ${value}` }));
    if (name === "run" && state.chosen.includes(value)) { const swatch = el("span", null, { class: "swatch" }); swatch.style.background = colourOf(value); cell.prepend(swatch); }
    return cell;
  })));
  [...box.querySelectorAll("tbody tr")].forEach((row, index) => {
    const name = listed[index].name;
    row.classList.toggle("chosen", state.chosen.includes(name));
    row.addEventListener("click", () => toggle(name));
  });
  const old = $("table").querySelector(".scroll"), place = old ? [old.scrollLeft, old.scrollTop] : [0, 0];
  $("table").replaceChildren(runs.length ? box : el("div", "No run matches.", { class: "empty" }));
  [box.scrollLeft, box.scrollTop] = place;
}

async function drawDetails() {
  const name = state.at || state.chosen[0], target = $("details");
  if (!name) { target.replaceChildren(el("div", "Choose a run in the list.", { class: "empty" })); return; }
  const run = await get("/api/run", [["run", name]]), log = el("pre", run.log.join("\n") || "no log yet", { id: "log-tail" });
  const old = $("log-tail"), below = !old || old.scrollTop + old.clientHeight > old.scrollHeight - 30, top = old?.scrollTop ?? 0;
  const head = el("h2", run.name), facts = el("div", null, { class: "facts" }), columns = el("div", null, { class: "columns" });
  const fact = (label, value) => { const box = el("div"); box.append(el("span", label), value instanceof Node ? value : el("b", value)); facts.append(box); };
  const whole = Object.values(run.time).reduce((a, b) => a + b, 0);
  fact("state", el("b", run.state, { class: `state ${run.state}` }));
  fact("step", `${run.step}${run.total ? " / " + run.total : ""}`);
  fact("time", time(run.seconds));
  if (run.metric) fact(`best ${run.metric}`, number(best(run)));
  fact("checkpoints", run.checkpoints.length);
  const notices = [...(run.error ? [["bad", run.error]] : []), ...run.warnings.map(text => ["", text])].map(([kind, text]) => el("div", text, { class: `notice ${kind}` }));
  const left = part("Best values", table([], Object.entries(run.best).map(([key, value]) => [key, right(number(value)), right(`step ${run.best_steps[key]}`)])));
  columns.append(left);
  if (whole) columns.append(part("Where the time went", table([], Object.entries(run.time).sort((a, b) => b[1] - a[1]).map(([key, spent]) => [key, share(spent / whole), right(`${spent.toFixed(1)} s`), right(`${(100 * spent / whole).toFixed(0)} %`)]))));
  if (run.checkpoints.length) left.append(el("h2", "Checkpoints"), savedTable(run));
  const environment = Object.entries(run.environment).map(([key, value]) => [el("td", key, { class: "key" }), value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value)]);
  target.replaceChildren(head, facts, ...notices, part("Log", log), columns, part("Plan", table([], Object.entries(run.plan).map(([key, value]) => [el("td", key, { class: "key" }), value, el("td", run.places[key] ?? "", { class: "soft key" })]))), part("Environment", table([], environment)));
  log.scrollTop = below ? log.scrollHeight : top;
}

// The newest checkpoints and the best one, which is marked; the others are counted.
function savedTable({ checkpoints, best_checkpoint: [chosen, why] }) {
  const shown = checkpoints.filter((name, index) => index >= checkpoints.length - 8 || name === chosen), rows = shown.reverse().map(name => {
    const cell = el("td", name);
    if (name === chosen) cell.append(el("span", why, { class: "chip good" }));
    return [cell];
  });
  if (shown.length < checkpoints.length) rows.push([el("td", `and ${checkpoints.length - shown.length} older`, { class: "soft" })]);
  return table([], rows);
}

async function drawCompare() {
  const target = $("compare");
  if (state.chosen.length < 2) { target.replaceChildren(el("div", "Choose two runs to compare them.", { class: "empty" })); return; }
  const [a, b] = state.chosen.slice(-2), found = await get("/api/diff", [["a", a], ["b", b]]);
  const cell = text => { const box = el("td"); box.append(text.includes("\n") ? el("pre", text) : text); return box; };
  const named = run => { const box = el("th"), swatch = el("span", null, { class: "swatch" }); swatch.style.background = colourOf(run); box.append(swatch, run); return box; };
  const both = (title, rows) => part(title, table([el("th", ""), named(a), named(b)], rows));
  const titles = { plan: "Plan", code: "Code", data: "Data", environment: "Environment", metric: "Where the metrics part" };
  const parts = Object.entries(titles).map(([kind, title]) => [title, found.filter(one => one.kind === kind)]).filter(([, rows]) => rows.length);
  const pages = parts.map(([title, rows]) => both(title, rows.map(one => [el("td", one.key, { class: "key" }), cell(one.a), cell(one.b)])));
  if (!parts.length) pages.push(el("div", "No difference: plan, code, data, environment and metrics are the same.", { class: "empty" }));
  pages.unshift(both("Best values", results(state.all.get(a), state.all.get(b))));
  if (state.chosen.length > 2) pages.unshift(el("p", `${state.chosen.length} runs are chosen; these are the two chosen last.`, { class: "soft" }));
  target.replaceChildren(...pages);
}

// The best values of two runs beside each other, the better one in bold; then steps and time.
function results(a, b) {
  const metrics = [...new Set([...Object.keys(a.best), ...Object.keys(b.best)])].sort((x, y) => x.startsWith("train/") - y.startsWith("train/"));
  const cell = (mine, other, name) => el("td", number(mine), { class: mine !== other && (lowerIsBetter(name) ? mine < other : mine > other) ? "better" : "" });
  return [...metrics.map(name => [el("td", name, { class: "key" }), cell(a.best[name], b.best[name], name), cell(b.best[name], a.best[name], name)]),
    [el("td", "state", { class: "key" }), a.state, b.state], [el("td", "step", { class: "key" }), a.step, b.step], [el("td", "time", { class: "key" }), time(a.seconds), time(b.seconds)]];
}

const press = {
  "/": () => { document.body.classList.add("listing"); $("search").focus(); }, f: () => $("metrics").focus(),
  j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
  " ": () => state.at && toggle(state.at), Enter: () => go("details"), a: () => choose(state.shown.slice(0, 10).map(run => run.name)), x: () => choose([]),
  1: () => go("curves"), 2: () => go("table"), 3: () => go("details"), 4: () => go("compare"), t: () => $("theme").click(), "?": () => $("keys").showModal(),
  l: () => { $("log").checked = !$("log").checked; drawCurves(); }, Escape: () => document.body.classList.remove("listing"),
};

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  const typing = event.target.matches("input[type=search], select");
  if (typing && event.key === "Escape") { event.target.value = event.target.matches("select") ? event.target.value : ""; filter(); if (state.tab === "curves") drawCurves(); event.target.blur(); return; }
  if (typing && event.target.id === "search" && event.key === "ArrowDown") { $("runs").focus(); event.preventDefault(); return; }
  if (typing || event.target.matches("button") && (event.key === " " || event.key === "Enter") || event.target.type === "range") return;
  if (press[event.key]) { event.preventDefault(); press[event.key](); }
});
$("runs").addEventListener("click", event => {
  const row = event.target.closest("li");
  if (!row) return;
  state.at = row.dataset.name;
  if (state.tab === "details") { drawList(); show(); } else toggle(row.dataset.name);
});
$("runs").addEventListener("dblclick", event => { const row = event.target.closest("li"); if (row) { state.at = row.dataset.name; go("details"); } });
$("states").addEventListener("click", event => {
  const name = event.target.closest("button")?.dataset.state;
  if (name) { state.wanted = state.wanted === name ? "" : name; filter(); }
});
$("menu").addEventListener("click", () => document.body.classList.toggle("listing"));
$("search").addEventListener("input", filter);
$("sort").addEventListener("change", filter);
$("metrics").addEventListener("input", drawCurves);
$("smooth").addEventListener("input", drawCurves);
$("log").addEventListener("change", drawCurves);
$("help").addEventListener("click", press["?"]);
for (const button of document.querySelectorAll("[role=tab]")) button.addEventListener("click", () => go(button.dataset.tab));
Charts.themeButton($("theme"), () => show());

function alive(up, text) {
  $("live").textContent = text;
  $("live").classList.toggle("up", up);
}

(async () => {
  state.chosen = new URLSearchParams(location.hash.slice(1)).getAll("run");
  await loadRuns(() => {
    if (!state.chosen.length && state.all.size) state.chosen = [firstRun().name];
    state.at = state.chosen[0] ?? state.at;
  });
  await show(true);
  const stream = new EventSource("/events");
  let busy = false, again = false;
  const renew = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const changed = await loadRuns();
      const first = !state.chosen.length && changed.length && state.all.size === changed.length;
      if (first) choose([changed[0]]);
      else if (state.tab === "details" ? changed.includes(state.at) : changed.some(name => state.chosen.includes(name))) await show(true);
      else if (state.tab === "curves") drawHint([...state.panels.keys()]);
    } catch (error) { alive(false, String(error.message)); }
    busy = false;
    if (again) { again = false; renew(); }
  };
  stream.onmessage = event => {
    alive(true, "live");
    if (event.data !== `${state.board} ${state.version}`) renew();
  };
  stream.onerror = () => alive(false, "no answer, trying again");
})();
