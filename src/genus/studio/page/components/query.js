// The input of a subscription: completion while typing, the error at its column, recent texts, and copying.
import { h, clear, copyButton, remember, setAttribute } from "./dom.js";

const QUERY_KEY = "genus.studio.subscriptions";
const QUERY_RECENT = 20;
const QUERY_LONGEST = 2000;
const QUERY_ITEMS = 50;
const QUERY_COMPLETE_MS = 80;
const QUERY_CHECK_MS = 250;
const QUERY_SPACED = new Set(["type", "kind", "keyword"]);

/** The recent texts, the last one first; whatever else the storage holds is left out. */
export function recentQueries() {
  try {
    const found = JSON.parse(remember(QUERY_KEY) ?? "[]");
    if (!Array.isArray(found)) return [];
    return [...new Set(found.filter((text) => typeof text === "string" && text && text.length <= QUERY_LONGEST))].slice(0, QUERY_RECENT);
  } catch {
    return []; // not JSON
  }
}

/** Put a text before the recent ones. */
export function rememberQuery(text) {
  if (!text || text.length > QUERY_LONGEST) return;
  remember(QUERY_KEY, JSON.stringify([text, ...recentQueries().filter((one) => one !== text)].slice(0, QUERY_RECENT)));
}

/** The place in a JavaScript string of the n-th character; servers count characters, not UTF-16 units. */
export function placeOfCharacter(text, n) {
  return [...text].slice(0, Math.max(n, 0)).join("").length;
}

/** How many characters are before a place in a JavaScript string. */
export function charactersBefore(text, place) {
  return [...text.slice(0, place)].length;
}

/**
 * An input for the text of a subscription; a view has one.
 *
 * `complete(text, at)` and `check(text)` give promises of what /api/complete and /api/check answer. `onRun(text)` is
 * called with texts that are valid, on Enter or by the button. `docs` is the address of a page about subscriptions.
 */
export class QueryInput {
  constructor(options) {
    this.options = options;
    this.items = [];
    this.active = -1;
    this.asked = 0; // the number of the last question; answers to others are dropped
    this.checked = null; // {text, result} of the last answer about the text
    this.checking = 0;
    this.build();
    this.set(options.text);
  }

  get text() {
    return this.input.value.trim() || "Event";
  }

  /** Write a text into the input and check it; it is not run. */
  set(text) {
    this.input.value = text;
    this.close();
    this.checkSoon(0);
  }

  destroy() {
    clearTimeout(this.completeTimer);
    clearTimeout(this.checkTimer);
    this.asked += 1;
    this.checking += 1;
    this.element.remove();
  }

  // -- building ------------------------------------------------------------------------------------------------------

  build() {
    const { docs } = this.options;
    this.input = h("input", {
      class: "input query-input", type: "text", id: "query", placeholder: "Event", spellcheck: "false", autocomplete: "off", autocapitalize: "off", autocorrect: "off",
      enterkeyhint: "go", maxlength: QUERY_LONGEST, role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-haspopup": "listbox",
      "aria-controls": "query-list", "aria-describedby": "query-message",
    });
    this.before = h("span", {});
    this.mark = h("mark", { class: "query-mark" });
    this.after = h("span", {}); // as wide as the input's text, to scroll as far
    this.layer = h("div", { class: "query-layer", "aria-hidden": "true" }, this.before, this.mark, this.after);
    this.list = h("ul", { class: "query-list", id: "query-list", role: "listbox", "aria-label": "completions of the subscription", hidden: true });
    this.message = h("p", { class: "query-message", id: "query-message", role: "status" });
    this.element = h("div", { class: "query" },
      h("div", { class: "query-line" },
        h("label", { class: "query-label", for: "query" }, "Subscription"),
        h("div", { class: "query-box" }, this.input, this.layer, this.list),
        h("button", { type: "button", class: "button primary", onclick: () => this.run() }, "Run"),
        h("button", { type: "button", class: "button", "aria-haspopup": "listbox", "aria-controls": "query-list", onclick: () => this.showRecent() }, "Recent")),
      h("div", { class: "query-more" }, this.message,
        copyButton("Copy as text", () => this.checkedForm("text")), copyButton("Copy as Python", () => this.checkedForm("python")),
        docs ? h("a", { href: docs, target: "_blank", rel: "noopener" }, "How to write one") : null));
    this.listen();
  }

