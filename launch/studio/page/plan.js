// The plan of a choice: every change of a control is planned at once, as make plan-X does it.

import {$, attempt, call, copy, element, go, parameters, remember, t} from "./common.js";

const GIB = 2 ** 30;
const VARIABLES = ["recipe", "MODEL", "CARD", "GPUS", "NNODES", "NETWORK", "PROCESSES", "DATA", "OUTPUT", "ARGS"];
// Controls that are flags of ARGS; tokens: as the recipe has it.
const FLAGS = {tokens: "", micro_batch: "per_device_train_batch_size", accumulation: "gradient_accumulation_steps"};
const DELAY = 150;  // milliseconds from a key to its plan
const controls = $("choice").elements;

let offered, planned, asked = 0, timer, advising = false, adviceFor = "";

// ---- the words of ARGS

const words = text => text.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) || [];

// {name: its words as they stand}, in order
function flagsOf(text) {
  const flags = new Map();
  let name = null;
  for (const word of words(text)) {
    if (word.startsWith("--")) {
      const [head, ...rest] = word.slice(2).split("=");
      name = head;
      flags.delete(name);
      flags.set(name, rest.length ? [rest.join("=")] : []);
    } else if (name !== null) flags.get(name).push(word);
  }
  return flags;
}

function withFlag(text, name, value) {
  const flags = flagsOf(text);
  flags.delete(name);
  if (value) flags.set(name, [value]);
  return [...flags].map(([flag, values]) => [`--${flag}`, ...values].join(" ")).join(" ");
}

export const choice = () => Object.fromEntries(Object.entries(parameters()).filter(([name]) => VARIABLES.includes(name)));

// ---- the controls

export function offer(what) {
  offered = what;
  const groups = new Map();
  for (const recipe of offered.recipes) {
    const where = recipe.gpus ? `${recipe.gpus} x ${recipe.gpu_memory_gb} GB` : "CPU";
    if (!groups.has(recipe.method)) groups.set(recipe.method, element("optgroup", {label: t(recipe.method)}));
    groups.get(recipe.method).append(new Option(`${recipe.summary} (${where}): ${recipe.target}`, recipe.target));
  }
  controls.recipe.replaceChildren(...groups.values());
  const usual = offered.here ? `${t("as here")}: ${offered.here.count} x ${offered.here.card}` : t("as the recipe says");
  const kinds = Object.entries(offered.cards).map(([name, size]) => new Option(`${name}, ${size} GB`, name));
  controls.CARD.replaceChildren(new Option(usual, ""), ...kinds);
  controls.NETWORK.replaceChildren(new Option(t("as usual for the cards"), ""), ...offered.networks.map(name => new Option(name)));
  $("models").replaceChildren(...offered.models.map(name => new Option(name)));
}

const recipeOf = target => offered.recipes.find(recipe => recipe.target === target);

export async function showPlan() {
  const now = parameters();
  if (!recipeOf(now.recipe)) {
    now.recipe = "lora-qwen3-8b";
    remember({recipe: now.recipe});
  }
  const flags = flagsOf(now.ARGS || "");
  for (const name of [...VARIABLES, "price"]) controls[name].value = now[name] || "";
  const {gpus, length_flag} = recipeOf(now.recipe);
  FLAGS.tokens = length_flag;
  for (const [control, flag] of Object.entries(FLAGS)) controls[control].value = flags.get(flag)?.[0] || "";
  for (const one of document.querySelectorAll(".on_cards")) one.hidden = !gpus;
  for (const one of document.querySelectorAll(".on_cpu")) one.hidden = gpus > 0;
  for (const id of ["layouts", "checks", "data"]) $(id).replaceChildren();
  $("start").hidden = true;
  await plan();
}

function changed(event) {
  const {name, value} = event.target;
  if (name in FLAGS) remember({ARGS: withFlag(controls.ARGS.value, FLAGS[name], value)});
  else if (name === "recipe") remember({recipe: value, MODEL: "", CARD: "", GPUS: "", NNODES: "", NETWORK: "", PROCESSES: "", DATA: "", OUTPUT: "", ARGS: ""}, true);
  else remember({[name]: value.trim()});
  if (name === "price") return showNumbers();
  clearTimeout(timer);
  timer = setTimeout(() => attempt(showPlan), DELAY);
}

