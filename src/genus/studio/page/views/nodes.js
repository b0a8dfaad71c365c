// Nodes: who takes part, how exact their clocks are, and when they were last heard.
import { h } from "../components/dom.js";
import { bitsLegend, drawBits } from "../components/bits.js";
import { DASH, aligned, count, date, isNumber, micros, plural } from "../components/format.js";
import { docsOf, explain, term } from "../terms.js";
import { about, agoColumn, counter, factList, measure, named, stateColumn, tableView } from "./table-view.js";

const FILTER_PARTS = [["priority", 8], ["node", 7], ["event tag", 14]];
const isOff = (row) => isNumber(row.precision_us) && Math.abs(row.offset_us) > row.precision_us;
const signed = (value, text) => `${value > 0 && !text.startsWith("<") ? "+" : ""}${text.replace("-", "−")}`;

const columns = (store) => [
  named("name", "Node", (row) => [row.name, [row.role, row.program].filter(Boolean).join(", "), [row.name, row.role, row.program, row.host].filter(Boolean).join("\n")], { width: 9, ...about("node") }),
  stateColumn((row) => [row.health, { word: row.state, why: row.why || explain(row.state) }], { width: 8.4, docs: docsOf("bus off"), note: "up, down, starting, error passive, bus off, not synchronised, standing by; gone: it was to leave, or died" }),
  agoColumn("heard_ms", "Last heard", store, { width: 6, note: "When something was last received from it, in the time of the source." }),
  measure("offset_us", "Clock offset", "µs", { width: 6.4, ...about("offset"), value: (row) => (isNumber(row.offset_us) ? Math.abs(row.offset_us) : null), text: (row) => `${isOff(row) ? "✕ " : ""}${signed(row.offset_us, aligned(row.offset_us))}`, tone: (row) => (isOff(row) ? "bad" : "") }),
  measure("precision_us", "Precision", "± µs", { width: 6.6, ...about("precision") }),
  counter("number", "Number", { note: "The number of the node on its CAN bus." }),
  { id: "source", title: "Source", width: 8.6, isFixed: true, isLong: true, ...about("source") },
  { id: "interests", title: "Interest", width: 9, grows: true, ...about("wants"), isLong: true, value: (row) => row.interests.length, text: (row) => row.interests.join("; ") || DASH },
  counter("filters", "Filters", { ...about("acceptance filter"), value: (row) => row.filters.length, text: (row) => (row.filters.length ? count(row.filters.length) : DASH) }),
  { id: "uid", title: "Unique id", width: 9.6, isFixed: true, isLong: true, class: "mono wide-cell", note: "The number that the node was made with, or that its participant chose." },
];

export default tableView("nodes", "Nodes", ({ store }) => ({
  word: "node", columns: columns(store), isAging: true, detail: (key, row) => new NodeDetail(row), tone: (row) => (row.is_well ? "" : "bad"),
  filters: [{ id: "unwell", label: "only with problems", note: "Nodes whose state is not as it should be", test: (row) => !row.is_well }],
  empty: "No source has told of a node.",
}));

/** An opened node: where it runs, what it wants, and its acceptance filters as bits. */
class NodeDetail {
  constructor(row) {
    this.facts = factList(FACTS, row);
    this.wants = h("ul", { class: "wants" });
    this.filters = h("div");
    this.element = h("div", {}, this.facts, h("h2", { class: "detail-head" }, term("wants", "Interest")), this.wants, h("h2", { class: "detail-head" }, term("acceptance filter", "Acceptance filters")), this.filters);
    this.update(row);
  }

  update(row) {
    this.facts.update(row);
    if (row.interests !== this.row?.interests) this.wants.replaceChildren(...(row.interests.length ? row.interests.map((text) => h("li", {}, h("code", {}, text))) : [h("li", { class: "note" }, "nothing that is known")]));
    if (row.filters !== this.row?.filters) this.filters.replaceChildren(...drawFilters(row.filters));
    this.row = { interests: row.interests, filters: row.filters };
  }
}

function drawFilters(filters) {
  if (!filters.length) return [h("p", { class: "note" }, "None: it takes part without a CAN controller, or they are not known.")];
  return [h("p", { class: "note" }, `A frame is taken if it passes one of ${plural(filters.length, "filter")}.`), bitsLegend(),
    ...filters.map(([value, mask], n) => h("div", { class: "bits-line" }, h("span", { class: "bits-label" }, `filter ${n + 1}`), drawBits({ value, mask, width: 29, parts: FILTER_PARTS, label: `filter ${n + 1}` })))];
}

const FACTS = [
  ["Unique id", null, (row) => row.uid || DASH], ["Host", null, (row) => row.host || DASH], ["Process", null, (row) => (isNumber(row.pid) ? String(row.pid) : DASH)], ["Program", null, (row) => row.program || DASH],
  ["Role", null, (row) => row.role || DASH], ["Last heard", null, (row) => date(row.heard_ms, 3)], ["Clock offset", "offset", (row) => signed(row.offset_us, micros(row.offset_us))],
  ["Precision", "precision", (row) => (isNumber(row.precision_us) ? `± ${micros(row.precision_us)}` : DASH)],
];
