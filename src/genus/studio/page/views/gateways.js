// Gateways: what crosses between networks, what does not and why, as a picture and as a table.
import { h } from "../components/dom.js";
import { count, rate } from "../components/format.js";
import { drawNetworks, sideState } from "../components/network.js";
import { table } from "../components/table.js";
import { docsOf, explain, term } from "../terms.js";

const about = (name) => ({ note: explain(name), docs: docsOf(name) });
const counter = (id, title, more = {}) => ({ id, title, width: 6, end: true, value: (row) => row[id], text: (row) => count(row[id]), ...about(id), ...more });
const isTroubled = (row) => !row.is_connected || row.lost > 0 || row.refused > 0;
const STATE_TONES = { active: "state-good", "standing by": "", "not connected": "state-bad" };
const STATE_SIGNS = { active: "●", "standing by": "◌", "not connected": "✕" };

const columns = () => [
  {
    id: "side", title: "To the side", width: 14, isFixed: true, ...about("gateway"), value: (row) => `${row.source} ${row.side}`, search: (row) => `${row.source}\n${row.side}\n${row.address}`,
    make: (cell) => cell.append(h("strong", { class: "weak" }), h("small", {})),
    write: (cell, row) => {
      cell.firstChild.textContent = row.side;
      cell.lastChild.textContent = ` ${row.source}`;
      cell.title = `${row.side} of the gateway ${row.source}\n${row.address}`;
    },
  },
  {
    id: "state", title: "State", width: 9.75, ...about("active"), value: sideState, search: sideState,
    make: (cell) => cell.append(h("span", { class: "chip" })),
    write: (cell, row) => {
      const state = sideState(row);
      cell.firstChild.textContent = `${STATE_SIGNS[state]} ${state}`;
      cell.firstChild.className = `chip ${STATE_TONES[state]}`;
    },
  },
  { id: "rate", title: "Crossing", width: 6, end: true, ...about("crossed"), value: (row) => row.rate, text: (row) => `${rate(row.rate)}/s` },
  counter("crossed", "Crossed", { note: "Events that were sent to this side." }),
  counter("wanted", "Wanted", { note: "Events of other sides that this side wants." }),
  counter("unwanted", "Unwanted", { note: "Events of this side that no other one wants." }),
  counter("duplicates", "Duplicates"),
  counter("spooled", "Spooled", { tone: (row) => (row.spooled > 0 ? "warn" : "") }),
  counter("waiting", "Waiting", { note: "Events that wait for this side, in the queue and in the spool." }),
  counter("limited", "Limited", { tone: (row) => (row.limited > 0 ? "warn" : "") }),
  counter("lost", "Lost", { tone: (row) => (row.lost > 0 ? "bad" : "") }),
  counter("out_of_scope", "Out of scope", { width: 7.5, ...about("out of scope") }),
  counter("heard", "Heard", { note: "Events that came from this side." }),
  counter("asked", "Asked", { note: "Subscriptions of this side." }),
  counter("refused", "Refused", { note: "Subscriptions of this side that scopes keep back.", tone: (row) => (row.refused > 0 ? "bad" : "") }),
  { id: "address", title: "Address", width: 16, value: (row) => row.address, text: (row) => row.address, isLong: true, class: "mono" },
];

export default {
  id: "gateways",
  title: "Gateways",
  tables: ["sources", "gateways"],
  mount(root, ctx) {
    const { store, params } = ctx, picture = drawNetworks(store.rows("gateways"));
    const figure = h("figure", { class: "network-figure" }, h("figcaption", {}, "Networks and what crosses between them"), picture,
      h("p", { class: "note" }, "An arrow shows the events a second that a ", term("gateway"), " takes to a network: those that somebody there ", term("wanted", "wants"), ". A dashed line is not connected; what is wanted there is ", term("spooled"), "."));
    const list = table({
      label: "Sides of gateways", word: "side", columns: columns(), filter: params.filter, tone: (row) => (isTroubled(row) ? "bad" : ""), isShort: true,
      filters: [{ id: "troubled", label: "only with trouble", note: "Sides that are not connected, lost events or refused subscriptions", test: isTroubled }],
      onFilter: (filter) => ctx.setParams({ filter }), empty: "No source is a gateway. Open one with its control address: genus studio gateway:...",
    });
    root.append(figure, h("div", { class: "section" }, list));
    const draw = () => {
      const rows = store.rows("gateways");
      figure.hidden = !rows.size;
      picture.update(rows);
    };
    let isKnown = store.has("gateways");
    if (isKnown) list.setRows(store.rows("gateways"));
    draw();
    if (params.of) list.reveal(params.of);
    return {
      update({ gateways }) {
        if (!gateways) return;
        draw();
        if (isKnown) list.change(gateways, store.rows("gateways"));
        else list.setRows(store.rows("gateways"));
        isKnown = true;
      },
      unmount: () => list.destroy(),
    };
  },
};
