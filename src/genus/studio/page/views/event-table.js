// The table of the view Events: only the rows in view exist, and only cells whose text changed are written.
import { h, clear, setText, setAttribute } from "../components/dom.js";
import { date, padded, time, visibleText } from "../components/format.js";
import { markEdge } from "../components/table.js";
import { failureText, rankOf } from "./event-log.js";

const BEYOND = 4; // rows above and below what is seen

/** All columns in their order; `columns` are EventColumns, `unit(column)` gives a text. */
function orderedColumns(columns, { hasSources, hasWhy, unit }) {
  const { names, hasDays } = columns, day = columns.dayText();
  const shown = columns.shown().map((column) => ({ ...column, label: column.name, unit: unit(column), width: Math.max(column.width, column.name.length + unit(column).length + 5), isAttribute: true, read: (event) => event.values[column.name] ?? null }));
  return [
    { label: day ? `${day} (UTC)` : "time (UTC)", width: hasDays ? 22 : day ? 15 : 12, read: (event) => (hasDays ? date : time)(event.at_ms, 3) },
    { label: "type", width: names.type, read: (event) => event.type },
    hasWhy && { label: "why not", width: 42, isWrapped: true, read: (event) => failureText(event) || "✓ matches" },
    ...shown.filter((column) => rankOf(column.name) < 2),
    hasSources && { label: "seen on", width: names.source, read: (event) => event.source },
    names.publisher && { label: "publisher", width: names.publisher, read: (event) => event.publisher ?? "" },
    ...shown.filter((column) => rankOf(column.name) >= 2),
  ].filter(Boolean);
}

/**
 * Shows events, the newest at the top or at the bottom.
 *
 * `onScroll(isAtNewest)` is told when a person scrolls, `onOpen(event)` when one opens a row, `onMove(event)` when one goes
 * to a row by keyboard, and `onMenu(column, button)` when one asks for the menu of a column of an attribute.
 */
export class EventTable {
  constructor(options) {
    this.options = options;
    this.isNewestFirst = true;
    this.events = [];
    this.columns = [];
    this.pool = [];
    this.current = null;
    this.rowHeight = 0;
    this.top = 0;
    this.height = 0;
    this.build();
  }

