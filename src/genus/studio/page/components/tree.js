// The tree of event types: codes as primes, event tags as bits, what is published of each; and the attributes of a type.
import { h, setText, setAttribute } from "./dom.js";
import { aligned, plural, time, visibleText } from "./format.js";
import { drawBits } from "./bits.js";

const TAG_BITS = 14;
const MOST_BLOCKS = 2;
const FEW_TYPES = 60; // so many are all open at first
const MANY_TYPES = 200; // from so many on, the browser draws only those that are seen
const WIDE_CODE = 24; // digits

/** Types as the tree shows them: Map of name to {name, row, parent, depth, children, others, inherited, own}, roots first.
 *
 * A type is below its first parent that is known; `others` are its other parents. `inherited` and `own` are the primes of
 * its code that its parents have, and those that they have not.
 */
export function layTypes(rows) {
  const nodes = new Map([...rows].map(([name, row]) => [name, { name, row, parent: null, depth: 0, children: [], others: [], inherited: [], own: [] }]));
  for (const node of nodes.values()) {
    node.parent = node.row.parents.map((name) => nodes.get(name)).find((parent) => parent && parent !== node && !isBelow(parent, node)) ?? null;
    node.parent?.children.push(node);
    node.others = node.row.parents.filter((name) => name !== node.parent?.name);
    [node.inherited, node.own] = splitPrimes(node.row.factors, node.row.parents.map((name) => nodes.get(name)?.row.factors ?? []));
  }
  const place = (node, depth) => { node.depth = depth; node.children.forEach((child) => place(child, depth + 1)); };
  [...nodes.values()].filter((node) => !node.parent).forEach((root) => place(root, 0));
  return nodes;
}

function isBelow(node, above) {
  for (let at = node; at; at = at.parent) if (at === above) return true;
  return false;
}

/** The primes that the codes above have, each as often as one of them has it, and the others. */
function splitPrimes(factors, above) {
  const left = new Map();
  for (const list of above) {
    for (const prime of new Set(list)) left.set(prime, Math.max(left.get(prime) ?? 0, list.filter((one) => one === prime).length));
  }
  const inherited = [], own = [];
  for (const prime of factors) {
    const number = left.get(prime) ?? 0;
    (number > 0 ? inherited : own).push(prime);
    left.set(prime, number - 1);
  }
  return [inherited, own];
}

/** The attributes that events of a type can carry, in the order of their bits: {name, bit, type, unit, required, from, isOwn}; `from` is null if only other types of the family have it. */
export function attributesOf(rows, name) {
  const row = rows.get(name), found = new Map();
  const visit = (type, seen) => {
    const at = rows.get(type);
    if (!at || seen.has(type)) return;
    at.attributes.forEach((one) => { if (!found.has(one.name)) found.set(one.name, { ...one, from: type, isOwn: type === name }); });
    at.parents.forEach((parent) => visit(parent, new Set([...seen, type])));
  };
  visit(name, new Set());
  const declared = new Set([...rows.values()].filter((one) => one.family === row.family).flatMap((one) => one.attributes.map((each) => each.name)));
  row.vector.forEach((attribute, bit) => {
    const from = declared.has(attribute) ? null : "Event"; // what no type of the family declares is of all events
    if (!found.has(attribute)) found.set(attribute, { name: attribute, bit, type: "", unit: null, required: false, from, isOwn: false });
  });
  return [...found.values()].sort((a, b) => a.bit - b.bit);
}

/** The primes of a code as chips, and their product. */
export function drawPrimes({ inherited, own, row }) {
  const chip = (prime, isOwn) => h("span", { class: isOwn ? "prime own" : "prime", title: isOwn ? "its own prime" : "the prime of a supertype" }, prime);
  const product = row.factors.length === 1 ? "" : ` = ${row.code.length > WIDE_CODE ? `${row.code.slice(0, WIDE_CODE)}…` : row.code}`;
  return h("span", { class: "primes" }, inherited.map((prime) => chip(prime, false)), own.map((prime) => chip(prime, true)), h("span", { class: "product", title: row.code }, product));
}

/** The event tags of a type and all below it as bits, and its own tag. */
export function drawTags(row, most = MOST_BLOCKS) {
  const more = row.blocks.length - most;
  return h("span", { class: "tags" }, row.blocks.slice(0, most).map(([value, mask]) => drawBits({ value, mask, width: TAG_BITS, label: "event tags" })),
    h("small", {}, more > 0 ? `and ${more} more; ` : "", row.etag === null ? (row.kind ? "no event tag: a kind has no events of its own" : "no event tag") : `own event tag ${tagText(row.etag)}`));
}

/** An event tag in hexadecimal. */
export function tagText(etag) {
  return `0x${etag.toString(16).padStart(4, "0")}`;
}

