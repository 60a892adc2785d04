// The tabs of one run and of comparing several.
import { $, best, colourOf, el, get, labels, lowerIsBetter, number, part, state, svg, table, time } from "./state.js";

const share = value => { const cell = el("td", null, { class: "share" }), bar = el("i"); bar.style.width = `${(100 * value).toFixed(1)}%`; cell.append(bar); return cell; };
const right = text => el("td", text, { class: "number" });

export async function drawDetails() {
  const name = state.at || state.chosen[0], target = $("details");
  if (!name) { target.replaceChildren(el("div", "Choose a run in the list.", { class: "empty" })); return; }
  const [run, media] = await Promise.all([get("/api/run", [["run", name]]), get("/api/media", [["run", name]])]);
  const log = el("pre", run.log.join("\n") || "no log yet", { id: "log-tail", tabindex: "0" });
  const old = $("log-tail"), below = !old || old.scrollTop + old.clientHeight > old.scrollHeight - 30, top = old?.scrollTop ?? 0;
  const head = el("h2", run.name), facts = el("div", null, { class: "facts" }), columns = el("div", null, { class: "columns" });
  const fact = (label, value) => { const box = el("div"); box.append(el("span", label), value instanceof Node ? value : el("b", value)); facts.append(box); };
  const whole = Object.values(run.time).reduce((a, b) => a + b, 0);
  fact("state", el("b", run.state, { class: `state ${run.state}` }));
  fact("step", `${run.step}${run.total ? " / " + run.total : ""}`);
  fact("time", time(run.seconds));
  if (run.metric) fact(`best ${run.metric}`, number(best(run)));
  fact("checkpoints", run.checkpoints.length);
  if (run.tags?.length) fact("tags", run.tags.join(" "));
  const notices = [...(run.error ? [["bad", run.error]] : []), ...(run.note ? [["plain", run.note]] : []), ...run.warnings.map(text => ["", text])].map(([kind, text]) => el("div", text, { class: `notice ${kind}` }));
  const left = part("Best values", table([], Object.entries(run.best).map(([key, value]) => [key, right(number(value)), right(`step ${run.best_steps[key]}`)])));
  columns.append(left);
  if (whole) columns.append(part("Where the time went", table([], Object.entries(run.time).sort((a, b) => b[1] - a[1]).map(([key, spent]) => [key, share(spent / whole), right(`${spent.toFixed(1)} s`), right(`${(100 * spent / whole).toFixed(0)} %`)]))));
  if (run.slow.length) columns.append(part("Slow steps", el("pre", run.slow.join("\n"))));
  if (run.checkpoints.length) left.append(el("h2", "Checkpoints"), savedTable(run));
  const environment = Object.entries(run.environment).map(([key, value]) => [el("td", key, { class: "key" }), value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value)]);
  const recorded = media.length ? [part("Recorded", await gallery(name, media))] : [];
  target.replaceChildren(head, facts, ...notices, ...recorded, part("Log", log), columns, part("Plan", table([], Object.entries(run.plan).map(([key, value]) => [el("td", key, { class: "key" }), value, el("td", run.places[key] ?? "", { class: "soft key" })]))), part("Environment", table([], environment)));
  log.scrollTop = below ? log.scrollHeight : top;
}

// Pictures, histograms, tables and texts: of each name the latest, and a slider over the steps before.
const picked = new Map();
async function gallery(run, media) {
  const named = new Map(), box = el("div", null, { class: "gallery" });
  for (const one of media) { const key = `${one.kind} ${one.name}`; if (!named.has(key)) named.set(key, []); named.get(key).push(one); }
  for (const [key, files] of named) {
    const figure = el("figure"), caption = el("figcaption"), view = el("div", null, { class: "medium" }), kept = picked.get(`${run} ${key}`);
    const show = async at => {
      caption.firstChild.textContent = `${files[at].name} · step ${files[at].step}`;
      view.replaceChildren(await medium(run, files[at]));
    };
    caption.append(el("span"));
    const at = kept === undefined ? files.length - 1 : Math.min(kept, files.length - 1);
    if (files.length > 1) {
      const slider = el("input", null, { type: "range", min: 0, max: files.length - 1, step: 1, "aria-label": `step of ${files[0].name}` });
      slider.value = at;
      slider.addEventListener("input", () => { picked.set(`${run} ${key}`, Number(slider.value)); show(Number(slider.value)); });
      caption.append(slider);
    }
    figure.append(caption, view);
    box.append(figure);
    await show(at);
  }
  return box;
}

