// The tabs of the table and of exploring: how metrics go with the keys of the plans.
import { $, asNumber, best, colourOf, el, groups, number, options, state, svg, table, time } from "./state.js";

const often = (runs, pick) => {
  const counts = new Map();
  for (const run of runs) for (const name of pick(run)) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
};
const metricsOf = runs => often(runs, run => Object.keys(run.best)).sort((a, b) => a.startsWith("train/") - b.startsWith("train/"));
const keysOf = runs => often(runs, run => Object.keys(run.changed));

// Each column: its name, what it shows of a run, and how.
function columns(runs) {
  const fixed = [["run", run => run.name], ["state", run => run.state], ["step", run => run.step], ["time", run => run.seconds, time], ["began", run => run.began, began => began ? new Date(began * 1000).toLocaleString() : "–"]];
  const tags = runs.some(run => run.tags?.length) ? [["tags", run => (run.tags ?? []).join(" ")]] : [], notes = runs.some(run => run.note) ? [["note", run => run.note]] : [];
  return [fixed[0], fixed[1], ...tags, ...metricsOf(runs).map(name => [name, run => run.best[name]]), ...keysOf(runs).map(key => [key, run => run.changed[key]]), ...notes, ...fixed.slice(2)];
}

function usual(runs) {
  const keys = often(runs, run => run.unusual).slice(0, 10);
  return ["run", "state", "tags", ...metricsOf(runs).slice(0, 6), ...keys, "note", "step", "time", "began"];
}

// All listed runs with their best values and changed keys; a click on a head sorts. Grouped, a line has mean ± deviation.
export function drawTable() {
  const runs = state.shown, all = columns(runs), wanted = state.columns ?? usual(runs), shown = all.filter(([name]) => wanted.includes(name));
  drawChooser(all.map(([name]) => name), wanted);
  const column = shown.find(([name]) => name === state.sort.key) ?? shown.find(([name]) => name === "began") ?? shown[0];
  if (!column) { $("rows").replaceChildren(el("div", "Choose at least one column.", { class: "empty" })); return; }
  const grouped = groups(runs.map(run => run.name));
  const isNumber = pick => runs.some(run => typeof pick(run) === "number");
  const head = shown.map(([name, pick]) => {
    const cell = el("th", null, { scope: "col", class: isNumber(pick) ? "number" : "" }), button = el("button", name, { type: "button" });
    if (name === column[0]) cell.setAttribute("aria-sort", state.sort.up ? "ascending" : "descending");
    button.addEventListener("click", () => { state.sort = { key: name, up: state.sort.key === name && !state.sort.up }; $("runs").dispatchEvent(new CustomEvent("linked")); drawTable(); });
    cell.append(button);
    return cell;
  });
  const lines = grouped ? [...grouped].map(([label, names]) => ({ label, runs: names.map(name => state.all.get(name)) })) : runs.map(run => ({ runs: [run] }));
  lines.sort((a, b) => compare(column[1], a, b) * (state.sort.up ? 1 : -1));
  const box = table(head, lines.map(line => shown.map(([name, pick, form]) => cellOf(line, name, pick, form, isNumber(pick)))));
  [...box.querySelectorAll("tbody tr")].forEach((row, index) => {
    const names = lines[index].runs.map(run => run.name), chosen = names.every(name => state.chosen.includes(name));
    row.classList.toggle("chosen", chosen);
    row.addEventListener("click", () => $("runs").dispatchEvent(new CustomEvent("choose", { detail: chosen ? state.chosen.filter(name => !names.includes(name)) : [...new Set([...state.chosen, ...names])] })));
  });
  const old = $("rows").querySelector(".scroll"), at = old ? [old.scrollLeft, old.scrollTop] : [0, 0];
  $("rows").replaceChildren(runs.length ? box : el("div", "No run matches.", { class: "empty" }));
  [box.scrollLeft, box.scrollTop] = at;
}

