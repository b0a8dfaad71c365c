// Lake: its tables, its last commits, and who follows it.
import { h } from "../components/dom.js";
import { aligned, date, isNumber, number, plural, short } from "../components/format.js";
import { docsOf, explain, term } from "../terms.js";
import { about, counter, followTable } from "./table-view.js";

const text = (id, title, width, more = {}) => ({ id, title, width, isLong: true, ...more });
const dated = (id, title, note) => ({ id, title, unit: "UTC", width: 9, class: "date", note, text: (row) => date(row[id]).slice(0, 16) });
const source = () => text("source", "Lake", 8, { isFixed: true, ...about("lake") });
const counted = (id, title, note, more = {}) => counter(id, title, { width: 6.5, note, docs: null, ...more });

const PARTS = [
  {
    name: "lake_tables", title: "Tables", word: "table", empty: "The lake has no tables yet.",
    columns: () => [
      text("table", "Table", 10, { isFixed: true, note: "One per family of types." }), counted("events", "Events", "Events in it."),
      counted("files", "Files", "Valid files; many small ones are slow, and compacting makes them fewer.", { width: 4.5 }),
      { id: "bytes", title: "Size", unit: "MB", width: 6, end: true, note: "Of its valid files.", text: (row) => aligned(row.bytes / 1e6, 3) },
      dated("first_ms", "First event", "The earliest time of an event."), dated("last_ms", "Last event", "The latest time of an event."),
      text("types", "Types", 12, { grows: true, ...about("type"), value: (row) => row.types.length, text: (row) => row.types.join(", ") || "none" }), source(),
    ],
  },
  {
    name: "lake_followers", title: "Streams, inboxes and derived tables", word: "follower", empty: "Nobody follows the lake.", sort: { id: "behind", down: true },
    columns: () => [
      text("name", "Name", 10, { isFixed: true, ...about("follower") }), text("kind", "Kind", 6, { note: "A stream, an inbox or a derived table.", docs: docsOf("follower") }),
      counted("behind", "Behind", explain("behind"), { docs: docsOf("behind"), tone: "warn" }), counted("version", "Version", "The last commit that it has taken.", { docs: docsOf("commit") }),
      counted("events", "Events", "Events that it has taken."), text("note", "Note", 16, { grows: true }), source(),
    ],
    tone: (row) => (row.behind > 10 ? "warn" : ""),
  },
  {
    name: "lake_commits", title: "Last commits", word: "commit", empty: "The lake has no commits.", sort: { id: "version", down: true },
    columns: () => [
      text("version", "Version", 10, { isFixed: true, note: explain("commit"), docs: docsOf("commit") }), dated("at_ms", "When", "When it was committed."),
      text("what", "What", 8, { note: "What was done." }), counted("events", "Events", "Events that it added."), text("note", "Note", 16, { grows: true }), source(),
    ],
  },
];

export default {
  id: "lake",
  title: "Lake",
  tables: ["sources", ...PARTS.map((part) => part.name)],
  mount(root, ctx) {
    const lead = h("p", { class: "lead" });
    root.append(lead);
    const parts = PARTS.map((part) => mountPart(root, part, ctx));
    const update = (changes) => {
      for (const part of parts) part.update(changes);
      if (ctx.store.has("lake_tables")) drawLead(lead, ctx.store.rows("lake_tables"));
    };
    update({});
    return { update, unmount: () => parts.forEach((part) => part.unmount()) };
  },
};

function mountPart(root, { name, title, columns, ...options }, ctx) {
  const part = followTable(name, ctx, { label: title, columns: columns(), isShort: true, filterFrom: 10, ...options });
  root.append(h("section", { class: "section" }, h("h2", {}, title), part.element));
  return part;
}

function drawLead(lead, tables) {
  const rows = [...tables.values()], sum = (name) => rows.reduce((total, row) => total + (isNumber(row[name]) ? row[name] : 0), 0);
  lead.replaceChildren(`${short(sum("events"))} ${sum("events") === 1 ? "event" : "events"} in ${plural(rows.length, "table")}, ${plural(sum("files"), "file")}, ${number(sum("bytes") / 1e6)} MB. What a `, term("lake"), " is.");
}
