// Channels: what each publisher publishes, how fast, how late, and what was lost.
import { h, setText, setAttribute } from "../components/dom.js";
import { DASH, count, isNumber, ms, rate } from "../components/format.js";
import { sparkline } from "../components/spark.js";
import { table } from "../components/table.js";
import { docsOf, explain, term } from "../terms.js";

const isTroubled = (row) => Boolean(row.missed || row.expired || row.lost || isOverBound(row));
const isOverBound = (row) => isNumber(row.bound_ms) && row.worst_latency_ms > row.bound_ms;
const SPAN_UNITS = [[0.001, "s", 1000], [1, "ms", 1], [1000, "µs", 0]];
const textOrDash = (text) => text || DASH;
const about = (name) => ({ note: explain(name), docs: docsOf(name) });
const counter = (id, title, name) => ({
  id, title, width: 4.3, end: true, ...about(name), value: (row) => row[id], text: (row) => count(row[id]), tone: (row) => (row[id] > 0 ? "bad" : ""),
});

const columns = () => [
  {
    id: "type", title: "Channel", width: 12.5, isFixed: true, ...about("channel"), value: (row) => `${row.type} ${row.publisher} ${row.source}`, search: (row) => `${row.type}\n${row.publisher}\n${row.source}`,
    make: (cell) => cell.append(h("strong", { class: "weak" }), h("small")),
    write: (cell, row) => {
      const publisher = row.publisher || "all publishers";
      const [isOther, isOtherToo] = [setText(cell.firstChild, row.type), setText(cell.lastChild, `${publisher} · ${row.source}`)];
      if (isOther || isOtherToo) cell.title = `${row.type}\npublished by ${publisher}\non ${row.source}`;
    },
  },
  {
    id: "qos", title: "Quality", width: 9, ...about("quality of service"), isFixed: true, value: (row) => row.qos, search: (row) => row.qos,
    make: (cell) => cell.append(h("span", { class: "chip" })), write: (cell, row) => drawQuality(cell.firstChild, row.qos),
  },
  { id: "rate", title: "Rate", width: 4.2, end: true, ...about("rate"), note: "Events a second, of the last second.", value: (row) => row.rate, text: (row) => `${rate(row.rate)}/s` },
  {
    id: "rates", title: "Last minute", width: 6.4, note: "The rate of each of the last 60 seconds, from zero to its highest.", class: "spark-cell",
    make: (cell) => cell.append(sparkline([], { width: 96, height: 24 })), write: (cell, row) => drawRates(cell, row.rates),
  },
  { id: "jitter_ms", title: "Jitter", width: 4.6, end: true, ...about("jitter"), value: (row) => row.jitter_ms, text: (row) => ms(row.jitter_ms) },
  {
    id: "latency_ms", title: "Latency", width: 10, ...about("latency"), class: "tall",
    note: "Time from publishing to arrival: the mean, and the worst against the bound that the plan promises. Sorted by the worst.",
    value: (row) => row.worst_latency_ms ?? row.latency_ms, make: makeLatency, write: writeLatency,
  },
  counter("missed", "Missed", "missed"), counter("expired", "Expired", "expired"), counter("lost", "Lost", "lost"),
  { id: "events", title: "Events", width: 5, end: true, note: "Events since Studio was opened.", docs: docsOf("event"), value: (row) => row.events, text: (row) => count(row.events) },
];

export default {
  id: "channels",
  title: "Channels",
  tables: ["sources", "channels"],
  mount(root, ctx) {
    const { store, params } = ctx;
    const view = table({
      label: "Channels", word: "channel", columns: columns(), filter: params.filter, detail: (key, row) => new ChannelDetail(key, row, ctx), tone: (row) => (isTroubled(row) ? "bad" : ""),
      filters: [{ id: "troubled", label: "only with trouble", note: "Channels that missed, expired or lost events, or were slower than their bound", test: isTroubled }],
      onFilter: (filter) => ctx.setParams({ filter }), empty: "Nobody has published anything yet.",
    });
    root.append(view);
    if (store.has("channels")) view.setRows(store.rows("channels"));
    if (params.of) view.reveal(params.of);
    return {
      update: ({ channels }) => channels && view.change(channels, store.rows("channels")),
      unmount: () => view.destroy(),
    };
  },
};