/** What the signs of the tree mean. */
export function treeLegend() {
  const entry = (kind, words) => h("li", {}, h("i", { class: `swatch ${kind}` }), words);
  return h("ul", { class: "legend" }, entry("one", "bit must be 1"), entry("zero", "bit must be 0"), entry("any", "bit is not compared"), entry("prime", "prime of a supertype"), entry("prime own", "prime of its own"));
}

/** The tree of types; `rows` is a Map of rows by name, as in the table `types`.
 *
 * Options: `isLive` shows rates and last events, `hasCodes` codes and event tags (unless it is false), `isSorted` sorts by name, `onChoose(name)`, `mark(name)` a word and
 * a class beside a type, `label`. The element has update(rows, changed), filter(text), openAll(isOpen), choose(name), showCodes(isShown) and refresh().
 */
export function drawTypeTree(rows, options = {}) {
  const tree = new TypeTree(rows, options);
  return Object.assign(tree.element, {
    update: (next, changed) => tree.update(next, changed), filter: (text) => tree.filter(text), openAll: (isOpen) => tree.openAll(isOpen),
    choose: (name) => tree.choose(name), refresh: () => tree.build(), showCodes: (hasCodes) => { Object.assign(options, { hasCodes }); tree.build(); },
  });
}

class TypeTree {
  constructor(rows, options) {
    this.options = options;
    this.items = new Map();
    this.words = [];
    this.chosen = null;
    this.element = h("div", { class: options.isLive ? "type-tree live-types" : "type-tree", role: "tree", "aria-label": options.label ?? "Event types" });
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.element.addEventListener("click", (event) => this.onClick(event));
    this.rows = rows;
    this.opened = null;
    this.build();
  }

  // What is given to it
  update(rows, changed = null) {
    this.rows = rows;
    const keys = changed ?? rows.keys();
    const isOther = rows.size !== this.nodes.size || [...keys].some((name) => rows.has(name) && this.shapes.get(name) !== shapeOf(rows.get(name)));
    if (isOther) return this.build();
    for (const name of changed ?? this.items.keys()) this.writeItem(name);
  }

  filter(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.draw();
  }

  openAll(isOpen) {
    this.opened = new Set(isOpen ? this.nodes.keys() : []);
    this.draw();
  }

  choose(name) {
    if (!this.nodes.has(name)) return;
    for (let node = this.nodes.get(name).parent; node; node = node.parent) this.opened.add(node.name);
    this.chosen = name;
    this.setCurrent(name);
    this.draw();
    this.items.get(name)?.element.scrollIntoView({ block: "nearest" });
  }

