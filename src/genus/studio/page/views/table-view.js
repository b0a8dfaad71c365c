// What views that are tables share: columns, the facts of an opened row, and the way from the store to the table.
import { h, setText, setAttribute } from "../components/dom.js";
import { aligned, ago, count, isNumber } from "../components/format.js";
import { sparkline } from "../components/spark.js";
import { drawState, stateMark } from "../components/state.js";
import { LiveTable } from "../components/table.js";
import { docsOf, explain, term } from "../terms.js";

const FEW_ROWS = 6;
const OWN_TIME_MS = 10_000; // a source that is so far off this computer's time has a time of its own

/** The explanation of a word, for a column. */
export const about = (name) => ({ note: explain(name), docs: docsOf(name) });

/** A column of whole numbers; with `tone`, one that is not zero is "bad" or "warn". */
export function counter(id, title, { tone, ...more } = {}) {
  return { id, title, width: 4.6, end: true, text: (row) => count(row[id]), tone: tone && ((row) => (row[id] > 0 ? tone : "")), ...about(id), ...more };
}

/** A column of numbers with decimals, its points below each other. */
export function measure(id, title, unit, { digits = 2, ...more } = {}) {
  return { id, title, unit, width: 4.6, end: true, text: (row) => aligned(row[id], digits), ...more };
}

/** A column with a name and, smaller, what belongs to it. */
export function named(id, title, read, more = {}) {
  return {
    id, title, width: 12, isFixed: true, value: (row, key) => read(row, key).join(" "), search: (row, key) => read(row, key).join("\n"), make: (cell) => cell.append(h("strong", { class: "weak" }), h("small")),
    write: (cell, row, key) => {
      const [name, note, tip = `${name}\n${note}`] = read(row, key);
      const [isOther, isOtherToo] = [setText(cell.firstChild, name), setText(cell.lastChild, note)];
      if (isOther || isOtherToo) cell.title = tip;
    },
    ...more,
  };
}

/** A column with the state of a row; `read(row)` gives the state and what drawState() takes. */
export function stateColumn(read, more = {}) {
  const text = (row) => { const [state, { word = state }] = read(row); return `${word} ${state}`; };
  return { id: "state", title: "State", width: 7.6, value: text, search: text, class: "tall state-cell", make: (cell) => cell.append(stateMark()), write: (cell, row) => drawState(cell.firstChild, ...read(row)), ...more };
}

/** The rates of the last minute as a line. */
export function ratesColumn() {
  return {
    id: "rates", title: "Last minute", unit: "/s", width: 6.6, value: null, search: null, note: "The rate of each of the last 60 seconds, from zero to its highest, which stands beside it.", class: "spark-cell",
    make: (cell) => cell.append(sparkline([], { width: 64, height: 24 })), write: (cell, row) => cell.firstChild.update(row.rates),
  };
}

/** A column with a number and a bar of its share of 1; `read(row)` gives the text, the share (null: no bar) and a tone. */
export function gaugeColumn(id, title, read, more = {}) {
  const make = (cell) => cell.append(h("span"), h("span", { class: "gauge", "aria-hidden": "true" }, h("i")));
  const write = ({ firstChild: words, lastChild: gauge }, row) => {
    const [text, share, tone] = read(row);
    if (!setText(words, text)) return;
    setAttribute(words, "class", tone === "over" ? "bad-value" : null);
    gauge.hidden = !isNumber(share);
    setAttribute(gauge, "class", `gauge ${tone ?? ""}`);
    gauge.firstChild.style.transform = `scaleX(${Math.min(1, share ?? 0).toFixed(3)})`;
  };
  return { id, title, width: 5.4, class: "tall", search: null, make, write, ...more };
}

/** How long ago something was, in the time of the row's source: a recording or a simulation has another one than this computer. */
export function agoColumn(id, title, store, more = {}) {
  return { id, title, unit: "ago", width: 5.4, end: true, text: (row) => ago(row[id], sourceNow(store, row)).replace(/ ago$/, ""), ...more };
}

function sourceNow(store, row) {
  const own = store.rows("sources").get(row.source)?.time_ms;
  return isNumber(own) && Math.abs(own - store.now()) > OWN_TIME_MS ? own : store.now();
}

/** Facts of a row, [[name, word of the documentation or null, read(row)], ...], as an element with update(row). */
export function factList(facts, row) {
  const cells = facts.map(([, , read]) => [h("dd"), read]);
  const element = h("dl", { class: "facts" }, facts.map(([name, word], n) => h("div", {}, h("dt", {}, word ? term(word, name) : name), cells[n][0])));
  element.update = (next) => cells.forEach(([cell, read]) => setText(cell, read(next)));
  element.update(row);
  return element;
}

/** A table that follows one of the store's; `name` is both what is shown and what is watched. Gives {element, update(changes), unmount()}. */
export function followTable(name, ctx, options) {
  const { store, params } = ctx, table = new LiveTable(options);
  if (store.has(name)) table.setRows(store.rows(name));
  if (params.of) table.reveal(params.of);
  return { element: table.element, update: (changes) => changes[name] && table.change(changes[name], store.rows(name)), unmount: () => table.destroy() };
}

/** A view that is a table; `options(ctx)` are those of the table, and `head(ctx)`, if given, {element, update()} above it. */
export function tableView(id, title, options, head = () => null) {
  return {
    id, title, tables: ["sources", id],
    mount(root, ctx) {
      const above = head(ctx);
      const { element, update, unmount } = followTable(id, ctx, { label: title, filter: ctx.params.filter, onFilter: (filter) => ctx.setParams({ filter }), fewAre: FEW_ROWS, ...options(ctx) });
      root.append(...(above ? [above.element] : []), element);
      return { unmount, update: (changes) => { update(changes); above?.update(changes); } };
    },
  };
}
