// The runs: a list of them; one by itself, with its charts and its log; several over each other, with what differs.

import {chart, colorOf, listen} from "./curves.js";
import {$, attempt, call, copy, element, go, isChinese, isSure, labelled, parameters, poll, remember, t, toTry} from "./common.js";

const EVERY = 1500;  // milliseconds between two looks
const MOST = 30;  // runs that are listed at first
const FEW_TOKENS = 1000;  // held-out ones, whose loss says little
const GIB = 2 ** 30;
export const SIGNS = {running: "▶", finished: "✓", failed: "✗", stopped: "■"};
const kept = new Map();  // output -> {offset, identity, records}
const items = new Map();  // output -> its element in the list
// Flags that say where and how a run is started, not what it learns.
const NOISE = /^(local_rank|device|logging_dir|run_name|output_dir|overwrite_output_dir|resume_from_checkpoint|report_to|disable_tqdm|log_.*)$/;
// What is done beside runs, by the target of make.
const works = () => ({download: t("Download"), "data-sft": t("Preparation of data"), "data-preference": t("Preparation of data"), export: t("Export"),
                      merge: t("Merge"), evaluate: t("Evaluation"), serve: t("Server"), push: t("Upload")});
// Flags by which losses on held-out rows are of other things: between such runs none is named the better one. A seed draws the held-out part of token ids.
const unlike = values => [[t("the data"), /^(dataset_name_or_path|input_dir|split|max_eval_samples|chat_template)$/], [t("the lengths"), /^(src_length|max_length|max_seq_length)$/],
                          [t("the model"), /^(model_name_or_path|tokenizer_name_or_path)$/],
                          [t("the loss"), /^(loss_type|beta|label_smoothing|simpo_gamma|pref_loss_ratio|sft_loss_ratio)$/], ...(values.some(one => one.input_dir) ? [[t("the seed"), /^(seed|data_seed)$/]] : [])];
// How the sentence of an error begins that says what to do.
const FIX = /^(Add|Ask|Check|Choose|Copy|Correct|Delete|Free|Give|Import|Install|Leave|Lower|Make|Move|Name|Open|Pass|Put|Raise|Remove|Run|Set|Start|Stop|Take|Train|Try|Type|Use|Wait|Write)\b|^请/;
const drawing = $("drawing").elements;
const CLIMB = 1;  // nats above the first loss, as in launch/watch.py
let rows = [], timer, looking = null, drawn = "", reading = null;  // the step that is read, which new records leave

const listed = name => (parameters()[name] || "").split("|").filter(Boolean);
const shown = () => listed("shown");
const rehearsed = row => row.rehearses && row.state === "finished";
const isRun = row => row.trains || row.action === "demo";
const HIDDEN = "hidden", kindOf = row => row.about.hidden ? HIDDEN : isRun(row) ? "" : "1";  // as the address calls them
const keeps = row => row.trains || row.action === "demo" && !row.command.includes("grpo");  // checkpoints, also when it is stopped
const given = command => command.match(/--input (\S+)/)?.[1] || "";  // the file that is divided
const to = shown => `?${new URLSearchParams({view: "runs", shown, ticked: "", zoom: ""})}`;
const number = digits => value => value.toLocaleString("en", {maximumFractionDigits: digits});
const small = value => value && Math.abs(value) < 0.01 ? value.toExponential(1) : number(3)(value);
const CHARTS = [
  ["Loss", "loss", "eval_loss", small, "nats a token"],
  ["Reward", "reward", "eval_reward", small, "reward"],
  ["Tokens of an answer", "answer_tokens", null, number(1), "tokens"],
  ["Groups without signal", "silent_groups", null, small, "share"],
  ["Entropy of sampling", "entropy", null, small, "nats a token"],
  ["Largest |ln ratio| to the sampler", "largest_log_ratio", null, small, "nats"],
  ["Divergence from the reference", "kl", null, small, "nats a token"],
  ["Divergence from the teacher", "reverse_kl", null, small, "nats a token"],
  ["|g|, norm of the gradient", "grad_norm", null, small, "norm"],
  ["Learning rate", "learning_rate", null, value => value ? value.toExponential(1).replace(".0e", "e") : "0", "learning rate"],
  ["Tokens a second", "tokens_per_second", null, value => number(value < 100 ? 1 : 0)(value), "tokens/s"],
  ["Memory of tensors", "peak_memory_bytes", null, value => value.toLocaleString("en", {maximumSignificantDigits: 3}), "GiB"],
];