  listen() {
    const { input } = this;
    input.addEventListener("input", () => this.onInput());
    input.addEventListener("keydown", (event) => this.onKey(event));
    input.addEventListener("blur", () => this.close());
    ["scroll", "keyup", "click", "select"].forEach((name) => input.addEventListener(name, () => this.alignLayer()));
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the input keeps the focus
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.take(Number(option.dataset.n));
    });
  }

  // -- completion ----------------------------------------------------------------------------------------------------

  onInput() {
    this.hideError();
    this.message.classList.add("old");
    this.checkSoon(QUERY_CHECK_MS);
    clearTimeout(this.completeTimer);
    this.completeTimer = setTimeout(() => this.complete(), QUERY_COMPLETE_MS);
  }

  async complete() {
    clearTimeout(this.completeTimer);
    const text = this.input.value, place = this.input.selectionStart ?? text.length, number = (this.asked += 1);
    const answer = await this.options.complete(text, charactersBefore(text, place)).catch(() => ({ items: [] })); // the check tells what is wrong
    if (number !== this.asked || text !== this.input.value) return;
    const items = answer.items.slice(0, QUERY_ITEMS), from = placeOfCharacter(text, answer.from), to = placeOfCharacter(text, answer.to);
    const isDone = items.length === 1 && items[0].text === text.slice(from, to) && place === to;
    if (!items.length || isDone) this.close();
    else this.open(items.map((item) => ({ ...item, from, to })), from);
  }

  showRecent() {
    const wasOpen = !this.list.hidden && this.items[0]?.kind === "recent";
    this.input.focus();
    this.close();
    if (wasOpen) return;
    const recent = recentQueries();
    if (recent.length) this.open(recent.map((text) => ({ text, kind: "recent", note: "", isWhole: true })), 0);
    else this.write("", "", "no recent subscriptions");
  }

  open(items, from) {
    this.items = items;
    clear(this.list).append(...items.map((item, n) => this.option(item, n)), h("li", { class: "query-foot", role: "presentation" }, "Enter or Tab to take, Esc to close"));
    this.hideError();
    this.list.style.left = `${this.leftOf(from)}px`;
    this.list.hidden = false;
    this.list.scrollTop = 0;
    this.input.setAttribute("aria-expanded", "true");
    this.activate(-1);
  }

  option(item, n) {
    return h("li", { role: "option", id: `query-${n}`, "data-n": n, "aria-selected": "false" },
      h("span", { class: "query-text" }, item.text), h("span", { class: "query-kind" }, item.kind), item.note ? h("span", { class: "query-note" }, item.note) : null);
  }

  /** Where the list begins: below the word, but not where it would leave the box. */
  leftOf(place) {
    const shown = this.before.textContent;
    this.before.textContent = this.input.value.slice(0, place);
    const left = this.before.offsetWidth - this.input.scrollLeft;
    this.before.textContent = shown;
    return Math.max(0, Math.min(left, this.input.clientWidth - 260));
  }

  close() {
    this.asked += 1; // an answer on its way must not open it again
    clearTimeout(this.completeTimer);
    this.items = [];
    this.list.hidden = true;
    clear(this.list);
    this.input.setAttribute("aria-expanded", "false");
    this.activate(-1);
    if (this.checked?.text === this.text) this.show(this.checked.result);
  }

  activate(n) {
    this.list.children[this.active]?.setAttribute("aria-selected", "false");
    this.active = n;
    const option = this.list.children[n];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    setAttribute(this.input, "aria-activedescendant", option?.id);
  }

  take(n) {
    const item = this.items[n], { input } = this;
    if (!item) return;
    this.close();
    if (item.isWhole) {
      input.value = item.text;
      this.run();
      return;
    }
    const after = input.value.slice(item.to), isSpaced = QUERY_SPACED.has(item.kind) && !after.startsWith(" ");
    const start = input.value.slice(0, item.from) + item.text + (isSpaced ? " " : "");
    input.value = start + after;
    input.setSelectionRange(start.length, start.length);
    this.alignLayer();
    this.hideError();
    this.checkSoon(QUERY_CHECK_MS);
    if (isSpaced) this.complete();
  }

  onKey(event) {
    if (event.isComposing) return;
    const isOpen = !this.list.hidden, move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "ArrowDown" && event.altKey) this.showRecent();
    else if (move && isOpen) this.activate(this.moved(move));
    else if (event.key === "ArrowDown" || (event.key === " " && event.ctrlKey)) this.complete();
    else if (event.key === "Enter" && isOpen && this.active >= 0) this.take(this.active);
    else if (event.key === "Enter" && isOpen && this.isHalf()) this.take(0);
    else if (event.key === "Enter") this.run();
    else if (event.key === "Tab" && isOpen && !event.shiftKey) this.take(Math.max(this.active, 0));
    else if (event.key === "Escape" && isOpen) this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Whether the word at the cursor is only the beginning of what is offered. */
  isHalf() {
    const [{ from, to, text, isWhole }] = this.items, word = this.input.value.slice(from, to).toLowerCase();
    return !isWhole && word !== "" && text.toLowerCase().startsWith(word) && !this.items.some((item) => item.text.toLowerCase() === word);
  }

  /** The next option; beyond the last and the first one is none, that is, the text as it was typed. */
  moved(step) {
    const size = this.items.length + 1;
    return ((this.active + 1 + step + size) % size) - 1;
  }

  // -- checking ------------------------------------------------------------------------------------------------------

  checkSoon(delay) {
    clearTimeout(this.checkTimer);
    this.checkTimer = setTimeout(() => this.check(), delay);
  }

  /** What the server says of the present text; null if it does not answer, or the text has changed meanwhile. */
  async check() {
    clearTimeout(this.checkTimer);
    const { text } = this;
    if (this.checked?.text === text) {
      this.show(this.checked.result);
      return this.checked.result;
    }
    const number = (this.checking += 1);
    let result = null;
    try {
      result = await this.options.check(text);
    } catch (problem) {
      if (number === this.checking) this.write("warn", "⚠", `not checked: ${problem?.message ?? "no answer"}`);
      return null;
    }
    if (number !== this.checking || text !== this.text) return null;
    this.checked = { text, result };
    this.show(result);
    return result;
  }

  show(result) {
    if (!result.ok && !this.list.hidden) return; // it is still being typed; close() shows it
    this.hideMark();
    setAttribute(this.input, "aria-invalid", result.ok ? null : "true");
    if (!result.ok) this.showError(result);
    else if (result.never) this.write("warn", "⚠", `can never match: ${result.never}`);
    else this.write("good", "✓", acceptedTypes(result.types));
  }

  showError({ message, column }) {
    this.write("bad", "✗", column ? `column ${column}: ${message}` : message);
    if (!column) return;
    const text = this.input.value, lead = text.length - text.trimStart().length;
    const place = placeOfCharacter(text, charactersBefore(text, lead) + column - 1);
    this.before.textContent = text.slice(0, place);
    this.mark.textContent = text.slice(place).match(/^(?:\w+|\S)/u)?.[0] ?? " ";
    this.after.textContent = `${text.slice(place + this.mark.textContent.length)}  `;
    this.mark.hidden = false;
    this.alignLayer();
  }

  /** What is still being typed is not wrong yet. */
  hideError() {
    this.hideMark();
    setAttribute(this.input, "aria-invalid", null);
    if (this.message.classList.contains("bad")) this.write("", "", "");
  }

  hideMark() {
    this.mark.hidden = true;
    this.before.textContent = this.after.textContent = "";
  }

  alignLayer() {
    requestAnimationFrame(() => { this.layer.scrollLeft = this.input.scrollLeft; });
  }

  write(look, sign, text) {
    this.message.className = `query-message ${look}`;
    if (this.message.dataset.text === text) return;
    this.message.dataset.text = text;
    clear(this.message).append(h("span", { class: "sign", "aria-hidden": "true" }, sign), " ", text);
  }

  /** Check the text and hand it on if it is valid. */
  async run() {
    this.close();
    const result = await this.check();
    if (!result?.ok) return;
    rememberQuery(this.text);
    this.options.onRun(this.text);
  }

  /** The text in one of its forms, to copy; an error if it is not valid. */
  async checkedForm(form) {
    const result = await this.check();
    if (!result?.ok) throw new Error("it is not valid");
    return String(result[form] ?? this.text);
  }
}

function acceptedTypes(types) {
  if (!Array.isArray(types) || !types.length) return "valid";
  const shown = types.slice(0, 6).join(", ");
  return types.length > 6 ? `accepts ${shown} and ${types.length - 6} more` : `accepts ${shown}`;
}
