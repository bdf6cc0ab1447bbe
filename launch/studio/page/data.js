// What training makes of data: form, broken rows, samples with what counts in the loss marked, lengths. And files of the
// user: kept, converted and set as the data.

import {searchable} from "./choose.js";
import {$, attempt, call, element, follow, isSure, labelled, listed, request, size, t} from "./common.js";
import {arrived, button, change, choice, setFlag, showPlan, step} from "./plan.js";

const LARGEST = 2 ** 30;  // bytes of a dropped file, the studio's limit
const FEW = 20;  // rows whose loss says little, as data_tools/sft.py has it
const fields = $("division").elements;
let kept = [];

async function look() {
  $("data").replaceChildren("…");
  const wanted = location.search;
  const parts = await call("data", choice()).then(partsOf, error => [element("p", {className: "wrong", textContent: error.message})]);
  if (location.search === wanted) $("data").replaceChildren(...parts);
}

// How a file is divided: the share that is held back and, where the form of its rows is not known, its columns.
const division = more => new URLSearchParams(Object.entries({...Object.fromEntries(new FormData($("division"))), ...more}).filter(([, value]) => value !== ""));

// Ask for the columns where a message says that they are not known.
function askColumns(reason) {
  for (const one of $("division").querySelectorAll(".column")) one.hidden = !reason.includes("--response_column");
  if (!reason) fields.prompt.value = fields.response.value = "";
}

// Divide the file that is the data. broken: its rows that may be left out; where it has more they are listed.
async function divide(broken = "") {
  $("uploading").textContent = "";
  try {
    await arrived(await call(`divide?${division({broken})}`, choice()), "DATA", t("Dividing"));
    askColumns("");
    await look();
  } catch (error) {
    await showPlan();
    await look();
    askColumns(error.message);
    if (!$("data").querySelector("ul.wrong")) throw error;
  } finally {
    await showKept();
  }
}

// The files of the user that this page keeps; "Delete" asks once more.
export async function showKept() {
  kept = await call("uploads");
  $("kept").hidden = !kept.length;
  $("kept").querySelector("ul").replaceChildren(...kept.map(({name, file, bytes, data}) => {
    const remove = button("Delete", async () => {
      if (!isSure(remove, t("Really delete? Press once more"))) return;
      await call("forget", {name});
      await showPlan();
      await showKept();
    }, false);
    const show = button("Show", async () => { await change({DATA: data || file}); await look(); }, false);
    const again = data && file ? [button("Divide anew", async () => { await change({DATA: file}); await divide(); }, false)] : [];
    return element("li", {}, `${listed(file.split("/").pop() || name, size(bytes))} `, show, " ", ...again, " ", remove);
  }));
}

async function drop() {
  const [file] = $("dropped").files;
  if (!file) return;
  $("dropped").value = "";  // the same file may be dropped again
  askColumns("");
  if (file.size > LARGEST) throw Error(t("The file has more than 1 GiB. Name its path under Data instead."));
  const output = await sent(file);
  $("uploading").textContent = t("The file is here; it is checked and divided …");
  const row = await follow(output, ({said}) => { $("uploading").textContent = said || t("running"); });
  $("uploading").textContent = "";
  const done = row.state === "finished", place = done ? output : /--input (\S+)/.exec(row.command)?.[1];
  if (!place) throw Error(`${file.name}: ${t(row.state)}`);
  await change({DATA: place});  // a file with broken rows is looked at as it is
  $("uploading").textContent = labelled(t(done ? "Set as Data" : "Kept, and not divided yet"), place);
  askColumns(done ? "" : row.reason);
  await Promise.all([look(), showKept()]);
  if (!done && !$("data").querySelector(".wrong")) $("data").prepend(element("p", {className: "wrong", textContent: row.reason || t(row.state)}));
}

// fetch does not say how much has been sent, and a request of this kind does.
function sent(file) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("PUT", `api/upload?${division({recipe: choice().recipe, name: file.name})}`);
    for (const [name, value] of Object.entries(request.headers())) sending.setRequestHeader(name, value);
    sending.upload.onprogress = ({loaded, total}) => { $("uploading").textContent = labelled("Sending", `${Math.floor(100 * loaded / total)} %`); };
    sending.onerror = () => reject(Error(t("The studio does not answer. Is it still running?")));
    sending.onload = () => {
      let answer = {};
      try { answer = JSON.parse(sending.responseText); } catch { /* no JSON: an error without words */ }
      sending.status < 300 ? resolve(answer) : reject(Error(answer.detail || `upload: ${sending.status}`));
    };
    sending.send(file);
  });
}

