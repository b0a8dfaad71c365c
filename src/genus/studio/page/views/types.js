// Types: the tree with rates and last events, and codes if they are asked for; the chosen type in full; what changed in the catalog.
import { h, clear, setText, setAttribute } from "../components/dom.js";
import { count, plural, rate, time } from "../components/format.js";
import { filterInput } from "../components/table.js";
import { attributesOf, drawPrimes, drawTags, drawTypeTree, layTypes, treeLegend } from "../components/tree.js";
import { term } from "../terms.js";

const SHOWN_CHANGES = 5;
const CHANGE_MARKS = { added: ["new", "state-good"], refused: ["refused", "state-bad"] };

class TypesView {
  constructor(root, ctx) {
    this.ctx = ctx;
    this.filterText = ctx.params.filter ?? "";
    this.hasCodes = ctx.params.codes === "1";
    this.chosen = ctx.params.of ?? null;
    this.card = null;
    this.changed = new Map();
    this.readChanges();
    this.build(root);
    this.update({ types: { set: new Set(this.rows.keys()), gone: new Set() }, type_changes: true });
    if (this.chosen) this.show(this.chosen, true);
  }

  get rows() {
    return this.ctx.store.rows("types");
  }

  build(root) {
    const input = filterInput("Filter types", this.filterText, (text) => this.setFilter(text));
    this.counted = h("span", { class: "counted", role: "status" });
    this.tree = drawTypeTree(this.rows, {
      isLive: true, isSorted: true, hasCodes: this.hasCodes, label: "Event types", onChoose: (name) => this.show(name, false), mark: (name) => this.changed.get(name),
      onDraw: (shown, all) => setText(this.counted, shown === all ? plural(all, "type") : `${shown} of ${plural(all, "type")}`),
    });
    const button = (words, act) => h("button", { type: "button", class: "button small", onclick: act }, words);
    this.changes = h("details", { class: "type-changes", hidden: true });
    this.panel = h("aside", { class: "card type-panel", "aria-label": "The chosen type", hidden: true });
    this.loading = h("p", { class: "loading" }, "Loading …");
    this.heads = h("div", { class: "type-heads", "aria-hidden": "true" }, ["Type", "Rate /s", "Last event", "Code", "Event tag"].map((word) => h("span", {}, word)));
    this.codes = h("div", { class: "type-codes" }, h("p", { class: "lead" }, "The ", term("code"), " of a type is a product of primes: one division tells whether a type is below another. The ", term("event tag"),
      " is the number of a type on a CAN bus: a controller that compares the fixed bits takes a type and all below it, and nothing else."), treeLegend());
    this.switch = button("codes and event tags", () => this.showCodes(!this.hasCodes));
    this.body = h("div", { class: "types-body" }, h("div", { class: "card types-tree" }, this.heads, this.tree), this.panel);
    root.append(h("div", { class: "toolbar", role: "search" }, input, button("open all", () => this.tree.openAll(true)), button("close all", () => this.tree.openAll(false)), this.switch, this.counted), this.codes,
      this.changes, this.loading, this.body);
    this.showCodes(this.hasCodes);
    if (this.filterText) this.tree.filter(this.filterText);
  }

  showCodes(hasCodes) {
    this.hasCodes = hasCodes;
    this.codes.hidden = !hasCodes;
    setAttribute(this.switch, "aria-pressed", String(hasCodes));
    this.heads.classList.toggle("no-codes", !hasCodes);
    this.tree.showCodes(hasCodes);
    this.ctx.setParams({ codes: hasCodes ? "1" : "" });
  }

  setFilter(text) {
    this.tree.filter(text);
    this.ctx.setParams({ filter: text });
  }

  update(changes) {
    const isKnown = this.ctx.store.has("types");
    this.loading.hidden = isKnown;
    this.body.hidden = !isKnown;
    if (changes.type_changes) this.drawChanges();
    if (!changes.types) return;
    this.tree.update(this.rows, changes.types.set);
    if (this.wanted && this.rows.has(this.wanted)) this.show(this.wanted, true);
    if (this.chosen && changes.types.set.has(this.chosen)) this.drawLive();
  }

  // What changed in the catalog
  readChanges() {
    const rows = [...this.ctx.store.rows("type_changes").values()].sort((a, b) => b.at_ms - a.at_ms);
    const fresh = new Map(rows.map((row) => [row.type, CHANGE_MARKS[row.what.split(" ")[0]] ?? ["changed", "state-good"]]).reverse()); // the last one counts
    const isOther = fresh.size !== this.changed.size;
    this.changed = fresh;
    return [rows, isOther];
  }