const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
const deviation = values => values.length < 2 ? 0 : Math.sqrt(values.reduce((sum, value) => sum + (value - mean(values)) ** 2, 0) / (values.length - 1));

function compare(pick, a, b) {
  const [x, y] = [a, b].map(line => { const values = line.runs.map(pick).filter(value => value != null), numbers = values.map(asNumber); return !values.length ? null : numbers.every(value => value !== null) ? mean(numbers) : String(values[0]); });
  if (x === null || y === null) return (x === null) - (y === null);
  return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
}

function cellOf(line, name, pick, form, numeric) {
  const { runs } = line, [run] = runs, value = pick(run);
  if (runs.length > 1) {
    const values = runs.map(pick), numbers = values.filter(one => typeof one === "number");
    if (name === "run") return el("td", `${line.label} (${runs.length} runs)`);
    const spread = deviation(numbers);
    if (numbers.length > 1 && name !== "began") return el("td", form ? form(mean(numbers)) : `${number(mean(numbers))}${spread ? ` ± ${number(Number(spread.toPrecision(2)))}` : ""}`, { class: "number" });
    return el("td", new Set(values.map(String)).size === 1 ? form ? form(value) : value ?? "–" : "several", { class: numeric ? "number" : "" });
  }
  const text = form ? form(value) : typeof value === "number" ? number(value) : value ?? "–", cell = el("td", name === "state" ? null : text, { class: numeric ? "number" : "" });
  if (name === "state") cell.append(el("span", value, { class: `state ${value}` }));
  if (name === "run" && state.chosen.includes(value)) { const swatch = el("span", null, { class: "swatch" }); swatch.style.background = colourOf(value); cell.prepend(swatch); }
  return cell;
}

function drawChooser(names, wanted) {
  const box = $("chooser");
  if (box.dataset.names === names.join("\n") + wanted.join("\n")) return;
  box.dataset.names = names.join("\n") + wanted.join("\n");
  box.replaceChildren(...names.map(name => {
    const label = el("label"), tick = el("input", null, { type: "checkbox" });
    tick.checked = wanted.includes(name);
    tick.addEventListener("change", () => { state.columns = names.filter(other => other === name ? tick.checked : wanted.includes(other)); $("runs").dispatchEvent(new CustomEvent("linked")); drawTable(); });
    label.append(tick, ` ${name}`);
    return label;
  }));
  const reset = el("button", "usual columns", { type: "button" });
  reset.addEventListener("click", () => { state.columns = null; $("runs").dispatchEvent(new CustomEvent("linked")); drawTable(); });
  box.append(reset);
}

// -- exploring: a scatter plot, and parallel coordinates -------------------------------------------------------------

// A logarithmic axis where a search was logarithmic: positive numbers over more than a factor of twenty.
export const isLog = values => values.length > 1 && values.every(value => value > 0) && Math.max(...values) / Math.min(...values) > 20;

export async function drawExplore() {
  const runs = state.shown.filter(run => run.metric), metrics = metricsOf(runs), keys = keysOf(runs);
  const xs = [...keys, "seconds", "step", ...metrics];
  options($("sx"), xs.map(name => [name, name]), state.sx || keys.find(key => runs.some(run => asNumber(run.changed[key]) !== null)) || "seconds");
  options($("sy"), metrics.map(name => [name, name]), state.sy || runs[0]?.metric);
  const none = runs.length ? "" : "No run has a metric yet.";
  $("nothing").hidden = !none;
  $("nothing").textContent = none;
  $("plots").hidden = !!none;
  if (none) return;
  const read = (run, name) => name in run.best ? run.best[name] : name === "seconds" || name === "step" ? run[name] : run.changed[name];
  await Charts.ready();
  const x = $("sx").value, y = $("sy").value, points = runs.map(run => ({ run, x: read(run, x), y: read(run, y) })).filter(point => point.x != null && point.y != null);
  const numeric = points.every(point => asNumber(point.x) !== null);
  Charts.scatter($("scatter"), points.map(point => ({ x: numeric ? asNumber(point.x) : String(point.x), y: point.y, name: point.run.name, colour: state.chosen.includes(point.run.name) ? colourOf(point.run.name) : "" })),
    { x, y, xlog: numeric && isLog(points.map(point => asNumber(point.x))), ylog: isLog(points.map(point => point.y)), key: `${x} ${y}` },
    name => $("runs").dispatchEvent(new CustomEvent("toggle", { detail: name })));
  drawParallel(runs, keys.slice(0, 9), y, read);
}

