// The result of a run: a chat with it beside its base, and what comes after: export, merge, evaluate, serve.

import {chat} from "../chat/chat.js";
import {$, attempt, call, copy, element, follow, parameters, poll, remember, request, t} from "./common.js";

const EVERY = 1500;  // milliseconds between two looks at the server
const DELAY = 300;  // milliseconds from a key to the result that it names
const GIB = 2 ** 30;
const states = () => ({none: "", loading: t("Loading …"), ready: t("Ready."), ended: t("The server has ended. The end of its log:")});
const kinds = () => ({model: t("A model"), LoRA: t("A LoRA"), prefix: t("A prefix")});
const titles = () => ({base: t("Base"), result: t("Result")});
const actions = () => ({export: t("Export to the format of Hugging Face"), merge: t("Merge the adapter into its base"), gguf: t("Export to GGUF, for llama.cpp and Ollama"),
                        evaluate: t("Evaluate on the held-out rows"), serve: t("Serve it for programs, by the OpenAI API"), push: t("Send it to a hub, after an export")});
const {folder, base} = $("of_result").elements, output = $("new_folder");
let typing, timer, looking = false, panel = null, language = "", chats = false;

const chosen = () => ({folder: folder.value.trim(), base: base.value.trim(), output: output.value.trim()});

export async function showTry() {
  const now = parameters();
  if (folder.value !== (now.result || "")) output.value = "";
  folder.value = now.result || "";
  base.value = now.base || "";
  if (!panel || language !== document.documentElement.lang) {
    language = document.documentElement.lang;
    panel = chat($("chat"), {t, store: "try", send: (path, body, signal) => request(`trial/${path}`, body, signal)});
  }
  const found = (await call("runs")).filter(row => row.result);
  $("results").replaceChildren(...found.map(row => new Option(row.result)));
  $("choose_result").hidden = Boolean(folder.value);
  $("choose_result").replaceChildren(found.length ? `${t("Results here")}: ` : t("No run here has a result yet."), ...found.map(row =>
    element("a", {href: `?${new URLSearchParams({view: "try", result: row.result})}`, textContent: row.about.name || row.result})));
  await look();
  await describe();
}

// ---- the result

function changed() {
  clearTimeout(typing);
  typing = setTimeout(() => {
    remember({result: folder.value.trim(), base: base.value.trim()});
    attempt(describe);
  }, DELAY);
}

async function describe() {
  $("load").disabled = true;
  $("about_result").replaceChildren();
  $("conversions").replaceChildren();
  $("after").hidden = true;
  if (!folder.value.trim()) return;
  const wanted = JSON.stringify(chosen());
  const found = await call("result", chosen());
  if (wanted !== JSON.stringify(chosen())) return;
  const {kind, base: named, weights_bytes: weights, commands, training, typed} = found;
  $("load").disabled = false;
  chats = found.chat;
  base.placeholder = named;
  const gib = bytes => bytes ? `${(bytes / GIB).toFixed(2)} GiB` : t("not known");
  const lines = [`${kinds()[kind]}${named && `, ${t("of the base")} ${named}`}`, `${t("Memory of its weights, about")}: ${gib(weights)}`];
  lines.push(...training.map(run => `${t("In training here")}: ${run.output}, ${t("memory of a rank")}: ${gib(run.peak_memory_bytes)}`));
  $("about_result").replaceChildren(...lines.map(text => element("li", {textContent: text})));
  $("conversions").replaceChildren(...Object.entries({...commands, ...typed}).map(([target, command]) => conversion(target, command, target in commands)));
  $("after").hidden = false;
}

// starts: not those for a terminal, which go on until they are stopped there or ask for a name.
function conversion(target, command, starts) {
  const text = element("pre", {textContent: command, tabIndex: 0});
  const copying = element("button", {type: "button", textContent: t("Copy"), ariaLabel: `${t("Copy")}: ${command}`});
  const starting = element("button", {type: "button", id: `convert_${target}`, className: "main", textContent: t("Start"), ariaLabel: `${t("Start")}: ${command}`});
  const told = element("p", {className: "small"});
  told.setAttribute("role", "status");
  copying.addEventListener("click", () => copy(copying, text));
  starting.addEventListener("click", () => attempt(async () => {
    starting.disabled = true;
    const bar = element("progress", {ariaLabel: actions()[target]});
    told.before(bar);
    try {
      const row = await follow(await call(`convert/${target}`, chosen()), line => { told.textContent = line; });
      told.textContent = row.state === "finished" ? `${t("finished")}: ${row.output}` : `${t(row.state)}: ${row.reason}`;
      told.classList.toggle("wrong", row.state !== "finished");
      if (target === "evaluate") told.after(element("pre", {textContent: await call(`log?${new URLSearchParams({output: row.output, of: "console"})}`), tabIndex: 0}));
    } finally {
      bar.remove();
      starting.disabled = false;
    }
  }));
  const buttons = element("div", {className: "buttons"}, copying, ...(starts ? [" ", starting] : []));
  return element("div", {}, element("h3", {textContent: actions()[target]}), element("div", {className: "command"}, text, buttons), told);
}

// ---- the server

async function look() {
  clearTimeout(timer);
  if (looking) return;
  looking = true;
  try {
    const {state, folder: loaded, models, log} = await call("trial");
    const told = [loaded, states()[state]].filter(Boolean).join(": ");
    if ($("trial").textContent !== told) $("trial").textContent = told;
    if ($("trial_log").textContent !== log) $("trial_log").textContent = log;
    $("trial_log").hidden = !log || state === "ready";
    $("unload").disabled = state === "none";
    $("chat").hidden = state !== "ready";
    panel.use(state === "ready" ? models.map(id => ({id, title: titles()[id], chats})) : []);
  } finally {
    looking = false;
    timer = setTimeout(() => { if (!$("try").hidden) poll(look); }, EVERY);
  }
}

async function serve(path) {
  panel.stop();
  await call(`trial/${path}`, chosen());
  await look();
}

$("of_result").addEventListener("input", changed);
output.addEventListener("input", changed);
$("of_result").addEventListener("submit", event => {
  event.preventDefault();
  attempt(() => serve("start"));
});
$("unload").addEventListener("click", () => attempt(() => serve("stop")));