function drawQuality(chip, qos) {
  if (!setText(chip, qos || "not known")) return;
  setAttribute(chip, "class", qos ? `chip qos-${qos.split(":")[0]}` : "chip");
  setAttribute(chip, "title", explain(qos.split(":")[0]) || null);
}

function drawRates(cell, rates) {
  if (cell.drawn === rates) return; // another array comes once a second
  cell.drawn = rates;
  cell.firstChild.update(rates);
}

// "2.35 / 7.99 of 9 ms": one unit for all, that of the longest.
function spans(values, bound) {
  const longest = Math.max(...values, bound ?? 0);
  const [scale, unit] = SPAN_UNITS.find(([, , least]) => longest >= least) ?? SPAN_UNITS.at(-1);
  const digits = longest * scale < 10 ? 2 : longest * scale < 100 ? 1 : 0;
  const show = (value) => (isNumber(value) ? (value * scale).toFixed(digits) : DASH);
  return `${values.map(show).join(" / ")}${isNumber(bound) ? ` of ${Number(show(bound))}` : ""} ${unit}`;
}

function makeLatency(cell) {
  const [text, bar] = [h("span"), h("i")], gauge = h("span", { class: "gauge", "aria-hidden": "true" }, bar);
  cell.append(text, gauge);
  Object.assign(cell, { text, bar, gauge });
}

function writeLatency(cell, row) {
  const { latency_ms: mean, worst_latency_ms: worst, bound_ms: bound } = row;
  const isOver = isOverBound(row);
  if (!setText(cell.text, isNumber(worst) ? `${isOver ? "✕ " : ""}${spans([mean, worst], bound)}` : ms(mean))) return;
  cell.title = `mean ${ms(mean)}, worst ${ms(worst)}${isNumber(bound) ? `, of ${ms(bound)} that the plan promises${isOver ? ": too late" : ""}` : ""}`;
  cell.text.classList.toggle("bad-value", isOver);
  cell.gauge.hidden = !isNumber(bound) || !isNumber(worst);
  if (cell.gauge.hidden) return;
  cell.gauge.classList.toggle("over", isOver);
  cell.bar.style.transform = `scaleX(${Math.min(1, worst / bound).toFixed(3)})`;
}

/** What an opened row shows: all figures in full, and ways to look further. */
class ChannelDetail {
  constructor(key, row, ctx) {
    this.facts = FACTS.map(([name, word, read]) => ({ read, cell: h("dd"), head: h("dt", {}, word ? term(word, name) : name) }));
    const spark = sparkline(row.rates, { width: 480, height: 64 });
    this.spark = spark;
    this.rates = row.rates;
    const ask = h("a", { class: "button small", href: ctx.href("events", { q: row.type, source: row.source }) }, "See its events");
    const type = h("a", { class: "button small", href: ctx.href("types", { of: row.type }) }, "Its type");
    this.element = h("div", { class: "channel-detail" }, h("dl", { class: "facts" }, this.facts.map(({ head, cell }) => h("div", {}, head, cell))), spark, h("p", { class: "toolbar" }, ask, type));
    this.update(row);
  }

  update(row) {
    for (const { read, cell } of this.facts) setText(cell, read(row));
    if (row.rates !== this.rates) this.spark.update((this.rates = row.rates));
  }
}

const FACTS = [
  ["Type", "type", (row) => row.type], ["Publisher", "publisher", (row) => textOrDash(row.publisher)], ["Source", "source", (row) => row.source],
  ["Quality of service", "quality of service", (row) => textOrDash(row.qos)], ["Events", "event", (row) => count(row.events)], ["Rate", "rate", (row) => `${rate(row.rate)}/s`],
  ["Jitter", "jitter", (row) => ms(row.jitter_ms)], ["Mean latency", "latency", (row) => ms(row.latency_ms)], ["Worst latency", "latency", (row) => ms(row.worst_latency_ms)],
  ["Bound", "bound", (row) => ms(row.bound_ms)], ["Missed", "missed", (row) => count(row.missed)], ["Expired", "expired", (row) => count(row.expired)], ["Lost", "lost", (row) => count(row.lost)],
];
