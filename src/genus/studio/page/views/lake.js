// Lake: its tables, its last commits, and who follows it.
import { h } from "../components/dom.js";
import { DASH, bytes, count, date, isNumber, plural, short } from "../components/format.js";
import { table } from "../components/table.js";
import { docsOf, explain, term } from "../terms.js";

const about = (name) => ({ note: explain(name), docs: docsOf(name) });
const fixed = (id, title, width, more = {}) => ({ id, title, width, isLong: true, value: (row) => row[id], text: (row) => String(row[id] ?? "") || DASH, search: (row) => String(row[id] ?? ""), ...more });
const counted = (id, title, note, more = {}) => ({ id, title, width: 6.5, end: true, note, value: (row) => row[id], text: (row) => count(row[id]), ...more });
const dated = (id, title, note) => ({ id, title, width: 10.5, note: `${note} UTC.`, value: (row) => row[id], text: (row) => date(row[id]) });
const source = () => fixed("source", "Lake", 6, { isFixed: true, ...about("lake") });

const PARTS = [
  {
    name: "lake_tables", title: "Tables", word: "table", empty: "The lake has no tables yet.",
    columns: () => [
      fixed("table", "Table", 8, { isFixed: true, note: "One per family of types." }), source(), counted("events", "Events", "Events in it.", { width: 6.5 }), counted("files", "Files", "Valid files; many small ones are slow, and compacting makes them fewer.", { width: 4.5 }),
      { id: "bytes", title: "Size", width: 5, end: true, note: "Of its valid files.", value: (row) => row.bytes, text: (row) => bytes(row.bytes) },
      dated("first_ms", "First event", "The earliest time of an event."), dated("last_ms", "Last event", "The latest time of an event."),
      { id: "types", title: "Types", width: 12, isLong: true, ...about("type"), value: (row) => row.types.length, text: (row) => row.types.join(", ") || DASH, search: (row) => row.types.join("\n") },
    ],
  },
  {
    name: "lake_followers", title: "Streams, inboxes and derived tables", word: "follower", empty: "Nobody follows the lake.", sort: { id: "behind", down: true },
    columns: () => [
      fixed("name", "Name", 10, { isFixed: true, ...about("follower") }), source(), fixed("kind", "Kind", 6, { note: "A stream, an inbox or a derived table.", docs: docsOf("follower") }),
      counted("version", "Version", "The last commit that it has taken.", { docs: docsOf("commit") }), counted("behind", "Behind", explain("behind"), { docs: docsOf("behind"), tone: (row) => (row.behind > 0 ? "warn" : "") }),
      counted("events", "Events", "Events that it has taken."), fixed("note", "Note", 16),
    ],
    tone: (row) => (row.behind > 10 ? "warn" : ""),
  },
  {
    name: "lake_commits", title: "Last commits", word: "commit", empty: "The lake has no commits.", sort: { id: "version", down: true },
    columns: () => [
      counted("version", "Version", explain("commit"), { end: false, docs: docsOf("commit"), search: (row) => String(row.version), text: (row) => String(row.version) }), source(), dated("at_ms", "When", "When it was committed."),
      fixed("what", "What", 14, { note: "What was done." }), counted("events", "Events", "Events that it added.", { width: 7.5 }), fixed("note", "Note", 16),
    ],
  },
];

export default {
  id: "lake",
  title: "Lake",
  tables: ["sources", "lake_tables", "lake_commits", "lake_followers"],
  mount(root, ctx) {
    const { store, params } = ctx;
    const lead = h("p", { class: "lead" });
    root.append(lead);
    const parts = PARTS.map((part) => ({ name: part.name, view: mountPart(root, part, store) }));
    for (const { view } of parts) if (params.of) view.reveal(params.of);
    const tell = () => drawLead(lead, store.rows("lake_tables"));
    if (store.has("lake_tables")) tell();
    return {
      update: (changes) => {
        for (const { name, view } of parts) if (changes[name]) view.change(changes[name], store.rows(name));
        if (changes.lake_tables) tell();
      },
      unmount: () => { for (const { view } of parts) view.destroy(); },
    };
  },
};

function mountPart(root, part, store) {
  const id = `title-${part.name}`;
  const view = table({ label: part.title, word: part.word, columns: part.columns(), sort: part.sort, tone: part.tone, empty: part.empty, isShort: true, filterFrom: 10 });
  root.append(h("section", { class: "section", "aria-labelledby": id }, h("h2", { id }, part.title), view));
  if (store.has(part.name)) view.setRows(store.rows(part.name));
  return view;
}

function drawLead(lead, tables) {
  const rows = [...tables.values()], sum = (name) => rows.reduce((total, row) => total + (isNumber(row[name]) ? row[name] : 0), 0);
  lead.replaceChildren(`${short(sum("events"))} events in ${plural(rows.length, "table")}, ${plural(sum("files"), "file")}, ${bytes(sum("bytes"))}. What a `, term("lake"), " is.");
}
