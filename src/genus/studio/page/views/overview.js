// Overview: what is wrong now, then the great figures, then a line for each source, and what flows most.
import { h, setText, setAttribute } from "../components/dom.js";
import { DASH, aligned, count, date, duration, isNumber, percent, plural, rate, short, since, time } from "../components/format.js";
import { STATES, sourceState } from "../components/state.js";
import { term } from "../terms.js";
import { channelColumns } from "./channels.js";
import { about, counter, followTable, gaugeColumn, measure, named, ratesColumn, stateColumn } from "./table-view.js";

const SHOWN_PROBLEMS = 50;
const SHOWN_CHANNELS = 8;
const MOST_LOAD = 0.9;
const GROWING_MS = 10_000;
const SEVERITIES = { bad: ["✕", "error"], warn: ["⚠", "warning"] };
const WELL = ["fine", "asked", "paused", "ended"]; // of nothing else it is said that it is well

export default {
  id: "overview",
  title: "Overview",
  tables: ["sources", "problems", "channels"],
  mount(root, ctx) {
    const { store } = ctx, problems = new ProblemList(ctx), figures = new Figures();
    const sources = followTable("sources", ctx, { label: "Sources", word: "source", columns: sourceColumns(store), href: (key, row) => viewOf(key, row, ctx), isShort: true, filterFrom: 10, isAging: true, empty: "Studio looks at no source." });
    const channels = followTable("channels", ctx, { label: "Busiest channels", word: "channel", columns: channelColumns(store).slice(0, 7), href: (of) => ctx.href("channels", { of }), sort: { id: "rate", down: true },
      most: SHOWN_CHANNELS, isShort: true, filterFrom: Infinity, isAging: true, empty: "Nobody has announced or published anything yet." });
    const part = (title, { element }) => h("section", { class: "section" }, h("h2", {}, title), element);
    root.append(problems.element, figures.element, part("Sources", sources), part("Busiest channels", channels));
    const draw = () => { problems.update(); figures.update(store.rows("sources")); };
    const timer = setInterval(draw, 1000), endStatus = store.onStatus(draw);
    return {
      update(changes) {
        sources.update(changes);
        channels.update(changes);
        if (changes.problems || changes.sources) draw();
      },
      unmount() {
        clearInterval(timer);
        endStatus();
        sources.unmount();
        channels.unmount();
      },
    };
  },
};

/** Where a source is shown in full. */
function viewOf(key, row, ctx) {
  const view = { lake: "lake", gateway: "gateways" }[row.kind] ?? "channels";
  return ctx.href(view, view === "channels" ? { filter: key } : {});
}

const sourceColumns = (store) => [
  named("name", "Source", (row, key) => [key, `${row.kind}, ${row.address}`], { width: 10.5, ...about("source") }),
  stateColumn((row) => [sourceState(row), { why: row.why || row.note, from: row.health_since_ms, now: store.now() }], { width: 7 }),
  { id: "why", title: "Why", width: 15, isLong: true, value: (row) => row.why || row.note, text: (row) => row.why || row.note, class: "quiet" },
  measure("rate", "Rate", "/s", { ...about("rate"), text: (row) => (row.kind === "lake" ? DASH : aligned(row.rate)) }), ratesColumn(),
  counter("late", "Late", { width: 3.8, tone: "bad" }), counter("lost", "Lost", { width: 3.8, tone: "bad" }), counter("nodes", "Nodes", { width: 4.2, ...about("node") }),
  gaugeColumn("load", "Bus load", (row) => [percent(row.load), row.load, row.load > MOST_LOAD ? "high" : ""], { ...about("bus load") }),
  { id: "time_ms", title: "Time on it", width: 6, end: true, isLong: true, note: "In UTC, or from zero.", text: (row) => time(row.time_ms, 1) },
];

