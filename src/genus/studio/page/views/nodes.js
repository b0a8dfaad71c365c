// Nodes: who takes part, how exact their clocks are, and when they were last heard.
import { h, setText, setAttribute } from "../components/dom.js";
import { bitsLegend, drawBits } from "../components/bits.js";
import { DASH, ago, count, date, isNumber, micros, plural } from "../components/format.js";
import { table } from "../components/table.js";
import { docsOf, explain, term } from "../terms.js";

const FILTER_PARTS = [["priority", 8], ["node", 7], ["event tag", 14]];
const about = (name) => ({ note: explain(name), docs: docsOf(name) });
const isOff = (row) => isNumber(row.precision_us) && Math.abs(row.offset_us) > row.precision_us;
const signed = (value) => (isNumber(value) && value > 0 ? `+${micros(value)}` : micros(value).replace("-", "−"));

const columns = (store) => [
  {
    id: "name", title: "Node", width: 8.5, grows: true, isFixed: true, ...about("node"), value: (row) => row.name, search: (row) => `${row.name}\n${row.program}\n${row.host}`,
    make: (cell) => cell.append(h("strong", { class: "weak" }), h("small")),
    write: (cell, row) => {
      const [isOther, isOtherToo] = [setText(cell.firstChild, row.name), setText(cell.lastChild, [row.role, row.program].filter(Boolean).join(", "))];
      if (isOther || isOtherToo) cell.title = [row.name, row.role, row.program, row.host].filter(Boolean).join("\n");
    },
  },
  { id: "number", title: "Number", width: 4.4, end: true, note: "The number of the node on its CAN bus.", docs: docsOf("node"), value: (row) => row.number, text: (row) => count(row.number) },
  {
    id: "state", title: "State", width: 7.2, note: "up, down, starting, error passive, bus off, not synchronised, standing by", docs: docsOf("bus off"), value: (row) => `${row.is_well ? 1 : 0} ${row.state}`, search: (row) => row.state,
    make: (cell) => cell.append(h("span", { class: "chip" })), write: (cell, row) => drawNodeState(cell.firstChild, row),
  },
  { id: "heard_ms", title: "Last heard", width: 5.6, end: true, note: "When something was last received from it, in the time of the source.", docs: docsOf("wants"), value: (row) => row.heard_ms, text: (row) => ago(row.heard_ms, sourceNow(store, row)) },
  { id: "offset_us", title: "Clock offset", width: 6.2, end: true, ...about("offset"), value: (row) => (isNumber(row.offset_us) ? Math.abs(row.offset_us) : null), text: (row) => `${isOff(row) ? "✕ " : ""}${signed(row.offset_us)}`, tone: (row) => (isOff(row) ? "bad" : "") },
  { id: "precision_us", title: "Precision", width: 5.5, end: true, ...about("precision"), value: (row) => row.precision_us, text: (row) => (isNumber(row.precision_us) ? `± ${micros(row.precision_us)}` : DASH) },
  { id: "source", title: "Source", width: 8.6, isFixed: true, isLong: true, ...about("source"), value: (row) => row.source, text: (row) => row.source, search: (row) => row.source },
  { id: "wants", title: "Wants", width: 6, grows: true, ...about("wants"), isLong: true, value: (row) => row.wants.length, text: (row) => row.wants.join("; ") || DASH, search: (row) => row.wants.join("\n") },
  { id: "filters", title: "Filters", width: 3.8, end: true, ...about("acceptance filter"), value: (row) => row.filters.length, text: (row) => (row.filters.length ? count(row.filters.length) : DASH) },
  { id: "uid", title: "Unique id", width: 9.3, isFixed: true, isLong: true, class: "mono", note: "The number that the node was made with, or that its participant chose.", docs: docsOf("node"), value: (row) => row.uid, text: (row) => row.uid || DASH, search: (row) => row.uid },
];

