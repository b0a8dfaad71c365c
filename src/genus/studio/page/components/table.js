// A table of many rows that change often. Only the rows that are seen are in the document, in chunks that an
// IntersectionObserver watches; only cells whose text changed are written. Rows have one height (--row).
import { h, setText, setAttribute } from "./dom.js";
import { DASH, plural } from "./format.js";

const TABLE_CHUNK = 16;
const TABLE_SORT_MS = 1000;

/** An input that filters; Escape clears it, and the key / leads to it. */
export function filterInput(label, text, onFilter) {
  const clearIt = (event) => { if (event.key === "Escape" && input.value) { event.preventDefault(); input.value = ""; onFilter(""); } };
  const input = h("input", { type: "search", class: "input filter", placeholder: label, "aria-label": label, "data-filter": "", autocomplete: "off", spellcheck: "false", oninput: () => onFilter(input.value), onkeydown: clearIt });
  input.value = text;
  return input;
}

/** Lets the frame of a scroller show whether there is more beyond the right edge; returns what to call when its contents change. */
export function markEdge(scroller) {
  const draw = () => scroller.parentElement?.toggleAttribute("data-more", scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft > 8);
  scroller.addEventListener("scroll", draw, { passive: true });
  return draw;
}

/**
 * A table, its `element`. On a narrow page its rows are cards.
 *
 * Columns are {id, title, unit, note, width (rem), end (numbers), value(row, key) to sort by (null: not sorted), text(row, key), or
 * make(cell) and write(cell, row, key) for more than a text, tone(row) "bad" | "warn" | "", search(row, key) the text that the
 * filter looks at, docs (an address), grows (it shares the room that is left), isFixed (its value never changes), isLong (its text is its title too), class};
 * without `value` and `text`, those of the row's field `id` are taken. The first column is the head of the row.
 * Options: `label`; `detail(key, row)` gives {element, update(row), close()} for an opened row; `href(key, row)`: a row leads
 * there; `tone(row)` of a whole row; `sort` {id, down}; `filter` text; `filters` [{id, label, note, test(row)}]; `onFilter(text)`;
 * `word` for a row ("channel"); `empty` text; `tools` elements beside the filter; `filterFrom`: the filter is shown from so
 * many rows on; `isShort`: it does not scroll on its own; `most` rows are shown; `isAging`: its texts change as time goes by.
 *
 * `fewAre`: with so many rows at most, there is room below them, and the last is open at first.
 *
 * Methods: setRows(map) all rows; change({set, gone}, map) some; reveal(key) scroll to, open and mark a row; destroy().
 */
export class LiveTable {
  constructor(options) {
    this.options = options;
    this.columns = options.columns.map(fillColumn);
    this.rows = new Map();
    this.known = new Set();
    this.order = [];
    this.chunks = [];
    this.shown = new Map(); // key -> the line in the document
    this.details = new Map(); // key -> what its opened row shows
    this.sort = options.sort ?? { id: this.columns[0].id, down: false };
    this.filter = options.filter ?? "";
    this.pressed = new Set();
    this.sortedAt = 0;
    this.sortTimer = 0;
    this.found = null;
    this.sought = null;
    this.observer = null;
    this.#build();
  }