async function medium(run, { kind, name, step, file }) {
  const address = "/media?" + new URLSearchParams([["run", run], ["file", file]]);
  if (kind === "image") return el("img", null, { src: address, alt: `${name} at step ${step}`, loading: "lazy" });
  const answer = await fetch(address), text = answer.ok ? await answer.text() : "no longer there";
  if (kind === "text" || !answer.ok) return el("pre", text, { tabindex: "0" });
  try {
    const found = JSON.parse(text);
    return kind === "table" ? table(found.columns.map(column => el("th", column, { scope: "col" })), found.rows.map(row => row.map(value => typeof value === "number" ? right(number(value)) : String(value ?? "–")))) : histogram(found, `${name} at step ${step}`);
  } catch { return el("pre", "cannot be read"); }
}

function histogram({ counts, edges, strange }, label) {
  const width = 300, height = 120, most = Math.max(1, ...counts), picture = svg("svg", { viewBox: `0 0 ${width} ${height + 16}`, class: "histogram", role: "img", "aria-label": label });
  counts.forEach((count, at) => picture.append(svg("rect", { x: at * width / counts.length, width: Math.max(0.5, width / counts.length - 0.5), y: height - height * count / most, height: height * count / most })));
  picture.append(svg("text", { x: 0, y: height + 13 }, number(edges[0])), svg("text", { x: width, y: height + 13, "text-anchor": "end" }, number(edges.at(-1))));
  if (strange) picture.append(svg("text", { x: width / 2, y: height + 13, "text-anchor": "middle" }, `${strange} not finite`));
  return picture;
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

const TITLES = { plan: "Plan", code: "Code", data: "Data", environment: "Environment", metric: "Where the metrics part" };

export async function drawCompare() {
  const target = $("compare"), runs = state.chosen;
  if (runs.length < 2) { target.replaceChildren(el("div", "Choose two or more runs to compare them.", { class: "empty" })); return; }
  const found = await get("/api/diff", runs.map(run => ["run", run])), text = labels(runs);
  const cell = (value, other) => { const box = el("td", null, { class: value !== other ? "other" : "" }); box.append(value.includes("\n") ? el("pre", value, { tabindex: "0" }) : value); return box; };
  const named = run => { const box = el("th", null, { scope: "col", title: run }), swatch = el("span", null, { class: "swatch" }); swatch.style.background = colourOf(run); box.append(swatch, text.get(run)); return box; };
  const all = (title, rows) => part(title, table([el("td", ""), ...runs.map(named)], rows));
  const parts = Object.entries(TITLES).map(([kind, title]) => [title, found.filter(one => one.kind === kind)]).filter(([, rows]) => rows.length);
  const pages = parts.map(([title, rows]) => all(title, rows.map(({ key, values }) => [el("td", key, { class: "key" }), ...values.map((value, at) => cell(value, at ? values[0] : value))])));
  if (!parts.length) pages.push(el("div", "No difference: plan, code, data, environment and metrics are the same.", { class: "empty" }));
  pages.unshift(all("Best values", results(runs.map(run => state.all.get(run)))));
  if (runs.length > 2) pages.unshift(el("p", "What differs from the first run is marked.", { class: "soft" }));
  target.replaceChildren(...pages);
}

// The best values of the runs, the best one in bold; then steps and time.
function results(runs) {
  const metrics = [...new Set(runs.flatMap(run => Object.keys(run.best)))].sort((x, y) => x.startsWith("train/") - y.startsWith("train/"));
  const row = name => {
    const values = runs.map(run => run.best[name]), known = values.filter(value => typeof value === "number"), winner = Math[lowerIsBetter(name) ? "min" : "max"](...known), differ = new Set(known).size > 1;
    return [el("td", name, { class: "key" }), ...values.map(value => el("td", number(value), { class: differ && value === winner ? "better" : "" }))];
  };
  const plain = (name, pick) => [el("td", name, { class: "key" }), ...runs.map(run => el("td", pick(run)))];
  return [...metrics.map(row), plain("state", run => run.state), plain("step", run => run.step), plain("time", run => time(run.seconds))];
}
