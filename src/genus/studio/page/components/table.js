// A table of many rows that change often. Only the rows that are seen are in the document, in chunks that an
// IntersectionObserver watches; only cells whose text changed are written. Rows have one height (--row).
import { h, setText, setAttribute } from "./dom.js";
import { plural } from "./format.js";

const TABLE_CHUNK = 16;
const TABLE_SORT_MS = 1000;

/**
 * A table as an element with methods.
 *
 * Columns are {id, title, note, width (rem), end (numbers), value(row, key) to sort by, text(row, key), or
 * make(cell) and write(cell, row, key) for more than a text, tone(row) "bad" | "warn" | "", search(row, key) the text that the
 * filter looks at, docs (an address), grows (it shares the room that is left), isFixed (its value never changes), isLong (its text is its title too), class}.
 * The first column is the head of the row. Options: `label`; `detail(key, row)` gives {element, update(row), close()} for an
 * opened row; `tone(row)` of a whole row; `sort` {id, down}; `filter` text; `filters` [{id, label, note, test(row)}];
 * `onFilter(text)`; `word` for a row ("channel"); `empty` text; `tools` elements beside the filter; `filterFrom`: the
 * filter is shown from so many rows on; `isShort`: it does not scroll on its own.
 *
 * Methods: setRows(map) all rows; change({set, gone}, map) some; reveal(key) scroll to, open and mark a row; destroy().
 */
export function table(options) {
  return new LiveTable(options).element;
}