export default {
  id: "nodes",
  title: "Nodes",
  tables: ["sources", "nodes"],
  mount(root, ctx) {
    const { store, params } = ctx;
    const view = table({
      label: "Nodes", word: "node", columns: columns(store), filter: params.filter, detail: (key, row) => new NodeDetail(row), tone: (row) => (row.is_well ? "" : "bad"),
      filters: [{ id: "unwell", label: "only not well", note: "Nodes whose state is not as it should be", test: (row) => !row.is_well }],
      onFilter: (filter) => ctx.setParams({ filter }), empty: "No source has told of a node.",
    });
    root.append(view);
    if (store.has("nodes")) view.setRows(store.rows("nodes"));
    if (params.of) view.reveal(params.of);
    const all = () => ({ set: new Set(store.rows("nodes").keys()), gone: new Set() });
    const timer = setInterval(() => { if (store.has("nodes")) view.change(all(), store.rows("nodes")); }, 1000); // so that "ago" goes on
    return {
      update: ({ nodes }) => nodes && view.change(nodes, store.rows("nodes")),
      unmount: () => { clearInterval(timer); view.destroy(); },
    };
  },
};

// Times are in the source's own time: a recording or a simulation has another one than this computer.
function sourceNow(store, row) {
  const source = store.rows("sources").get(row.source);
  return isNumber(source?.time_ms) && source.kind !== "bus" ? source.time_ms : store.now();
}

function drawNodeState(chip, row) {
  if (!setText(chip, `${row.is_well ? (row.state === "up" ? "●" : "◌") : "✕"} ${row.state}`)) return;
  setAttribute(chip, "class", `chip ${row.is_well ? (row.state === "up" ? "state-good" : "") : "state-bad"}`);
  setAttribute(chip, "title", explain(row.state) || null);
}

/** An opened node: where it runs, what it wants, and its acceptance filters as bits. */
class NodeDetail {
  constructor(row) {
    this.facts = FACTS.map(([name, word, read]) => ({ read, cell: h("dd"), head: h("dt", {}, word ? term(word, name) : name) }));
    this.wants = h("ul", { class: "wants" });
    this.filters = h("div");
    this.element = h("div", {}, h("dl", { class: "facts" }, this.facts.map(({ head, cell }) => h("div", {}, head, cell))),
      h("h3", { class: "detail-head" }, term("wants", "Wants")), this.wants, h("h3", { class: "detail-head" }, term("acceptance filter", "Acceptance filters")), this.filters);
    this.update(row);
  }

  update(row) {
    for (const { read, cell } of this.facts) setText(cell, read(row));
    if (row.wants !== this.row?.wants) this.wants.replaceChildren(...(row.wants.length ? row.wants.map((text) => h("li", {}, h("code", {}, text))) : [h("li", { class: "note" }, "nothing that is known")]));
    if (row.filters !== this.row?.filters) this.filters.replaceChildren(...drawFilters(row.filters));
    this.row = { wants: row.wants, filters: row.filters };
  }
}

function drawFilters(filters) {
  if (!filters.length) return [h("p", { class: "note" }, "None: it takes part without a CAN controller, or they are not known.")];
  return [h("p", { class: "note" }, `A frame is taken if it passes one of ${plural(filters.length, "filter")}.`), bitsLegend(),
    ...filters.map(([value, mask], n) => h("div", { class: "bits-line" }, h("span", { class: "bits-label" }, `filter ${n + 1}`), drawBits({ value, mask, width: 29, parts: FILTER_PARTS, label: `filter ${n + 1}` })))];
}

const FACTS = [
  ["Unique id", null, (row) => row.uid || DASH], ["Host", null, (row) => row.host || DASH], ["Process", null, (row) => (isNumber(row.pid) ? String(row.pid) : DASH)], ["Program", null, (row) => row.program || DASH],
  ["Role", null, (row) => row.role || DASH], ["Last heard", null, (row) => (isNumber(row.heard_ms) ? date(row.heard_ms, 3) : DASH)], ["Clock offset", "offset", (row) => signed(row.offset_us)],
  ["Precision", "precision", (row) => (isNumber(row.precision_us) ? `± ${micros(row.precision_us)}` : DASH)],
];
