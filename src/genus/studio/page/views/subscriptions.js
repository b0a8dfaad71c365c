// Subscriptions: what somebody asked for, what came of it, and what it became in each target.
import { h, clear, copyButton, setText } from "../components/dom.js";
import { bitsLegend, drawBits } from "../components/bits.js";
import { DASH, count, isNumber } from "../components/format.js";
import { docsOf, term } from "../terms.js";
import { about, counter, gaugeColumn, measure, stateColumn, tableView } from "./table-view.js";

const isFull = (row) => isNumber(row.capacity) && row.capacity > 0 && row.waiting >= row.capacity;
const hasProblem = (row) => Boolean(row.failed || row.dropped || isFull(row));
const share = (row) => (row.capacity > 0 && isNumber(row.waiting) ? row.waiting / row.capacity : null);
const queueText = (row) => (isFull(row) ? `full: ${count(row.waiting)}` : share(row) === null ? count(row.waiting) : `${count(row.waiting)} of ${count(row.capacity)}`);

const columns = () => [
  {
    id: "text", title: "Subscription", width: 18, grows: true, isFixed: true, ...about("subscription"), search: (row) => row.text,
    make: (cell) => cell.append(h("code")), write: (cell, row) => { if (setText(cell.firstChild, row.text)) cell.title = row.text; },
  },
  stateColumn((row) => [row.health, { why: row.why || row.error }], { note: "Handlers in other processes cannot be seen from here." }),
  measure("rate", "Rate", "/s", about("rate")), counter("delivered", "Delivered", { width: 5.6 }),
  counter("failed", "Failed", { tone: "bad" }), counter("dropped", "Dropped", { width: 5, tone: "bad" }),
  gaugeColumn("waiting", "Queue", (row) => [isNumber(row.waiting) ? queueText(row) : DASH, share(row), isFull(row) ? "over" : ""], { width: 6.8, value: (row) => share(row) ?? row.waiting, ...about("queue") }),
  { id: "owner", title: "Owner", width: 9.5, isFixed: true, isLong: true, note: "The participant or node that asked.", docs: docsOf("node"), text: (row) => row.owner || "this process" },
  { id: "source", title: "Source", width: 9, isFixed: true, isLong: true, class: "wide-cell", ...about("source") },
];

export default tableView("subscriptions", "Subscriptions", (ctx) => ({
  word: "subscription", columns: columns(), detail: (key, row) => new SubscriptionDetail(row, ctx), tone: (row) => (hasProblem(row) ? "bad" : ""),
  filters: [{ id: "problems", label: "only with problems", note: "Subscriptions whose handler failed, or that dropped events", test: hasProblem }],
  empty: "Nobody has subscribed to anything that can be seen from here.",
}));

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
      h("h2", { class: "detail-head" }, "What it became in each ", term("target")), targets);
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
