// The start of the page, and what is on all of it.

import {$, TOKEN, attempt, call, go, isChinese, parameters, remember, speak} from "./common.js";
import "./data.js";
import {offer, showPlan} from "./plan.js";
import {showRuns} from "./runs.js";

async function show() {
  const view = parameters().view === "runs" ? "runs" : "plan";
  for (const name of ["plan", "runs"]) {
    $(name).hidden = name !== view;
    name === view ? $(`to_${name}`).setAttribute("aria-current", "page") : $(`to_${name}`).removeAttribute("aria-current");
  }
  await attempt(view === "runs" ? showRuns : showPlan);
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

$("to_plan").addEventListener("click", () => go({view: ""}));
$("to_runs").addEventListener("click", () => go({view: "runs"}));
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