function partsOf(found) {
  const files = found.files.map(({file, form, rows}) => `${file}: ${form}, ${rows.toLocaleString("en")} ${t("rows")}`);
  const lines = [...files, found.unused, found.template].filter(Boolean).map(text => element("li", {textContent: text}));
  return [element("ul", {}, ...lines), ...held(found), ...broken(found), ...samples(found), ...lengths(found)];
}

// How many rows train and how many are held back, and why.
function held({files, broken}) {
  const [train, dev] = ["train", "dev"].map(split => files.filter(({file}) => file.endsWith(`/${split}.json`)).reduce((sum, {rows}) => sum + rows, 0));
  if (!train || broken) return [];
  if (!dev) return [element("p", {}, `${t("No row is held back, so the run cannot measure what it learns.")} `, button("Train without measuring", () => setFlag("do_eval", "0"), false))];
  const why = t("held back: the loss on rows that it never sees shows whether the model understands, or repeats by heart.");
  return [element("p", {textContent: `${listed(`${train.toLocaleString("en")} ${t("rows train")}`, `${dev.toLocaleString("en")} ${why}`)} ${dev < FEW ? t("So few say little: take their loss as a hint.") : ""}`})];
}

function broken({broken, faults}) {
  if (!broken) return [];
  const rows = faults.map(({file, line, reason}) => element("li", {textContent: `${file}:${line}: ${reason}`}));
  const whole = faults.every(({file}) => file === choice().DATA);  // one file, which is not divided yet
  const leave = main => button("Leave them out", async () => {
    if (whole) return await divide(broken);
    await setFlag("max_broken_rows", String(broken));
    await look();
  }, main);
  if (whole) step("the file has broken rows, which are listed below. Mend them and give it again, or train without them.", [leave(true)]);
  return [element("h3", {className: "wrong", textContent: labelled("Broken rows", broken.toLocaleString("en"))}), element("ul", {className: "wrong"}, ...rows),
    element("p", {}, `${t("Mend these rows in the file, or train without them.")} `, leave(false))];
}

function samples({samples, measured}) {
  const tokens = measured ? [] : [element("p", {textContent: t("Without tokens: the texts alone. To see tokens and lengths, name a folder with a tokenizer as Model.")})];
  const title = samples.length ? [element("h3", {}, `${t("The first samples")}; `, element("mark", {textContent: t("counted in the loss")}))] : [];
  return [...tokens, ...title, ...samples.flatMap(texts => texts.map(sample))];
}

function sample(segments) {
  return element("pre", {className: "sample", tabIndex: 0}, ...segments.map(({text, counted, tokens}) =>
    element(counted ? "mark" : "span", {textContent: text, title: tokens ? `${tokens} ${t("tokens")}` : ""})));
}

function lengths({lengths, measured, max_length: most}) {
  if (!lengths.length) return [];
  const highest = Math.max(...lengths.map(([, , count]) => count));
  const rows = lengths.map(([low, high, count]) => {
    const bar = element("div", {className: "range"}, element("span"));
    bar.firstChild.style.width = `${100 * count / highest}%`;
    const cell = text => element("td", {className: "number", textContent: text});
    return element("tr", {}, cell(high > low ? `${low.toLocaleString("en")}–${high.toLocaleString("en")}` : low), cell(count.toLocaleString("en")),
      element("td", {}, bar), element("td", {className: "wrong", textContent: low > most ? t("longer than the length") : ""}));
  });
  return [element("h3", {textContent: [t("Tokens"), labelled("rows measured", measured.toLocaleString("en")), labelled("length", most.toLocaleString("en"))].join("; ")}), element("table", {}, ...rows)];
}

$("look").addEventListener("click", () => look());
$("divide").addEventListener("click", () => attempt(() => divide()));
$("division").addEventListener("submit", event => event.preventDefault());
searchable($("choice").elements.DATA, () => kept.map(({data, file, name}) => ({value: data || file, title: name})));
$("dropped").addEventListener("change", () => attempt(async () => {
  try {
    await drop();
  } catch (error) {
    $("uploading").textContent = "";
    throw error;
  }
}));