// Each run is a line over one axis for each key, and the metric last; the better the metric, the stronger the line.
function drawParallel(runs, keys, metric, read) {
  const box = $("parallel"), width = Math.max(320, box.clientWidth), height = 320, top = 34, bottom = 16, side = 60;
  const names = [...keys, metric], having = runs.filter(run => read(run, metric) != null);
  const axes = names.map((name, index) => axis(name, having.map(run => read(run, name)), side + index * (width - 2 * side) / Math.max(1, names.length - 1), top, height - bottom));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `parallel coordinates of ${having.length} runs: ${names.join(", ")}` });
  const scores = having.map(run => read(run, metric)), [low, high] = [Math.min(...scores), Math.max(...scores)];
  for (const run of [...having].sort((a, b) => read(a, metric) - read(b, metric))) {
    const points = axes.map(one => [one.x, one.place(read(run, one.name))]), share = high > low ? (read(run, metric) - low) / (high - low) : 1;
    const line = svg("path", { d: points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join(""), class: state.chosen.includes(run.name) ? "line chosen" : "line", "data-run": run.name });
    line.style.stroke = state.chosen.includes(run.name) ? colourOf(run.name) : `color-mix(in srgb, var(--accent) ${Math.round(20 + 80 * share)}%, var(--line))`;
    line.append(svg("title", {}, `${run.name}\n${names.map(name => `${name}: ${number(read(run, name))}`).join("\n")}`));
    line.addEventListener("click", () => $("runs").dispatchEvent(new CustomEvent("toggle", { detail: run.name })));
    picture.append(line);
  }
  for (const one of axes) {
    picture.append(svg("line", { x1: one.x, x2: one.x, y1: top, y2: height - bottom, class: "axis" }), svg("text", { x: one.x, y: 14, class: "title", "text-anchor": "middle" }, one.name.length > 22 ? `…${one.name.slice(-21)}` : one.name));
    for (const [text, y] of one.ticks) picture.append(svg("text", { x: one.x + 5, y: y + 4, class: "tick" }, text));
  }
  box.replaceChildren(picture);
}

function axis(name, values, x, top, bottom) {
  const numbers = values.filter(value => value != null).map(asNumber), isNumeric = numbers.length && numbers.every(value => value !== null);
  const log = isNumeric && isLog(numbers), scale = value => log ? Math.log10(value) : value;
  if (isNumeric) {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)].map(scale), missing = values.some(value => value == null);
    const floor = missing ? bottom - 18 : bottom, put = value => asNumber(value) === null ? bottom : high > low ? floor - (scale(asNumber(value)) - low) / (high - low) * (floor - top) : (floor + top) / 2;
    const middle = log ? 10 ** ((low + high) / 2) : (low + high) / 2, ends = [...new Set(high > low ? [Math.min(...numbers), middle, Math.max(...numbers)] : [numbers[0]])];
    return { name, x, place: put, ticks: [...ends.map(value => [number(Number(value.toPrecision(3))), put(value)]), ...(missing ? [["–", bottom]] : [])] };
  }
  const words = [...new Set(values.map(value => value ?? "–"))].sort(), put = value => words.length > 1 ? bottom - words.indexOf(value ?? "–") / (words.length - 1) * (bottom - top) : (bottom + top) / 2;
  return { name, x, place: put, ticks: words.slice(0, 12).map(word => [String(word).slice(0, 16), put(word)]) };
}
