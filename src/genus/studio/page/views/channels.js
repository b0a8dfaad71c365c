// Channels: what each publisher publishes, how fast, how late, and what was lost.
import { h, setText } from "../components/dom.js";
import { DASH, count, date, isNumber, ms, percent, rate } from "../components/format.js";
import { sparkline } from "../components/spark.js";
import { docsOf, explain } from "../terms.js";
import { about, agoColumn, counter, factList, gaugeColumn, measure, named, ratesColumn, stateColumn, tableView } from "./table-view.js";

const isOverBound = (row) => isNumber(row.bound_ms) && row.worst_latency_ms > row.bound_ms;
const late = (row) => (isNumber(row.missed) || isNumber(row.expired) ? (row.missed ?? 0) + (row.expired ?? 0) : null);
const hasProblem = (row) => Boolean(late(row) || row.lost || isOverBound(row) || ["wrong", "degraded"].includes(row.health));
const publisher = (row) => row.publisher || "all publishers";
const ofBound = (row) => (isNumber(row.bound_ms) && isNumber(row.worst_latency_ms) ? row.worst_latency_ms / row.bound_ms : null);

/** The columns of channels; the overview has the first six. */
export const channelColumns = (store) => [
  named("type", "Channel", (row) => [row.type, `${publisher(row)} · ${row.source}`, `${row.type}\npublished by ${publisher(row)}\non ${row.source}`], { width: 10, ...about("channel") }),
  stateColumn((row) => [row.health, { why: row.is_heard === false ? "it was announced, and nothing here subscribes to it" : "", from: row.health_since_ms, now: store.now() }], { note: "What is known of it; \"no data\": it was announced, or events came before, and none come now." }),
  measure("rate", "Rate", "/s", about("rate")), ratesColumn(),
  agoColumn("last_ms", "Last", store, { width: 5, unit: "event, ago", note: "When the last event came." }),
  counter("lost", "Lost", { width: 3.4, tone: "bad" }),
  { ...counter("late", "Late", { width: 3.4, tone: "bad" }), value: late, text: (row) => count(late(row)), tone: (row) => (late(row) ? "bad" : "") },
  measure("latency_ms", "Latency", "mean, ms", { width: 5.4, digits: 3, ...about("latency") }),
  measure("worst_latency_ms", "Latency", "worst, ms", { width: 5.5, digits: 3, note: "The longest time from publishing to arrival." }),
  gaugeColumn("bound", "Worst", (row) => [ofBound(row) === null ? DASH : `${isOverBound(row) ? "✕ " : ""}${percent(ofBound(row))}`, ofBound(row), isOverBound(row) ? "over" : ""],
    { unit: "of bound", width: 4.6, value: ofBound, note: "The worst latency against the bound that the plan promises.", docs: docsOf("bound") }),
  measure("jitter_ms", "Jitter", "ms", { width: 5.5, digits: 3, ...about("jitter") }),
  {
    id: "qos", title: "Quality", width: 8.9, isFixed: true, class: "wide-cell", ...about("quality of service"), search: (row) => row.qos, make: (cell) => cell.append(h("span", { class: "chip" })),
    write: ({ firstChild: chip }, { qos }) => {
      if (setText(chip, qos || "not known")) Object.assign(chip, { className: qos ? `chip qos-${qos.split(":")[0]}` : "chip", title: explain(qos.split(":")[0]) });
    },
  },
  counter("events", "Events", { width: 4.6, note: "Events since Studio was opened." }),
];

export default tableView("channels", "Channels", (ctx) => ({
  word: "channel", columns: channelColumns(ctx.store), isAging: true, detail: (key, row) => new ChannelDetail(row, ctx), tone: (row) => (hasProblem(row) ? "bad" : ""),
  filters: [{ id: "problems", label: "only with problems", note: "Channels that lost events, were late, or are wrong or degraded", test: hasProblem }],
  empty: "Nobody has announced or published anything yet.",
}));

const FACTS = [
  ["Type", "type", (row) => row.type], ["Publisher", "publisher", (row) => publisher(row)], ["Source", "source", (row) => row.source],
  ["Quality of service", "quality of service", (row) => row.qos || "not known"], ["Events", "event", (row) => count(row.events)], ["Rate", "rate", (row) => `${rate(row.rate)}/s`],
  ["Last event", null, (row) => (isNumber(row.last_ms) ? date(row.last_ms) : row.events ? "not known" : "none yet")], ["Jitter", "jitter", (row) => ms(row.jitter_ms)],
  ["Mean latency", "latency", (row) => ms(row.latency_ms)], ["Worst latency", "latency", (row) => ms(row.worst_latency_ms)],
  ["Bound", "bound", (row) => ms(row.bound_ms)], ["Missed", "missed", (row) => count(row.missed)], ["Expired", "expired", (row) => count(row.expired)], ["Lost", "lost", (row) => count(row.lost)],
];

/** What an opened row shows: all figures in full, and ways to look further. */
class ChannelDetail {
  constructor(row, ctx) {
    this.facts = factList(FACTS, row);
    this.spark = sparkline(row.rates, { width: 480, height: 64 });
    const link = (words, view, params) => h("a", { class: "button small", href: ctx.href(view, params) }, words);
    this.element = h("div", { class: "channel-detail" }, this.facts, this.spark,
      h("p", { class: "toolbar" }, link("See its events", "events", { q: row.type, source: row.source }), link("Its type", "types", { of: row.type })));
  }

  update(row) {
    this.facts.update(row);
    this.spark.update(row.rates);
  }
}
