// Events: the last events that match a subscription, as they come, and why others do not.
import { h, clear, remember, setText, setAttribute } from "../components/dom.js";
import { count, date, rate, plural, time } from "../components/format.js";
import { QueryInput } from "../components/query.js";
import { docsOf } from "../terms.js";
import { EventLog, EventColumns, MOST_COLUMNS, declaringType, unitOf } from "./event-log.js";
import { showAlerts } from "./event-alerts.js";
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
    this.range = readRange(ctx.params); // [from, to] in milliseconds since 1970, or null for what comes
    this.why = ""; // why the table does not follow: "", "pause", "scroll" or "row"
    this.totals = { seen: 0 };
    this.types = {};
    this.sought = new Set(); // types that were looked up
    this.live = this.asked = [];
    this.question = 0; // the number of the last question; answers to others are dropped
    this.build(root);
    this.drawSources();
    this.setOrder(remember(ORDER_KEY) !== "last");
    this.open();
  }

  // -- building --------------------------------------------------------------------------------------------------------

  build(root) {
    const { ctx } = this;
    this.query = new QueryInput({
      text: ctx.params.q ?? "", docs: docsOf("subscription") ?? "",
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
        h("div", { class: "event-main live-frame" }, this.table.element, this.hint, this.more), this.details.element));
  }

  buildTools() {
    const button = (label, onclick, more = {}) => h("button", { type: "button", class: "button", onclick, ...more }, label);
    this.sources = sourceChoice("All", (chosen) => this.choose(chosen));
    this.ask = button("Ask", () => this.askNow(), { hidden: true });
    this.others = button("Why not", () => this.showOthers(!this.hasOthers), { "aria-pressed": String(this.hasOthers), title: "show events that do not match as well, and which part they fail" });
    this.pause = button("Pause", () => (this.why ? this.follow() : this.hold("pause")));
    this.order = button("", () => this.setOrder(!this.table.isNewestFirst), { title: "the newest events at the top, or else at the bottom" });
    this.alerts = button("Alerts", (event) => this.showAlerts(event.currentTarget), { "aria-haspopup": "dialog", title: "keep this subscription, so that its events are problems" });
    this.span = button("", () => this.leaveRange(), { hidden: !this.range, title: "show what comes instead" });
    this.chooser = button("Columns", (event) => this.showChooser(event.currentTarget), { "aria-haspopup": "dialog" });
    this.counts = h("p", { class: "event-counts", hidden: true });
    this.said = h("p", { class: "event-said", role: "status" });
    return h("div", { class: "toolbar event-tools" }, this.sources.element, this.span, this.ask, this.others, this.pause, button("Clear", () => this.clear()), this.order, this.chooser, this.alerts,
      this.ctx.config.allow_publish ? this.publish.opener : null, this.counts, this.said);
  }

  /** Which sources there are; those that are asked, such as a lake, answer once. */
  drawSources() {
    const rows = [...this.ctx.store.rows("sources")].filter(([, row]) => row.has_events || row.kind === "lake");
    const key = rows.map(([name, row]) => `${name}|${row.kind}`).join();
    if (key === this.sourcesKey) return;
    const wasKnown = this.sourcesKey !== undefined, hadStream = this.needsStream(), wasAsked = this.askedNames().join();
    this.sourcesKey = key;
    this.asked = rows.filter(([, row]) => row.kind === "lake").map(([name]) => name);
    this.live = rows.filter(([, row]) => row.kind !== "lake").map(([name]) => name);
    this.sources.draw([...this.live, ...this.asked], this.chosen);
    this.noteAsked();
    this.setColumns();
    if (wasKnown && (this.chosen.size || hadStream !== this.needsStream() || (this.range && wasAsked !== this.askedNames().join()))) this.open(); // what is a lake decides whether there is a stream
  }

  /** The sources to ask: the chosen ones of that kind, or all if there are no others. */
  askedNames() {
    if (this.range) return [...this.live, ...this.asked].filter((name) => !this.chosen.size || this.chosen.has(name));
    return this.asked.filter((name) => (this.chosen.size ? this.chosen.has(name) : !this.live.length));
  }

  /** Whether a source sends events by itself, or may: the sources come a moment after the page. */
  needsStream() {
    if (this.range) return false;
    return this.chosen.size ? this.live.some((name) => this.chosen.has(name)) : this.live.length > 0 || !this.asked.length;
  }

  noteAsked() {
    const names = this.askedNames();
    this.ask.hidden = !names.length;
    setText(this.ask, `Ask ${names.length === 1 ? names[0] : plural(names.length, this.range ? "source" : "lake")}`);
    if (this.range) setText(this.span, `${rangeText(this.range)} ✕`);
    this.span.hidden = !this.range;
    this.others.disabled = this.pause.disabled = !this.needsStream();
  }

  choose(chosen) {
    this.chosen = chosen;
    this.ctx.setParams({ source: [...chosen].join(SOURCE_BAR) });
    this.sources.draw([...this.live, ...this.asked], chosen);
    this.noteAsked();
    this.open();
  }

  leaveRange() {
    this.range = null;
    this.ctx.setParams({ from: "", to: "" });
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
    this.totals = { seen: 0 };
    this.measured = null;
    this.counts.hidden = true;
    setText(this.said, "");
    this.question += 1;
    if (this.askedNames().length && (this.range || this.ctx.params.q)) this.askNow();
    if (!this.needsStream()) return;
    const names = this.live.filter((name) => this.chosen.has(name));
    const asked = new URLSearchParams([["q", this.text], ...names.map((name) => ["source", name]), ["others", this.hasOthers ? "1" : "0"]]);
    this.stream = this.ctx.sse(`events/stream?${asked}`, { events: (data) => this.receive(data) }, (state) => this.noteState(state));
  }

  receive({ at, events, ...totals }) {
    this.totals = totals;
    this.noteRate(at, totals.matched);
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
      const asked = new URLSearchParams([["q", this.text], ...names.map((name) => ["source", name]), ["most", MOST_ASKED], ...(this.range ? [["from", this.range[0]], ["to", this.range[1]]] : [])]);
      const { events, total = events.length } = await this.ctx.api(`events?${asked}`);
      if (this.isGone || question !== this.question) return;
      this.take(events);
      const isCut = total > events.length || events.length >= MOST_ASKED;
      setText(this.said, `${plural(total, "event")} found in ${names.join(", ")}${isCut ? `, the first ${count(events.length)} shown` : ""}`);
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
    this.table.setColumns(this.columns, { hasSources: this.live.length + this.asked.length > 1, hasWhy: this.hasOthers, unit: (column) => unitOf(this.types, column) });
    const seen = this.columns.all().flatMap((column) => [...column.types]).find((type) => !(type in this.types) && !this.sought.has(type));
    if (seen) this.readTypes(this.sought.add(seen)).then(() => { this.drawnVersion = -1; this.schedule(); }).catch(() => {}); // their units
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
    const { matched, seen, unmatched, unread, shown, unshown } = this.totals;
    this.counts.hidden = !this.measured; // until the server has answered
    const sum = [`${count(matched)} matched`, unmatched ? `${count(unmatched)} others` : "", unread ? `${count(unread)} not tested` : ""].filter(Boolean).join(" + ");
    setText(this.counts, [seen && seen === matched ? `${count(seen)} seen, all matched` : `${count(seen)} seen = ${sum}`, unshown ? `${count(shown)} of ${count(matched)} shown` : "", `${rate(this.measured?.rate)}/s`].filter(Boolean).join(" · "));
    setAttribute(this.counts, "title", unread ? "not tested: they came faster than Studio can take them" : null);
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
    setText(this.order, isNewestFirst ? "Newest first" : "Newest last");
    remember(ORDER_KEY, isNewestFirst ? "first" : "last");
    this.table.setOrder(isNewestFirst);
    setAttribute(this.more, "data-order", isNewestFirst ? "first" : "last");
    this.schedule();
  }

  // -- columns and types -----------------------------------------------------------------------------------------------------

  async readTypes() {
    this.types = await this.ctx.api("types");
    return this.types;
  }

  showAlerts(button) {
    const { checked } = this.query, text = checked?.result.ok && checked.text === this.query.text ? checked.result.text : this.query.text;
    showAlerts(button, this.ctx, { text: () => text, sources: this.chosen, say: (said) => setText(this.said, said) });
  }

  drawAlerts() {
    const rows = [...this.ctx.store.rows("alerts").values()];
    setText(this.alerts, rows.length ? `Alerts ${rows.length}` : "Alerts");
  }

  plotOf(type, name) {
    return this.ctx.href("plot", { series: `${declaringType(this.types, type, name)}.${name}` });
  }

  showMenu(column, button) {
    const series = [...new Set([...column.plotted].map((type) => `${declaringType(this.types, type, column.name)}.${column.name}`))];
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
    if (changes.alerts) this.drawAlerts();
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

/** The range of time in the address; null if there is none. */
function readRange({ from, to }) {
  const found = [from, to].map(Number);
  return from && to && found.every(Number.isFinite) ? found : null;
}

function rangeText([from, to]) {
  return `${date(from)} – ${date(from).slice(0, 10) === date(to).slice(0, 10) ? time(to) : date(to)}`;
}

export default { id: "events", title: "Events", tables: ["sources", "alerts"], mount: (root, ctx) => new EventsView(root, ctx) };