// ---- the plan

async function plan() {
  const number = ++asked;
  $("result").classList.add("old");
  const found = await call("plan", choice());
  if (number !== asked) return;  // an answer to an older choice
  showFaults(found);
  $("command").textContent = `make ${found.command}`;
  if (found.faults.length) return;
  planned = found;
  $("result").classList.remove("old");
  for (const [name, value] of Object.entries(found.values)) if (controls[name]) controls[name].placeholder = value;
  $("launch").textContent = found.launch;
  $("verdict").textContent = found.verdict;
  $("verdict").className = found.fits === false ? "wrong" : "good";
  $("notes").replaceChildren(...[...found.about, ...found.notes].map(text => element("li", {textContent: text})));
  showBars();
  showNumbers();
  showParts();
  advise();
}

function showFaults({faults}) {
  for (const one of document.querySelectorAll("label .fault")) one.remove();
  for (const one of [...controls]) {
    one.removeAttribute("aria-invalid");
    one.removeAttribute("aria-describedby");
  }
  const others = [];
  faults.forEach(({control, found, fix}, number) => {
    const named = Object.keys(FLAGS).find(name => FLAGS[name] === control) || control;
    const text = [found, fix].filter(Boolean).join("; ");
    const place = controls[named]?.closest("label");
    if (!place || place.hidden) return others.push(control && !text.startsWith(control) ? `--${control}: ${text}` : text);
    place.append(element("p", {className: "fault", id: `fault${number}`, textContent: text}));
    controls[named].setAttribute("aria-invalid", "true");
    controls[named].setAttribute("aria-describedby", `fault${number}`);
  });
  $("other_faults").textContent = others.join("\n");
  $("other_faults").hidden = !others.length;
  for (const id of ["rehearse", "check"]) $(id).disabled = faults.length > 0;
}

const color = part => `hsl(${offered.parts.indexOf(part) * 67 % 360} 55% 55%)`;
const gib = bytes => (bytes / GIB).toFixed(2);

function showBars() {
  const {stages, peak_parts: parts, card_memory_bytes: card, peak_bytes: peak} = planned.plan;
  const whole = Math.max(card || 0, peak) * 1.02;
  const share = bytes => `${100 * bytes / whole}%`;
  $("bars").replaceChildren(...stages.map((stage, number) => {
    const bar = element("div", {className: "bar"});
    for (const part of offered.parts.filter(name => parts[number][name])) {
      const piece = element("span", {title: `${part}: ${gib(parts[number][part])} GiB`});
      piece.style.width = share(parts[number][part]);
      piece.style.background = color(part);
      bar.append(piece);
    }
    if (card) {
      const line = element("span", {className: "card", title: `${planned.plan.card}: ${gib(card)} GiB`});
      line.style.left = share(card);
      bar.append(line);
    }
    return element("div", {className: "stage"}, element("span", {textContent: stages.length > 1 ? `${t("stage")} ${stage.stage}` : t("each card")}), bar);
  }));
  $("bars").setAttribute("aria-label", planned.verdict);
}

function showParts() {
  const {stages, peak_parts: parts} = planned.plan;
  const shown = offered.parts.filter(part => parts.some(stage => stage[part]));
  const row = (head, cells, key) => {
    const first = element("th", {scope: "row"}, ...(key ? [key] : []), head);
    return element("tr", {}, first, ...cells.map(text => element("td", {className: "number", textContent: text})));
  };
  const key = part => {
    const made = element("span", {className: "key"});
    made.style.background = color(part);
    return made;
  };
  $("parts").replaceChildren(
    row(t("stage"), stages.map(stage => stage.stage)),
    ...shown.map(part => row(t(part), parts.map(stage => gib(stage[part] || 0)), key(part))),
    row(t("together"), stages.map(stage => gib(stage.peak_bytes))));
}

const gigabytes = parts => Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);

