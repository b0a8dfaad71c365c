// Events: the last events that match a subscription, as they come, and why others do not.
import { h, clear, setText, setAttribute } from "../components/dom.js";
import { count, rate, plural } from "../components/format.js";
import { queryInput } from "../components/query.js";
import { docsOf } from "../terms.js";
import { EventLog, EventColumns, MOST_COLUMNS, declaringType } from "./event-log.js";
import { EventTable } from "./event-table.js";
import { eventDetails } from "./event-details.js";
import { publishForm } from "./event-publish.js";
import { showPopover } from "./popover.js";
import { SOURCE_BAR, readSources, sourceChoice } from "./source-choice.js";

const ORDER_KEY = "genus-events-order";
const MOST_ASKED = 500;
const COUNT_MS = 250; // how often counts are written

class EventsView {
  constructor(root, ctx) {
    this.ctx = ctx;
    this.log = new EventLog();
    this.columns = new EventColumns();
    this.text = ctx.params.q || "Event";
    this.chosen = readSources(ctx.params.source);
    this.hasOthers = ctx.params.others === "1";
    this.why = ""; // why the table does not follow: "", "pause", "scroll" or "row"
    this.totals = { matched: 0, seen: 0, skipped: 0 };
    this.types = {};
    this.live = this.asked = [];
    this.question = 0; // the number of the last question; answers to others are dropped
    this.build(root);
    this.readTypes().catch(() => {});
    this.drawSources();
    this.setOrder(readOrder());
    this.open();
  }

  // -- building --------------------------------------------------------------------------------------------------------

  build(root) {
    const { ctx } = this;
    this.query = queryInput({
      text: ctx.params.q ?? "", placeholder: "Event", docs: docsOf("subscription") ?? "",
      complete: (text, at) => ctx.api(`complete?${new URLSearchParams({ q: text, at })}`),
      check: (text) => ctx.api(`check?${new URLSearchParams({ q: text })}`),
      onRun: (text) => this.run(text),
    });
    this.table = new EventTable({
      onScroll: (isAtNewest) => this.onScroll(isAtNewest), onOpen: (event) => this.onOpen(event),
      onMove: (event) => this.onMove(event), onMenu: (column, button) => this.showMenu(column, button),
    });
    this.details = eventDetails({ types: () => this.types, plotOf: (type, name) => this.plotOf(type, name), onClose: () => this.onClose() });
    this.more = h("button", { type: "button", class: "button primary event-new", hidden: true, onclick: () => this.follow() });
    this.hint = h("p", { class: "event-empty" });
    this.publish = publishForm({
      types: () => this.readTypes(), publish: (body) => ctx.post("publish", body),
      sources: () => [...ctx.store.rows("sources")].filter(([, row]) => row.can_publish).map(([name]) => name),
    });
    root.append(h("div", { class: "card event-query" }, this.query.element), this.buildTools(), this.publish.element,
      h("div", { class: "event-split" },
        h("div", { class: "event-main" }, this.table.element, this.hint, this.more), this.details.element));
  }

  buildTools() {
    const button = (label, onclick, more = {}) => h("button", { type: "button", class: "button", onclick, ...more }, label);
    this.sources = sourceChoice("All", (chosen) => this.choose(chosen));
    this.ask = button("Ask", () => this.askNow(), { hidden: true });
    this.others = button("Why not", () => this.showOthers(!this.hasOthers), { "aria-pressed": String(this.hasOthers), title: "show events that do not match as well, and which part they fail" });
    this.pause = button("Pause", () => (this.why ? this.follow() : this.hold("pause")));
    this.order = button("newest first", () => this.setOrder(!this.table.isNewestFirst), { title: "the newest events at the top, or else at the bottom" });
    this.chooser = button("Columns", (event) => this.showChooser(event.currentTarget), { "aria-haspopup": "dialog" });
    this.counts = h("p", { class: "event-counts", hidden: true });
    this.said = h("p", { class: "event-said", role: "status" });
    return h("div", { class: "toolbar event-tools" }, this.sources.element, this.ask, this.others, this.pause, button("Clear", () => this.clear()), this.order, this.chooser,
      this.ctx.config.allow_publish ? this.publish.opener : null, this.counts, this.said);
  }

