// The result of a run: asked beside its base, exported, merged.

import {$, attempt, call, copy, element, go, parameters, poll, remember, request, t} from "./common.js";

const EVERY = 1500;  // milliseconds between two looks at the server
const DELAY = 300;  // milliseconds from a key to the result that it names
const GIB = 2 ** 30;
const states = () => ({none: "", loading: t("Loading …"), ready: t("Ready."), ended: t("The server has ended. The end of its log:")});
const kinds = () => ({model: t("A model"), LoRA: t("A LoRA"), prefix: t("A prefix")});
const titles = () => ({base: t("Base"), result: t("Result")});
const {folder, base, output} = $("of_result").elements, question = $("question").elements;
let typing, timer, looking = false, asking = null;

const chosen = () => ({folder: folder.value.trim(), base: base.value.trim(), output: output.value.trim()});

export async function showTry() {
  const now = parameters();
  if (folder.value !== (now.result || "")) output.value = "";
  folder.value = now.result || "";
  base.value = now.base || "";
  $("results").replaceChildren(...(await call("runs")).map(row => new Option(row.output)));
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
  if (!folder.value.trim()) return;
  const wanted = JSON.stringify(chosen());
  const {kind, base: found, weights_bytes: weights, chat, commands, training} = await call("result", chosen());
  if (wanted !== JSON.stringify(chosen())) return;
  $("load").disabled = false;
  base.placeholder = found;
  question.chat.value = chat ? "1" : "";
  const gib = bytes => bytes ? `${(bytes / GIB).toFixed(2)} GiB` : t("not known");
  const lines = [`${kinds()[kind]}${found && `, ${t("of the base")} ${found}`}`, `${t("Memory of its weights, about")}: ${gib(weights)}`];
  lines.push(...training.map(run => `${t("In training here")}: ${run.output}, ${t("memory of a rank")}: ${gib(run.peak_memory_bytes)}`));
  $("about_result").replaceChildren(...lines.map(text => element("li", {textContent: text})));
  $("conversions").replaceChildren(...Object.entries(commands).map(conversion));
}

function conversion([target, command]) {
  const text = element("pre", {textContent: command, tabIndex: 0});
  const copying = element("button", {type: "button", textContent: t("Copy"), ariaLabel: `${t("Copy")}: ${command}`});
  const starting = element("button", {type: "button", id: `convert_${target}`, textContent: t("Start"), ariaLabel: `${t("Start")}: ${command}`});
  copying.addEventListener("click", () => copy(copying, text));
  starting.addEventListener("click", () => attempt(async () => {
    starting.disabled = true;
    try {
      go({view: "runs", shown: await call(`convert/${target}`, chosen())});
    } finally {
      starting.disabled = false;
    }
  }));
  return element("div", {className: "command"}, text, element("div", {className: "buttons"}, copying, " ", starting));
}

// ---- the server

async function look() {
  clearTimeout(timer);
  if (looking) return;
  looking = true;
  try {
    const {state, folder: loaded, models, log} = await call("trial");
    $("trial").textContent = [loaded, states()[state]].filter(Boolean).join(": ");
    $("trial_log").textContent = log;
    $("trial_log").hidden = !log || state === "ready";
    $("unload").disabled = state === "none";
    $("send").disabled = state !== "ready" || asking !== null;
    showColumns(models);
  } finally {
    looking = false;
    timer = setTimeout(() => { if (!$("try").hidden) poll(look); }, EVERY);
  }
}

async function serve(path) {
  asking?.abort();
  await call(`trial/${path}`, chosen());
  await look();
}

// ---- questions

function showColumns(models) {
  if ([...$("answers").children].map(column => column.dataset.model).join() === models.join()) return;
  $("answers").replaceChildren(...models.map(model => {
    const title = element("h3", {textContent: titles()[model], id: `title_${model}`});
    const answer = element("pre", {tabIndex: 0, ariaLive: "polite"});
    answer.setAttribute("aria-labelledby", title.id);
    const column = element("div", {}, title, answer, element("p", {className: "small", role: "status"}));
    column.dataset.model = model;
    return column;
  }));
}

async function ask() {
  asking = new AbortController();
  $("send").disabled = true;
  $("stop_answers").disabled = false;
  const asked = {chat: question.chat.value === "1", prompt: question.prompt.value,
                 temperature: Number(question.temperature.value), max_tokens: Number(question.max_tokens.value)};
  await Promise.all([...$("answers").children].map(column => answer(column, asked)));
  asking = null;
  $("stop_answers").disabled = true;
  await attempt(look);
}

// Texts of a model are texts, never HTML.
async function answer(column, asked) {
  const [, text, status] = column.children;
  const began = performance.now();
  text.textContent = "";
  text.setAttribute("aria-busy", "true");  // a screen reader reads the whole answer
  status.textContent = "…";
  status.classList.remove("wrong");
  try {
    for await (const piece of pieces(await request("trial/ask", {...asked, model: column.dataset.model}, asking.signal))) text.append(piece);
    status.textContent = `${text.textContent ? "" : `${t("An empty answer.")} `}${((performance.now() - began) / 1000).toFixed(1)} s`;
  } catch (error) {
    status.textContent = error.name === "AbortError" ? t("Stopped.") : error.message;
    status.classList.toggle("wrong", error.name !== "AbortError");
  }
  text.removeAttribute("aria-busy");
}

// The texts of a stream of events.
async function* pieces(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const {value, done} = await reader.read();
    if (done) throw Error(t("The server has ended. The end of its log:"));
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event === "data: [DONE]") return;
      const {error, choices} = JSON.parse(event.slice("data: ".length));
      if (error) throw Error(error.message);
      const {text, delta} = choices[0];
      yield text ?? delta.content ?? delta.reasoning_content ?? "";
    }
  }
}

$("of_result").addEventListener("input", changed);
$("of_result").addEventListener("submit", event => {
  event.preventDefault();
  attempt(() => serve("start"));
});
$("unload").addEventListener("click", () => attempt(() => serve("stop")));
$("question").addEventListener("submit", event => {
  event.preventDefault();
  if (asking === null && !$("send").disabled) ask();
});
$("stop_answers").addEventListener("click", () => asking?.abort());
