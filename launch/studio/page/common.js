// What all parts of the page share: the server, the words, the address that holds the whole choice.

import {copyText} from "../chat/chat.js";

export const $ = id => document.getElementById(id);
export const TOKEN = "studio-token";

// An element with properties and children; texts are texts, never HTML.
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// ---- words

let chinese = {};
export const isChinese = () => document.documentElement.lang === "zh";
export const t = text => (isChinese() && chinese[text]) || text;

// What is written with other marks in Chinese: a label in front of a text, texts in a row.
export const labelled = (label, text) => `${t(label)}${isChinese() ? "：" : ": "}${text}`;
export const listed = (...texts) => texts.filter(Boolean).join(isChinese() ? "，" : ", ");

export async function speak(language) {
  if (language === "zh") {
    const parts = await Promise.all(["page/zh.json", "chat/zh.json"].map(async path => (await fetch(path)).json()));
    chinese = Object.assign({}, ...parts);
  }
  document.documentElement.lang = language;
  for (const one of document.querySelectorAll("[data-t]")) {
    one.dataset.t ||= one.textContent.trim();
    one.textContent = t(one.dataset.t);
  }
  $("language").textContent = language === "zh" ? "English" : "中文";
  $("language").lang = language === "zh" ? "en" : "zh";
}

// ---- the server

export const call = async (path, body) => (await request(path, body)).json();

// signal: of an AbortController.
export async function request(path, body, signal) {
  const headers = request.headers();
  const options = body === undefined ? {headers, signal} : {method: "POST", headers, body: JSON.stringify(body), signal};
  let reply;
  try {
    reply = await fetch(`api/${path}`, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : Error(t("The studio does not answer. Is it still running?"));
  }
  if (reply.status === 401) {
    $("token_form").hidden = false;
    throw Error(localStorage.getItem(TOKEN) ? t("This token is not that of this studio: give the one that it has printed, or open its address.") : t("Open the address that the studio has printed, or give its token."));
  }
  if (!reply.ok) {
    const {detail} = await reply.json().catch(() => ({}));
    throw Error(typeof detail === "string" ? detail : `${path}: ${reply.status}`);
  }
  return reply;
}

request.headers = () => ({"Authorization": `Bearer ${localStorage.getItem(TOKEN)}`, "Content-Type": "application/json",
                          "Accept-Language": document.documentElement.lang});

export const size = bytes => bytes == null ? t("not known") : bytes < 2 ** 20 ? `${Math.ceil(bytes / 1024)} KiB` : bytes < 2 ** 27 ? `${Math.ceil(bytes / 2 ** 20)} MiB` : `${(bytes / 2 ** 30).toFixed(2)} GiB`;

// "5-10", as the demos have it.
export const minutes = range => `${range.replace("-", "–")} ${t("minutes")}`;

const wait = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

// Wait for the end of a task, such as a download, and return its row among the runs. show: gets its row meanwhile.
export async function follow(output, show, goesOn = () => true) {
  for (;;) {
    const row = (await call("runs")).find(one => one.output === output);
    if (!row || row.state !== "running" || !goesOn()) return row || {state: "stopped"};
    show(row);
    await wait(1000);
  }
}

function say(text = "") {
  $("message").textContent = text;
  $("message").hidden = !text;
}

// Do something for the user, and say what goes wrong.
export async function attempt(work) {
  try {
    const done = await work();
    say();
    return done;
  } catch (error) {
    say(error.message);
  }
}

// Look again by the clock: what goes well clears no message but that of an earlier look.
let polled = "";
export async function poll(work) {
  try {
    await work();
    if (polled && $("message").textContent === polled) say();
    polled = "";
  } catch (error) {
    polled = error.message;
    say(polled);
  }
}

export const copy = (button, source) => copyText(button, source, t);

// The first press on a button asks; return whether this is a second one within five seconds.
export function isSure(button, question) {
  if (button.dataset.sure) return true;
  const before = button.textContent;
  button.dataset.sure = "yes";
  button.textContent = question;
  setTimeout(() => {
    delete button.dataset.sure;
    button.textContent = before;
  }, 5000);
  return false;
}

export const PRESSED = "pressed";  // the state of an entry of the history that a press on this page has made

// ---- the address: ?view=plan&recipe=...&GPUS=...

export const parameters = () => Object.fromEntries(new URLSearchParams(location.search));

// keep: whether the browser's Back leads to the choice before.
export function remember(changes, keep = false) {
  const words = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) value ? words.set(name, value) : words.delete(name);
  const address = `?${words}`;
  if (address !== location.search) history[keep ? "pushState" : "replaceState"](keep ? PRESSED : null, "", address);
}

export const toTry = result => ({view: "try", result, base: "", folder: "", to: "", keep: ""});

export function go(changes) {
  remember(changes, true);
  dispatchEvent(new PopStateEvent("popstate"));
}
