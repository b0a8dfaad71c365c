// The view of a CAN bus: its timeline, live or stopped, its load, and its frames as a table.
import { h, setText, setAttribute } from "../components/dom.js";
import { aligned, percent } from "../components/format.js";
import { drawTimeline } from "../components/timeline.js";
import { FRAME_KINDS, identifierText, instantText, readPicture } from "../components/bus-picture.js";
import { LiveTable } from "../components/table.js";
import { term } from "../terms.js";
import { counter, measure } from "./table-view.js";

const SPANS_MS = [5, 10, 20, 50, 100, 200, 500, 1000];
const TABLE_MS = 1000; // how often the table follows a live bus
const MOST_LOAD = 0.8;
const SHOWN_EVENTS = 20;

const stateText = (frame) => (!frame.ok ? "✕ corrupted" : frame.isLate ? "⚠ late" : "");
const spare = (frame) => (frame.deadline === null ? null : frame.deadline - frame.end);
const length = (frame) => frame.end - frame.start;
const COLUMNS = [
  { id: "start", title: "Start", width: 8.7, end: true, isFixed: true, text: (frame) => instantText(frame.start) },
  { id: "channel", title: "Channel", width: 9, isLong: true },
  { id: "node", title: "Node", width: 4.9 },
  { id: "state", title: "State", width: 6.6, value: stateText, text: stateText, tone: (frame) => (frame.ok ? (frame.isLate ? "bad" : "") : "warn") },
  { id: "kind", title: "Class", width: 6.9, text: (frame) => FRAME_KINDS[frame.kind] ?? frame.kind },
  { id: "identifier", title: "Identifier", width: 6.4, text: (frame) => identifierText(frame.identifier), class: "mono" },
  counter("priority", "Priority"),
  measure("length", "Length", "µs", { value: length, text: (frame) => aligned(length(frame), 1) }),
  measure("waited", "Waited", "µs", { width: 5.2, digits: 1 }),
  measure("spare", "To deadline", "µs", { width: 6.8, value: spare, text: (frame) => aligned(spare(frame), 1), tone: (frame) => (frame.isLate ? "bad" : "") }),
  { id: "beaten", title: "Beat", width: 5.5, grows: true, value: (frame) => frame.beaten.join(), text: (frame) => frame.beaten.join(", "), isLong: true },
];

/** A span that has about 20 events at the rate of a source. */
function usualSpan({ rate }) {
  return SPANS_MS.find((ms) => (ms / 1000) * rate >= SHOWN_EVENTS) ?? SPANS_MS.at(-1);
}

class CanView {
  constructor(root, ctx) {
    this.ctx = ctx;
    this.source = ctx.params.source ?? "";
    this.spanMs = SPANS_MS.includes(Number(ctx.params.span)) ? Number(ctx.params.span) : null;
    this.lanes = ctx.params.lanes === "channel" ? "channel" : "node";
    this.isShortened = ctx.params.idle !== "full"; // on a busy bus there is nothing to shorten
    this.startUs = ctx.params.at && Number.isFinite(Number(ctx.params.at)) ? Number(ctx.params.at) : null; // where it was stopped
    this.isLive = this.startUs === null;
    this.data = null;
    this.stream = null;
    this.timeline = null;
    this.askedStart = null;
    this.tableAt = 0;
    this.build(root);
    this.update({ sources: true });
  }

