// A text field with a list of what it may hold: what is typed, words in any order, leaves those that have all of them.

import {element} from "./common.js";

// options: which returns [{value, title, group}], of a group one after the other.
export function searchable(input, options) {
  const list = element("ul", {className: "options", id: `${input.name}_options`, role: "listbox", hidden: true});
  let at = -1, typed = false;
  document.body.append(list);
  for (const [name, value] of Object.entries({role: "combobox", "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list"})) input.setAttribute(name, value);
  const entries = () => [...list.querySelectorAll("[role=option]")];

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function open() {
    const words = typed ? input.value.toLowerCase().split(/\s+/) : [], place = input.getBoundingClientRect();
    const found = options().filter(one => words.every(word => Object.values(one).join(" ").toLowerCase().includes(word)));
    list.replaceChildren(...found.flatMap(({value, title, group}, number) => [
      ...(group && group !== found[number - 1]?.group ? [element("li", {role: "presentation", className: "small", textContent: group})] : []),
      element("li", {role: "option", id: `${list.id}${number}`, ariaSelected: String(value === input.value)}, value, ...(title ? [element("span", {className: "small", textContent: ` ${title}`})] : []))]));
    entries().forEach((one, number) => one.addEventListener("click", () => take(found[number].value)));
    Object.assign(list.style, {left: `${place.left + scrollX}px`, top: `${place.bottom + scrollY}px`, width: `${place.width}px`});
    at = -1;
    list.ariaLabel = input.labels[0].firstElementChild.textContent;
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    list.querySelector("[aria-selected=true]")?.scrollIntoView({block: "nearest"});
  }

  function take(value) {
    close();
    input.value = value;
    input.dispatchEvent(new Event("input", {bubbles: true}));
  }

  input.addEventListener("click", () => { typed = false; open(); });
  input.addEventListener("input", event => { if (event.isTrusted) { typed = true; open(); } });
  input.addEventListener("blur", close);
  list.addEventListener("pointerdown", event => event.preventDefault());  // the field keeps the focus
  input.addEventListener("keydown", event => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && !list.hidden && at >= 0) entries()[at].click();
    if (!["ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    if (list.hidden) open();
    const all = entries();
    if (!all.length) return;
    all[at]?.classList.remove("at");
    at = event.key === "ArrowDown" ? (at + 1) % all.length : (Math.max(at, 0) + all.length - 1) % all.length;
    all[at].classList.add("at");
    all[at].scrollIntoView({block: "nearest"});
    input.setAttribute("aria-activedescendant", all[at].id);
  });
}
