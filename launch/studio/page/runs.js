// The runs: what is there, the curves of those that are shown, over each other, and the end of a log.

import {COLORS, chart} from "./curves.js";
import {$, attempt, call, element, go, isChinese, parameters, poll, remember, t} from "./common.js";

const EVERY = 1500;  // milliseconds between two looks
const GIB = 2 ** 30;
const kept = new Map();  // output -> {offset, identity, records}
let rows = [], timer, looking = false;

const shown = () => (parameters().shown || "").split("|").filter(Boolean);
const number = digits => value => value.toLocaleString("en", {maximumFractionDigits: digits});
const CHARTS = [
  ["Loss; dashed: evaluation", "loss", "eval_loss", number(3)],
  ["|g|, norm of the gradient", "grad_norm", null, number(3)],
  ["Tokens a second", "tokens_per_second", null, number(0)],
  ["Memory of tensors, GiB; dashed: planned", "peak_memory_bytes", null, value => (value / GIB).toFixed(2)],
];

export async function showRuns() {
  clearTimeout(timer);
  if (looking) return;
  looking = true;
  try {
    rows = await call("runs");
    await Promise.all(shown().map(read));
    showList();
    showCurves();
    showDifferences();
    await showLog();
  } finally {
    looking = false;
    timer = setTimeout(() => { if (!$("runs").hidden) poll(showRuns); }, EVERY);
  }
}

async function read(output) {
  const one = kept.get(output) || {offset: 0, identity: "", records: []};
  const asked = new URLSearchParams({output, offset: one.offset, identity: one.identity});
  const {records, offset, identity, anew} = await call(`records?${asked}`);
  kept.set(output, {offset, identity, records: anew ? records : [...one.records, ...records]});
}

function showList() {
  $("no_runs").hidden = rows.length > 0;
  const active = document.activeElement?.id;
  $("list").replaceChildren(...rows.map((row, place) => {
    const chosen = element("input", {type: "checkbox", id: `show${row.output}`, checked: shown().includes(row.output), ariaLabel: `${t("Show")} ${row.output}`});
    chosen.addEventListener("change", () => choose(row.output, chosen.checked));
    const latest = kept.get(row.output)?.records.findLast(record => record.loss !== undefined);
    const step = latest?.global_step ?? row.summary.global_step ?? "", loss = latest?.loss ?? row.summary.last_loss;
    const cells = [chosen, t(row.state), describe(row), step, Number.isFinite(loss) ? loss.toFixed(4) : "",
                   new Date(row.changed * 1000).toLocaleString(isChinese() ? "zh" : "en")];
    return element("tr", {}, ...cells.map(cell => element("td", {}, cell)), element("td", {}, ...buttons(row)));
  }));
  if (active) $(active)?.focus();
}

function describe(row) {
  return element("span", {}, row.command || row.output, element("div", {className: "small", textContent: row.output}));
}

function buttons(row) {
  if (row.state !== "running") return [tryButton(row)];
  if (!row.trains) return [];  // an export: it ends by itself
  const save = button(t("Save now"), `save${row.output}`, "save", {output: row.output});
  save.disabled = row.saves;  // until the run has seen it
  return [save, ...(row.can_stop ? [button(t("Save and stop"), `stop${row.name}`, "stop", {name: row.name})] : [])];
}

function button(text, id, path, body) {
  const made = element("button", {textContent: text, id});
  made.addEventListener("click", () => attempt(async () => {
    made.disabled = true;
    await call(path, body);
    await showRuns();
  }));
  return made;
}

function tryButton(row) {
  const button = element("button", {textContent: t("Try"), id: `try${row.output}`, ariaLabel: `${t("Try")}: ${row.output}`});
  button.addEventListener("click", () => go({view: "try", result: row.output, base: ""}));
  return button;
}

function choose(output, yes) {
  remember({shown: [...shown().filter(one => one !== output), ...(yes ? [output] : [])].join("|")});
  attempt(showRuns);
}

function series(output, place, key, dots) {
  const points = (kept.get(output)?.records || []).filter(record => record[key] != null).map(record => [record.global_step, record[key]]);
  return {name: output, color: COLORS[place % COLORS.length], points, dots};
}

// The plan of the first step is known when the run has written its summary.
function plannedMemory(output, place, measured) {
  const bytes = rows.find(row => row.output === output)?.summary.first_step_memory?.planned_peak_bytes;
  const ends = [measured.points[0], measured.points.at(-1)].filter(Boolean);
  return {name: `${output}, ${t("planned")}`, color: COLORS[place % COLORS.length], points: bytes ? ends.map(([step]) => [step, bytes]) : [], dots: true};
}

function showCurves() {
  const outputs = shown();
  const made = CHARTS.map(([title, key, second, write]) => {
    const lines = outputs.flatMap((output, place) => {
      const line = series(output, place, key, false);
      const beside = second ? series(output, place, second, true) : plannedMemory(output, place, line);
      return second || key === "peak_memory_bytes" ? [line, beside] : [line];
    });
    const picture = chart(t(title), lines, write);
    return picture && element("div", {}, element("h3", {textContent: t(title)}), picture);
  });
  const legend = element("div", {className: "legend"}, ...outputs.map((output, place) => {
    const key = element("span", {className: "key"});
    key.style.background = COLORS[place % COLORS.length];
    return element("div", {className: "small"}, key, output, ` ${remaining(output)}`);
  }));
  $("curves").replaceChildren(...(outputs.length ? [legend] : []), ...made.filter(Boolean));
}

function remaining(output) {
  const row = rows.find(one => one.output === output), last = kept.get(output)?.records.findLast(record => record.eta_seconds !== undefined);
  if (row?.state !== "running") return "";
  return last ? `${t("minutes left")}: ${Math.ceil(last.eta_seconds / 60)}` : t("it starts: the first step comes in a while");
}

function showDifferences() {
  const two = shown().map(output => rows.find(row => row.output === output)?.summary.arguments).filter(Boolean);
  const names = two.length === 2 ? Object.keys({...two[0], ...two[1]}).filter(name => String(two[0][name]) !== String(two[1][name])) : [];
  $("differences").hidden = !names.length;
  $("differences").querySelector("table").replaceChildren(...names.sort().map(name =>
    element("tr", {}, element("th", {scope: "row", textContent: `--${name}`}), ...two.map(values => element("td", {textContent: values[name] ?? ""})))));
}

async function showLog() {
  const options = shown().flatMap(output => {
    const row = rows.find(one => one.output === output);
    const logs = [...(row?.name ? [["console", t("all that the command prints")]] : []), ...Array.from({length: row?.ranks || 0}, (_, rank) => [rank, `${t("rank")} ${rank}`])];
    return logs.map(([of, title]) => [`${output}|${of}`, `${output}: ${title}`]);
  });
  $("logs").hidden = !options.length;
  const before = $("log_of").value;
  if ([...$("log_of").options].map(one => one.value).join() !== options.map(([value]) => value).join()) {
    $("log_of").replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    if (options.some(([value]) => value === before)) $("log_of").value = before;
  }
  if (!options.length) return;
  const [output, of] = $("log_of").value.split("|");
  const text = await call(`log?${new URLSearchParams({output, of})}`);
  if (text === $("log").textContent) return;
  const atEnd = $("log").scrollTop + $("log").clientHeight >= $("log").scrollHeight - 4;
  $("log").textContent = text;
  if (atEnd) $("log").scrollTop = $("log").scrollHeight;
}

$("log_of").addEventListener("change", () => attempt(showLog));
