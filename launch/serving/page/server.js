// The server's page: a chat with one of its models, or with two beside each other.

import {chat} from "./chat.js";

const $ = id => document.getElementById(id);
let words = {}, known = [];
const t = text => words[text] || text;

async function call(path, options = {}) {
  const key = $("key").value;
  const headers = {"Content-Type": "application/json", ...(key && {Authorization: `Bearer ${key}`})};
  const reply = await fetch(path, {...options, headers});
  if (reply.status === 401) $("key_label").hidden = false;
  if (!reply.ok) throw Error((await reply.json()).error.message);
  return reply;
}

// An adapter comes before its base.
async function listModels() {
  try {
    known = (await (await call("v1/models")).json()).data;
  } catch (error) {
    $("status").textContent = error.message;
    $("status").className = "wrong";
    return;
  }
  $("status").textContent = $("status").className = "";
  $("model").replaceChildren(...known.map(model => new Option(model.id)));
  $("model").value = known.at(-1).id;
  $("beside").replaceChildren(new Option(t("none"), ""), ...known.map(model => new Option(model.id)));
  $("beside").parentElement.hidden = known.length < 2;
  choose();
}

function choose() {
  const ids = [...new Set([$("beside").value, $("model").value].filter(Boolean))];
  document.title = `${$("model").value} · paddle-llm-recipes`;
  panel.use(ids.map(id => ({id, title: ids.length > 1 ? id : "", chats: known.find(model => model.id === id).chats})));
}

if (navigator.language.startsWith("zh")) {
  words = await (await fetch("page/zh.json")).json();
  document.documentElement.lang = "zh";
  for (const one of document.querySelectorAll("[data-t]")) one.textContent = t(one.textContent.trim());
}
const panel = chat($("chat"), {t, store: "chat", send: (path, body, signal) => call(`v1/${path}`, {method: "POST", body: JSON.stringify(body), signal})});
for (const id of ["model", "beside"]) $(id).addEventListener("change", choose);
$("key").addEventListener("change", listModels);
$("models_form").addEventListener("submit", event => event.preventDefault());
await listModels();
