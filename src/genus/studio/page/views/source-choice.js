// Buttons that choose among the sources of Studio.
import { h, clear } from "../components/dom.js";

export const SOURCE_BAR = "|"; // between names of sources in the address; no name has one

/** The chosen sources from the address. */
export function readSources(text) {
  return new Set((text ?? "").split(SOURCE_BAR).filter(Boolean));
}

/** A group of buttons. `draw(names, chosen)` writes them; `onChoose(chosen)` is called with the new choice, empty for all. */
export function sourceChoice(all, onChoose) {
  const element = h("div", { class: "source-choice", role: "group", "aria-label": "sources" });
  const draw = (names, chosen) => {
    const focused = [...element.children].indexOf(document.activeElement);
    const choice = (label, isPressed, next) => h("button", { type: "button", class: "button small", "aria-pressed": String(isPressed), onclick: () => onChoose(next) }, label);
    clear(element).append(...(names.length < 2 ? [] : [
      choice(all, !chosen.size, new Set()),
      ...names.map((name) => choice(name, chosen.has(name), chosen.has(name) ? new Set([...chosen].filter((one) => one !== name)) : new Set([...chosen, name])))]));
    element.children[focused]?.focus();
  };
  return { element, draw };
}