  drawChanges() {
    const [rows, isOther] = this.readChanges();
    this.changes.hidden = !rows.length;
    const item = (row) => h("li", {}, h("time", {}, time(row.at_ms)), " ", h("a", { href: this.ctx.href("types", { of: row.type }), onclick: (event) => { event.preventDefault(); this.show(row.type, true); } }, row.type), ": ", row.what);
    clear(this.changes).append(h("summary", {}, `${plural(rows.length, "change")} of the catalog since Studio was opened`),
      h("ul", {}, rows.slice(0, SHOWN_CHANGES).map(item)), rows.length > SHOWN_CHANGES ? h("details", {}, h("summary", {}, `${rows.length - SHOWN_CHANGES} earlier`), h("ul", {}, rows.slice(SHOWN_CHANGES).map(item))) : "");
    this.changes.open ||= rows.length > 0 && isOther;
    if (isOther) this.tree.refresh();
  }

  // The chosen type
  show(name, isSought) {
    this.wanted = this.rows.has(name) ? null : name;
    if (this.wanted) return;
    this.chosen = name;
    this.ctx.setParams({ of: name });
    if (isSought) this.tree.choose(name);
    this.drawPanel();
  }

  hide() {
    this.panel.hidden = true;
    this.chosen = null;
    this.ctx.setParams({ of: "" });
  }

  drawPanel() {
    const row = this.rows.get(this.chosen), nodes = layTypes(this.rows), node = nodes.get(this.chosen);
    const link = (name) => (this.rows.has(name) ? h("button", { type: "button", class: "link", onclick: () => this.show(name, true) }, name) : name);
    const list = (names) => names.flatMap((name, n) => [n ? ", " : "", link(name)]);
    this.live = { rate: h("strong", {}), events: h("span", {}), last: h("code", {}), at: h("small", {}) };
    const fact = (name, ...content) => h("div", {}, h("dt", {}, name), h("dd", {}, ...content));
    this.panel.hidden = false;
    clear(this.panel).append(h("div", {},
      h("div", { class: "panel-head" }, h("h2", { class: "mono" }, this.chosen), row.kind && h("span", { class: "chip" }, term("kind")), h("button", { type: "button", class: "button small quiet", "aria-label": "close", onclick: () => this.hide() }, "✕")),
      row.deprecated !== null && h("p", { class: "verdict warn" }, h("span", { class: "sign", "aria-hidden": "true" }, "⚠"), ` deprecated: ${row.deprecated || "not to be used any more"}`),
      row.doc ? h("p", {}, row.doc) : "",
      h("dl", { class: "facts" }, fact("rate", this.live.rate, " ", this.live.events), fact("below", row.parents.length ? list(row.parents) : "nothing"),
        fact(`${plural(node.children.length, "type")} below it`, node.children.length ? list(node.children.map((child) => child.name)) : "none"), row.family && fact(term("family"), link(row.family))),
      row.kind ? "" : [h("h3", {}, "Last event ", this.live.at), h("pre", { class: "type-event", tabindex: 0 }, this.live.last),
        h("p", { class: "toolbar" }, h("a", { class: "button small", href: this.ctx.href("events", { q: row.name || this.chosen, source: row.source }) }, "its events"), h("a", { class: "button small", href: this.ctx.href("channels", { filter: row.name || this.chosen }) }, "its channels"))],
      h("h3", {}, term("vector", "Attributes"), h("small", {}, " with their presence bits")), this.drawVector(),
      h("details", { open: this.hasCodes }, h("summary", {}, "Code and event tags"), h("h3", {}, term("code", "Code")), drawPrimes(node), h("h3", {}, term("event tag", "Event tags")), drawTags(row, Infinity))));
    this.drawLive();
  }

  drawVector() {
    const attributes = attributesOf(this.rows, this.chosen);
    if (!attributes.length) return h("p", { class: "note" }, "It declares no attributes.");
    const origin = (one) => (one.isOwn ? ["own", "itself"] : one.from ? ["inherited", one.from] : ["none", "never carried"]);
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Attributes of ${this.chosen}` }, h("table", { class: "table vector" },
      h("thead", {}, h("tr", {}, ["bit", "name", "type", "unit", "from"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, attributes.map((one) => {
        const [kind, words] = origin(one);
        return h("tr", { class: one.from ? null : "never" }, h("td", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), ` ${one.bit}`), h("th", { scope: "row", class: "mono" }, one.name), h("td", {}, one.type, one.required ? h("small", {}, " required") : ""), h("td", {}, one.unit ?? ""), h("td", {}, words));
      }))));
  }

  drawLive() {
    const row = this.rows.get(this.chosen);
    if (!row || !this.live) return;
    setText(this.live.rate, `${rate(row.rate)}/s`);
    setText(this.live.events, `${count(row.events)} so far`);
    setText(this.live.last, row.last || "none yet");
    setText(this.live.at, row.last_ms === null ? "" : time(row.last_ms, 3));
  }
}

export default { id: "types", title: "Types", tables: ["sources", "types", "type_changes"], mount: (root, ctx) => new TypesView(root, ctx) };
