// The list of runs: filter, order, states, choosing.
import { $, STATES, alive, best, colourOf, el, get, lowerIsBetter, number, state, time } from "./state.js";

const ago = began => {
  const passed = Date.now() / 1000 - began;
  return passed < 90 ? "now" : passed < 5400 ? `${Math.round(passed / 60)}m ago` : passed < 129600 ? `${Math.round(passed / 3600)}h ago` : `${Math.round(passed / 86400)}d ago`;
};
const ORDERS = {
  began: (a, b) => (b.began ?? 0) - (a.began ?? 0),
  name: (a, b) => a.name.localeCompare(b.name),
  best: (a, b) => {
    const [x, y] = [best(a), best(b)];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return a.metric === b.metric ? (lowerIsBetter(a.metric) ? x - y : y - x) : a.metric.localeCompare(b.metric);
  },
};

// Ask for what changed since the last answer; return the names of the runs that did.
export async function loadRuns() {
  const found = await get("/api/runs", [["board", state.board], ["since", state.version]]);
  if (found.board !== state.board) state.all.clear();
  for (const name of found.gone) state.all.delete(name);
  for (const run of found.runs) state.all.set(run.name, run);
  state.board = found.board;
  state.version = found.version;
  $("root").textContent = found.root;
  state.chosen = state.chosen.filter(name => state.all.has(name));
  return found.runs.map(run => run.name);
}

// The newest run that has something to show.
export function firstRun() {
  const newest = [...state.all.values()].sort(ORDERS.began);
  return newest.find(run => run.metric) ?? newest[0];
}

// The server selects, with the same words as `etude runs --filter`.
export async function match() {
  const text = $("search").value.trim(), problem = $("problem");
  if (!text) { state.matched = null; problem.hidden = true; return; }
  try {
    const found = await get("/api/match", [["filter", text]]);
    if (text !== $("search").value.trim()) return;  // more was typed meanwhile
    problem.hidden = !found.error;
    problem.textContent = found.error ?? "";
    if (!found.error) state.matched = new Set(found.names);
  } catch (error) { alive(false, String(error.message)); }
}

export function drawList() {
  const all = [...state.all.values()], archived = /\barchived\b/.test($("search").value);
  const found = all.filter(run => (!state.matched || state.matched.has(run.name)) && (archived || !run.archived));
  const counts = Object.fromEntries(STATES.map(name => [name, found.filter(run => run.state === name).length]));
  state.shown = found.filter(run => !state.wanted || run.state === state.wanted).sort(ORDERS[$("sort").value]);
  $("states").replaceChildren(...STATES.filter(name => counts[name] || name === state.wanted).map(name => {
    const button = el("button", null, { type: "button", "aria-pressed": name === state.wanted, "data-state": name });
    button.append(el("span", name, { class: `state ${name}` }), " ", el("b", counts[name]));
    return button;
  }));
  $("count").textContent = all.length ? `${state.shown.length} of ${all.length} runs, ${state.chosen.length} chosen` : "no runs yet";
  if (!state.shown.some(run => run.name === state.at)) state.at = state.shown[0]?.name ?? "";
  const rows = state.shown.map(row), list = $("runs"), top = list.scrollTop, focused = document.activeElement === list;
  list.replaceChildren(...rows);
  list.scrollTop = top;
  if (focused) list.focus();
  setActive(state.shown.findIndex(run => run.name === state.at));
}

function setActive(index) {
  if (index >= 0) $("runs").setAttribute("aria-activedescendant", `run-${index}`); else $("runs").removeAttribute("aria-activedescendant");
}

function row(run, index) {
  const chosen = state.chosen.includes(run.name), item = el("li", null, { role: "option", "aria-selected": chosen, id: `run-${index}` });
  item.dataset.name = run.name;
  item.title = run.name;
  if (run.name === state.at) item.classList.add("at");
  const swatch = el("span", null, { class: "swatch" });
  if (chosen) swatch.style.background = swatch.style.borderColor = colourOf(run.name);
  const cut = run.name.lastIndexOf("/") + 1, name = el("span", run.name.slice(0, cut), { class: "name" });
  if (cut) name.append(el("small", run.name.slice(cut))); else name.textContent = run.name;
  const more = el("span", null, { class: "more" }), steps = run.total && run.step !== run.total ? `${run.step}/${run.total}` : run.step;
  more.append(el("span", run.state, { class: `state ${run.state}` }), ` · ${steps} · ${time(run.seconds)}`);
  if (run.began) more.append(` · ${ago(run.began)}`);
  for (const tag of run.tags ?? []) more.append(" ", el("span", tag, { class: "chip" }));
  const line = (...cells) => { const box = el("div"); box.append(...cells); return box; };
  item.append(swatch, line(name, el("span", run.metric ? number(best(run)) : "", { class: "best" })), line(more),
    line(el("span", Object.entries(run.changed).filter(([key]) => run.unusual.includes(key)).map(pair => pair.join("=")).join("  "), { class: "keys" }), el("span", run.metric.replace(/^(val|test)\//, ""), { class: "metric" })));
  return item;
}

export function move(step) {
  const index = state.shown.findIndex(run => run.name === state.at);
  const next = Math.max(0, Math.min(state.shown.length - 1, index + step));
  state.at = state.shown[next]?.name ?? "";
  for (const item of $("runs").children) item.classList.toggle("at", item.dataset.name === state.at);
  setActive(next);
  $("runs").children[next]?.scrollIntoView({ block: "nearest" });
}
