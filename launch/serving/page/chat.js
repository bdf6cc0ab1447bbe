// A chat with one model, or with several beside each other: on the server's page and in the studio's Try.
// Texts of a model are texts: Markdown becomes elements here, never HTML.

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export async function copyText(button, source, t) {
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {  // not allowed, or not over https
    getSelection().selectAllChildren(source);
    document.execCommand("copy");
  }
  button.textContent = t("Copied");
  setTimeout(() => { button.textContent = t("Copy"); }, 1500);
}

// ---- Markdown: paragraphs, headings, lists, code, bold, italics. Links stay texts, so that none leads away unseen.

function inline(text) {
  const parts = text.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/);
  return parts.filter(Boolean).map(part => {
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) return element("code", {textContent: part.slice(1, -1)});
    if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) return element("strong", {textContent: part.slice(2, -2)});
    if (part.length > 2 && part.startsWith("*") && part.endsWith("*")) return element("em", {textContent: part.slice(1, -1)});
    return part;
  });
}

const lines = texts => texts.flatMap((text, number) => [...(number ? [element("br")] : []), ...inline(text)]);

// A text that has no mark of Markdown between its lines, but lines that are set in: code, most likely.
const isCode = text => /^(\t| {2,})\S/m.test(text) && !/^\s*(```|[-*+] |\d+[.)] |#{1,6} )|\*\*|`/m.test(text);

// continues: it continues a text, so its lines stay as they are.
export const shownText = (text, continues) => continues || isCode(text) ? [element("pre", {className: "code", tabIndex: 0, textContent: text})] : markdown(text);

export function markdown(text) {
  const found = [], rows = text.split("\n");
  for (let place = 0; place < rows.length;) {
    const row = rows[place], some = [];
    const take = matches => { while (place < rows.length && matches(rows[place])) some.push(rows[place++]); };
    const item = /^\s*([-*+]|\d+[.)])\s+/;
    if (/^\s*```/.test(row)) {
      place++;
      take(one => !/^\s*```/.test(one));
      place++;
      found.push(element("pre", {tabIndex: 0}, element("code", {textContent: some.join("\n")})));
    } else if (item.test(row)) {
      const tag = /^\s*\d/.test(row) ? "ol" : "ul";
      take(one => item.test(one));
      found.push(element(tag, {}, ...some.map(one => element("li", {}, ...inline(one.replace(item, ""))))));
    } else if (/^#{1,6}\s/.test(row)) {
      place++;
      found.push(element("p", {}, element("strong", {}, ...inline(row.replace(/^#+\s+/, "")))));
    } else if (!row.trim()) place++;
    else {
      take(one => one.trim() && !item.test(one) && !/^\s*```|^#{1,6}\s/.test(one));
      found.push(element("p", {}, ...lines(some)));
    }
  }
  return found;
}

// ---- the stream of an answer

async function* events(reply, t) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const {value, done} = await reader.read();
    if (done) throw Error(t("The server has ended before its answer did."));
    const whole = (rest + value).split("\n\n");
    rest = whole.pop();
    for (const event of whole) {
      if (event === "data: [DONE]") return;
      const data = JSON.parse(event.slice("data: ".length));
      if (data.error) throw Error(data.error.message);
      yield data;
    }
  }
}

const FIELDS = [["temperature", "Temperature; 0: the likeliest", {type: "number", min: 0, max: 2, step: "any"}],
  ["max_tokens", "Tokens, at most", {type: "number", min: 1}], ["top_p", "top_p", {type: "number", min: 0, max: 1, step: "any"}],
  ["seed", "Seed", {type: "number", min: 0}], ["stop", "Stop at these words, one a line", {}]];

const FIRST = {temperature: "0.7", max_tokens: "256", top_p: "", seed: "", stop: "", tools: ""};  // settings

// place: the element that becomes the chat. send(path, body, signal): the Response of a request of the OpenAI API.
// t: translates.
export function chat(place, {send, t}) {
  const control = name => settings.querySelector(`[name=${name}]`);
  const labelled = (text, made, className = "") => element("label", {className}, element("span", {textContent: t(text)}), made);
  const way = element("select", {name: "way"}, new Option(t("Answer in a chat"), "chat/completions"), new Option(t("Continue a text"), "completions"));
  const fields = FIELDS.map(([name, text, properties]) => labelled(text, element(name === "stop" ? "textarea" : "input", {name, ...properties, ...(name === "stop" && {rows: 1})})));
  const system = element("textarea", {name: "system", rows: 2}), tools = element("textarea", {name: "tools", rows: 3, spellcheck: false});
  const summary = element("summary"), settings = element("details", {}, summary, element("div", {className: "fields"},
    labelled("Way", way), ...fields, labelled("System text", system, "whole"), labelled("Tools: a JSON list, as in the OpenAI API", tools, "whole")));
  const turns = element("div", {className: "turns"});
  const prompt = element("textarea", {name: "prompt", rows: 3, required: true});
  const sending = element("button", {className: "main", textContent: t("Send"), disabled: true}), stopping = element("button", {type: "button", textContent: t("Stop"), disabled: true});
  const clearing = element("button", {type: "button", textContent: t("New chat")});
  const asking = element("button", {type: "button", textContent: t("A held-out question"), hidden: true});
  const form = element("form", {}, labelled("Prompt", prompt), element("div", {className: "buttons"}, sending, stopping, clearing, asking), settings);
  place.className = "chat";
  place.replaceChildren(turns, form);
  let models = [], running = null, history = [], store = "", questions = [], number = 0, offered = null, left = false;

  const stored = (storage, key) => { try { return JSON.parse(storage.getItem(key)); } catch { return null; /* of another version */ } };
  const put = (storage, key, value) => { try { storage.setItem(key, JSON.stringify(value)); } catch { /* full, or not allowed: it is only of this view */ } };
  const summarize = () => { summary.textContent = [t("Settings"), control("system").value && `${t("System text")} “${control("system").value}”`].filter(Boolean).join(" · "); };

  // ---- history: [{asked, said: {model: text}, continues, reference}]; one with a reference is asked without those before it

  function drawTurn(turn) {
    const columns = Object.fromEntries(models.map(({id, title}) => {
      const body = element("div"), status = element("p", {className: "small status", textContent: turn.asking && !running ? t("Stopped.") : ""});
      status.setAttribute("role", "status");
      const column = element("div", {className: "answer"}, ...(title ? [element("h3", {textContent: title})] : []), body, status);
      column.dataset.model = id;
      if (turn.said[id]) body.replaceChildren(element("div", {className: "text"}, ...shownText(turn.said[id], turn.continues)));
      return [id, {column, body, status}];
    }));
    const alone = turn.reference === undefined ? [] : [element("p", {className: "small", textContent: t("A held-out question, asked without the turns above, at temperature 0")})];
    const reference = alone.map(() => element("div", {className: "answer reference"}, element("h3", {textContent: t("Reference, from the data")}), element("div", {}, ...shownText(turn.reference))));
    turns.append(element("div", {className: "asked"}, ...alone, turn.asked), element("div", {className: "answers"}, ...reference, ...Object.values(columns).map(one => one.column)));
    return columns;
  }

  function draw() {
    turns.replaceChildren();
    history.forEach(drawTurn);
  }

  // An answer that still comes when the page is left stays as far as it has come.
  const keep = () => put(sessionStorage, store, history.slice(-50));

  function body(model, turn) {
    const given = name => control(name).value.trim();
    const options = {model, stream: true, stream_options: {include_usage: true}};
    for (const name of ["temperature", "max_tokens", "top_p", "seed"]) if (given(name) !== "") options[name] = Number(given(name));
    if (turn.reference !== undefined) options.temperature = 0;  // what it knows, not what it happens to say
    const stop = control("stop").value.split("\n").filter(Boolean);
    if (stop.length) options.stop = stop;
    if (way.value === "completions") return {...options, prompt: turn.asked};
    if (given("tools")) options.tools = JSON.parse(given("tools"));
    const begin = Math.max(0, history.findLastIndex(one => one.reference !== undefined));
    const before = history.slice(begin, -1).filter(one => one.said[model]).flatMap(one => [{role: "user", content: one.asked}, {role: "assistant", content: one.said[model]}]);
    const head = given("system") ? [{role: "system", content: given("system")}] : [];
    return {...options, messages: [...head, ...before, {role: "user", content: turn.asked}]};
  }

  async function answer(model, turn, {body: text, status}) {
    const began = performance.now(), folded = element("details", {hidden: true}, element("summary", {textContent: t("Reasoning")}), element("div"));
    let said = "", calls = "", usage = null, first = 0;
    text.setAttribute("aria-busy", "true");
    const shown = element("div", {className: "text"});
    text.replaceChildren(folded, shown);
    try {
      for await (const {choices: [choice], usage: counted} of events(await send(way.value, body(model, turn), running.signal), t)) {
        usage = counted || usage;
        first ||= performance.now();
        const delta = choice?.delta || {};
        if (delta.reasoning_content) {
          folded.hidden = false;
          folded.lastChild.append(delta.reasoning_content);
        }
        for (const {function: called} of delta.tool_calls || []) calls += `${called.name ? `\n${called.name} ` : ""}${called.arguments || ""}`;
        turn.said[model] = said += choice?.text ?? delta.content ?? "";
        shown.replaceChildren(...shownText(said, turn.continues), ...(calls ? [element("pre", {textContent: calls.trim(), tabIndex: 0})] : []));
      }
      const seconds = (performance.now() - began) / 1000, tokens = usage?.completion_tokens;
      const speed = tokens > 1 ? `, ${(tokens / seconds).toFixed(1)} ${t("tokens/s")}` : "";
      status.textContent = `${said || calls ? "" : `${t("An empty answer.")} `}${tokens === undefined ? "" : `${tokens} ${t("tokens")}, `}${seconds.toFixed(1)} s${speed}`;
    } catch (error) {
      status.textContent = error.name === "AbortError" ? t("Stopped.") : error.message;
      status.classList.toggle("wrong", error.name !== "AbortError");
    }
    turn.said[model] = said;
    text.removeAttribute("aria-busy");
  }

  async function ask() {
    const turn = {asked: prompt.value, asking: true, said: {}, continues: way.value === "completions", ...(prompt.value === offered?.asked && {reference: offered.reference})};
    prompt.value = "";
    offered = null;
    history.push(turn);
    running = new AbortController();
    update();
    const columns = drawTurn(turn);
    turns.lastChild.scrollIntoView({block: "nearest"});
    const [of, asked, signal] = [store, history, running];
    await Promise.all(models.map(({id}) => answer(id, turn, columns[id])));
    if (left) return;  // the page: what broke off is kept as such
    delete turn.asking;
    if (history === asked || store !== of) put(sessionStorage, of, asked.slice(-50));  // not where it was cleared
    if (running === signal) running = null;
    update();
  }

  function update() {
    const continues = way.value === "completions";
    prompt.placeholder = t(continues ? "Begin a text, such as import os: it continues it. Enter sends, Shift and Enter make a new line" : "Enter sends, Shift and Enter make a new line");
    sending.disabled = !models.length || running !== null;
    stopping.disabled = running === null;
  }

  addEventListener("pagehide", () => {
    left = true;
    if (running) keep();
  });
  form.addEventListener("submit", event => {
    event.preventDefault();
    if (!sending.disabled && prompt.value.trim()) ask();
  });
  prompt.addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  stopping.addEventListener("click", () => running?.abort());
  clearing.addEventListener("click", () => {
    running?.abort();
    history = [];
    keep();
    draw();
  });
  asking.addEventListener("click", () => {
    offered = questions[number++ % questions.length];
    prompt.value = offered.asked;
    control("system").value = offered.system;
    summarize();
    prompt.focus();
  });
  settings.addEventListener("input", () => {
    summarize();
    update();
    put(localStorage, store, Object.fromEntries([...settings.querySelectorAll("[name]")].map(one => [one.name, one.value])));
  });
  return {
    // models: [{id, title, chats}]; none: nothing can be asked now. of: the key under which this browser keeps turns and
    // settings. data: {system, questions: [{asked, reference, system}]} of what was trained on.
    use(some, of, data = {system: "", questions: []}) {
      if (JSON.stringify([some, of]) === JSON.stringify([models, store])) return;
      const another = of !== store;
      [models, store, questions, asking.hidden] = [some, of, data.questions, !data.questions.length];
      if (some.length) way.value = some.at(-1).chats ? "chat/completions" : "completions";
      if (another) {
        running?.abort();
        running = offered = null;
        number = 0;
        history = stored(sessionStorage, store) || [];
        for (const [name, value] of Object.entries({...FIRST, system: data.system, way: way.value, ...stored(localStorage, store)})) control(name).value = value;
        summarize();
      }
      if (!running) draw();
      update();
    },
    stop() { running?.abort(); },
  };
}