export async function showRuns() {
  while (looking) await looking;  // it may be of another address
  looking = look();
  try {
    await looking;
  } finally {
    looking = null;
    clearTimeout(timer);
    timer = setTimeout(() => { if (!$("runs").hidden) poll(showRuns); }, EVERY);
  }
}

async function look() {
  rows = await call("runs");
  const gone = shown().filter(output => !rows.some(row => row.output === output));
  $("gone").textContent = gone.length ? labelled("No run is there", gone.join(", ")) : "";
  await Promise.all(shown().filter(output => !gone.includes(output)).map(read));
  showList();
  showCurves();
  showDifferences();
  await showLog();
}

async function read(output) {
  const one = kept.get(output) || {offset: 0, identity: "", records: []};
  const asked = new URLSearchParams({output, offset: one.offset, identity: one.identity});
  const {records, offset, identity, anew} = await call(`records?${asked}`);
  kept.set(output, {offset, identity, records: anew ? records : [...one.records, ...records]});
}

// ---- the list: each run keeps its element and its place, new ones come first; a run that is shown by itself stays alone

export const runsOf = all => runningFirst(all.filter(isRun));
const runningFirst = all => [...all].sort((one, other) => (other.state === "running") - (one.state === "running"));

const lastOf = output => output.replace(/^\w+:/, "").split("/").filter(name => !["output", "data", "evaluation"].includes(name)).pop() || output;

// Method, model, folder and time, or the name that the user has given; the command stands below.
export function titleOf(row, single = true) {
  const {about, action, command, rehearses, method, model, output} = row;
  const last = lastOf(output);
  const rewarded = command.includes("grpo"), demo = t(rewarded ? "Demo: it learns by rewards alone" : "Demo: it learns from nothing");
  const work = works()[action];
  const what = action === "demo" ? [demo] : work ? [work, given(command).split("/").pop() || last] : [...(method ? [t(method), model] : []), single && last];
  return about.name || (rehearses ? labelled("Rehearsal", "") : "") + [...new Set(what), single && when(row)].filter(Boolean).join(" · ");
}