class LiveTable {
  constructor(options) {
    this.options = options;
    this.columns = options.columns;
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
    this.table = h("table", { class: "table", "aria-label": label, style: { width: `max(100%, ${widths.join(" + ")})` } },
      h("colgroup", {}, widths.map((width, n) => h("col", { style: isNarrow(n) ? { width } : {} }))),
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, this.heads.map(({ cell }) => cell))));
    this.none = h("tbody", { class: "none", hidden: true }, h("tr", {}, h("td", { colspan: this.columns.length }, "")));
    this.table.append(this.none);
    const scroller = h("div", { class: `live scroll${isShort ? " short" : ""}`, role: "region", "aria-label": label, tabindex: 0 }, this.table);
    this.scroller = scroller;
    this.element = h("div", { class: "live-box" }, this.#buildToolbar(), scroller);
    Object.assign(this.element, {
      setRows: (rows) => this.setRows(rows), change: (changes, rows) => this.change(changes, rows), reveal: (key) => this.reveal(key),
      destroy: () => this.destroy(), table: this.table,
    });
    this.table.addEventListener("keydown", (event) => this.#onKey(event));
    this.observer = new IntersectionObserver((entries) => this.#onSeen(entries), { root: isShort ? null : scroller, rootMargin: "200px 0px" });
    this.sizes = new ResizeObserver(([entry]) => scroller.style.setProperty("--seen-width", `${entry.contentRect.width}px`));
    this.sizes.observe(scroller);
    this.#drawSort();
  }

  #buildHead(column) {
    const arrow = h("span", { class: "arrow", "aria-hidden": "true" });
    const label = column.value
      ? h("button", { type: "button", title: column.note, onclick: () => this.#press(column) }, column.title)
      : h("span", { title: column.note }, column.title);
    const docs = column.docs && h("a", { class: "docs", href: column.docs, target: "_blank", rel: "noopener", title: `${column.title}: documentation`, "aria-label": `${column.title}: documentation` }, "?");
    const cell = h("th", { scope: "col", "aria-label": column.title, class: column.end ? "end" : null }, h("div", { class: "head-cell" }, label, arrow, docs));
    return { cell, arrow, column };
  }

  #buildToolbar() {
    const { word = "row", filters = [], tools = [] } = this.options;
    this.counted = h("span", { class: "counted" });
    this.input = h("input", {
      type: "search", class: "input filter", placeholder: `Filter ${word}s`, "aria-label": `Filter ${word}s`, dataset: { filter: "" }, autocomplete: "off", spellcheck: "false",
      oninput: () => this.#setFilter(this.input.value), onfocus: () => this.counted.setAttribute("aria-live", "polite"), onblur: () => this.counted.removeAttribute("aria-live"),
      onkeydown: (event) => { if (event.key === "Escape" && this.input.value) { event.preventDefault(); this.input.value = ""; this.#setFilter(""); } },
    });
    this.input.value = this.filter;
    const buttons = filters.map((one) => h("button", { type: "button", class: "button small", "aria-pressed": "false", title: one.note, onclick: (event) => this.#pressFilter(one, event.currentTarget) }, one.label));
    return (this.toolbar = h("div", { class: "toolbar", role: "search" }, this.input, buttons, tools, this.counted));
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
    const order = wanted.map(([key]) => key);
    if (order.length === this.order.length && order.every((key, n) => key === this.order[n]) && this.chunks.length) return this.#drawCount();
    this.order = order;
    this.#fitChunks();
    for (const chunk of this.chunks) this.#drawChunk(chunk);
    this.#drawCount();
    this.#seek();
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
      const chunk = { body: h("tbody"), place: this.chunks.length, isSeen: this.chunks.length < 3, keys: [], height: -1 };
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
    const element = h("tr", { class: "row" }, cells.map((cell, n) => h(n ? "td" : "th", { scope: n ? null : "row", class: this.columns[n].end ? "end" : null }, cell)));
    const line = { element, cells, texts: [], tones: [], tone: "", chunk: null, opener: null };
    element.dataset.key = key;
    if (this.options.detail) this.#addOpener(key, line);
    this.columns.forEach((column, n) => column.make?.(cells[n]));
    this.shown.set(key, line);
    this.#write(key, line);
    return line;
  }

  #addOpener(key, line) {
    const inside = h("span");
    line.opener = h("button", { type: "button", class: "opener", "aria-expanded": String(this.details.has(key)), onclick: () => this.#toggle(key) }, inside);
    line.cells[0].append(line.opener);
    line.cells[0] = inside;
  }

  #write(key, line) {
    const row = this.rows.get(key);
    if (!row) return;
    for (let n = 0; n < this.columns.length; n++) this.#writeCell(key, row, line, n);
    const tone = `${this.options.tone?.(row, key) ?? ""}${this.details.has(key) ? " open" : ""}${this.found === key ? " found" : ""}`;
    if (tone !== line.tone) line.element.className = `row ${(line.tone = tone)}`;
    this.details.get(key)?.content.update?.(row);
  }

  #writeCell(key, row, line, n) {
    const column = this.columns[n], cell = line.cells[n];
    if (column.write) {
      column.write(cell, row, key);
    } else {
      const text = column.text(row, key);
      if (text !== line.texts[n]) {
        setText(cell, (line.texts[n] = text));
        if (column.isLong) cell.title = text;
      }
    }
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
    const line = h("tr", { class: "detail" }, h("td", { colspan: this.columns.length }, h("div", { class: "detail-box" }, content.element)));
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
    setAttribute(line.opener ?? line.element, "aria-expanded", line.opener ? String(this.details.has(key)) : null);
    this.#write(key, line);
  }

  #seek() {
    const key = this.sought, place = this.order.indexOf(key);
    if (key === null || place < 0) return;
    this.sought = null;
    this.found = key;
    const chunk = this.chunks[Math.floor(place / TABLE_CHUNK)];
    chunk.isSeen = true;
    if (this.options.detail) this.#open(key);
    this.#drawChunk(chunk);
    this.#mark(key);
    this.shown.get(key)?.element.scrollIntoView({ block: "center" });
  }

  // Arrow keys go from row to row.
  #onKey(event) {
    const line = event.target.closest?.("tr.row");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!line || !step || event.target !== line.querySelector(".opener")) return;
    const key = this.order[this.order.indexOf(line.dataset.key) + step];
    if (key === undefined) return;
    event.preventDefault();
    const chunk = this.chunks[Math.floor(this.order.indexOf(key) / TABLE_CHUNK)];
    chunk.isSeen = true;
    this.#drawChunk(chunk);
    const next = this.shown.get(key);
    next.opener.focus({ preventScroll: true });
    next.element.scrollIntoView({ block: "nearest" });
  }
}

// What is not known comes last in both directions.
function compareCells(a, b, sign) {
  const [aMissing, bMissing] = [a === null || a === undefined || a === "", b === null || b === undefined || b === ""];
  if (aMissing || bMissing) return aMissing - bMissing;
  if (typeof a === "number" && typeof b === "number") return sign * (a - b || 0);
  return sign * TABLE_COLLATOR.compare(String(a), String(b));
}

const TABLE_COLLATOR = new Intl.Collator("en", { numeric: true });