  build(root) {
    this.sources = h("select", { class: "input", onchange: () => this.setSource(this.sources.value) });
    this.sourceField = h("label", { class: "field" }, "Bus", this.sources);
    this.spans = h("select", { class: "input", onchange: () => this.setSpan(Number(this.spans.value)) },
      SPANS_MS.map((ms) => h("option", { value: ms }, ms < 1000 ? `${ms} ms` : `${ms / 1000} s`)));
    this.toggle = h("button", { type: "button", onclick: () => (this.isLive ? this.pause() : this.play()) });
    this.earlier = h("button", { type: "button", class: "button", title: "half a span back", onclick: () => this.move(-0.5) }, "◂ earlier");
    this.later = h("button", { type: "button", class: "button", title: "half a span on", onclick: () => this.move(0.5) }, "later ▸");
    const lanes = h("span", { class: "switch", role: "group", "aria-label": "Lanes" }, this.laneButton("node", "by node"), this.laneButton("channel", "by channel"));
    const idle = h("input", { type: "checkbox", onchange: (event) => this.setShortened(event.target.checked) });
    idle.checked = this.isShortened;
    this.load = h("strong", {});
    this.gauge = h("i", {});
    this.gaugeBox = h("span", { class: "gauge can-load" }, this.gauge);
    this.time = h("span", { class: "note can-time" });
    this.problem = h("p", { class: "verdict bad", role: "alert", hidden: true });
    this.state = h("p", { class: "verdict warn", role: "status", hidden: true });
    this.widen = h("button", { type: "button", class: "button small", onclick: () => this.setSpan(this.widerSpan()) }, "Widen the span");
    this.none = h("p", { class: "can-none", hidden: true }, "No frame in this span. ", this.widen);
    this.place = h("figure", { class: "can-figure" });
    this.empty = h("p", { class: "empty", hidden: true }, "No source has a CAN bus. Open one with ", h("code", {}, "genus studio can:..."), ", ", h("code", {}, "sim:..."), " or the file of a trace.");
    this.table = new LiveTable({ columns: COLUMNS, label: "Frames", word: "frame", sort: { id: "start", down: true }, tone: (frame) => (!frame.ok ? "warn" : frame.isLate ? "bad" : ""), empty: "No frame in this span." });
    this.frames = h("details", { class: "section", open: matchMedia("(min-width: 861px)").matches, ontoggle: () => this.drawTable(true) }, h("summary", {}, "The frames as a table"), this.table.element);
    this.controls = h("div", {},
      h("div", { class: "toolbar" }, this.sourceField, h("span", { class: "switch" }, this.earlier, this.toggle, this.later), h("label", { class: "field" }, "Span", this.spans), lanes,
        h("label", { class: "field" }, idle, "shorten idle stretches")),
      this.problem, this.state, this.place, this.none, this.frames);
    root.append(this.empty, this.controls);
  }

  laneButton(lanes, words) {
    return h("button", { type: "button", class: "button", "aria-pressed": String(lanes === this.lanes), "data-lanes": lanes, onclick: () => this.setLanes(lanes) }, words);
  }

  // What the store tells: which sources there are
  update(changes) {
    if (!changes.sources) return;
    const names = [...this.ctx.store.rows("sources")].filter(([, row]) => row.has_timeline).map(([name]) => name);
    if (names.join("\n") !== this.sources.dataset.names) {
      this.sources.dataset.names = names.join("\n");
      this.sources.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
      this.sourceField.hidden = names.length < 2;
    }
    const isKnown = this.ctx.store.has("sources");
    this.empty.hidden = !isKnown || names.length > 0;
    this.controls.hidden = !names.length;
    if (!names.length) return this.stop();
    if (!names.includes(this.source)) this.source = names[0];
    this.sources.value = this.source;
    this.spanMs ??= usualSpan(this.ctx.store.rows("sources").get(this.source));
    this.spans.value = String(this.spanMs);
    this.ctx.setParams({ source: this.source, span: this.spanMs });
    this.drawState();
    if (this.isLive && !this.stream) this.play();
    else if (!this.isLive && !this.data && !this.asked) this.ask(this.startUs);
  }

  /** A bus whose own time stands still shows nothing new, however live the view is. */
  drawState() {
    const state = this.ctx.store.rows("sources").get(this.source)?.state;
    this.state.hidden = !["paused", "ended", "failed"].includes(state);
    this.drawToggle();
    setText(this.state, state === "paused" ? "❚❚ Its time is paused: press ▶ in the bar of sources to go on." : state === "ended" ? "■ It has ended: nothing new will come." : "✕ It has failed: nothing new will come.");
  }

  unmount() {
    this.stop();
    this.timeline?.close();
    this.table.destroy();
  }

  // Live or stopped
  query(more = {}) {
    return new URLSearchParams({ source: this.source, span_ms: this.spanMs, ...more });
  }

  play() {
    this.stop();
    this.isLive = true;
    this.askedStart = null;
    this.drawToggle();
    this.ctx.setParams({ at: "" });
    this.stream = this.ctx.sse(`can/stream?${this.query()}`, { timeline: (data) => this.show(data) });
  }

  stop() {
    this.stream?.close();
    this.stream = null;
  }

  pause() {
    this.stop();
    this.isLive = false;
    this.drawToggle();
    this.keepPlace();
    this.drawTable(true);
  }

