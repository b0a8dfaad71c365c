// Gateways: what crosses between networks, what does not and why, as a picture and as a table.
import { h } from "../components/dom.js";
import { count, rate } from "../components/format.js";
import { drawNetworks, sideState } from "../components/network.js";
import { term } from "../terms.js";
import { about, counter, factList, measure, named, stateColumn, tableView } from "./table-view.js";

const hasProblem = (row) => !row.is_connected || row.lost > 0 || row.refused > 0;
const COUNTERS = [
  ["crossed", "Crossed", "Events that were sent to this side."], ["wanted", "Wanted", "Events of other sides that this side wants."],
  ["lost", "Lost", undefined, "bad"], ["waiting", "Waiting", "Events that wait for this side, in the queue and in the spool."], ["spooled", "Spooled", undefined, "warn"],
  ["unwanted", "Unwanted", "Events of this side that no other one wants."], ["duplicates", "Duplicates"],
  ["limited", "Limited", undefined, "warn"], ["refused", "Refused", "Subscriptions of this side that scopes keep back.", "bad"],
];

const columns = () => [
  named("side", "To the side", (row) => [row.side, `${row.source} · ${row.address}`, `${row.side} of the gateway ${row.source}\n${row.address}`], { width: 12, ...about("gateway") }),
  stateColumn((row) => [row.health, { word: sideState(row) }], { width: 8.8, ...about("active") }),
  measure("rate", "Crossing", "/s", { width: 5.4, ...about("crossed") }),
  ...COUNTERS.map(([id, title, note, tone]) => counter(id, title, { width: 2.4 + 0.36 * title.length, tone, ...(note && { note }) })),
];
const FACTS = [
  ["Gateway", "gateway", (row) => row.source], ["Side", null, (row) => row.side], ["Address", null, (row) => row.address], ["State", null, sideState], ["Crossing", "crossed", (row) => `${rate(row.rate)}/s`],
  ...COUNTERS.map(([id, title]) => [title, id, (row) => count(row[id])]),
  ["Heard", null, (row) => count(row.heard)], ["Out of scope", "out of scope", (row) => count(row.out_of_scope)], ["Subscriptions", "subscription", (row) => count(row.asked)],
];

/** The picture above the table. */
function networks({ store }) {
  const picture = drawNetworks(store.rows("gateways"));
  const element = h("figure", { class: "network-figure", hidden: true }, h("figcaption", {}, "Networks and what crosses between them"), picture,
    h("p", { class: "note" }, "An arrow shows the events a second that a ", term("gateway"), " takes to a network: those that somebody there ", term("wanted", "wants"), ". A dashed line is not connected; what is wanted there is ", term("spooled"), "."));
  const update = () => { element.hidden = !store.rows("gateways").size; picture.update(store.rows("gateways")); };
  update();
  return { element, update: ({ gateways }) => gateways && update() };
}

export default tableView("gateways", "Gateways", () => ({
  word: "side", columns: columns(), tone: (row) => (hasProblem(row) ? "bad" : ""), isShort: true, detail: (key, row) => { const element = factList(FACTS, row); return { element, update: element.update }; },
  filters: [{ id: "problems", label: "only with problems", note: "Sides that are not connected, lost events or refused subscriptions", test: hasProblem }],
  empty: "No source is a gateway. Open one with its control address: genus studio gateway:...",
}), networks);
