// Subscriptions: what somebody asked for, what came of it, and what it became in each target.
import { h, clear, copyButton, setText } from "../components/dom.js";
import { bitsLegend, drawBits } from "../components/bits.js";
import { DASH, count, isNumber, rate } from "../components/format.js";
import { table } from "../components/table.js";
import { docsOf, explain, term } from "../terms.js";

const about = (name) => ({ note: explain(name), docs: docsOf(name) });
const isFull = (row) => isNumber(row.capacity) && row.capacity > 0 && row.waiting >= row.capacity;
const isTroubled = (row) => Boolean(row.failed || row.dropped || isFull(row));
const counter = (id, title) => ({
  id, title, width: 4.8, end: true, ...about(id), value: (row) => row[id], text: (row) => count(row[id]), tone: (row) => (row[id] > 0 ? "bad" : ""),
});

const columns = () => [
  {
    id: "text", title: "Subscription", width: 23, grows: true, isFixed: true, ...about("subscription"), value: (row) => row.text, search: (row) => row.text,
    make: (cell) => cell.append(h("code")), write: (cell, row) => { if (setText(cell.firstChild, row.text)) cell.title = row.text; },
  },
  { id: "owner", title: "Owner", width: 7.2, isFixed: true, isLong: true, note: "The participant or node that asked.", docs: docsOf("node"), value: (row) => row.owner, text: (row) => row.owner || "this process", search: (row) => row.owner || "this process" },
  { id: "source", title: "Source", width: 8.8, isFixed: true, isLong: true, ...about("source"), value: (row) => row.source, text: (row) => row.source, search: (row) => row.source },
  { id: "delivered", title: "Delivered", width: 5.6, end: true, ...about("delivered"), value: (row) => row.delivered, text: (row) => count(row.delivered) },
  { id: "rate", title: "Rate", width: 4.5, end: true, ...about("rate"), value: (row) => row.rate, text: (row) => (isNumber(row.rate) ? `${rate(row.rate)}/s` : DASH) },
  counter("failed", "Failed"), counter("dropped", "Dropped"),
  { id: "waiting", title: "Queue", width: 6.4, ...about("queue"), class: "tall", value: (row) => (isNumber(row.capacity) ? row.waiting / row.capacity : row.waiting), make: makeQueue, write: writeQueue },
];

export default {
  id: "subscriptions",
  title: "Subscriptions",
  tables: ["sources", "subscriptions"],
  mount(root, ctx) {
    const { store, params } = ctx;
    const view = table({
      label: "Subscriptions", word: "subscription", columns: columns(), filter: params.filter, detail: (key, row) => new SubscriptionDetail(row, ctx), tone: (row) => (isTroubled(row) ? "bad" : ""),
      filters: [{ id: "troubled", label: "only with trouble", note: "Subscriptions whose handler failed, or that dropped events", test: isTroubled }],
      onFilter: (filter) => ctx.setParams({ filter }), empty: "Nobody has subscribed to anything.",
    });
    root.append(view);
    if (store.has("subscriptions")) view.setRows(store.rows("subscriptions"));
    if (params.of) view.reveal(params.of);
    return {
      update: ({ subscriptions }) => subscriptions && view.change(subscriptions, store.rows("subscriptions")),
      unmount: () => view.destroy(),
    };
  },
};

function makeQueue(cell) {
  const [text, bar] = [h("span"), h("i")], gauge = h("span", { class: "gauge", "aria-hidden": "true" }, bar);
  cell.append(text, gauge);
  Object.assign(cell, { text, bar, gauge });
}

function writeQueue(cell, row) {
  const hasQueue = isNumber(row.waiting), isBounded = isNumber(row.capacity) && row.capacity > 0;
  if (!setText(cell.text, hasQueue ? `${isFull(row) ? "full: " : ""}${count(row.waiting)}${isBounded && !isFull(row) ? ` of ${count(row.capacity)}` : ""}` : DASH)) return;
  cell.text.classList.toggle("bad-value", isFull(row));
  cell.gauge.hidden = !hasQueue || !isBounded;
  if (cell.gauge.hidden) return;
  cell.gauge.classList.toggle("over", isFull(row));
  cell.bar.style.transform = `scaleX(${Math.min(1, row.waiting / row.capacity).toFixed(3)})`;
}

/** An opened subscription: its whole text, copies of it, and what each target made of it. */
class SubscriptionDetail {
  constructor(row, ctx) {
    const asked = ctx.api(`explain?q=${encodeURIComponent(row.text)}`);
    const python = () => ctx.api(`check?q=${encodeURIComponent(row.text)}`).then((answer) => answer.python ?? Promise.reject(new Error(answer.message)));
    const targets = h("div", { class: "targets", "aria-live": "polite" }, h("p", { class: "loading" }, "Asking what it became …"));
    this.element = h("div", { class: "subscription-detail" },
      h("pre", { class: "code wrap", tabindex: 0 }, row.text),
      h("div", { class: "toolbar" },
        h("a", { class: "button small primary", href: ctx.href("events", { q: row.text }) }, "Try it in Events"),
        copyButton("Copy as text", () => row.text), copyButton("Copy as Python", python)),
      h("h3", {}, "What it became in each ", term("target")), targets);
    asked.then((answer) => clear(targets).append(drawTargets(answer)), (error) => clear(targets).append(h("p", { class: "verdict bad" }, h("span", { class: "sign", "aria-hidden": "true" }, "✕ "), error.message)));
  }
}

function drawTargets({ targets }) {
  const hasBits = targets.some((target) => target.bits?.length);
  return h("div", {}, hasBits && bitsLegend(), h("ul", { class: "target-list" }, targets.map(drawTarget)));
}

function drawTarget(target) {
  const { name, text, problem, residual, bits = [] } = target;
  return h("li", { class: "card" }, h("div", { class: "target-head" }, h("h3", {}, name, problem && h("small", {}, " does not run here")), text && copyButton("copy", () => text)),
    problem && h("p", { class: "verdict warn" }, h("span", { class: "sign", "aria-hidden": "true" }, "⚠ "), problem),
    bits.map((one) => h("div", { class: "bits-line" }, h("span", { class: "bits-label" }, one.label), drawBits({ ...one, lowFirst: name === "attributes" }))),
    residual && h("p", { class: "note" }, term("residual", "Left to the receiver"), ": ", h("code", {}, residual)),
    text && h("pre", { class: "code wrap", tabindex: 0, "aria-label": `code of the target ${name}` }, text));
}