  /** Which sources there are; those that are asked, such as a lake, answer once. */
  drawSources() {
    const rows = [...this.ctx.store.rows("sources")].filter(([, row]) => row.has_events || row.kind === "lake");
    const key = rows.map(([name, row]) => `${name}|${row.kind}`).join();
    if (key === this.sourcesKey) return;
    const wasKnown = this.sourcesKey !== undefined, hadStream = this.needsStream();
    this.sourcesKey = key;
    this.asked = rows.filter(([, row]) => row.kind === "lake").map(([name]) => name);
    this.live = rows.filter(([, row]) => row.kind !== "lake").map(([name]) => name);
    this.sources.draw([...this.live, ...this.asked], this.chosen);
    this.noteAsked();
    this.setColumns();
    if (wasKnown && (this.chosen.size || hadStream !== this.needsStream())) this.open(); // what is a lake decides whether there is a stream
  }

  /** The sources to ask: the chosen ones of that kind, or all if there are no others. */
  askedNames() {
    return this.asked.filter((name) => (this.chosen.size ? this.chosen.has(name) : !this.live.length));
  }

  /** Whether a source sends events by itself, or may: the sources come a moment after the page. */
  needsStream() {
    return this.chosen.size ? this.live.some((name) => this.chosen.has(name)) : this.live.length > 0 || !this.asked.length;
  }

  noteAsked() {
    const names = this.askedNames();
    this.ask.hidden = !names.length;
    setText(this.ask, `Ask ${names.length === 1 ? names[0] : plural(names.length, "lake")}`);
    this.others.disabled = this.pause.disabled = !this.needsStream();
  }

  choose(chosen) {
    this.chosen = chosen;
    this.ctx.setParams({ source: [...chosen].join(SOURCE_BAR) });
    this.sources.draw([...this.live, ...this.asked], chosen);
    this.noteAsked();
    this.open();
  }

  // -- the stream --------------------------------------------------------------------------------------------------------

  run(text) {
    this.text = text;
    this.ctx.setParams({ q: text });
    this.open();
  }

  /** Begin anew with the present subscription and sources; those that are asked are asked once there is a subscription. */
  open() {
    this.stream?.close();
    this.stream = null;
    this.clear();
    this.totals = { matched: 0, seen: 0, skipped: 0 };
    this.measured = this.leftOut = null;
    this.counts.hidden = true;
    setText(this.said, "");
    this.question += 1;
    if (this.askedNames().length && this.ctx.params.q) this.askNow();
    if (!this.needsStream()) return;
    const names = this.live.filter((name) => this.chosen.has(name));
    const asked = new URLSearchParams([["q", this.text], ...names.map((name) => ["source", name]), ["others", this.hasOthers ? "1" : "0"]]);
    this.stream = this.ctx.sse(`events/stream?${asked}`, { events: (data) => this.receive(data) }, (state) => this.noteState(state));
  }

  receive({ at, events, matched, seen, skipped }) {
    // what an older stream of the server left out is not news
    if (seen < this.totals.seen || this.leftOut === null) this.leftOut = skipped;
    this.totals = { matched, seen, skipped: skipped - this.leftOut };
    this.noteRate(at, matched);
    this.take(events);
  }

