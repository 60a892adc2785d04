// What the page shows, its address, and small helpers. Everything that comes from a run is set as text, never as HTML.
export const $ = id => document.getElementById(id);
export const STATES = ["running", "finished", "failed", "interrupted", "resumable", "unknown"];
export const TABS = ["curves", "table", "explore", "details", "compare"];
export const state = {
  board: "", version: 0, all: new Map(), matched: null, shown: [], chosen: [], at: "", tab: "curves", wanted: "", data: {},
  x: "step", group: "", zoom: {}, strong: "", sort: { key: "began", up: false }, columns: null, sx: "", sy: "", colours: new Map(),
};

export const el = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};
export const svg = (tag, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
export const number = value => typeof value === "number" ? Number(value.toPrecision(4)).toString() : value ?? "–";
const two = value => String(Math.floor(value)).padStart(2, "0");
export const time = seconds => seconds == null ? "–" : seconds >= 3600 ? `${Math.floor(seconds / 3600)}:${two(seconds / 60 % 60)}:${two(seconds % 60)}` : `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
export const get = async (path, query = []) => {
  const answer = await fetch(path + (query.length ? "?" + new URLSearchParams(query) : ""));
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};
export const best = run => run.metric ? run.best[run.metric] : undefined;
export const lowerIsBetter = name => /loss|error|err$|perplexity|ppl|mae|mse|rmse/i.test(name);
export const asNumber = value => value === null || value === undefined || value === "" || Number.isNaN(Number(value)) ? null : Number(value);

export function alive(up, text) {
  $("live").textContent = text;
  $("live").classList.toggle("up", up);
}

export function table(head, rows) {
  const box = el("div", null, { class: "scroll", tabindex: "0" }), whole = el("table"), body = el("tbody");
  if (head.length) { const top = el("thead"), row = el("tr"); row.append(...head); top.append(row); whole.append(top); }
  for (const cells of rows) {
    const row = el("tr");
    for (const cell of cells) row.append(cell instanceof Node ? cell : el("td", cell));
    body.append(row);
  }
  whole.append(body);
  box.append(whole);
  return box;
}
export const part = (title, ...content) => { const box = el("div"); box.append(el("h2", title), ...content); return box; };
export const options = (select, values, chosen) => {
  select.replaceChildren(...values.map(([value, text]) => el("option", text, { value })));
  select.value = values.some(([value]) => value === chosen) ? chosen : values[0]?.[0] ?? "";
};

// -- names and colours of runs ---------------------------------------------------------------------------------------

const isSeed = key => /(^|[.-])seed$/.test(key);

// The keys whose values differ among these runs.
export function differing(names) {
  const runs = names.map(name => state.all.get(name)).filter(Boolean), keys = new Set(runs.flatMap(run => Object.keys(run.changed)));
  return [...keys].filter(key => new Set(runs.map(run => run.changed[key])).size > 1);
}

function shorten(key, keys) {
  const last = key.split(".").at(-1);
  return keys.filter(other => other.split(".").at(-1) === last).length > 1 || /^\d+$/.test(last) ? key : last;
}

// A label for each run: what tells it from the others, or its name where that tells too little.
export function labels(names, without = () => false) {
  const keys = differing(names).filter(key => !without(key)), found = new Map(), seen = new Map();
  for (const name of names) {
    const run = state.all.get(name), own = keys.filter(key => run?.changed[key] !== undefined);
    const text = own.slice(0, 4).map(key => `${shorten(key, keys)}=${run.changed[key]}`).join(" ");
    found.set(name, text);
    seen.set(text, (seen.get(text) ?? 0) + 1);
  }
  for (const [name, text] of found) if (!text || seen.get(text) > 1) found.set(name, text ? `${text} · ${name.split("/").at(-1)}` : name);
  return found;
}

// The runs by what they are grouped by: a key, or everything but seeds. Each group has its label and its runs.
export function groups(names) {
  if (!state.group) return null;
  const keys = state.group === "seed" ? differing(names).filter(key => !isSeed(key)) : [state.group], found = new Map();
  for (const name of names) {
    const changed = state.all.get(name)?.changed ?? {};
    const text = keys.map(key => `${shorten(key, keys)}=${changed[key] ?? "–"}`).join(" ") || "all";
    if (!found.has(text)) found.set(text, []);
    found.get(text).push(name);
  }
  return found;
}

export function colourOf(name) {
  if (!state.colours.has(name)) {
    const used = new Set([...state.colours].filter(([run]) => state.chosen.includes(run)).map(([, index]) => index));
    let index = 0;
    while (used.has(index)) index += 1;
    state.colours.set(name, index);
  }
  return Charts.colour(state.colours.get(name));
}

// -- the address: a link holds everything that was set ---------------------------------------------------------------

const FIELDS = { filter: "search", sort: "sort", curves: "metrics", smooth: "smooth" };

export function writeLink() {
  const query = new URLSearchParams(state.chosen.map(run => ["run", run]));
  if (state.tab !== "curves") query.set("tab", state.tab);
  if (state.tab === "details" && state.at) query.set("at", state.at);
  for (const [name, id] of Object.entries(FIELDS)) if ($(id).value && $(id).value !== ($(id).dataset.usual ?? "")) query.set(name, $(id).value);
  if (state.wanted) query.set("state", state.wanted);
  if ($("log").checked) query.set("log", "1");
  if (state.x !== "step") query.set("x", state.x);
  if (state.group) query.set("group", state.group);
  if (state.columns) query.set("columns", state.columns.join(","));
  if (state.sort.key !== "began" || state.sort.up) query.set("order", (state.sort.up ? "" : "-") + state.sort.key);
  if (state.sx) query.set("sx", state.sx);
  if (state.sy) query.set("sy", state.sy);
  for (const [metric, range] of Object.entries(state.zoom)) query.set(`zoom.${metric}`, range.map(value => Number(value.toPrecision(8))).join(","));
  history.replaceState(null, "", "#" + query);
}

export function readLink() {
  const query = new URLSearchParams(location.hash.slice(1));
  state.chosen = query.getAll("run");
  if (TABS.includes(query.get("tab"))) state.tab = query.get("tab");
  state.at = query.get("at") ?? state.chosen[0] ?? "";
  for (const [name, id] of Object.entries(FIELDS)) if (query.has(name)) $(id).value = query.get(name);
  if (STATES.includes(query.get("state"))) state.wanted = query.get("state");
  $("log").checked = query.has("log");
  state.x = query.get("x") ?? "step";
  state.group = query.get("group") ?? "";
  state.columns = query.get("columns")?.split(",").filter(Boolean) ?? null;
  const order = query.get("order");
  if (order) state.sort = { key: order.replace(/^-/, ""), up: !order.startsWith("-") };
  state.sx = query.get("sx") ?? "";
  state.sy = query.get("sy") ?? "";
  state.zoom = {};
  for (const [key, value] of query) {
    const range = value.split(",").map(Number);
    if (key.startsWith("zoom.") && range.length === 2 && range.every(Number.isFinite)) state.zoom[key.slice(5)] = range;
  }
}
