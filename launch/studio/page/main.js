// The start of the page, and what is on all of it.

import {$, TOKEN, attempt, call, go, isChinese, parameters, remember, speak} from "./common.js";
import "./data.js";
import {offer, showPlan} from "./plan.js";
import {showRuns} from "./runs.js";
import {showTry} from "./try.js";

const VIEWS = {plan: showPlan, runs: showRuns, try: showTry};

async function show() {
  const view = Object.hasOwn(VIEWS, parameters().view) ? parameters().view : "plan";
  for (const name of Object.keys(VIEWS)) {
    $(name).hidden = name !== view;
    name === view ? $(`to_${name}`).setAttribute("aria-current", "page") : $(`to_${name}`).removeAttribute("aria-current");
  }
  await attempt(VIEWS[view]);
}

async function begin() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    localStorage.setItem(TOKEN, token);
    history.replaceState(null, "", location.pathname + location.search);  // links to this page do not hold it
  }
  await speak(parameters().language || (navigator.language.startsWith("zh") ? "zh" : "en"));
  const offered = await attempt(() => call("offered"));
  if (!offered) return;
  $("token_form").hidden = true;
  offer(offered);
  await show();
}

for (const view of Object.keys(VIEWS)) $(`to_${view}`).addEventListener("click", () => go({view}));
$("language").addEventListener("click", () => {
  remember({language: isChinese() ? "en" : "zh"});
  begin();
});
$("token_form").addEventListener("submit", event => {
  event.preventDefault();
  localStorage.setItem(TOKEN, $("token").value.trim());
  begin();
});
addEventListener("popstate", show);
begin();