  /** Where it was stopped is in the address, too. */
  keepPlace() {
    if (!this.isLive && this.data) this.ctx.setParams({ at: Math.round(this.data.start_us) });
  }

  move(share) {
    if (!this.data) return;
    if (this.isLive) this.pause();
    this.ask((this.askedStart ?? this.data.start_us) + share * this.spanMs * 1000);
  }

  async ask(start) {
    const mine = (this.asked = Symbol("asked"));
    this.askedStart = start; // another click goes on from here, before this one was answered
    try {
      const data = await this.ctx.api(`can?${this.query({ start_us: start })}`);
      if (mine !== this.asked || this.isLive) return;
      this.askedStart = null;
      this.show(data);
      this.keepPlace();
    } catch (error) {
      this.fail(error);
    }
  }

  fail(error) {
    this.problem.hidden = !error;
    setText(this.problem, error ? error.message : "");
  }

  // Choices
  setSource(name) {
    this.source = name;
    this.timeline?.close();
    this.timeline = null;
    this.data = null;
    this.restart();
    this.drawState();
  }

  widerSpan() {
    return SPANS_MS.find((ms) => ms > this.spanMs);
  }

  setSpan(ms) {
    this.spanMs = ms;
    this.spans.value = String(ms);
    this.restart();
  }

  restart() {
    this.ctx.setParams({ source: this.source, span: this.spanMs });
    if (this.isLive || !this.data) this.play();
    else this.ask(this.data.start_us);
  }

  setLanes(lanes) {
    this.lanes = lanes;
    this.controls.querySelectorAll("[data-lanes]").forEach((button) => setAttribute(button, "aria-pressed", String(button.dataset.lanes === lanes)));
    this.timeline?.setOptions({ lanes });
    this.ctx.setParams({ lanes });
  }

  setShortened(isShortened) {
    this.isShortened = isShortened;
    this.timeline?.setOptions({ shorten: isShortened });
    this.ctx.setParams({ idle: isShortened ? "" : "full" });
  }

  // Drawing
  drawToggle() {
    setText(this.toggle, this.isLive ? "❚❚ pause" : "▶ live");
    setAttribute(this.toggle, "class", this.isLive ? "button" : "button primary");
    this.toggle.disabled = this.isLive && !this.state.hidden; // nothing moves that could be paused
    setAttribute(this.toggle, "aria-label", this.isLive ? "pause the timeline" : "follow the bus live");
  }

  show(data) {
    this.data = data;
    this.fail(null);
    if (this.timeline) this.timeline.update(data);
    else {
      this.timeline = drawTimeline(data, { lanes: this.lanes, shorten: this.isShortened, label: `Timeline of ${this.source}` });
      this.place.replaceChildren(h("figcaption", { class: "can-head" }, h("span", {}, "On the wire ", this.time), h("span", { class: "field" }, term("bus load", "Load"), this.load, this.gaugeBox)), this.timeline, this.words());
    }
    setText(this.time, `from ${instantText(data.start_us)}`);
    setText(this.load, percent(data.load));
    setAttribute(this.gaugeBox, "class", `gauge can-load${data.load > MOST_LOAD ? " high" : ""}`);
    this.gauge.style.transform = `scaleX(${Math.min(Math.max(data.load, 0), 1)})`;
    this.none.hidden = data.frames.length > 0;
    this.widen.hidden = !this.widerSpan();
    this.drawTable(false);
  }

  words() {
    return h("p", { class: "note" }, "A ", term("frame"), " that begins has won the ", term("arbitration"), ". Point at one, or press the arrow keys, to see whom it beat and how long it waited. ",
      "Hard events have a ", term("slot"), " of the calendar and are delivered at its end, their ", term("deadline"), ". Keys: ", h("kbd", {}, "+"), " ", h("kbd", {}, "−"), " ", h("kbd", {}, "0"), " magnify; with ", h("kbd", {}, "Ctrl"), " the wheel does, too.");
  }

  drawTable(isNow) {
    if (!this.frames.open || !this.data) return;
    if (!isNow && performance.now() - this.tableAt < TABLE_MS) return;
    this.tableAt = performance.now();
    this.table.setRows(new Map(readPicture(this.data).frames.map((frame) => [`${frame.start}|${frame.node}|${frame.channel}`, frame])));
  }
}

export default { id: "can", title: "CAN bus", tables: ["sources"], mount: (root, ctx) => new CanView(root, ctx) };