  // Structure
  build() {
    const sorted = this.options.isSorted ? [...this.rows].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })) : [...this.rows];
    this.nodes = layTypes(sorted);
    this.shapes = new Map(sorted.map(([name, row]) => [name, shapeOf(row)]));
    const most = this.nodes.size <= FEW_TYPES ? Infinity : 1;
    if (this.nodes.size) this.opened ??= new Set([...this.nodes.values()].filter((node) => node.depth < most).map((node) => node.name));
    this.items.clear();
    this.element.classList.toggle("no-codes", this.options.hasCodes === false);
    this.element.classList.toggle("many-types", this.nodes.size > MANY_TYPES);
    this.draw();
  }

  /** The nodes that are shown, from the top down. */
  visible() {
    const found = this.words.length ? this.matching() : null, shown = [];
    const visit = (node) => {
      if (found && !found.has(node)) return;
      shown.push(node);
      if (this.opened?.has(node.name) || found) node.children.forEach(visit);
    };
    [...this.nodes.values()].filter((node) => !node.parent).forEach(visit);
    return shown;
  }

  /** Nodes that have all words in their name, text or attributes, and what is above them. */
  matching() {
    const found = new Set();
    for (const node of this.nodes.values()) {
      const text = [node.name, node.row.doc, ...node.row.attributes.map((one) => one.name), node.row.kind ? "kind" : "", node.row.deprecated === null ? "" : "deprecated"].join("\n").toLowerCase();
      if (this.words.every((word) => text.includes(word))) for (let at = node; at; at = at.parent) found.add(at);
    }
    return found;
  }

  draw() {
    const shown = this.visible(), hadFocus = this.element.contains(document.activeElement);
    this.shown = shown;
    const elements = shown.map((node) => this.itemOf(node).element);
    shown.forEach((node) => this.writeState(node));
    this.element.replaceChildren(...(elements.length ? elements : [h("p", { class: "empty" }, this.nodes.size ? "No type fits the filter." : "There are no types.")]));
    if (!shown.some((node) => node.name === this.current)) this.setCurrent(shown[0]?.name ?? null);
    if (hadFocus) this.items.get(this.current)?.element.focus({ preventScroll: true });
    this.options.onDraw?.(shown.length, this.nodes.size);
  }

  // A row
  itemOf(node) {
    if (!this.items.has(node.name)) {
      this.items.set(node.name, this.makeItem(node));
      this.writeItem(node.name);
    }
    return this.items.get(node.name);
  }

  makeItem(node) {
    const { row } = node, twisty = h("span", { class: "twisty", "aria-hidden": "true" });
    const mark = this.options.mark?.(node.name);
    const chips = [row.kind && ["kind", ""], row.deprecated !== null && ["deprecated", "state-warn", row.deprecated], node.others.length && [`also ${node.others.join(", ")}`, ""], mark].filter(Boolean);
    const head = h("div", { class: "type" }, twisty, h("div", { class: "type-words" }, h("strong", {}, node.name), " ",
      chips.map(([words, tone, title]) => [h("span", { class: `chip ${tone}`, title }, words), " "]), h("small", { title: row.doc }, row.doc)));
    const rates = h("div", { class: "type-rate" }), last = h("div", { class: "type-last" });
    const element = h("div", { class: "type-item", role: "treeitem", tabindex: "-1", "data-type": node.name, style: { "--depth": String(node.depth) } }, head,
      this.options.isLive && rates, this.options.isLive && last, this.options.hasCodes !== false && [h("div", { class: "type-code" }, drawPrimes(node)), h("div", { class: "type-tags" }, drawTags(row))]);
    return { element, twisty, rates, last };
  }

  writeState(node) {
    const { element, twisty } = this.items.get(node.name), siblings = node.parent?.children ?? [...this.nodes.values()].filter((one) => !one.parent);
    const isOpen = this.words.length > 0 || this.opened.has(node.name);
    setAttribute(element, "aria-level", node.depth + 1);
    setAttribute(element, "aria-setsize", siblings.length);
    setAttribute(element, "aria-posinset", siblings.indexOf(node) + 1);
    setAttribute(element, "aria-expanded", node.children.length ? String(isOpen) : null);
    setAttribute(element, "aria-selected", String(node.name === this.chosen));
    setText(twisty, node.children.length ? (isOpen ? "▾" : "▸") : "");
    setAttribute(element, "tabindex", node.name === this.current ? "0" : "-1");
  }

  writeItem(name) {
    const item = this.items.get(name), row = this.rows.get(name);
    if (!item || !row || !this.options.isLive) return;
    setText(item.rates, row.events ? aligned(row.rate) : "");
    setAttribute(item.rates, "title", row.events ? `${plural(row.events, "event")} so far` : null);
    setText(item.last, row.last_ms === null ? "" : visibleText(`${time(row.last_ms)} \u2003${row.last}`));
    setAttribute(item.last, "title", row.last || null);
  }

  // Choosing
  setCurrent(name) {
    this.current = name;
    for (const [key, { element }] of this.items) setAttribute(element, "tabindex", key === name ? "0" : "-1");
  }

  select(name) {
    this.chosen = name;
    for (const [key, { element }] of this.items) setAttribute(element, "aria-selected", String(key === name));
    this.options.onChoose?.(name);
  }

  toggle(name, isOpen = !this.opened.has(name)) {
    this.opened[isOpen ? "add" : "delete"](name);
    this.draw();
  }

  onClick(event) {
    const item = event.target.closest(".type-item");
    if (!item || String(getSelection()).trim()) return;
    const name = item.dataset.type, isTwisty = event.target.closest(".twisty");
    this.setCurrent(name);
    item.focus({ preventScroll: true });
    if ((isTwisty || !this.options.onChoose) && this.nodes.get(name).children.length) this.toggle(name);
    else if (this.options.onChoose) this.select(name);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const place = this.shown.findIndex((node) => node.name === this.current), node = this.shown[place];
    if (!node) return;
    const isOpen = node.children.length > 0 && (this.opened.has(node.name) || this.words.length > 0);
    const moves = {
      ArrowDown: () => this.moveTo(this.shown[place + 1]), ArrowUp: () => this.moveTo(this.shown[place - 1]),
      Home: () => this.moveTo(this.shown[0]), End: () => this.moveTo(this.shown.at(-1)),
      ArrowRight: () => (node.children.length && !isOpen ? this.toggle(node.name, true) : isOpen && this.moveTo(this.shown[place + 1])),
      ArrowLeft: () => (isOpen && !this.words.length ? this.toggle(node.name, false) : this.moveTo(node.parent)),
      Enter: () => this.options.onChoose && this.select(node.name), " ": () => this.options.onChoose && this.select(node.name),
      "*": () => { (node.parent?.children ?? [node]).forEach((one) => this.opened.add(one.name)); this.draw(); },
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  }

  moveTo(node) {
    if (!node) return;
    this.setCurrent(node.name);
    this.items.get(node.name).element.focus();
  }
}

/** What of a row decides where and how its type is drawn; the rest changes often. */
function shapeOf({ parents, kind, factors, etag, blocks, deprecated, doc, attributes }) {
  return JSON.stringify([parents, kind, factors, etag, blocks, deprecated, doc, attributes]);
}