  #build() {
    const { label, isShort } = this.options;
    this.heads = this.columns.map((column) => this.#buildHead(column));
    const widths = this.columns.map(({ width }, n) => (n ? `${width}rem` : `min(${width}rem, 46vw)`)), isNarrow = (n) => !this.columns[n].grows;
    this.table = h("table", { class: "table", role: "table", "aria-label": label, style: { width: `max(100%, ${widths.join(" + ")})` } },
      h("colgroup", {}, widths.map((width, n) => h("col", { style: isNarrow(n) ? { width } : {} }))),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row", "aria-rowindex": 1 }, this.heads.map(({ cell }) => cell))));
    this.none = h("tbody", { class: "none", role: "rowgroup", hidden: true }, h("tr", { role: "row" }, h("td", { role: "cell", colspan: this.columns.length }, "")));
    this.table.append(this.none);
    const scroller = h("div", { class: `live scroll${isShort ? " short" : ""}`, role: "region", "aria-label": label, tabindex: 0 }, this.table);
    this.scroller = scroller;
    this.element = h("div", { class: "live-box", style: { "--cells": this.columns.filter((column) => column.id !== "state").length - 1 } }, this.#buildToolbar(), h("div", { class: "live-frame" }, scroller));
    this.table.classList.toggle("opens", this.#isOpened);
    this.table.addEventListener("keydown", (event) => this.#onKey(event));
    this.table.addEventListener("click", (event) => this.#onClick(event));
    this.observer = new IntersectionObserver((entries) => this.#onSeen(entries), { root: isShort ? null : scroller, rootMargin: "200px 0px" });
    const drawEdge = markEdge(scroller);
    this.sizes = new ResizeObserver(() => { scroller.style.setProperty("--seen-width", `${scroller.clientWidth}px`); drawEdge(); });
    this.sizes.observe(scroller);
    if (this.options.isAging) this.ageTimer = setInterval(() => this.shown.forEach((line, key) => this.#write(key, line)), TABLE_SORT_MS);
    this.#drawSort();
  }

  get #isOpened() {
    return Boolean(this.options.detail ?? this.options.href);
  }

  #buildHead(column) {
    const arrow = h("span", { class: "arrow", "aria-hidden": "true" });
    const words = [column.title, column.unit && h("small", {}, ` ${column.unit}`)];
    const label = column.value ? h("button", { type: "button", title: column.note, onclick: () => this.#press(column) }, words) : h("span", { title: column.note }, words);
    const docs = column.docs && h("a", { class: "docs", href: column.docs, target: "_blank", rel: "noopener", title: `${column.title}: documentation`, "aria-label": `${column.title}: documentation` }, "?");
    const cell = h("th", { scope: "col", role: "columnheader", "aria-label": labelOf(column), class: column.end ? "end" : null }, h("div", { class: "head-cell" }, label, arrow, docs));
    return { cell, arrow, column };
  }

  #buildToolbar() {
    const { word = "row", filters = [], tools = [] } = this.options;
    this.counted = h("span", { class: "counted" });
    this.input = filterInput(`Filter ${word}s`, this.filter, (text) => this.#setFilter(text));
    this.input.addEventListener("focus", () => this.counted.setAttribute("aria-live", "polite"));
    this.input.addEventListener("blur", () => this.counted.removeAttribute("aria-live"));
    const buttons = filters.map((one) => h("button", { type: "button", class: "button small", "aria-pressed": "false", title: one.note, onclick: (event) => this.#pressFilter(one, event.currentTarget) }, one.label));
    this.sorter = h("select", { class: "input", onchange: () => this.#press(this.columns[this.sorter.selectedIndex]) }, this.columns.map((column) => h("option", { disabled: !column.value }, column.title)));
    return (this.toolbar = h("div", { class: "toolbar", role: "search", "aria-label": `${word}s` }, this.input, h("label", { class: "field sorter" }, "sorted by", this.sorter), buttons, tools, this.counted)); // cards have no heads to press
  }

  // What is given to it

  setRows(rows) {
    this.rows = rows;
    for (const key of this.details.keys()) if (!rows.has(key)) this.#close(key);
    this.#reorder();
    for (const [key, line] of this.shown) this.#write(key, line);
  }

  change({ set, gone }, rows) {
    this.rows = rows;
    let isOther = gone.size > 0;
    for (const key of gone) this.#close(key);
    for (const key of set) {
      const line = this.shown.get(key);
      if (line) this.#write(key, line);
      if (!isOther && !this.known.has(key)) isOther = true;
    }
    if (isOther || !this.sortedAt) this.#reorder(); // also if there are no rows: then the table says so
    else if (set.size) this.#reorderLater();
  }

  reveal(key) {
    this.sought = key;
    this.#seek();
  }

  destroy() {
    clearTimeout(this.sortTimer);
    clearInterval(this.ageTimer);
    this.observer.disconnect();
    this.sizes.disconnect();
    for (const key of [...this.details.keys()]) this.#close(key);
  }

  // Order and filter

  #press(column) {
    if (this.sort.id === column.id) this.sort = { id: column.id, down: !this.sort.down };
    else this.sort = { id: column.id, down: Boolean(column.end) };
    this.#drawSort();
    this.#reorder();
  }

  #drawSort() {
    this.sorter.selectedIndex = this.columns.findIndex((column) => column.id === this.sort.id);
    for (const { cell, arrow, column } of this.heads) {
      const isSorted = column.id === this.sort.id;
      setAttribute(cell, "aria-sort", isSorted ? (this.sort.down ? "descending" : "ascending") : null);
      setText(arrow, isSorted ? (this.sort.down ? "▼" : "▲") : "");
    }
  }

  #setFilter(text) {
    this.filter = text;
    this.#reorder();
    this.options.onFilter?.(text);
  }

  #pressFilter(filter, button) {
    if (!this.pressed.delete(filter)) this.pressed.add(filter);
    button.setAttribute("aria-pressed", String(this.pressed.has(filter)));
    this.#reorder();
  }

  // Values of the column that the table is sorted by may change 20 times a second; rows move once a second at most.
  #reorderLater() {
    const column = this.columns.find((one) => one.id === this.sort.id);
    if (this.sortTimer || (column.isFixed && !this.pressed.size)) return;
    const wait = Math.max(0, this.sortedAt + TABLE_SORT_MS - performance.now());
    this.sortTimer = setTimeout(() => { this.sortTimer = 0; this.#reorder(); }, wait);
  }

  #reorder() {
    this.sortedAt = performance.now();
    this.known = new Set(this.rows.keys());
    const column = this.columns.find((one) => one.id === this.sort.id), sign = this.sort.down ? -1 : 1;
    const wanted = [...this.rows].filter(([key, row]) => this.#passes(key, row)).map(([key, row]) => [key, column.value(row, key)]);
    wanted.sort(([key, a], [other, b]) => compareCells(a, b, sign) || (key < other ? -1 : 1));
    const order = wanted.slice(0, this.options.most).map(([key]) => key);
    if (order.length === this.order.length && order.every((key, n) => key === this.order[n]) && this.chunks.length) return this.#drawCount();
    if (!this.order.length) this.#openOne(order);
    this.order = order;
    this.#fitChunks();
    for (const chunk of this.chunks) this.#drawChunk(chunk);
    this.#drawCount();
    this.#seek();
  }

  #openOne(order) {
    if (!order.length || order.length > (this.options.fewAre ?? 0) || this.sought !== null || this.wasOpened || !matchMedia("(min-width: 861px)").matches) return;
    this.wasOpened = true;
    this.#open(order.at(-1));
  }

  #passes(key, row) {
    for (const filter of this.pressed) if (!filter.test(row, key)) return false;
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return true;
    const text = this.columns.filter((one) => one.search).map((one) => one.search(row, key)).join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  #drawCount() {
    const { word = "row", empty = `There are no ${word}s.`, filterFrom = 0 } = this.options;
    const [all, some] = [this.rows.size, this.order.length];
    this.toolbar.hidden = all < filterFrom && !this.filter;
    setText(this.counted, some === all ? plural(all, word) : `${some} of ${plural(all, word)}`);
    this.none.hidden = some > 0;
    if (!some) setText(this.none.firstChild.firstChild, all ? `No ${word} fits the filter.` : empty);
    setAttribute(this.table, "aria-rowcount", some + 1);
  }

  // Chunks of rows

  #fitChunks() {
    const wanted = Math.ceil(this.order.length / TABLE_CHUNK);
    while (this.chunks.length > wanted) {
      const chunk = this.chunks.pop();
      this.observer.unobserve(chunk.body);
      for (const key of chunk.keys) this.#forget(key, chunk);
      chunk.body.remove();
    }
    while (this.chunks.length < wanted) {
      const chunk = { body: h("tbody", { role: "rowgroup" }), place: this.chunks.length, isSeen: this.chunks.length < 3, keys: [], height: -1 };
      chunk.body.chunk = chunk;
      this.chunks.push(chunk);
      this.table.append(chunk.body);
      this.observer.observe(chunk.body);
    }
  }

  #onSeen(entries) {
    for (const { target, isIntersecting } of entries) {
      target.chunk.isSeen = isIntersecting;
      this.#drawChunk(target.chunk);
    }
  }

  // An opened row, or the one with the focus, stays in the document while it is out of sight.
  #isKept(chunk, keys) {
    return chunk.isSeen || keys.some((key) => this.details.has(key)) || chunk.body.contains(document.activeElement);
  }

  #drawChunk(chunk) {
    const from = chunk.place * TABLE_CHUNK, keys = this.order.slice(from, from + TABLE_CHUNK);
    if (!this.#isKept(chunk, keys)) return this.#blank(chunk, keys.length);
    const focused = chunk.body.contains(document.activeElement) ? document.activeElement : null;
    const lines = [];
    keys.forEach((key, n) => {
      const line = this.shown.get(key) ?? this.#makeLine(key);
      line.chunk = chunk;
      setAttribute(line.element, "aria-rowindex", from + n + 2);
      lines.push(line.element);
      const detail = this.details.get(key);
      if (detail) lines.push(detail.line);
    });
    for (const key of chunk.keys) if (!keys.includes(key)) this.#forget(key, chunk);
    chunk.keys = keys;
    chunk.height = -1;
    if (lines.length !== chunk.body.children.length || lines.some((line, n) => line !== chunk.body.children[n])) chunk.body.replaceChildren(...lines);
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  }

  #blank(chunk, length) {
    if (chunk.height === length) return;
    for (const key of chunk.keys) this.#forget(key, chunk);
    chunk.keys = [];
    chunk.height = length;
    chunk.body.replaceChildren(h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: this.columns.length, style: { height: `calc(var(--row) * ${length})` } })));
  }

  #forget(key, chunk) {
    if (this.shown.get(key)?.chunk === chunk) this.shown.delete(key);
  }

