// The result of a run: a chat with it beside its base, and what comes after: export, merge, evaluate, serve.

import {chat} from "../chat/chat.js";
import {$, PRESSED, attempt, call, copy, element, follow, isChinese, labelled, listed, parameters, poll, remember, request, size, t, toTry} from "./common.js";
import {SIGNS} from "./runs.js";

const EVERY = 1500;  // milliseconds between two looks at the server
const DELAY = 300;  // milliseconds from a key to the result that it names
const states = () => ({none: "", loading: t("Loading …"), ready: t("Ready."), ended: t("The server has ended. The end of its log:")});
const kinds = () => ({model: t("A model"), LoRA: t("A LoRA"), prefix: t("A prefix")});
const actions = () => ({evaluate: t("Evaluate on the held-out rows"), gguf: t(about.kind === "LoRA" ? "Merge it and export to GGUF: one file for Ollama, LM Studio and llama.cpp on any computer" : "Export to GGUF: one file for Ollama, LM Studio and llama.cpp on any computer"),
                        export: t("Export to the format of Hugging Face, for other programs and hubs"), merge: t("Merge the adapter into its base, a model of this repository"), serve: t("Serve it for programs, by the OpenAI API"), push: t("Send it to a hub, after an export")});
const lacking = () => ({export: t("It sends the export, which is not there yet: export first."), folder: t("Its folder is there already. To make it again, name another one above."),
                         to: t("Name the repository above, as TO.")});
const {folder, base} = $("of_result").elements, output = $("new_folder"), to = $("to"), quant = $("quant");
let typing, timer, looking = false, panel = null, language = "", about = null;  // the result that is named, and what its run had

const chosen = () => ({folder: folder.value.trim(), base: base.value.trim(), output: output.value.trim(), to: to.value.trim(), quant: quant.value || parameters().quant || ""});

