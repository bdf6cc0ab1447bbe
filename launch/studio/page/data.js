// What training makes of data: form, broken rows, samples with what counts in the loss marked, lengths.

import {$, attempt, call, element, t} from "./common.js";
import {choice} from "./plan.js";

const LARGEST = 700 * 1024;  // bytes of a dropped file: coded for its way, the studio's limit of a request

async function look(given = {}) {
  $("data").replaceChildren("…");
  const wanted = location.search;
  const parts = await call("data", {choice: choice(), ...given}).then(partsOf, error => [element("p", {className: "wrong", textContent: error.message})]);
  if (location.search === wanted) $("data").replaceChildren(...parts);
}

async function drop() {
  const [file] = $("dropped").files;
  if (!file) return;
  if (file.size > LARGEST) throw Error(t("The file has more than 700 KiB. Name it under Data instead."));
  const reader = new FileReader();
  const read = new Promise((resolve, reject) => {
    reader.onload = resolve;
    reader.onerror = () => reject(reader.error);
  });
  reader.readAsDataURL(file);
  await read;
  $("dropped").value = "";  // the same file may be dropped again
  await look({name: file.name, content: reader.result.split(",")[1] || ""});
}

function partsOf(found) {
  const files = found.files.map(({file, form, rows}) => `${file}: ${form}, ${rows.toLocaleString("en")} ${t("rows")}`);
  const lines = [...files, found.unused, found.template].filter(Boolean).map(text => element("li", {textContent: text}));
  return [element("ul", {}, ...lines), ...broken(found), ...samples(found), ...lengths(found)];
}

function broken({broken, faults}) {
  if (!broken) return [];
  const rows = faults.map(({file, line, reason}) => element("li", {textContent: `${file}:${line}: ${reason}`}));
  return [element("h3", {className: "wrong", textContent: `${t("Broken rows")}: ${broken.toLocaleString("en")}`}), element("ul", {className: "wrong"}, ...rows)];
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
  return [element("h3", {textContent: `${t("Tokens")}; ${t("rows measured")}: ${measured.toLocaleString("en")}; ${t("length")}: ${most.toLocaleString("en")}`}), element("table", {}, ...rows)];
}

$("look").addEventListener("click", () => look());
$("dropped").addEventListener("change", () => attempt(drop));
