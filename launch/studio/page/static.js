// Of the static page alone: requests are answered in the browser, by the planner in a worker, as the studio would.

import {$, t} from "./common.js";

const QUICK = ["offered", "plan"];  // advice and layouts take seconds: a second worker, so that plans do not wait
const workers = {}, waiting = new Map(), overNetwork = fetch;
let asked = 0;

function worker(quick) {
  if (!workers[quick]) {
    workers[quick] = new Worker(new URL("static_worker.js", import.meta.url), {type: "module"});
    workers[quick].onmessage = ({data}) => {
      if ("loaded" in data) return show(data.loaded);
      waiting.get(data.number)(data.answer);
      waiting.delete(data.number);
    };
    workers[quick].onerror = () => {
      $("loading").hidden = true;
      const detail = t("The planner was not loaded. The host must serve .mjs files as text/javascript.");
      for (const done of waiting.values()) done(JSON.stringify({detail}));
      waiting.clear();
    };
  }
  return workers[quick];
}

function show(share) {
  $("loading").hidden = share >= 1 || Object.keys(workers).length > 1;  // the second is loaded in the background
  $("loading").querySelector("progress").value = share;
}

async function answer(question, given) {
  const number = ++asked;
  const reply = new Promise(resolve => waiting.set(number, resolve));
  worker(QUICK.includes(question)).postMessage({number, question, given: given || "{}", chinese: document.documentElement.lang === "zh"});
  const {found, detail} = JSON.parse(await reply);
  return detail ? Response.json({detail}, {status: 400}) : Response.json(found);
}

globalThis.fetch = (address, options = {}) => {
  const [, question] = /^api\/(\w+)$/.exec(address) || [];
  if (!question) return overNetwork(address, options);
  if (["offered", "plan", "advice", "layouts"].includes(question)) return answer(question, options.body);
  return Promise.resolve(Response.json({detail: t("This page only plans. In a copy of the repository `make studio` also shows data, rehearses, starts and watches runs.")}, {status: 400}));
};
document.querySelector("nav").hidden = $("starting").hidden = $("data_part").hidden = true;
$("without_server").hidden = false;
show(0);