/** Problems as cards, the worst and newest first. */
class ProblemList {
  constructor(ctx) {
    this.ctx = ctx;
    this.cards = new Map();
    this.list = h("ul", { class: "problems" });
    this.well = h("p", { class: "all-well" });
    this.more = h("p", { class: "note", hidden: true });
    this.head = h("h2", { id: "problems-title" }, "What is wrong now");
    this.element = h("section", { "aria-labelledby": "problems-title" }, this.head, this.well, this.list, this.more);
  }

  update() {
    const rows = this.ctx.store.rows("problems");
    this.head.classList.toggle("spoken", rows.size === 0);
    this.#tellWell(rows.size);
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

  /** Where no problem is known: whether all is well, or what is not seen. */
  #tellWell(number) {
    const { store } = this.ctx, states = [...store.rows("sources")].map(([name, row]) => [name, sourceState(row), row.health_since_ms]);
    const unseen = states.filter(([, state]) => !WELL.includes(state)), isGone = ["gone", "reconnecting"].includes(store.status.state);
    const words = unseen.map(([name, state, from]) => `${name}: ${STATES[state][1]}${isNumber(from) ? ` since ${since(from, store.now())}` : ""}`);
    const hasProblem = unseen.some(([, state]) => ["degraded", "wrong", "failed"].includes(state));
    const head = hasProblem ? "⚠ Not all is well." : "? No problem is known, but not all is seen.";
    const text = isGone ? "? Not known: the server does not answer." : unseen.length ? `${head} ${words.join("; ")}.` : "✓ Nothing is wrong.";
    this.well.hidden = !isGone && (number > 0 || !store.has("problems") || !states.length);
    setText(this.well, text);
    setAttribute(this.well, "class", `all-well ${isGone ? "" : hasProblem ? "warn" : unseen.length ? "" : "good"}`);
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
    setAttribute(this.link, "href", this.ctx.href(row.view, row.view === "events" ? { q: row.of, source: row.source } : { of: row.of }));
    setAttribute(this.link, "title", `since ${date(row.since_ms)} UTC; shows more in ${row.view}`);
  }
}

/** Events a second, late, lost and nodes, of all sources together; what is part of another source is not counted again. */
class Figures {
  constructor() {
    this.tiles = {
      rate: new Figure(term("rate", "events/s")), events: new Figure(term("event", "events")), late: new Figure(term("late")),
      lost: new Figure(term("lost")), nodes: new Figure(term("node", "nodes")), load: new Figure(term("bus load")),
    };
    this.element = h("section", { class: "section", "aria-label": "All sources together" }, h("ul", { class: "tiles" }, Object.values(this.tiles).map((tile) => tile.element)));
  }

  update(sources) {
    const rows = [...sources.values()].filter((row) => !row.part_of), sum = (name) => rows.reduce((total, row) => total + (row[name] ?? 0), 0);
    const all = [...sources.values()], loads = all.map((row) => row.load).filter(isNumber), known = all.filter((row) => isNumber(row.nodes)), { tiles } = this;
    tiles.rate.update(rate(sum("rate")), `from ${plural(rows.length, "source")}`);
    tiles.events.update(short(sum("events")), "seen so far");
    tiles.late.count(sum("late"), "too late");
    tiles.lost.count(sum("lost"), "or dropped");
    tiles.nodes.update(known.length ? count(known.reduce((total, row) => total + row.nodes, 0)) : DASH, known.length === all.length ? "known to take part" : `known on ${known.length} of ${plural(all.length, "source")}`);
    tiles.load.element.hidden = !loads.length;
    if (loads.length) tiles.load.update(percent(Math.max(...loads)), loads.length === 1 ? "of the CAN bus" : `highest of ${loads.length} CAN buses`, Math.max(...loads) > MOST_LOAD ? "warn" : "");
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
    this.update(short(value), value ? `${word}, ${isGrowing ? "growing" : "not now"}` : "none known", value ? (isGrowing ? "bad" : "warn") : "");
  }

  update(number, note, tone = "") {
    setText(this.number, number);
    setText(this.note, note);
    setText(this.sign, { warn: "⚠", bad: "✕" }[tone] ?? "");
    setAttribute(this.element, "class", tone || null);
  }
}
