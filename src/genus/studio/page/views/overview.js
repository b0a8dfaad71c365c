// Overview: what is wrong now, then the great figures, then a line for each source.
import { h, setText, setAttribute } from "../components/dom.js";
import { DASH, count, date, duration, isNumber, percent, plural, rate, short, time } from "../components/format.js";
import { sparkline } from "../components/spark.js";
import { term } from "../terms.js";
import { drawState, isAsked } from "./sources-bar.js";

const SHOWN_PROBLEMS = 50;
const GROWING_MS = 10_000;
const SEVERITIES = { bad: ["✕", "error"], warn: ["⚠", "warning"] };

export default {
  id: "overview",
  title: "Overview",
  tables: ["sources", "problems"],
  mount(root, ctx) {
    const problems = new ProblemList(ctx), figures = new Figures(), lines = new SourceLines(ctx);
    root.append(problems.element, figures.element, lines.element);
    const drawAll = () => { problems.update(); figures.update(ctx.store.rows("sources")); lines.update(); };
    const timer = setInterval(() => { problems.tell(); figures.update(ctx.store.rows("sources")); lines.drawRates(); }, 1000);
    if (ctx.store.has("sources")) drawAll();
    const endStatus = ctx.store.onStatus(() => problems.update());
    return {
      update(changes) {
        if (changes.problems) problems.update();
        if (changes.sources) [figures.update(ctx.store.rows("sources")), lines.update()];
      },
      unmount() { clearInterval(timer); endStatus(); },
    };
  },
};

/** Problems as cards, the worst and newest first. */
class ProblemList {
  constructor(ctx) {
    this.ctx = ctx;
    this.cards = new Map();
    this.list = h("ul", { class: "problems" });
    this.well = h("p", { class: "all-well", hidden: true }, h("span", { "aria-hidden": "true" }, "✓"), "Nothing is wrong.");
    this.unknown = h("p", { class: "empty", hidden: true }, "Not known: the server does not answer.");
    this.more = h("p", { class: "note", hidden: true });
    this.head = h("h2", { id: "problems-title" }, "What is wrong now");
    this.element = h("section", { "aria-labelledby": "problems-title" }, this.head, this.well, this.unknown, this.list, this.more);
  }

  update() {
    const rows = this.ctx.store.rows("problems"), isKnown = this.ctx.store.has("problems");
    const isGone = ["gone", "reconnecting"].includes(this.ctx.store.status.state);
    this.well.hidden = isGone || !isKnown || rows.size > 0;
    this.unknown.hidden = !isGone;
    this.head.classList.toggle("spoken", rows.size === 0);
    const wanted = [...rows].sort(([, a], [, b]) => (a.severity === b.severity ? b.since_ms - a.since_ms : a.severity === "bad" ? -1 : 1));
    const shown = wanted.slice(0, SHOWN_PROBLEMS), keys = new Set(shown.map(([key]) => key));
    for (const [key, card] of this.cards) if (!keys.has(key)) [card.element.remove(), this.cards.delete(key)];
    shown.forEach(([key, row], place) => {
      if (!this.cards.has(key)) this.cards.set(key, new ProblemCard(this.ctx));
      const card = this.cards.get(key);
      card.update(row, this.ctx.store.now());
      if (this.list.children[place] !== card.element) this.list.insertBefore(card.element, this.list.children[place] ?? null);
    });
    this.more.hidden = wanted.length <= SHOWN_PROBLEMS;
    setText(this.more, `${plural(wanted.length - SHOWN_PROBLEMS, "more problem")} not shown.`);
  }

  tell() {
    const rows = this.ctx.store.rows("problems");
    for (const [key, card] of this.cards) if (rows.has(key)) card.update(rows.get(key), this.ctx.store.now());
  }
}

class ProblemCard {
  constructor(ctx) {
    this.ctx = ctx;
    this.sign = h("span", { class: "sign", "aria-hidden": "true" });
    this.what = h("span", { class: "what" });
    this.word = h("span", { class: "word" });
    this.more = h("small");
    this.link = h("a", { class: "problem" }, this.sign, this.what, this.word, this.more);
    this.element = h("li", {}, this.link);
  }

  update(row, now) {
    const [sign, word] = SEVERITIES[row.severity] ?? SEVERITIES.warn;
    setText(this.sign, sign);
    setText(this.word, word);
    setText(this.what, row.what);
    const times = isNumber(row.count) ? `: ${count(row.count)} so far` : "";
    setText(this.more, `${row.source}, since ${time(row.since_ms)} (${duration(Math.max(0, now - row.since_ms))})${times}`);
    setAttribute(this.link, "class", `problem ${row.severity}`);
    setAttribute(this.link, "href", this.ctx.href(row.view, { of: row.of }));
    setAttribute(this.link, "title", `since ${date(row.since_ms)} UTC; shows more in ${row.view}`);
  }
}

/** Events a second, late, lost and nodes, of all sources together. */
class Figures {
  constructor() {
    this.tiles = {
      rate: new Figure(term("rate", "events/s")), events: new Figure(term("event", "events")), late: new Figure(term("late")),
      lost: new Figure(term("lost")), nodes: new Figure(term("node", "nodes")), load: new Figure(term("bus load")),
    };
    this.element = h("section", { class: "section", "aria-label": "All sources together" }, h("ul", { class: "tiles" }, Object.values(this.tiles).map((tile) => tile.element)));
  }