  // A row

  #makeLine(key) {
    const cells = this.columns.map((column) => h("div", { class: column.class ? `cell ${column.class}` : "cell" }));
    const element = h("tr", { class: "row", role: "row" }, cells.map((cell, n) => h(n ? "td" : "th", { scope: n ? null : "row", role: n ? "cell" : "rowheader", class: this.columns[n].end ? "end" : null, "data-label": labelOf(this.columns[n]) }, cell)));
    const line = { element, cells, tones: [], tone: "", chunk: null, opener: null };
    element.dataset.key = key;
    if (this.#isOpened) this.#addOpener(key, line);
    this.columns.forEach((column, n) => column.make?.(cells[n]));
    this.shown.set(key, line);
    this.#write(key, line);
    return line;
  }

  #addOpener(key, line) {
    const inside = h("span");
    line.opener = this.options.href ? h("a", { class: "opener" }, inside)
      : h("button", { type: "button", class: "opener", "aria-expanded": String(this.details.has(key)), onclick: () => this.#toggle(key) }, inside);
    line.cells[0].append(line.opener);
    line.cells[0] = inside;
  }

  #write(key, line) {
    const row = this.rows.get(key);
    if (!row) return;
    for (let n = 0; n < this.columns.length; n++) this.#writeCell(key, row, line, n);
    const tone = `${this.options.tone?.(row, key) ?? ""}${this.details.has(key) ? " open" : ""}${this.found === key ? " found" : ""}`;
    if (tone !== line.tone) line.element.className = `row ${(line.tone = tone)}`;
    if (this.options.href) setAttribute(line.opener, "href", this.options.href(key, row));
    this.details.get(key)?.content.update?.(row);
  }