function showNumbers() {
  if (!planned) return;
  const {time, host_bytes: host, disk_bytes: disk} = planned.plan;
  const what = planned.steps ? `${planned.steps.toLocaleString("en")} ${t("steps")}` : t("a million samples");
  const rows = [[t("tokens/s, all cards"), planned.speed, time.tokens_per_second_range], [t("MFU"), planned.mfu],
                [what, planned.duration], [t("disk"), `${(gigabytes(disk) / 1e9).toFixed(1)} GB`],
                [t("host memory of a rank"), `${gib(gigabytes(host))} GiB`]];
  const price = Number(controls.price.value);
  if (price && planned.cards) rows.splice(3, 0, [`${t("price of")} ${what}`, cost(price)]);
  $("numbers").replaceChildren(...rows.map(([name, value, range]) => element("div", {},
    element("dt", {textContent: name}), element("dd", {textContent: value}), ...(range ? [band(range)] : []))));
}

// Hours x cards x price; without published runs like this one, a range.
function cost(price) {
  const {steps_seconds: steps, million_samples_days: days} = planned.plan.time;
  const hours = steps ? steps / 3600 : days * 24;
  const money = share => (hours / share * planned.cards * price).toLocaleString("en", {maximumSignificantDigits: planned.calibrated ? 3 : 2});
  return planned.calibrated ? money(1) : `${money(planned.shares[1])}–${money(planned.shares[0])}`;
}

function band([low, high]) {
  const piece = element("span");
  piece.style.left = `${100 * low / (1.1 * high)}%`;
  piece.style.width = `${100 * (high - low) / (1.1 * high)}%`;
  return element("div", {className: "range"}, piece);
}

// ---- advice: one question at a time, the latest choice last

async function advise() {
  const wanted = location.search;
  if (advising || wanted === adviceFor) return;
  advising = true;
  $("advice").replaceChildren(element("li", {textContent: "…"}));
  try {
    const offers = await call("advice", choice());
    adviceFor = wanted;
    showOffers($("advice"), offers, planned.fits === false ? t("No single change is enough: more or larger cards, or a smaller model.") : t("Nothing that would be worth a change."));
  } catch (error) {
    $("advice").replaceChildren(element("li", {className: "wrong", textContent: error.message}));
  }
  advising = false;
  if (location.search !== wanted) advise();
}

function showOffers(list, offers, none) {
  const rows = offers.map(({title, result, peak_bytes, speed, args}) => {
    const text = [title, speed && `${gib(peak_bytes)} GiB, ${t("speed")} ${speed}`, result].filter(Boolean).join("; ");
    const take = element("button", {textContent: t("Take"), ariaLabel: `${t("Take")}: ${title}`});
    take.addEventListener("click", () => go({ARGS: args}));
    return element("li", {}, text, take, element("div", {className: "small", textContent: args}));
  });
  list.replaceChildren(...(rows.length ? rows : [element("li", {textContent: none})]));
}

async function findLayouts() {
  $("find_layouts").disabled = true;
  $("layouts").replaceChildren(element("li", {textContent: t("All layouts are planned; this takes some seconds …")}));
  const wanted = location.search;
  try {
    const offers = await call("layouts", choice());
    if (location.search === wanted) showOffers($("layouts"), offers, t("Nothing fits on these cards."));
  } catch (error) {
    $("layouts").replaceChildren(element("li", {className: "wrong", textContent: error.message}));
  } finally {
    $("find_layouts").disabled = false;
  }
}

// ---- start

async function check() {
  const found = await call("checks", choice());
  $("checks").replaceChildren(...found.map(({ok, warns, subject, found: text, fix}) => element("li", {className: ok ? (warns ? "" : "good") : "wrong"},
    `${ok ? (warns ? "!" : "✓") : "✗"} ${subject}: ${text}${fix ? `; ${t("fix")}: ${fix}` : ""}`)));
  $("start").hidden = !found.every(one => one.ok);
}

async function start(action) {
  const output = await call(`start/${action}`, choice());
  go({view: "runs", shown: output});
}

// One request of these at a time: a second click would start the run twice.
async function alone(work) {
  $("starting").disabled = true;
  await attempt(work);
  $("starting").disabled = false;
}

$("choice").addEventListener("input", changed);
$("choice").addEventListener("submit", event => event.preventDefault());
$("copy").addEventListener("click", () => copy($("copy"), $("command")));
$("find_layouts").addEventListener("click", findLayouts);
$("check").addEventListener("click", () => alone(check));
$("rehearse").addEventListener("click", () => alone(() => start("rehearse")));
$("start").addEventListener("click", () => alone(() => start("run")));