  update(sources) {
    const rows = [...sources.values()], sum = (name) => rows.reduce((total, row) => total + (row[name] ?? 0), 0);
    const loads = rows.map((row) => row.load).filter(isNumber), { tiles } = this;
    tiles.rate.update(rate(sum("rate")), `from ${plural(rows.length, "source")}`);
    tiles.events.update(short(sum("events")), "seen so far");
    tiles.late.count(sum("late"), "too late");
    tiles.lost.count(sum("lost"), "or dropped");
    tiles.nodes.update(count(sum("nodes")), "known to take part");
    tiles.load.element.hidden = !loads.length;
    if (loads.length) tiles.load.update(percent(Math.max(...loads)), loads.length === 1 ? "of the CAN bus" : `highest of ${loads.length} CAN buses`, Math.max(...loads) > 0.9 ? "warn" : "");
  }
}

class Figure {
  constructor(name) {
    this.number = h("span", {}, "–");
    this.sign = h("span", { class: "sign", "aria-hidden": "true" });
    this.note = h("small");
    this.element = h("li", {}, h("strong", {}, this.number, this.sign), h("span", {}, name), this.note);
  }

  // What was lost long ago is not wrong now.
  count(value, word) {
    if (this.value !== undefined && value > this.value) this.grownAt = performance.now();
    this.value = value;
    const isGrowing = performance.now() - (this.grownAt ?? -Infinity) < GROWING_MS;
    this.update(short(value), value ? `${word}, ${isGrowing ? "growing" : "not now"}` : "none known", value ? (isGrowing ? "bad" : "warn") : "good");
  }

  update(number, note, tone = "") {
    setText(this.number, number);
    setText(this.note, note);
    setText(this.sign, { good: "✓", warn: "⚠", bad: "✕" }[tone] ?? "");
    setAttribute(this.element, "class", tone || null);
  }
}

/** A line for each source: its rate, how busy it is, its state and its time. */
class SourceLines {
  constructor(ctx) {
    this.ctx = ctx;
    this.lines = new Map();
    this.body = h("tbody");
    const heads = ["Source", "State", "Time on it", "Events/s", "Last minute", "Late", "Lost", "Nodes", "Bus load"];
    this.empty = h("p", { class: "empty", hidden: true }, "Studio looks at no source.");
    this.element = h("section", { class: "section", "aria-labelledby": "sources-title" }, h("h2", { id: "sources-title" }, "Sources"),
      h("div", { class: "card scroll flush", tabindex: 0, role: "region", "aria-labelledby": "sources-title" },
        h("table", { class: "table sources-table" }, h("thead", {}, h("tr", {}, heads.map((head, n) => h("th", { scope: "col", class: [3, 5, 6, 7].includes(n) ? "end" : null }, head)))), this.body)), this.empty);
  }

  update() {
    const rows = this.ctx.store.rows("sources");
    for (const [key, line] of this.lines) if (!rows.has(key)) [line.element.remove(), this.lines.delete(key)];
    for (const [key, row] of rows) {
      if (!this.lines.has(key)) {
        this.lines.set(key, new SourceLine(key, this.ctx));
        this.body.append(this.lines.get(key).element);
        if (key === this.ctx.params.of) this.#find(this.lines.get(key).element);
      }
      this.lines.get(key).update(row);
    }
    this.empty.hidden = rows.size > 0 || !this.ctx.store.has("sources");
  }

  #find(line) {
    line.classList.add("found");
    requestAnimationFrame(() => line.scrollIntoView({ block: "center" }));
  }

  drawRates() {
    for (const [key, line] of this.lines) line.spark.update(this.ctx.store.rows("sources").get(key)?.rates ?? []);
  }
}

class SourceLine {
  constructor(key, ctx) {
    [this.key, this.ctx] = [key, ctx];
    this.kind = h("small");
    this.name = h("a", { class: "name" }, key);
    this.state = h("span", { class: "chip" });
    this.note = h("small", { class: "source-note" });
    this.cells = Object.fromEntries(["time", "rate", "late", "lost", "nodes", "load"].map((name) => [name, h("span")]));
    this.spark = sparkline(ctx.store.rows("sources").get(key)?.rates ?? [], { width: 140, height: 26 });
    this.bar = h("i");
    this.gauge = h("span", { class: "gauge", "aria-hidden": "true" }, this.bar);
    const { cells } = this, end = (cell) => h("td", { class: "end" }, cell);
    this.element = h("tr", {}, h("th", { scope: "row" }, this.name, this.kind), h("td", {}, this.state, this.note), h("td", {}, cells.time),
      end(cells.rate), h("td", {}, this.spark), end(cells.late), end(cells.lost), end(cells.nodes), h("td", { class: "load" }, cells.load, this.gauge));
  }

  update(row) {
    const view = { lake: "lake", gateway: "gateways" }[row.kind] ?? "channels";
    setText(this.kind, `${row.kind}, ${row.address}`);
    setAttribute(this.name, "href", this.ctx.href(view, view === "channels" ? { filter: this.key } : {}));
    setAttribute(this.name, "title", view === "channels" ? "its channels" : `to the ${row.kind}`);
    drawState(this.state, row);
    setText(this.note, row.note);
    setText(this.cells.time, time(row.time_ms, 1));
    setAttribute(this.cells.time, "title", isNumber(row.time_ms) ? `${date(row.time_ms, 3)} UTC` : null);
    setText(this.cells.rate, isAsked(row) ? DASH : rate(row.rate));
    for (const name of ["late", "lost"]) {
      setText(this.cells[name], short(row[name]));
      this.cells[name].classList.toggle("bad-value", row[name] > 0);
    }
    setText(this.cells.nodes, count(row.nodes));
    setText(this.cells.load, percent(row.load));
    this.gauge.hidden = !isNumber(row.load);
    this.gauge.classList.toggle("high", row.load > 0.9);
    if (isNumber(row.load)) this.bar.style.transform = `scaleX(${Math.min(1, row.load).toFixed(3)})`;
    this.element.classList.toggle("bad", row.state === "failed");
  }
}