  #writeCell(key, row, line, n) {
    const column = this.columns[n], cell = line.cells[n];
    if (column.write) column.write(cell, row, key);
    else if (setText(cell, column.text(row, key)) && column.isLong) cell.title = cell.textContent;
    if (!column.tone) return;
    const tone = column.tone(row, key);
    if (tone !== line.tones[n]) {
      line.tones[n] = tone;
      cell.classList.toggle("bad-value", tone === "bad");
      cell.classList.toggle("warn-value", tone === "warn");
    }
  }

  // Opened rows

  #toggle(key) {
    if (this.details.has(key)) this.#close(key);
    else this.#open(key);
    const line = this.shown.get(key);
    if (line) this.#drawChunk(line.chunk);
  }

  #open(key) {
    const row = this.rows.get(key);
    if (!row || this.details.has(key)) return;
    const content = this.options.detail(key, row);
    const line = h("tr", { class: "detail", role: "row" }, h("td", { role: "cell", colspan: this.columns.length }, h("div", { class: "detail-box" }, content.element)));
    this.details.set(key, { content, line });
    this.#mark(key);
  }

  #close(key) {
    const detail = this.details.get(key);
    if (!detail) return;
    this.details.delete(key);
    detail.line.remove();
    detail.content.close?.();
    this.#mark(key);
  }

  #mark(key) {
    const line = this.shown.get(key);
    if (!line) return;
    if (this.options.detail) setAttribute(line.opener, "aria-expanded", String(this.details.has(key)));
    this.#write(key, line);
  }

  #seek() {
    const key = this.sought, place = this.order.indexOf(key);
    if (key === null || place < 0) return;
    this.sought = null;
    this.found = key;
    if (this.options.detail) this.#open(key);
    this.#show(place);
    this.#mark(key);
    this.shown.get(key)?.element.scrollIntoView({ block: "center" });
  }

  #show(place) {
    const chunk = this.chunks[Math.floor(place / TABLE_CHUNK)];
    chunk.isSeen = true;
    this.#drawChunk(chunk);
  }

  // A row is opened wherever it is pressed, unless something in it was, or a text was selected.
  #onClick(event) {
    if (event.target.closest("a, button, input, tr.detail") || String(getSelection()).trim()) return;
    event.target.closest("tr.row")?.querySelector(".opener")?.click();
  }

  // Arrow keys go from row to row.
  #onKey(event) {
    const line = event.target.closest?.("tr.row");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!line || !step || event.target !== line.querySelector(".opener")) return;
    const place = this.order.indexOf(line.dataset.key) + step;
    if (!(place in this.order)) return;
    event.preventDefault();
    this.#show(place);
    const next = this.shown.get(this.order[place]);
    next.opener.focus({ preventScroll: true });
    next.element.scrollIntoView({ block: "nearest" });
  }
}

function fillColumn(column) {
  const { id } = column, filled = { value: (row) => row[id], text: (row) => (row[id] === 0 ? "0" : String(row[id] || DASH)), ...column };
  return { search: column.end || column.write ? null : filled.text, ...filled };
}

function labelOf({ title, unit }) {
  return unit ? `${title} ${unit}` : title;
}

// What is not known comes last in both directions.
function compareCells(a, b, sign) {
  const [aMissing, bMissing] = [a === null || a === undefined || a === "", b === null || b === undefined || b === ""];
  if (aMissing || bMissing) return aMissing - bMissing;
  if (typeof a === "number" && typeof b === "number") return sign * (a - b || 0);
  return sign * TABLE_COLLATOR.compare(String(a), String(b));
}

const TABLE_COLLATOR = new Intl.Collator("en", { numeric: true });