  take(events) {
    const added = this.log.add(events);
    this.columns.note(added);
    this.schedule();
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /** Events that match, a second, over the last second. */
  noteRate(at, matched) {
    if (!this.measured || matched < this.measured.matched) this.measured = { at, matched, rate: null };
    else if (at - this.measured.at >= 1000) this.measured = { at, matched, rate: (1000 * (matched - this.measured.matched)) / (at - this.measured.at) };
  }

  noteState(state) {
    const isBroken = state === "broken";
    if (isBroken === this.isBroken) return;
    this.isBroken = isBroken;
    const { checked } = this.query, isWrong = checked?.text === this.text && !checked.result.ok;
    setText(this.said, isBroken ? (isWrong ? "Not run: the subscription is not valid." : "No connection: trying again") : "");
  }

  async askNow() {
    const names = this.askedNames(), question = (this.question += 1);
    this.ask.disabled = this.isAsking = true;
    setText(this.said, `Asking ${names.join(", ")} …`);
    try {
      const asked = new URLSearchParams([["q", this.text], ...names.map((name) => ["source", name]), ["most", MOST_ASKED]]);
      const { events } = await this.ctx.api(`events?${asked}`);
      if (this.isGone || question !== this.question) return;
      this.take(events);
      setText(this.said, `${plural(events.length, "event")} found in ${names.join(", ")}${events.length >= MOST_ASKED ? " (the first ones)" : ""}`);
    } catch (problem) {
      if (question === this.question) setText(this.said, `✗ ${problem.message}`);
    } finally {
      if (question === this.question) {
        this.ask.disabled = this.isAsking = false;
        this.schedule();
      }
    }
  }

  // -- drawing -----------------------------------------------------------------------------------------------------------

  draw() {
    if (this.columns.version !== this.drawnVersion) this.setColumns();
    if (!this.why && !this.table.isPressed) this.table.show(this.log.shown, true);
    this.more.hidden = !this.why || !this.log.fresh;
    if (!this.more.hidden) setText(this.more, `${this.table.isNewestFirst ? "↑" : "↓"} ${plural(this.log.fresh, "new event")}`);
    this.drawHint();
    this.counting ||= setTimeout(() => this.drawCounts(), COUNT_MS);
  }

  setColumns() {
    this.drawnVersion = this.columns.version;
    this.table.setColumns(this.columns, { hasSources: this.live.length + this.asked.length > 1, hasWhy: this.hasOthers });
    const shown = this.columns.shown().length, all = this.columns.known.size;
    setText(this.chooser, shown < all ? `Columns ${shown}/${all}` : "Columns");
  }

  drawHint() {
    this.hint.hidden = this.log.shown.length > 0;
    if (this.hint.hidden) return;
    const { seen } = this.totals, noStream = this.isAsking ? "Asking …" : this.ctx.params.q ? "No event matches." : "Write a subscription and press Run: a lake answers once.";
    setText(this.hint, !this.stream ? noStream : seen ? `None of ${plural(seen, "event")} matched yet.` : "No events yet.");
  }

  drawCounts() {
    this.counting = 0;
    const { matched, seen, skipped } = this.totals;
    this.counts.hidden = !this.measured; // until the server has answered
    const parts = [`${count(matched)} matched`, `${count(seen)} seen`, skipped ? `${count(skipped)} not shown` : "", `${rate(this.measured?.rate)}/s`];
    setText(this.counts, parts.filter(Boolean).join(" · "));
  }

  // -- following and holding -----------------------------------------------------------------------------------------------

  hold(why) {
    if (!this.why) this.log.hold(this.table.events);
    this.why = why;
    this.drawPause();
  }

  follow() {
    this.why = "";
    this.log.release();
    this.drawPause();
    this.draw();
  }

  drawPause() {
    setText(this.pause, this.why ? "Resume" : "Pause");
    setAttribute(this.pause, "aria-pressed", this.why === "pause" ? "true" : "false");
  }

  onScroll(isAtNewest) {
    if (!isAtNewest && !this.why) this.hold("scroll");
    else if (isAtNewest && this.why === "scroll") this.follow();
  }

  onMove(event) {
    if (!this.why || this.why === "scroll") this.hold("row");
    if (!this.details.element.hidden) this.details.show(event);
  }

  onOpen(event) {
    if (!this.why || this.why === "scroll") this.hold("row");
    this.details.show(event);
    this.details.element.focus({ preventScroll: matchMedia("(min-width: 861px)").matches });
  }

  onClose() {
    this.table.grid.focus({ preventScroll: true });
    if (this.why === "row") this.follow();
  }

  clear() {
    this.log.clear();
    this.columns.clear();
    this.why = "";
    this.table.current = null;
    this.details.element.hidden = true;
    this.drawnVersion = -1;
    this.drawPause();
    this.table.show([], true);
    this.schedule();
  }

  showOthers(hasOthers) {
    this.hasOthers = hasOthers;
    setAttribute(this.others, "aria-pressed", String(hasOthers));
    this.ctx.setParams({ others: hasOthers ? "1" : "" });
    this.open();
  }

  setOrder(isNewestFirst) {
    setAttribute(this.order, "aria-pressed", String(isNewestFirst));
    try {
      localStorage.setItem(ORDER_KEY, isNewestFirst ? "first" : "last");
    } catch { /* a browser may forbid it */ }
    this.table.setOrder(isNewestFirst);
    setAttribute(this.more, "data-order", isNewestFirst ? "first" : "last");
    this.schedule();
  }

  // -- columns and types -----------------------------------------------------------------------------------------------------

  async readTypes() {
    this.types = await this.ctx.api("types");
    return this.types;
  }

  plotOf(type, name) {
    return this.ctx.href("plot", { series: `${declaringType(this.types, type, name)}.${name}` });
  }

  showMenu(column, button) {
    const series = [...new Set([...column.types].map((type) => `${declaringType(this.types, type, column.name)}.${column.name}`))];
    const close = showPopover(button, column.name, [
      ...series.map((one) => h("a", { class: "button quiet", href: this.ctx.href("plot", { series: one }), onclick: () => close() }, `Plot ${one}`)),
      h("button", { type: "button", class: "button quiet", onclick: () => { close(); this.showColumn(column.name, false); } }, "Hide this column"),
    ]);
  }

  showColumn(name, isShown) {
    this.columns.show(name, isShown);
    this.schedule();
  }

  showChooser(button) {
    const boxes = h("div", { class: "event-choices" });
    const drawBoxes = () => {
      const shown = new Set(this.columns.shown().map((column) => column.name)), isFull = shown.size >= MOST_COLUMNS;
      clear(boxes).append(...this.columns.all().map(({ name }) => {
        const box = h("input", { type: "checkbox", "data-column": name, onchange: (event) => change(name, event.target.checked) });
        box.checked = shown.has(name);
        box.disabled = isFull && !box.checked;
        return h("label", { class: "event-choice" }, box, name);
      }));
      if (isFull) boxes.append(h("p", { class: "note" }, `At most ${MOST_COLUMNS} are shown.`));
    };
    const change = (name, isShown) => {
      // what was beyond the bound is hidden from now on, so that nothing else takes the place of a hidden column
      const shown = new Set(this.columns.shown().map((column) => column.name));
      this.columns.all().forEach((column) => { if (!shown.has(column.name)) this.columns.hidden.add(column.name); });
      this.showColumn(name, isShown);
      drawBoxes();
      [...boxes.querySelectorAll("input")].find((box) => box.dataset.column === name)?.focus();
    };
    drawBoxes();
    showPopover(button, "Columns", [this.columns.known.size ? boxes : h("p", { class: "note" }, "No attributes were seen yet.")]);
  }

  update(changes) {
    if (changes.sources) this.drawSources();
  }

  unmount() {
    this.isGone = true;
    this.stream?.close();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.counting);
    this.table.destroy();
    this.query.destroy();
  }
}

function readOrder() {
  try {
    return localStorage.getItem(ORDER_KEY) !== "last";
  } catch {
    return true;
  }
}

export default { id: "events", title: "Events", tables: ["sources"], mount: (root, ctx) => new EventsView(root, ctx) };