const when = ({began}) => new Date(began * 1000).toLocaleString(isChinese() ? "zh" : "en", {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23"});

function showList() {
  const outputs = shown(), ticked = listed("ticked"), {work: kind = "", q = ""} = parameters();
  const ofKind = rows.filter(row => kindOf(row) === kind), wanted = q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = ofKind.filter(row => {
    const text = [titleOf(row), t(row.state), row.about.tags, row.about.note, row.command, row.output].join(" ").toLowerCase();
    return wanted.every(word => text.includes(word));
  });
  $("kinds").hidden = $("comparing").hidden = outputs.length > 0;
  $("one").hidden = !outputs.length;
  $("no_runs").hidden = outputs.length > 0 || ofKind.length > 0;
  for (const [link, title, is] of [[$("only_runs"), t("Runs"), ""], [$("other_work"), t("Other work"), "1"], [$("hidden_runs"), t("Taken from the list"), HIDDEN]]) {
    const count = rows.filter(row => kindOf(row) === is).length;
    link.textContent = `${title} (${count})`;
    link.hidden = is === HIDDEN && !count;
    is === kind ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  if (document.activeElement !== $("search")) $("search").value = q;
  $("search").closest("form").hidden = outputs.length > 0 || ofKind.length < 2;
  $("none_found").hidden = outputs.length > 0 || !ofKind.length || found.length > 0;
  $("comparing").hidden ||= kind !== "" || ofKind.length < 2;
  $("how_to_compare").textContent = t(["Tick two or more runs to compare them; click a run for its charts and its log.", "Tick one more to compare with."][ticked.length] || "");
  $("compare").disabled = ticked.length < 2;
  $("compare").textContent = `${t("Compare")}${ticked.length ? ` (${ticked.length})` : ""}`;
  const others = rows.filter(row => kindOf(row) === "" && !outputs.includes(row.output));
  const options = [new Option(t("choose a run"), ""), ...others.map(row => new Option(nameOf(row.output), row.output))];
  if ($("with").dataset.key !== options.map(one => one.text).join()) $("with").replaceChildren(...options);
  $("with").dataset.key = options.map(one => one.text).join();
  $("with").closest("label").hidden = !others.length || !rows.some(row => outputs.includes(row.output) && isRun(row));
  const there = new Set(rows.map(row => row.output));
  for (const [output, item] of items) {
    if (!there.has(output)) {
      item.remove();
      items.delete(output);
    }
  }
  const fresh = rows.filter(row => !items.has(row.output)), lowest = parameters().sort === "loss";
  for (const row of fresh) items.set(row.output, newItem(row.output));
  const held = ({progress: {eval_loss: loss}}) => loss ?? Infinity;
  if (lowest !== $("list").lowest) {  // else each keeps its place, also when it ends
    $("list").lowest = $("sort").checked = lowest;
    $("list").append(...(lowest ? [...rows].sort((one, other) => held(one) - held(other) || 0) : runningFirst(rows)).map(row => items.get(row.output)));
  } else $("list").prepend(...runningFirst(fresh).map(row => items.get(row.output)));
  const first = new Set([...$("list").children].map(item => item.output).filter(output => found.some(row => row.output === output)).slice(0, parameters().all ? Infinity : MOST));
  $("all_runs").hidden = outputs.length > 0 || first.size === found.length;
  $("all_runs").textContent = `${t("Show all")} (${found.length})`;
  for (const row of rows) {
    const item = items.get(row.output);
    item.hidden = outputs.length ? outputs.length > 1 || outputs[0] !== row.output : !first.has(row.output);
    item.show(row);
  }
}

function newItem(output) {
  const part = (tag, className) => element(tag, {className});
  const chosen = element("input", {type: "checkbox", id: `show${output}`});
  chosen.addEventListener("change", () => {
    remember({ticked: [...listed("ticked").filter(one => one !== output), ...(chosen.checked ? [output] : [])].join("|")});
    showList();
  });
  const title = element("a", {href: to(output), id: `open${output}`}), tags = part("span"), about = part("div");
  const state = part("span", "state"), what = element("div", {className: "what"}, element("h2", {className: "title"}, title, tags), about);
  const below = part("div", "below"), reason = part("div", "reason"), line = element("pre", {tabIndex: 0}), copying = element("button");
  copying.addEventListener("click", () => copy(copying, line));
  const summary = element("summary"), command = element("details", {}, summary, element("div", {className: "command"}, line, copying));
  const bar = element("progress", {max: 1}), told = part("div", "small"), buttons = part("p", "buttons"), note = part("div", "note");
  below.append(bar, told, reason, buttons, note, command);
  const item = element("li", {className: "run", output}, chosen, what, state, below);
  let before = "", offered = "";
  item.show = row => {
    chosen.checked = listed("ticked").includes(output);
    chosen.hidden = shown().length > 0 || !isRun(row);
    const language = document.documentElement.lang;
    const now = JSON.stringify([row, language, row.state === "running" ? Math.floor(Date.now() / 5000) : 0]);
    if (now === before || item.contains(document.activeElement) && document.activeElement.closest(".note")) return;
    before = now;
    const {step, steps, loss, eval_loss: held, eta_seconds: left} = row.progress, running = row.state === "running";
    const quiet = running && step ? Math.round(Date.now() / 1000 - row.changed) : 0;  // a run writes every few steps
    title.textContent = titleOf(row);
    chosen.ariaLabel = labelled("Compare", titleOf(row));
    state.className = `state ${row.state}`;
    const real = row.command.replace(/^make rehearse-/, "make ");
    state.textContent = `${SIGNS[row.state]} ${!row.stopping ? t(row.state) : t(step ? "stopping: saving a checkpoint" : "stopping")}`;
    tags.replaceChildren(...(row.about.tags || "").split(/[,，\s]+/).filter(Boolean).map(text => element("a", {className: "tag", textContent: text, href: `?${new URLSearchParams({view: "runs", shown: "", q: text})}`})));
    about.textContent = row.about.note || "";
    summary.textContent = t("Command");
    copying.textContent = t("Copy");
    line.textContent = row.command;
    command.hidden = !row.command;
    bar.hidden = !running;
    steps ? bar.value = step / steps : bar.removeAttribute("value");
    bar.ariaLabel = `${t("Step")} ${step ?? 0}`;
    const facts = [step && `${t("step")} ${step.toLocaleString("en")}${steps ? ` ${t("of")} ${steps.toLocaleString("en")}` : ""}`,
      loss != null && `${t("loss")} ${loss.toFixed(4)}`, row.state === "finished" && held != null && `${t("loss on held-out rows")} ${held.toFixed(4)}`, running && !row.stopping && left != null && labelled("minutes left", Math.ceil(left / 60)),
      running && isRun(row) && !step && (row.kept ? `${t("it goes on from step")} ${row.kept}` : t("it starts: the first step comes in a while")), quiet > 20 && `${t("last written, seconds ago:")} ${quiet}`, !(isRun(row) && step) && row.said, !running && duration(row) && `${t("took")} ${duration(row)}`, output];
    told.textContent = facts.filter(Boolean).join(" · ");
    reason.replaceChildren(...(rehearsed(row) ? [element("p", {className: "good", textContent: real ? labelled("The rehearsal passed. The real run", real) : t("The rehearsal passed.")})] : reasonOf(row)));
    const {progress, changed, said, summary: _, ...rest} = row, pressed = JSON.stringify([rest, language]), active = document.activeElement?.id;
    if (pressed !== offered) buttons.replaceChildren(...buttonsOf(row));  // else a button that asks for a second press stays
    offered = pressed;
    if (active && buttons.contains($(active))) $(active).focus();
  };
  item.edit = row => editNote(note, row);
  return item;
}

// null of a run of a terminal, whose start is not known.
function duration({began, changed}) {
  const seconds = Math.round(changed - began);
  return seconds > 0 ? seconds < 100 ? `${seconds} s` : `${Math.round(seconds / 60)} ${t("minutes")}` : null;
}

// Why a run has failed: what is wrong and the sentence with the fix; the rest of a long one unfolds.
function reasonOf({reason, exit_code: code, state}) {
  if (state !== "failed") return [];
  const ended = code ? ` (${t("exit code")} ${code})` : "";
  const cause = reason.match(/(?<=[:：] 1\. ).+?(?= 2\. |$)/)?.[0];  // of those that a run names, the likeliest
  const sentences = reason.split(/(?<=[.!?])\s+(?=[^a-z0-9])|(?<=[。！？])\s*/u).filter(Boolean);
  const fix = cause ? labelled("The likeliest cause", cause) : sentences.slice(1).find(one => FIX.test(one)) || sentences.at(-1);
  const clipped = text => text.length > 240 ? `${text.slice(0, 240)} …` : text;
  const short = [...new Set([sentences[0], fix])].filter(Boolean).map(clipped).join(" ");
  if (short === reason || !reason) return [element("p", {className: "wrong", textContent: reason + ended})];
  return [element("p", {className: "wrong", textContent: short + ended}),
    element("details", {}, element("summary", {textContent: t("The whole message")}), element("p", {className: "wrong", textContent: reason}))];
}

function buttonsOf(row) {
  const found = [];
  if (row.state === "running" && !row.stopping) {
    if (row.trains) {
      const save = button(t("Save now"), `save${row.output}`, "save", {output: row.output});
      save.disabled = row.saves;  // until the run has seen it
      found.push(save);
    }
    if (row.can_stop) found.push(stopButton(row));
  }
  if (row.page) found.push(element("a", {href: row.page, target: "_blank", textContent: t("Open its page"), id: `page${row.output}`}));
  const anew = row.action === "demo" ? row.command.includes("grpo") : !row.result;  // no checkpoint is there
  if (row.can_resume) found.push(button(t(anew ? "Start anew" : "Resume"), `resume${row.output}`, "resume", {output: row.output}, !(anew && row.state === "failed")));
  if (row.result && !rehearsed(row)) found.push(link(t(row.result === row.output ? "Try" : "Try its newest checkpoint"), `try${row.output}`, toTry(row.result)));
  if (row.result && isRun(row) && row.state === "finished" && !row.rehearses) found.push(element("button", {textContent: t("Keep: merge, export, serve"), id: `keep${row.output}`, onclick: () => go({...toTry(row.result), keep: "1"})}));
  if (/^make download /.test(row.command) && row.state === "finished") found.push(link(t("Plan with it"), `with${row.output}`, {view: "plan", MODEL: row.output}));
  if (/^make demo( |$)/.test(row.command) && row.state === "finished") found.push(link(t("Fine-tune it"), `tune${row.output}`, {view: "plan", recipe: "lora-tiny"}));
  if (row.state === "failed" && row.action.startsWith("data-")) found.push(link(t("Mend it in the plan"), `mend${row.output}`, {view: "plan", DATA: given(row.command)}));
  if (row.choice && row.state !== "running") found.push(element("button", {textContent: t("Change and run again"), id: `plan${row.output}`, className: anew && row.state === "failed" ? "main" : "", onclick: () => go({...Object.fromEntries(Object.keys(parameters()).filter(name => name !== "language").map(name => [name, ""])), view: "plan", ...row.choice})}));
  found.push(element("button", {textContent: t("Name and notes"), id: `note${row.output}`, onclick: () => items.get(row.output).edit(row)}));
  return found;
}

function stopButton(row) {
  const saves = keeps(row), loses = isRun(row) && !saves;
  const made = element("button", {textContent: t(saves ? "Save and stop" : "Stop"), id: `stop${row.name}`});
  made.addEventListener("click", () => attempt(async () => {
    if (!isSure(made, t(saves ? "Press once more: it saves, stops, and can be resumed" : loses ? "Press once more: it stops, and what it has learned is lost" : "Really stop? Press once more"))) return;
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
  const saving = (text, hidden) => element("button", {textContent: text, onclick: () => attempt(async () => {
    await call("note", {output, hidden, ...Object.fromEntries(fields.map(([control]) => [control.name, control.value]))});
    place.replaceChildren();
    await showRuns();
  })});
  const {hidden = false} = about;
  place.replaceChildren(...fields.map(([, label]) => label), saving(t("Keep"), hidden), saving(t(hidden ? "Put it back into the list" : "Take it from the list; its files stay"), !hidden));
  fields[0][0].focus();
}

// ---- the charts

function keyOf(place) {
  const key = element("span", {className: "key"});
  key.style.background = colorOf(place);
  return key;
}

// Of runs of one minute the folders tell which is which.
function nameOf(output) {
  const row = rows.find(one => one.output === output), title = row && titleOf(row);
  return row ? title + (rows.some(one => one !== row && titleOf(one) === title) ? ` (${output})` : "") : output;
}

function series(output, place, key, dots) {
  const points = (kept.get(output)?.records || []).filter(record => record[key] != null).map(record => [record.global_step, key === "peak_memory_bytes" ? record[key] / GIB : record[key]]);
  return {name: nameOf(output), kind: dots ? t("evaluation") : "", color: colorOf(place), points, dots};
}

// The plan of the first step is known when the run has written its summary.
function plannedMemory(output, place, measured) {
  const bytes = rows.find(row => row.output === output)?.summary.first_step_memory?.planned_peak_bytes;
  const ends = [measured.points[0], measured.points.at(-1)].filter(Boolean);
  return {name: nameOf(output), kind: t("planned"), color: colorOf(place), points: bytes ? ends.map(([step]) => [step, bytes / GIB]) : [], dots: true};
}

const zoomed = () => parameters().zoom?.split("-").map(Number) || null;
const allSteps = () => shown().flatMap(output => (kept.get(output)?.records || []).map(record => record.global_step)).reduce(([low, high], step) => [Math.min(low, step), Math.max(high, step)], [Infinity, 0]);

// range: null for all steps.
function zoomTo(range) {
  const [first, last] = allSteps(), within = step => Math.min(last, Math.max(first, step));
  const [from, to] = range ? [within(Math.floor(range[0])), within(Math.ceil(range[1]))] : [first, last];
  if (to - from < 2 && last - first > 2) return;
  remember({zoom: from === first && to === last ? "" : `${from}-${to}`});
  showCurves();
}

// By keys and buttons: around the step that is read, else around the middle.
function zoomBy(times) {
  const [first, last] = zoomed() || allSteps(), middle = reading ?? (first + last) / 2;
  zoomTo([middle - (middle - first) * times, middle + (last - middle) * times]);
}

function showCurves() {
  const outputs = shown(), now = parameters();
  drawing.smooth.value = now.smooth || 0;
  drawing.log.checked = now.log === "1";
  const width = $("curves").clientWidth, beside = width >= 850 ? (width - 16) / 2 : width;  // of the first chart, of the others
  const key = JSON.stringify(outputs) + JSON.stringify([width, outputs.map(output => [kept.get(output)?.offset, kept.get(output)?.identity, nameOf(output)]), now.smooth, now.log, now.zoom, document.documentElement.lang,
    rows.filter(row => outputs.includes(row.output)).map(row => row.state)]);
  if (key === drawn) return;
  if (!drawn.startsWith(JSON.stringify(outputs))) reading = null;
  drawn = key;
  const view = {smooth: Number(drawing.smooth.value), log: drawing.log.checked, zoom: zoomed()};
  const kinds = outputs.flatMap(output => Object.keys(kept.get(output)?.records.find(record => record.reward != null) || {}));
  const rewards = [...new Set(kinds)].filter(key => key.startsWith("reward_"));
  const made = [];
  for (const [title, key, second, write, unit] of [...CHARTS, ...rewards.map(key => [labelled("Reward", key.slice(7)), key, null, small, "reward"])]) {
    const lines = outputs.flatMap((output, place) => {
      const line = series(output, place, key, false);
      const another = second ? series(output, place, second, true) : plannedMemory(output, place, line);
      return second || key === "peak_memory_bytes" ? [line, another] : [line];
    });
    const dashed = lines.find(line => line.dots && line.points.length)?.kind, full = t(title) + (dashed ? ` (${labelled("dashed", dashed)})` : "");
    const picture = chart(full, lines, write, view, made.length ? beside : width, {x: t("step"), y: t(unit)});
    if (picture) made.push(element("div", {}, element("h3", {textContent: full}), picture, element("p", {className: "read small"})));
  }
  const told = outputs.length === 1 ? scores(outputs[0]) : "";
  const legend = outputs.length > 1 && element("ul", {className: "legend"}, ...outputs.map((output, place) => element("li", {}, keyOf(place), nameOf(output))));
  const focused = document.activeElement.closest("#curves svg")?.ariaLabel;
  $("curves").replaceChildren(...(told ? [element("p", {className: "legend", textContent: told})] : []), ...(legend ? [legend] : []), ...made);
  if (focused) [...$("curves").querySelectorAll("svg")].find(one => one.ariaLabel === focused)?.focus();
  if (reading !== null) readAll(reading);
  $("drawing").hidden = !made.length;
  $("zoom_out").hidden = !view.zoom;
}

function readAll(step) {
  reading = step;
  for (const place of $("curves").querySelectorAll("svg")) place.nextSibling.replaceChildren(...place.read(step));
}

// What a measure was and is; null before it has been taken twice.
function firstAndLast(output, key) {
  const values = (kept.get(output)?.records || []).map(record => record[key]).filter(value => value != null);
  return values.length > 1 ? [values[0], values.at(-1)] : null;
}

// Whether it learns, in words: by the losses on held-out rows where there are two, and once enough steps have followed the warm-up: 20 or a tenth of a run that goes on, 10 of one that has ended. Losses of single steps are noise, so those of training also count by halves.
function scores(output) {
  const row = rows.find(one => one.output === output), rewards = firstAndLast(output, "reward"), losses = firstAndLast(output, "loss");
  if (rewards) return `${t("reward went from")} ${small(rewards[0])} ${t("to")} ${small(rewards[1])}`;
  if (!losses || !row) return "";
  const records = kept.get(output).records, points = records.filter(one => one.loss != null), {steps = 0} = row.progress, running = row.state === "running";
  const {warmup_steps: warmup, warmup_ratio: ratio} = row.summary.arguments || {};
  const warm = Number(warmup) || Math.ceil(steps * (Number(ratio) || 0)), needed = running ? Math.max(20, steps / 10) : 10;
  if (losses[1] > losses[0] + CLIMB) return `${t("The loss has climbed: lower the learning rate. It went from")} ${losses[0].toFixed(3)} ${t("to")} ${losses[1].toFixed(3)}`;
  if (points.length < 3 || points.at(-1).global_step < warm + needed) return t(running ? "It is too early to say whether it learns." : "These are too few steps to say whether it has learned.");
  const mean = some => some.reduce((sum, one) => sum + one.loss, 0) / some.length, middle = Math.ceil(points.length / 2);
  const fell = losses[1] < losses[0], falls = mean(points.slice(-middle)) < mean(points.slice(0, middle));
  const pair = (first, last) => `${first.toFixed(3)} ${t("to")} ${last.toFixed(3)}`, after = isChinese() ? "，" : ", ";
  const measured = records.filter(one => one.eval_loss != null), held = measured.map(one => one.eval_loss), last = held.at(-1), beside = `${after}${t("on training rows from")} ${pair(...losses)}`;
  if (held.length < 2) return `${t(fell !== falls ? "no clear trend: loss went from" : fell ? "learning: loss fell from" : "not learning: loss went from")} ${pair(...losses)}` + (held.length ? `${after}${labelled("on held-out rows", last.toFixed(3))}` : "");
  const best = measured.findLast(one => one.eval_loss === Math.min(...held));
  if (last > 1.02 * best.eval_loss && fell && falls) return `${t("overfitting: on held-out rows loss rose from")} ${pair(best.eval_loss, last)} ${isChinese() ? "（" : "("}${t("since step")} ${best.global_step}${isChinese() ? "）" : ")"}${beside}`;
  return `${t(last < held[0] ? "learning: on held-out rows loss fell from" : "not learning: on held-out rows loss went from")} ${pair(held[0], last)}${beside}`;
}

// ---- differences

const inARow = words => words.join(isChinese() ? "、" : ", ");

// 1e-3 and 0.001, 1 and true are the same.
function plain(value) {
  if (value === true || value === "true" || value === "True") return "1";
  if (value === false || value === "false" || value === "False") return "0";
  if (value === null || value === undefined || value === "None") return "";
  return value !== "" && Number.isFinite(Number(value)) ? String(Number(value)) : String(value);
}

// As a person writes it: no name of an enumeration, no list of one.
const written = value => plain(value) === "" ? "–" : plain(value).replace(/^[A-Z]\w+\.([A-Z_]+)$/, (_, name) => name.toLowerCase()).replace(/^\['([^']*)'\]$/, "$1");

function showDifferences() {
  const some = shown().map(output => rows.find(row => row.output === output)).filter(Boolean);
  $("differences").hidden = some.length < 2;
  if (some.length < 2) return;
  const rewarded = some.every(({output}) => firstAndLast(output, "reward")), measure = rewarded ? "reward" : "loss";
  const ends = new Map(some.map(row => [row, (kept.get(row.output)?.records || []).findLast(one => one[`eval_${measure}`] != null)]));
  const score = row => ends.get(row)?.[`eval_${measure}`] ?? null;
  const order = (one, other) => score(one) === null || score(other) === null ? (score(one) === null) - (score(other) === null) : (score(one) - score(other)) * (rewarded ? -1 : 1);
  const cannot = whyUnranked(some, score), ranked = cannot ? some : [...some].sort(order);
  const values = ranked.map(row => row.summary.arguments || {});
  const chosen = [...new Set(ranked.flatMap(row => row.chosen))].filter(name => !NOISE.test(name));
  const typed = name => ranked.some(row => row.command.includes(`--${name} `));  // a run before its end may know no others
  const differ = chosen.filter(name => (typed(name) || values.every(one => name in one)) && new Set(values.map(one => written(one[name]))).size > 1);
  differ.sort((one, other) => typed(other) - typed(one) || one.localeCompare(other));
  const alike = new Set(some.map(row => titleOf(row, false))).size === 1;  // their folders and times tell which is which
  const head = ranked.map((row, rank) => {
    const {output} = row, name = !alike || row.about.name ? nameOf(output) : `${lastOf(output)} · ${when(row)}`;
    const rest = shown().filter(one => one !== output).join("|"), best = element("span", {className: "good", textContent: `★ ${t("best")} `});
    return element("th", {scope: "col"}, ...(cannot || rank ? [] : [best]), keyOf(shown().indexOf(output)), element("a", {href: to(output), textContent: name}), " ",
      element("a", {href: to(rest), textContent: "✕", title: t("Take out"), ariaLabel: labelled("Take out", nameOf(output))}));
  });
  // What is otherwise than in the first run stands out.
  const line = (name, cells, marked) => element("tr", {}, element("th", {scope: "row"}, ...name.split(/(?<=_)/).flatMap(part => [part, element("wbr")])),
    ...cells.map(text => element("td", {className: marked && text !== cells[0] ? "other" : "", textContent: text ?? "–"})));
  $("differences").querySelector("table").replaceChildren(element("tr", {}, element("td", {textContent: alike ? titleOf(some[0], false) : ""}), ...head),
    ...(some.some(row => score(row) !== null) ? [line(t(rewarded ? "Last reward on held-out rows" : "Last loss on held-out rows"), ranked.map(row => score(row) !== null && `${score(row).toFixed(4)} (${t("step")} ${ends.get(row).global_step})` || null))] : []),
    ...differ.map(name => line(`--${name}`, values.map(one => written(one[name])), true)),
    line(t(rewarded ? "Reward, first → last" : "Loss, first → last"), ranked.map(({output}) => firstAndLast(output, measure)?.map(value => value.toFixed(3)).join(" → "))),
    line(t("Step"), ranked.map(({progress: {step, steps}}) => step && (steps ? `${step} ${t("of")} ${steps}` : step))),
    line(t("State"), ranked.map(row => `${SIGNS[row.state]} ${t(row.state)}`)),
    line(t("Duration"), ranked.map(duration)));
  const [, next] = values, settings = differ.filter(name => written(values[0][name]) !== written(next[name])).map(name => `${name} ${written(values[0][name])} (${written(next[name])})`);
  const steps = ranked.map(row => ends.get(row)?.global_step), few = (some, most = 3) => [...some.slice(0, most), ...(some.length > most ? ["…"] : [])].join(", ");
  const why = cannot ? [] : [settings.length ? labelled("Its settings that are other than those of the next one", `${few(settings, 4)}.`) : t("No setting that was given differs from the next one's.")];
  const measured = new Set(steps).size === 1 ? `${t("step")} ${steps[0]}` : labelled("their steps differ", few(steps, 4));
  const better = cannot || `${labelled(t(rewarded ? "The highest reward on held-out rows" : "The lowest loss on held-out rows"), nameOf(ranked[0].output))}, ${score(ranked[0]).toFixed(4)} (${t("then")} ${few(ranked.slice(1).map(row => score(row).toFixed(4)))}; ${measured})`;
  const tokens = cannot ? [] : ranked.map(row => ends.get(row).eval_tokens).filter(count => count < FEW_TOKENS);
  if (tokens.length) why.push(`${labelled("Measured on few tokens, so the order may be chance", few(tokens))}.`);
  if ($("better").textContent !== better) $("better").textContent = better;
  $("why").textContent = why.join(" ");
}

// Why no run is the better one by its losses on held-out rows; "" where one is.
function whyUnranked(some, score) {
  const values = some.map(row => row.summary.arguments || {});
  const differ = name => values.every(one => name in one) && new Set(values.map(one => written(one[name]))).size > 1;
  const last = value => written(value).split("/").filter(Boolean).pop() || "–";
  const other = unlike(values).flatMap(([title, flags]) => {
    const name = Object.keys(values[0]).find(one => flags.test(one) && differ(one)), found = [...new Set(values.map(one => last(one[name])))];
    return name ? [title + (found.length > 1 ? ` (${found.join(" / ")})` : "")] : [];
  });
  if (new Set(some.map(row => row.method)).size > 1) other.unshift(t("the method"));
  const [before, after] = isChinese() ? ["", "。"] : [" ", ". "];
  if (other.length) return `${t("These runs cannot be ranked by their losses, for they differ in")}${before}${inARow(other)}${after}${t("Ask both results the same questions under Try, or train again with these alike.")}`;
  return some.every(row => score(row) !== null) ? "" : t("Which is better shows the loss on held-out rows, which they have not all measured yet.");
}

async function showLog() {
  const options = shown().flatMap(output => {
    const row = rows.find(one => one.output === output);
    const logs = [...(row?.name ? [["console", t("all that the command prints")]] : []), ...Array.from({length: row?.ranks || 0}, (_, rank) => [rank, `${t("rank")} ${rank}`])];
    return logs.map(([of, title]) => [`${output}|${of}`, shown().length > 1 ? labelled(nameOf(output), title) : title]);
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

$("search").addEventListener("input", () => {
  remember({q: $("search").value.trim()});
  showList();
});
$("searching").addEventListener("submit", event => event.preventDefault());
$("sort").addEventListener("change", () => {
  remember({sort: $("sort").checked ? "loss" : ""});
  showList();
});
$("all_runs").addEventListener("click", () => {
  remember({all: "1"});
  showList();
});
$("compare").addEventListener("click", () => go({shown: parameters().ticked, ticked: ""}));
$("with").addEventListener("change", () => go({shown: [...shown(), $("with").value].join("|")}));
$("log_of").addEventListener("change", () => attempt(showLog));
$("drawing").addEventListener("submit", event => event.preventDefault());
$("drawing").addEventListener("input", () => {
  remember({smooth: Number(drawing.smooth.value) ? drawing.smooth.value : "", log: drawing.log.checked ? "1" : ""});
  showCurves();
});
$("zoom_out").addEventListener("click", () => zoomTo(null));
$("as_csv").addEventListener("click", () => {
  const names = [...new Set(shown().flatMap(output => kept.get(output)?.records.flatMap(Object.keys) || []))];
  const lines = shown().flatMap(output => (kept.get(output)?.records || []).map(record => [`"${output.replaceAll('"', '""')}"`, ...names.map(name => record[name] ?? "")].join()));
  const address = URL.createObjectURL(new Blob([["run", ...names].join(), ...lines].map(line => `${line}\n`), {type: "text/csv"}));
  element("a", {href: address, download: "runs.csv"}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
});
$("closer").addEventListener("click", () => zoomBy(0.5));
$("farther").addEventListener("click", () => zoomBy(2));
listen($("curves"), {read: readAll, zoomTo, reading: () => reading});
addEventListener("resize", () => { if (shown().length && !$("runs").hidden) showCurves(); });
