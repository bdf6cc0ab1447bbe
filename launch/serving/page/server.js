// The server's page: a chat with one of its models, or with two beside each other.

import {chat, copyText} from "./chat.js";

const $ = id => document.getElementById(id);
const CHOSEN = "models";  // where this browser keeps the choice
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
  $("beside").replaceChildren(new Option(t("none"), ""), ...known.map(model => new Option(model.id)));
  const [model, beside] = (localStorage.getItem(CHOSEN) || "").split("\n");
  $("model").value = known.some(({id}) => id === model) ? model : known.at(-1).id;
  $("beside").value = known.some(({id}) => id === beside) ? beside : "";
  $("beside").parentElement.hidden = known.length < 2;
  choose();
}

function choose() {
  const name = $("model").value, ids = [...new Set([$("beside").value, name].filter(Boolean))], {chats, system} = known.find(({id}) => id === name);
  localStorage.setItem(CHOSEN, [name, $("beside").value].join("\n"));
  document.title = `${name} · paddle-llm-recipes`;
  document.querySelector("h1").textContent = name;
  panel.use(ids.map(id => ({id, title: ids.length > 1 ? id : "", chats: known.find(model => model.id === id).chats})), `chat ${known.map(({id}) => id).join(" ")}`, {system: known.map(one => one.system).find(Boolean) || "", questions: []});
  const address = new URL("v1", location.href.split(/[?#]/)[0]).href, keyed = !$("key_label").hidden;
  $("access").textContent = t(keyed ? "It asks for its API key." : "It asks for no key: whoever reaches this address can use it.");
  const path = chats ? "chat/completions" : "completions", [key, asked] = chats ? ["messages", [...(system ? [{role: "system", content: system}] : []), {role: "user", content: "Hello"}]] : ["prompt", "Hello"];
  const body = JSON.stringify({model: name, [key]: asked, max_tokens: 64}), written = JSON.stringify(name);
  $("address").textContent = address;
  $("curl").textContent = `curl ${address}/${path} -H "Content-Type: application/json"${keyed ? ' -H "Authorization: Bearer $SERVE_API_KEY"' : ""} -d '${body.replaceAll("'", "'\\''")}'`;
  $("python").textContent = `${keyed ? "import os\n" : ""}from openai import OpenAI

client = OpenAI(base_url="${address}", api_key=${keyed ? 'os.environ["SERVE_API_KEY"]' : '"none"'})
reply = client.${path.replace("/", ".")}.create(model=${written}, ${key}=${JSON.stringify(asked)}, max_tokens=64)
print(reply.choices[0].${chats ? "message.content" : "text"})`;
  $("programs").hidden = false;
}

const language = localStorage.getItem("language") || (navigator.language.startsWith("zh") ? "zh" : "en");
if (language === "zh") {
  words = await (await fetch("page/zh.json")).json();
  document.documentElement.lang = "zh";
  [$("language").lang, $("language").textContent] = ["en", "English"];
  for (const one of document.querySelectorAll("[data-t]")) one.textContent = t(one.textContent.trim());
}
// The studio that has started this server, on this machine.
const studio = URL.parse?.(new URLSearchParams(location.search).get("studio") || "");
if (studio?.protocol.startsWith("http") && [location.hostname, "127.0.0.1", "localhost"].includes(studio.hostname)) [$("studio").href, $("studio").hidden] = [studio.href, false];
const panel = chat($("chat"), {t, send: (path, body, signal) => call(`v1/${path}`, {method: "POST", body: JSON.stringify(body), signal})});
$("language").addEventListener("click", () => {
  localStorage.setItem("language", language === "zh" ? "en" : "zh");
  location.reload();
});
for (const one of document.querySelectorAll("#programs button")) one.addEventListener("click", () => copyText(one, one.previousElementSibling, t));
for (const id of ["model", "beside"]) $(id).addEventListener("change", choose);
$("key").addEventListener("change", listModels);
$("models_form").addEventListener("submit", event => event.preventDefault());
await listModels();