// Lines that use what a task has made.
function uses(target, made, files) {
  const file = files.find(({name}) => name.endsWith(".gguf"))?.name, has = name => files.some(one => one.name === name), name = made.split("/").pop();
  const quoted = path => /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`, path = quoted(made);
  if (file) return [`llama-cli -m ${quoted(`${made}/${file}`)}`, ...(has("Modelfile") ? [`ollama create ${quoted(name)} -f ${quoted(`${made}/Modelfile`)} && ollama run ${quoted(name)}`] : [])];
  if (target === "merge") return [`make serve MODEL=${path}`];
  if (target !== "export") return [];
  const kind = has("adapter_config.json") ? ["peft", "AutoPeftModelForCausalLM"] : ["transformers", "AutoModelForCausalLM"];
  return [`python -c 'from ${kind[0]} import ${kind[1]}; model = ${kind[1]}.from_pretrained("${made}")'`, ...(kind[0] === "peft" ? [] : [`vllm serve ${path}`])];
}

// The files of a folder, or one file by itself, with sizes.
function filesOf(place, files) {
  const all = listed(`${files.length} ${t("files")}`, size(files.reduce((sum, one) => sum + one.bytes, 0)));
  return element("details", {open: files.length < 5}, element("summary", {textContent: labelled(place, all)}), element("ul", {className: "small"}, ...files.map(({name, bytes}) =>
    element("li", {textContent: labelled(name, size(bytes))}))));
}

export async function showTry() {
  const now = parameters(), {folder: loaded} = await call("trial");
  folder.value = now.result || loaded;
  base.value = now.base || "";
  output.value = now.folder || "";
  to.value = now.to || "";
  quant.value = now.quant || "q8_0";
  if (!panel || language !== document.documentElement.lang) {
    language = document.documentElement.lang;
    panel = chat($("chat"), {t, send: (path, body, signal) => request(`trial/${path}`, body, signal)});
  }
  const found = (await call("runs")).filter(row => row.result);
  $("results").replaceChildren(...found.map(row => new Option(row.result)));
  const others = found.filter(row => row.result !== folder.value);
  $("what_to_try").hidden = Boolean(folder.value);
  $("what_to_try").textContent = t("Here you ask what a run has trained, beside the model that it began with. Press a result, or name the folder of a run, a model or an adapter; only an adapter has a base, which its run mostly names.");
  $("choose_result").open = !folder.value;
  $("choose_result").hidden = Boolean(folder.value) && !others.length;
  $("choose_result").replaceChildren(element("summary", {textContent: t(found.length ? folder.value ? "Other results here" : "Results here" : "No run here has a result yet.")}), element("ul", {}, ...others.map(row =>
    element("li", {}, element("a", {href: `?${new URLSearchParams(toTry(row.result))}`, textContent: row.about.name || row.result}),
      element("span", {className: "small", textContent: ` ${new Date(row.changed * 1000).toLocaleString(document.documentElement.lang)}`})))));
  try {
    await describe();
    // A press on "Try" or on a link here loads at once, but not where it disturbs a training; a link from elsewhere never does.
    if (now.keep) $("after").scrollIntoView();  // nothing is loaded for what comes after
    else if (history.state === PRESSED && about && about.folder !== loaded && !about.training.length) await call("trial/start", chosen());
  } finally {
    await look();
  }
}

// ---- the result

function changed(event) {
  if (event.target === folder) output.value = to.value = "";  // which are another result's
  clearTimeout(typing);
  typing = setTimeout(() => {
    remember({result: folder.value.trim(), base: base.value.trim(), folder: output.value.trim(), to: to.value.trim(), quant: quant.value === "q8_0" ? "" : quant.value});
    attempt(() => describe());
  }, DELAY);
}

// again: of the same result, so that nothing disappears meanwhile.
async function describe(again = false) {
  if (!again) {
    about = null;
    $("load").disabled = true;
    $("about_result").replaceChildren();
    $("tasks").replaceChildren();
    $("after").hidden = !$("after").contains(document.activeElement);  // which would lose the keys that follow
  }
  if (!folder.value.trim()) return;
  const wanted = JSON.stringify(chosen());
  const [found, rows, data] = await Promise.all([call("result", chosen()), call("runs"), call("held_out", chosen())]);
  if (wanted !== JSON.stringify(chosen())) return;
  const {kind, base: named, weights_bytes: weights, tasks, training, files, quants, free_bytes: free} = found, kept = chosen().quant || "q8_0";
  if (!quant.options.length) quant.replaceChildren(...quants.map(name => new Option(name)));
  quant.value = kept;
  $("load").disabled = false;
  about = {...found, data};
  base.placeholder = named;
  const lines = [listed(kinds()[kind], named && `${t("of the base")} ${named}`), labelled("Memory of its weights, about", size(weights)) + (free ? ` ${t("of")} ${size(free)} ${t("that are free here")}` : "")];
  lines.push(...training.map(run => listed(labelled("In training here", run.output), labelled("memory of a rank", size(run.peak_memory_bytes)))));
  if (training.length) lines.push(t("It is not loaded by itself while one trains: both compute more slowly then."));
  $("about_result").replaceChildren(...lines.map(text => element("li", {textContent: text})), element("li", {}, filesOf(about.folder, files)));
  const what = command => command.replace(/ OUTPUT=evaluations\/\S+|-merged(-\d+)?(?= )/g, "");  // which are new each time
  if (again) for (const [target, task] of Object.entries(tasks)) $(`task_${target}`)?.renew(task);
  else $("tasks").replaceChildren(...Object.keys(actions()).filter(target => target in tasks).map(target => taskOf(target, tasks[target], rows.find(row => what(row.command) === what(tasks[target].command)))));
  $("after").hidden = false;
}

// task: {command, lacks: why it cannot start now, output, files}. before: its row among the runs, if it was started before.
function taskOf(target, task, before) {
  const button = (title, id, className = "") => element("button", {type: "button", id: `${id}_${target}`, className, textContent: t(title), ariaLabel: labelled(title, task.command)});
  const text = element("pre", {tabIndex: 0}), made = element("div", {className: "made", hidden: true}), told = element("p", {className: "small"});
  const copying = button("Copy", "copy"), starting = button("Start", "start"), stopping = button("Stop", "stop");
  const bar = element("progress", {ariaLabel: actions()[target], hidden: true}), links = element("p", {className: "buttons", hidden: true});
  const log = element("pre", {tabIndex: 0, hidden: true}), scored = element("div");
  told.setAttribute("role", "status");
  stopping.hidden = true;
  const hint = element("p", {className: "hint"});
  let name = "", missing = "", running = false;
  const renew = ({command, lacks, output: place, files}) => {
    made.hidden = !files.length || !["export", "gguf", "merge", "evaluate"].includes(target);
    if (!made.hidden) made.replaceChildren(element("p", {className: "good", textContent: t("Here it is:")}), filesOf(place, files), ...uses(target, place, files).map(line => {
      const use = element("pre", {textContent: line, tabIndex: 0}), copying = element("button", {type: "button", textContent: t("Copy"), ariaLabel: labelled("Copy", line)});
      copying.addEventListener("click", () => copy(copying, use));
      return element("div", {className: "command"}, use, copying);
    }));
    missing = lacks || (target === "push" && !to.value.trim() ? "to" : "");
    text.textContent = command;
    hint.textContent = lacking()[missing] || "";
    starting.disabled = running || Boolean(missing);
  };
  renew(task);
  const say = (line, state) => {
    if (told.textContent !== line) told.textContent = line;
    told.className = `small state ${state}`;
  };
  const attemptHere = work => work().catch(error => say(`${SIGNS.failed} ${error.message}`, "failed"));
  const show = row => {
    running = row.state === "running";
    hint.className = row.state === "finished" ? "small" : "hint";
    const words = `${SIGNS[row.state]} ${t(row.state)}`;
    name = row.name;
    starting.disabled = running || Boolean(missing);
    stopping.hidden = !row.can_stop;
    bar.hidden = !running || Boolean(row.page);
    const found = [];
    const sent = row.state === "finished" && target === "push" && log.textContent.match(/https:\/\/\S+$/m)?.[0];
    if (sent) found.push(element("a", {href: sent, target: "_blank", rel: "noreferrer", textContent: labelled("Open its page", sent)}));
    if (row.page) found.push(element("a", {href: `${row.page}?${new URLSearchParams({studio: location.href})}`, target: "_blank", textContent: labelled("Open its page", row.page)}));
    if (row.state === "finished" && target === "merge") found.push(element("a", {href: `?${new URLSearchParams(toTry(row.output))}`, textContent: t("Try it")}));
    if (row.name) found.push(element("a", {href: `?${new URLSearchParams({view: "runs", shown: row.output})}`, textContent: t("Its log among the runs")}));
    if ([...links.children].join() !== found.join()) links.replaceChildren(...found);  // a link joins as its address
    links.hidden = !found.length;
    say(running ? row.page ? `${t("It answers, until Stop ends it.")} ${labelled("Base URL for programs", `${row.page}v1`)}` : row.said || words : [words, row.state === "finished" ? row.output : row.reason].filter(Boolean).reduce(labelled), row.state);
  };
  const toItsEnd = async first => {
    show(first);
    const row = first.state === "running" ? await follow(first.output, show, () => told.isConnected) : first;
    log.hidden = row.state !== "failed" && !(row.state === "finished" && target === "push");  // which names where it has sent
    if (!log.hidden) log.textContent = await call(`log?${new URLSearchParams({output: row.output, of: "console"})}`);
    log.scrollTop = log.scrollHeight;
    if (target === "evaluate" && row.state === "finished") scored.replaceChildren(...evaluated(await call(`evaluation?${new URLSearchParams({output: row.output})}`)));
    show(row);  // with what the log names
    if (first.state === "running" && row.state === "finished" && told.isConnected) await describe(true);  // what can be done now
  };
  copying.addEventListener("click", () => copy(copying, text));
  starting.addEventListener("click", () => attemptHere(async () => {
    starting.disabled = log.hidden = true;
    try {
      await toItsEnd({state: "running", output: await call(`task/${target}`, chosen())});
    } finally {
      running = false;
      starting.disabled = Boolean(missing);
    }
  }));
  stopping.addEventListener("click", () => attemptHere(() => call("stop", {name})));
  if (before) attemptHere(() => toItsEnd(before));
  return element("div", {id: `task_${target}`, renew}, element("h3", {textContent: actions()[target]}),
    element("div", {className: "command"}, text, element("div", {className: "buttons"}, copying, " ", starting, " ", stopping)), hint, bar, told, scored, made, links, log);
}

// An evaluation in words, as a table of measures and as the first answers; base: null without one.
const measures = () => ({exact_match: t("answers that are the reference, letter by letter"), f1: t("F1, words shared with the reference")});
const FEW_ROWS = 30;

function evaluated({rows, measures: found, answers}) {
  const based = found.some(({base}) => base !== null), share = value => typeof value === "number" ? `${(100 * value).toFixed(1)}%` : "–";
  const table = (head, lines) => element("div", {className: "scroll"}, element("table", {}, element("tr", {}, ...head.map(text => element("th", {scope: "col", textContent: text}))),
    ...lines.map(cells => element("tr", {}, ...cells.map(text => element("td", {textContent: text}))))));
  const columns = (first, ...more) => [...first, ...(based ? [t("Base")] : []), t("Result"), ...more], cells = ({base, result}, write) => [...(based ? [write(base)] : []), write(result)];
  const better = found.filter(({base, result}) => result > base).length, worse = found.filter(({base, result}) => result < base).length;
  const verdict = !based ? "" : better && worse ? t("by one measure better than the base, by another worse") : better ? t("better than the base") : worse ? t("worse than the base") : t("no better than the base");
  const told = listed(labelled("Held-out rows", rows.toLocaleString("en")), verdict) + (rows < FEW_ROWS ? `${isChinese() ? "；" : "; "}${t("so few rows say little: the difference may be chance")}` : "");
  return [element("p", {textContent: told}), table(columns([t("Measure")]), found.map(one => [measures()[one.name] || one.name, ...cells(one, share)])),
    element("details", {}, element("summary", {textContent: `${t("Answers")} (${answers.length})`}),
      table(columns([t("Question"), t("Reference")]), answers.map(one => [one.asked, one.reference, ...cells(one, text => text ?? "–")])))];
}

// ---- the server

async function look() {
  clearTimeout(timer);
  if (looking) return;
  looking = true;
  try {
    const {state, folder: loaded, base, models, log} = await call("trial");
    const here = state !== "none" && loaded === about?.folder;
    const told = loaded ? labelled(loaded, here || !about ? states()[state] : t("loaded at the moment; Load takes its place.")) : "";
    if ($("trial").textContent !== told) $("trial").textContent = told;
    if ($("trial_log").textContent !== log) $("trial_log").textContent = log;
    $("trial").classList.toggle("wrong", here && state === "ended");
    $("trial_log").hidden = !log || state === "ready" || !here;
    $("load").hidden = here && state !== "ended";
    $("unload").hidden = state === "none";
    $("chat").hidden = !here || state !== "ready";
    const title = id => id === "base" ? labelled("Base", base.split("/").pop()) : labelled("Result", about.name);
    if (!$("chat").hidden) panel.use(models.map(id => ({id, title: title(id), chats: about.chat})), `try ${loaded}`, about.data);
  } finally {
    looking = false;
    timer = setTimeout(() => { if (!$("try").hidden) poll(look); }, EVERY);
  }
}

async function serve(path) {
  panel.stop();
  history.replaceState(null, "");  // a reload loads nothing that was unloaded
  await call(`trial/${path}`, chosen());
  await look();
}

$("of_result").addEventListener("input", changed);
for (const one of [output, to, quant]) one.addEventListener("input", changed);
$("of_result").addEventListener("submit", event => {
  event.preventDefault();
  attempt(() => serve("start"));
});
$("unload").addEventListener("click", () => attempt(() => serve("stop")));