  build() {
    this.group = h("colgroup", {});
    this.head = h("tr", {});
    this.above = h("tr", { class: "event-space", "aria-hidden": "true" }, h("td", {}));
    this.below = h("tr", { class: "event-space", "aria-hidden": "true" }, h("td", {}));
    this.body = h("tbody", {}, this.above, this.below);
    this.grid = h("table", { class: "table event-table", role: "grid", tabindex: "0", "aria-label": "events" }, this.group, h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "event-scroll" }, this.grid);
    this.drawEdge = markEdge(this.element);
    this.element.addEventListener("scroll", () => this.onScroll(), { passive: true });
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
    // a row that is pressed must be the same one when it is let go
    this.body.addEventListener("pointerdown", () => { this.isPressed = true; });
    this.letGo = () => { if (this.isPressed) setTimeout(() => { this.isPressed = false; }); };
    ["pointerup", "pointercancel", "blur"].forEach((name) => addEventListener(name, this.letGo));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr.event");
      if (row && !String(getSelection()).trim()) this.open(row.event);
    });
    this.sizes = new ResizeObserver(() => this.measure());
    this.sizes.observe(this.element);
  }

  destroy() {
    this.sizes.disconnect();
    ["pointerup", "pointercancel", "blur"].forEach((name) => removeEventListener(name, this.letGo));
  }

  // -- columns -------------------------------------------------------------------------------------------------------

  /** Draw the columns anew: those of all events, as `options` say, and those of attributes. */
  setColumns(columns, options) {
    this.columns = orderedColumns(columns, options);
    this.element.classList.toggle("has-why", options.hasWhy);
    if (options.hasWhy !== this.hasWhy) [this.hasWhy, this.rowHeight] = [options.hasWhy, 0]; // rows have another height
    const focused = this.head.contains(document.activeElement) ? document.activeElement.dataset.column : null;
    const isLastWide = this.columns.at(-1).isAttribute && !this.columns.at(-1).isNumber; // then it has the room that is left
    const widths = this.columns.map((column) => `calc(${column.width}ch + 1.2rem)`);
    clear(this.group).append(...widths.map((width, n) => h("col", { style: isLastWide && n === widths.length - 1 ? {} : { width } })), h("col", { style: isLastWide ? { width: "0" } : {} }));
    clear(this.head).append(...this.columns.map((column) => this.headCell(column)), h("th", { class: "event-rest", "aria-hidden": "true" }));
    if (focused !== null) [...this.head.querySelectorAll("button")].find((button) => button.dataset.column === focused)?.focus();
    this.grid.style.minWidth = `calc(${this.columns.reduce((sum, column) => sum + column.width, 0)}ch + ${1.2 * this.columns.length}rem)`;
    setAttribute(this.grid, "aria-colcount", this.columns.length);
    this.pool.forEach((row) => row.remove());
    this.pool = [];
    this.draw();
  }

  headCell(column) {
    const place = column.isNumber ? "end" : null;
    if (!column.isAttribute) return h("th", { scope: "col", class: place }, h("span", { class: "event-label" }, column.label));
    const button = h("button", {
      type: "button", class: "event-head", "aria-haspopup": "dialog", "data-column": column.name, title: `${column.label}: plot or hide`,
      onclick: (event) => this.options.onMenu(column, event.currentTarget),
    }, h("span", {}, column.label, column.unit ? h("small", {}, ` ${column.unit}`) : null), h("span", { class: "event-more", "aria-hidden": "true" }, "▾"));
    return h("th", { scope: "col", class: place }, button);
  }

  // -- rows ----------------------------------------------------------------------------------------------------------

  /** Show these events, the oldest first; with `isFollowing`, go to the newest. */
  show(events, isFollowing) {
    this.events = [...events]; // the log goes on
    if (isFollowing) this.toNewest();
    this.draw();
  }

  setOrder(isNewestFirst) {
    this.isNewestFirst = isNewestFirst;
    this.draw();
    this.toNewest();
  }

  eventAt(place) {
    return this.events[this.isNewestFirst ? this.events.length - 1 - place : place];
  }

  placeOf(event) {
    const found = this.events.indexOf(event);
    return found < 0 || !this.isNewestFirst ? found : this.events.length - 1 - found;
  }

  toNewest() {
    const size = this.events.length * this.rowHeight;
    this.top = this.isNewestFirst ? 0 : Math.max(0, size - this.seenHeight());
    if (!this.isNewestFirst) this.setSpace(this.below, size); // room to scroll to; draw() takes back what it does not need
    this.element.scrollTop = this.isNewestFirst ? 0 : size + 1e4;
  }

  seenHeight() {
    return Math.max(0, this.height - this.headHeight);
  }

  /** Sizes are read here only, never while rows are written. */
  measure() {
    this.height = this.element.clientHeight;
    this.headHeight = this.head.offsetHeight;
    this.top = this.element.scrollTop;
    const row = this.pool.find((one) => one.isConnected);
    if (row) this.rowHeight = row.getBoundingClientRect().height;
    this.drawEdge();
    this.draw();
  }

  draw() {
    if (!this.columns.length) return;
    const total = this.events.length;
    if (!this.rowHeight && total) return this.drawFirst();
    const first = Math.max(0, Math.min(Math.floor(this.top / (this.rowHeight || 1)) - BEYOND, total));
    const size = Math.min(total - first, Math.ceil(this.seenHeight() / (this.rowHeight || 1)) + 2 * BEYOND);
    this.fit(size);
    this.setSpace(this.above, first * this.rowHeight);
    this.setSpace(this.below, Math.max(0, total - first - size) * this.rowHeight);
    for (let n = 0; n < size; n += 1) this.write(this.pool[n], this.eventAt(first + n), first + n);
    setAttribute(this.grid, "aria-rowcount", total + 1);
    const here = this.pool.slice(0, size).find((row) => row.event === this.current);
    setAttribute(this.grid, "aria-activedescendant", here?.id);
  }

  drawFirst() {
    this.fit(1);
    this.write(this.pool[0], this.eventAt(0), 0);
    this.measure();
  }

  setSpace(row, height) {
    row.hidden = height <= 0;
    const text = `${height}px`;
    if (row.firstChild.style.height !== text) row.firstChild.style.height = text;
  }

  fit(size) {
    while (this.pool.length < size) this.pool.push(this.makeRow(this.pool.length));
    this.pool.forEach((row, n) => {
      if (n < size && !row.isConnected) this.below.before(row);
      else if (n >= size && row.isConnected) row.remove();
    });
  }

  makeRow(n) {
    const row = h("tr", { class: "event", id: `event-row-${n}` }, this.columns.map((column) => h("td", { class: column.isNumber ? "end" : null }, h("div", { class: column.isWrapped ? "event-cell wrapped" : "event-cell" }))), h("td", {}));
    row.cells_ = [...row.querySelectorAll(".event-cell")];
    return row;
  }

  write(row, event, place) {
    setAttribute(row, "aria-rowindex", place + 2);
    setAttribute(row, "aria-selected", event === this.current ? "true" : "false");
    if (row.event === event) return;
    row.event = event;
    row.className = event.why ? "event other" : "event";
    this.columns.forEach((column, n) => this.writeCell(row.cells_[n], column, column.read(event)));
  }

  /** A value that is absent is blank, an empty text is not. */
  writeCell(cell, column, value) {
    const isEmpty = value === "" && Boolean(column.isAttribute);
    setText(cell, isEmpty ? '""' : column.isNumber && value ? padded(value, column.decimals) : visibleText(value ?? ""));
    if (cell.isEmpty !== isEmpty) cell.classList.toggle("event-blank", (cell.isEmpty = isEmpty));
    if (column.isWrapped) setAttribute(cell, "title", visibleText(value));
  }

  // -- pointer and keyboard --------------------------------------------------------------------------------------------

  onScroll() {
    const before = this.top;
    this.top = this.element.scrollTop;
    if (this.top === before) return;
    this.draw();
    const rest = this.events.length * this.rowHeight - this.seenHeight() - this.top;
    this.options.onScroll((this.isNewestFirst ? this.top : rest) < this.rowHeight);
  }

  open(event) {
    this.current = event;
    this.draw();
    this.options.onOpen(event);
  }

  /** Mark a row, and bring it into view. */
  goTo(place) {
    const bounded = Math.min(Math.max(place, 0), this.events.length - 1), event = this.eventAt(bounded);
    if (!event) return;
    this.current = event;
    const from = bounded * this.rowHeight, least = from + this.rowHeight - this.seenHeight();
    if (this.top > from || this.top < least) this.element.scrollTop = this.top = this.top > from ? from : least;
    this.options.onMove(event);
    this.draw();
  }

  onKey(event) {
    if (event.target !== this.grid || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.seenHeight() / (this.rowHeight || 1)) - 1), here = this.placeOf(this.current);
    const place = { ArrowDown: here + 1, ArrowUp: here - 1, PageDown: here + page, PageUp: here - page, Home: 0, End: this.events.length }[event.key];
    if (place !== undefined) this.goTo(here < 0 && event.key === "ArrowUp" ? 0 : place);
    else if ((event.key === "Enter" || event.key === " ") && here >= 0) this.open(this.current);
    else return;
    event.preventDefault();
  }
}
