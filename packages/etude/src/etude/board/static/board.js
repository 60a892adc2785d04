// The live page: its tabs, keys and the stream of changes.
import { loadCurves, drawCurves, drawHint } from "./curves.js";
import { drawCompare, drawDetails } from "./details.js";
import { drawExplore, drawTable } from "./hparams.js";
import { drawList, firstRun, loadRuns, match, move } from "./list.js";
import { $, TABS, alive, differing, options, readLink, state, writeLink } from "./state.js";

async function show(again) {
  for (const tab of TABS) $(tab).hidden = tab !== state.tab;
  $("drawing").hidden = state.tab !== "curves";
  $("grouping").hidden = !["curves", "table"].includes(state.tab);
  for (const button of document.querySelectorAll("[role=tab]")) { const on = button.dataset.tab === state.tab; button.setAttribute("aria-selected", on); button.tabIndex = on ? 0 : -1; }
  offerGroups();
  writeLink();
  try {
    if (state.tab === "curves") { if (again) { await loadCurves(); if (!window.Plotly) { drawCurves(); await Charts.ready(); } } drawCurves(); }
    else if (state.tab === "table") drawTable();
    else if (state.tab === "explore") await drawExplore();
    else if (state.tab === "details") await drawDetails();
    else await drawCompare();
  } catch (error) { alive(false, String(error.message)); }
}
const go = tab => { state.tab = tab; return show(true); };

function offerGroups() {
  const keys = differing([...state.all.keys()]).filter(key => !/(^|[.-])seed$/.test(key));
  if (state.group && state.group !== "seed" && !keys.includes(state.group)) state.group = "";
  options($("group"), [["", "each run"], ["seed", "all but seeds"], ...keys.map(key => [key, key])], state.group);
}

function choose(names) {
  state.chosen = names;
  drawList();
  show(true);
}
const toggle = name => choose(state.chosen.includes(name) ? state.chosen.filter(other => other !== name) : [...state.chosen, name]);

async function filter() {
  await match();
  drawList();
  writeLink();
  if (state.tab === "table") drawTable();
  if (state.tab === "explore") drawExplore();
}

const press = {
  "/": () => { document.body.classList.add("listing"); $("search").focus(); }, f: () => $("metrics").focus(),
  j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1),
  " ": () => state.at && toggle(state.at), Enter: () => go("details"), a: () => choose(state.shown.slice(0, 10).map(run => run.name)), x: () => choose([]),
  1: () => go("curves"), 2: () => go("table"), 3: () => go("explore"), 4: () => go("details"), 5: () => go("compare"), t: () => $("theme").click(), "?": () => $("keys").showModal(),
  l: () => { $("log").checked = !$("log").checked; redraw(); }, Escape: () => document.body.classList.remove("listing"),
};
function step(by) { move(by); if (state.tab === "details") show(); }
function redraw() { writeLink(); drawCurves(); }

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  const typing = event.target.matches("input[type=search], select");
  if (typing && event.key === "Escape") { if (event.target.matches("input")) event.target.value = ""; filter(); if (state.tab === "curves") drawCurves(); event.target.blur(); return; }
  if (typing && event.target.id === "search" && event.key === "ArrowDown") { $("runs").focus(); event.preventDefault(); return; }
  if (event.target.matches("[role=tab]") && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
    const next = TABS[(TABS.indexOf(state.tab) + (event.key === "ArrowRight" ? 1 : TABS.length - 1)) % TABS.length];
    go(next);
    document.querySelector(`[data-tab=${next}]`).focus();
    return;
  }
  if (typing || event.target.matches("button, summary, input[type=checkbox]") && (event.key === " " || event.key === "Enter") || event.target.type === "range") return;
  if (press[event.key]) { event.preventDefault(); press[event.key](); }
});
$("runs").addEventListener("click", event => {
  const row = event.target.closest("li");
  if (!row) return;
  state.at = row.dataset.name;
  if (state.tab === "details") { drawList(); show(); } else toggle(row.dataset.name);
});
$("runs").addEventListener("dblclick", event => { const row = event.target.closest("li"); if (row) { state.at = row.dataset.name; go("details"); } });
$("runs").addEventListener("choose", event => choose(event.detail));
$("runs").addEventListener("toggle", event => toggle(event.detail));
for (const name of ["zoomed", "linked"]) $("runs").addEventListener(name, writeLink);
$("states").addEventListener("click", event => {
  const name = event.target.closest("button")?.dataset.state;
  if (name) { state.wanted = state.wanted === name ? "" : name; filter(); }
});
$("menu").addEventListener("click", () => document.body.classList.toggle("listing"));
let typed = 0;
$("search").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(filter, 120); });
$("sort").addEventListener("change", filter);
$("metrics").addEventListener("input", redraw);
$("smooth").addEventListener("input", redraw);
$("log").addEventListener("change", redraw);
$("x").addEventListener("change", () => { state.x = $("x").value; state.zoom = {}; show(true); });
$("group").addEventListener("change", () => { state.group = $("group").value; show(); });
for (const id of ["sx", "sy"]) $(id).addEventListener("change", () => { state[id] = $(id).value; show(); });
$("help").addEventListener("click", press["?"]);
for (const button of document.querySelectorAll("[role=tab]")) button.addEventListener("click", () => go(button.dataset.tab));
Charts.themeButton($("theme"), () => show());

async function start() {
  readLink();
  $("x").value = state.x;
  const found = await loadRuns();
  if (!state.chosen.length && state.all.size) state.chosen = [firstRun().name];
  state.at ||= state.chosen[0] ?? "";
  await match();
  drawList();
  await show(true);
  return found;
}

(async () => {
  await start();
  window.addEventListener("hashchange", start);  // an address was pasted or gone back to
  const stream = new EventSource("/events");
  let busy = false, again = false;
  const renew = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const changed = await loadRuns();
      await match();
      drawList();
      const first = !state.chosen.length && changed.length && state.all.size === changed.length;
      if (first) choose([changed[0]]);
      else if (["table", "explore"].includes(state.tab)) await show();
      else if (state.tab === "details" ? changed.includes(state.at) : changed.some(name => state.chosen.includes(name))) await show(true);
      else if (state.tab === "curves") drawHint();
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
