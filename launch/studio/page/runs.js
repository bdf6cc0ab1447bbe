// The runs: what is there, the curves of those that are shown, over each other, and the end of a log.

import {COLORS, chart} from "./curves.js";
import {$, attempt, call, element, go, isChinese, parameters, poll, remember, t, toTry} from "./common.js";

const EVERY = 1500;  // milliseconds between two looks
const GIB = 2 ** 30;
export const SIGNS = {running: "▶", finished: "✓", failed: "✗", stopped: "■"};
const kept = new Map();  // output -> {offset, identity, records}
const items = new Map();  // output -> its element in the list
// Flags that say where and how a run is started, not what it learns.
const NOISE = /^(local_rank|local_process_index|process_index|device|logging_dir|output_signal_dir|run_name|output_dir|current_device|distributed_.*|.*_rank|seed_generator|no_cuda|overwrite_output_dir|resume_from_checkpoint|report_to|disable_tqdm|log_.*)$/;
const drawing = $("drawing").elements;
let rows = [], timer, looking = false, drawn = "";

const shown = () => (parameters().shown || "").split("|").filter(Boolean);
const number = digits => value => value.toLocaleString("en", {maximumFractionDigits: digits});
const small = value => value && Math.abs(value) < 0.01 ? value.toExponential(1) : number(3)(value);
const CHARTS = [
  ["Loss; dashed: evaluation", "loss", "eval_loss", small, "nats a token"],
  ["Reward; dashed: evaluation", "reward", "eval_reward", small, "reward"],
  ["Tokens of an answer", "answer_tokens", null, number(1), "tokens"],
  ["Groups without signal", "silent_groups", null, small, "share"],
  ["Entropy of sampling", "entropy", null, small, "nats a token"],
  ["Largest |ln ratio| to the sampler", "largest_log_ratio", null, small, "nats"],
  ["Divergence from the reference", "kl", null, small, "nats a token"],
  ["Divergence from the teacher", "reverse_kl", null, small, "nats a token"],
  ["|g|, norm of the gradient", "grad_norm", null, small, "norm"],
  ["Learning rate", "learning_rate", null, small, "learning rate"],
  ["Tokens a second", "tokens_per_second", null, number(0), "tokens/s"],
  ["Memory of tensors; dashed: planned", "peak_memory_bytes", null, value => (value / GIB).toFixed(2), "GiB"],
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

// ---- the list: each run keeps its element and its place, new ones come first

function showList() {
  $("no_runs").hidden = rows.length > 0;
  const there = new Set(rows.map(row => row.output));
  for (const [output, item] of items) {
    if (!there.has(output)) {
      item.remove();
      items.delete(output);
    }
  }
  const fresh = rows.filter(row => !items.has(row.output));
  for (const row of fresh) items.set(row.output, newItem(row.output));
  $("list").prepend(...fresh.map(row => items.get(row.output)));
  for (const row of rows) items.get(row.output).show(row);
}

function newItem(output) {
  const part = (tag, className) => element(tag, {className});
  const chosen = element("input", {type: "checkbox", id: `show${output}`});
  chosen.addEventListener("change", () => choose(output, chosen.checked));
  const state = part("span", "state"), what = part("div", "what"), below = part("div", "below"), reason = part("p", "wrong");
  const bar = element("progress", {max: 1}), told = part("div", "small"), buttons = part("p", "buttons"), note = part("div", "note");
  below.append(bar, told, reason, buttons, note);
  const item = element("li", {className: "run"}, chosen, what, state, below);
  let before = "";
  item.show = row => {
    chosen.checked = shown().includes(output);
    const language = document.documentElement.lang;
    const now = JSON.stringify([row, language, row.state === "running" ? Math.floor(Date.now() / 60000) : 0]);
    if (now === before || item.contains(document.activeElement) && document.activeElement.closest(".note")) return;
    before = now;
    const {step, steps, loss, eta_seconds: left} = row.progress, running = row.state === "running";
    chosen.ariaLabel = `${t("Show")} ${row.about.name || output}`;
    state.className = `state ${row.state}`;
    state.textContent = `${SIGNS[row.state]} ${t(row.state)}`;
    const tags = (row.about.tags || "").split(/[,，\s]+/).filter(Boolean).map(text => element("span", {className: "tag", textContent: text}));
    what.replaceChildren(element("strong", {textContent: row.about.name || row.command || output}), ...tags,
      ...(row.about.note ? [element("div", {textContent: row.about.note})] : []),
      element("div", {className: "small", textContent: [row.about.name && row.command, (row.about.name || row.command) && output].filter(Boolean).join(" → ")}));
    bar.hidden = !running;
    steps ? bar.value = step / steps : bar.removeAttribute("value");
    bar.ariaLabel = `${t("Step")} ${step ?? 0}`;
    const facts = [step && `${t("step")} ${step.toLocaleString("en")}${steps ? ` ${t("of")} ${steps.toLocaleString("en")}` : ""}`,
      loss != null && `${t("loss")} ${loss.toFixed(4)}`, running && left != null && `${t("minutes left")}: ${Math.ceil(left / 60)}`,
      running && row.trains && !step && t("it starts: the first step comes in a while"), row.said,
      new Date(row.changed * 1000).toLocaleString(isChinese() ? "zh" : "en")];
    told.textContent = facts.filter(Boolean).join(" · ");
    reason.textContent = row.reason;
    reason.hidden = !row.reason;
    const active = document.activeElement?.id;
    buttons.replaceChildren(...buttonsOf(row));
    if (active && buttons.contains($(active))) $(active).focus();
  };
  item.edit = row => editNote(note, row);
  return item;
}

function buttonsOf(row) {
  const found = [];
  if (row.state === "running") {
    if (row.trains) {
      const save = button(t("Save now"), `save${row.output}`, "save", {output: row.output});
      save.disabled = row.saves;  // until the run has seen it
      found.push(save);
    }
    if (row.can_stop) found.push(stopButton(row));
  }
  if (row.page) found.push(element("a", {href: row.page, target: "_blank", textContent: t("Open its page"), id: `page${row.output}`}));
  if (row.can_resume) found.push(button(t("Resume"), `resume${row.output}`, "resume", {output: row.output}, true));
  if (row.result) found.push(link(t(row.result === row.output ? "Try" : "Try its newest checkpoint"), `try${row.output}`, toTry(row.result)));
  if (/^make download /.test(row.command) && row.state === "finished") found.push(link(t("Plan with it"), `with${row.output}`, {view: "plan", MODEL: row.output}));
  if (/^make demo$/.test(row.command) && row.state === "finished") found.push(link(t("Fine-tune it"), `tune${row.output}`, {view: "plan", recipe: "lora-tiny"}));
  found.push(element("button", {textContent: t("Name and notes"), id: `note${row.output}`, onclick: () => items.get(row.output).edit(row)}));
  return found;
}

// The first press asks; a second one within five seconds stops.
function stopButton(row) {
  const made = element("button", {textContent: t(row.trains ? "Save and stop" : "Stop"), id: `stop${row.name}`});
  made.addEventListener("click", () => attempt(async () => {
    if (!made.dataset.sure) {
      made.dataset.sure = "yes";
      made.textContent = t("Really stop? Press once more");
      setTimeout(() => {
        delete made.dataset.sure;
        made.textContent = t(row.trains ? "Save and stop" : "Stop");
      }, 5000);
      return;
    }
    made.disabled = true;
    await call("stop", {name: row.name});
    await showRuns();
  }));
  return made;
}

function button(text, id, path, body, main = false) {
  const made = element("button", {textContent: text, id, className: main ? "main" : ""});
  made.addEventListener("click", () => attempt(async () => {
    made.disabled = true;
    try {
      await call(path, body);
      await showRuns();
    } finally {
      made.disabled = false;
    }
  }));
  return made;
}

const link = (text, id, changes) => element("button", {textContent: text, id, className: "main", onclick: () => go(changes)});

function editNote(place, {output, about}) {
  if (place.childElementCount) return place.replaceChildren();
  const field = (name, text) => {
    const control = element("input", {name, value: about[name] || ""});
    return [control, element("label", {}, element("span", {textContent: t(text)}), control)];
  };
  const fields = [field("name", "Name"), field("tags", "Tags"), field("note", "Note")];
  const save = element("button", {textContent: t("Keep")});
  save.addEventListener("click", () => attempt(async () => {
    await call("note", {output, ...Object.fromEntries(fields.map(([control]) => [control.name, control.value]))});
    place.replaceChildren();
    await showRuns();
  }));
  place.replaceChildren(...fields.map(([, label]) => label), save);
  fields[0][0].focus();
}

function choose(output, yes) {
  remember({shown: [...shown().filter(one => one !== output), ...(yes ? [output] : [])].join("|")});
  attempt(showRuns);
}

// ---- the charts

const nameOf = output => rows.find(row => row.output === output)?.about.name || output;

function series(output, place, key, dots) {
  const points = (kept.get(output)?.records || []).filter(record => record[key] != null).map(record => [record.global_step, record[key]]);
  return {name: dots ? `${nameOf(output)}, ${t("evaluation")}` : nameOf(output), color: COLORS[place % COLORS.length], points, dots};
}

// The plan of the first step is known when the run has written its summary.
function plannedMemory(output, place, measured) {
  const bytes = rows.find(row => row.output === output)?.summary.first_step_memory?.planned_peak_bytes;
  const ends = [measured.points[0], measured.points.at(-1)].filter(Boolean);
  return {name: `${nameOf(output)}, ${t("planned")}`, color: COLORS[place % COLORS.length], points: bytes ? ends.map(([step]) => [step, bytes]) : [], dots: true};
}

const zoomed = () => parameters().zoom?.split("-").map(Number) || null;

function showCurves() {
  const outputs = shown(), now = parameters();
  drawing.smooth.value = now.smooth || 0;
  drawing.log.checked = now.log === "1";
  const key = JSON.stringify([outputs.map(output => [kept.get(output)?.offset, kept.get(output)?.identity, nameOf(output)]), now.smooth, now.log, now.zoom, document.documentElement.lang,
    rows.filter(row => outputs.includes(row.output)).map(row => row.state)]);
  if (key === drawn) return;
  drawn = key;
  const view = {smooth: Number(drawing.smooth.value), log: drawing.log.checked, zoom: zoomed(), onread: readAll,
    onzoom: range => {
      remember({zoom: range ? range.join("-") : ""});
      showCurves();
    }};
  const kinds = outputs.flatMap(output => Object.keys(kept.get(output)?.records.find(record => record.reward != null) || {}));
  const rewards = [...new Set(kinds)].filter(key => key.startsWith("reward_"));
  const made = [...CHARTS, ...rewards.map(key => [`${t("Reward")}: ${key.slice(7)}`, key, null, small, "reward"])].map(([title, key, second, write, unit]) => {
    const lines = outputs.flatMap((output, place) => {
      const line = series(output, place, key, false);
      const beside = second ? series(output, place, second, true) : plannedMemory(output, place, line);
      return second || key === "peak_memory_bytes" ? [line, beside] : [line];
    });
    const picture = chart(t(title), lines, write, view, {x: t("step"), y: t(unit)});
    return picture && element("div", {}, element("h3", {textContent: t(title)}), picture, element("p", {className: "read small"}));
  });
  const legend = element("div", {className: "legend"}, ...outputs.map((output, place) => {
    const key = element("span", {className: "key"});
    key.style.background = COLORS[place % COLORS.length];
    return element("div", {className: "small"}, key, nameOf(output), ` ${scores(output)}`);
  }));
  $("curves").replaceChildren(...(outputs.length ? [legend] : []), ...made.filter(Boolean));
  $("drawing").hidden = !made.some(Boolean);
  $("zoom_out").hidden = !view.zoom;
}

function readAll(step) {
  for (const place of $("curves").querySelectorAll("svg")) place.nextSibling.textContent = place.read(step);
}

// Whether it learns, in words.
function scores(output) {
  const losses = (kept.get(output)?.records || []).filter(record => record.loss != null);
  if (losses.length < 2) return "";
  if (losses[0].reward != null) return `${t("reward went from")} ${small(losses[0].reward)} ${t("to")} ${small(losses.at(-1).reward)}`;
  const [first, last] = [losses[0].loss, losses.at(-1).loss];
  return `${t(last < first ? "learning: loss fell from" : "not learning: loss went from")} ${first.toFixed(3)} ${t("to")} ${last.toFixed(3)}`;
}

// ---- differences

// 1e-3 and 0.001, 1 and true are the same.
function plain(value) {
  if (value === true || value === "true" || value === "True") return "1";
  if (value === false || value === "false" || value === "False") return "0";
  if (value === null || value === undefined || value === "None") return "";
  return value !== "" && Number.isFinite(Number(value)) ? String(Number(value)) : String(value);
}

function showDifferences() {
  const some = shown().map(output => rows.find(row => row.output === output)).filter(row => row && Object.keys(row.summary.arguments || {}).length);
  const values = some.map(row => row.summary.arguments);
  const common = some.length > 1 ? Object.keys(values[0]).filter(name => values.every(one => name in one)) : [];
  const differ = common.filter(name => !NOISE.test(name) && new Set(values.map(one => plain(one[name]))).size > 1);
  const typed = name => some.some(row => row.command.includes(`--${name} `));
  differ.sort((one, other) => typed(other) - typed(one) || one.localeCompare(other));
  $("differences").hidden = some.length < 2;
  const head = element("tr", {}, element("th", {scope: "col", textContent: t("Flag")}), ...some.map(row => element("th", {scope: "col", textContent: nameOf(row.output)})));
  $("differences").querySelector("table").replaceChildren(head, ...differ.map(name =>
    element("tr", {}, element("th", {scope: "row", textContent: `--${name}`}), ...values.map(one => element("td", {textContent: one[name] ?? ""})))));
  $("better").textContent = best(some.map(row => row.output));
}

// The run with the lowest loss on held-out rows.
function best(outputs) {
  const lowest = outputs.map(output => [output, Math.min(...(kept.get(output)?.records || []).map(record => record.eval_loss ?? Infinity))]).filter(([, loss]) => loss < Infinity);
  if (lowest.length < 2) return t("Which is better shows the loss on held-out rows, which not all of them have measured.");
  const [output, loss] = lowest.reduce((one, other) => other[1] < one[1] ? other : one);
  return `${t("The lowest loss on held-out rows")}: ${nameOf(output)}, ${loss.toFixed(4)}`;
}

async function showLog() {
  const options = shown().flatMap(output => {
    const row = rows.find(one => one.output === output);
    const logs = [...(row?.name ? [["console", t("all that the command prints")]] : []), ...Array.from({length: row?.ranks || 0}, (_, rank) => [rank, `${t("rank")} ${rank}`])];
    return logs.map(([of, title]) => [`${output}|${of}`, `${nameOf(output)}: ${title}`]);
  });
  $("logs").hidden = !options.length;
  const before = $("log_of").value, texts = list => list.map(([value, text]) => `${value}=${text}`).join();
  if (texts([...$("log_of").options].map(one => [one.value, one.text])) !== texts(options)) {
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
$("drawing").addEventListener("submit", event => event.preventDefault());
$("drawing").addEventListener("input", () => {
  remember({smooth: Number(drawing.smooth.value) ? drawing.smooth.value : "", log: drawing.log.checked ? "1" : ""});
  showCurves();
});
$("zoom_out").addEventListener("click", () => {
  remember({zoom: ""});
  showCurves();
});
