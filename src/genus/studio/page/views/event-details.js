// All values of one event, and which parts of the subscription it fails.
import { h, clear, copyButton } from "../components/dom.js";
import { date, visibleText } from "../components/format.js";
import { attributesOf, eventJson, foundText } from "./event-log.js";

/**
 * The panel of an event's details. `types()` gives the rows of the table `types`, as far as they are known; `plotOf(type, name)`
 * gives the address of a plot, and `onClose()` is called when the panel is closed.
 */
export function eventDetails({ types, plotOf, onClose }) {
  const element = h("section", { class: "card event-details", "aria-label": "details of the event", tabindex: "-1", hidden: true });
  const close = () => {
    if (element.hidden) return;
    element.hidden = true;
    clear(element);
    onClose();
  };
  element.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.preventDefault(); close(); } });
  return {
    element, close,
    show(event) {
      clear(element).append(...contents(event, types(), plotOf, close));
      element.hidden = false;
      element.scrollTop = 0;
    },
  };
}

function contents(event, types, plotOf, close) {
  return [
    h("div", { class: "event-title" },
      h("h2", {}, event.type),
      copyButton("Copy as JSON", () => eventJson(event)),
      h("button", { type: "button", class: "button small", "aria-label": "close the details", onclick: close }, "✕")),
    h("dl", { class: "facts" },
      fact("time (UTC)", date(event.at_ms, 3)), fact("seen on", event.source), fact("publisher", event.publisher ?? "not known")),
    event.why ? reasons(event.why) : null,
    valueTable(event, types, plotOf),
  ].filter(Boolean);
}

function fact(name, text) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, text));
}

function reasons(why) {
  return h("div", { class: "event-why" }, h("h3", {}, "Why it does not match"),
    h("ul", {}, why.map((part) => h("li", { class: part.truth === "unknown" ? "warn" : "bad" },
      h("span", { class: "sign", "aria-hidden": "true" }, part.truth === "unknown" ? "?" : "✗"),
      h("div", {}, h("code", {}, part.stage === "where" ? part.part : `${part.stage} ${part.part}`), ` is ${part.truth}`, part.values ? h("small", {}, h("bdi", {}, visibleText(foundText(part)))) : null)))));
}

function valueTable(event, types, plotOf) {
  const units = new Map(attributesOf(types, event.type).map((attribute) => [attribute.name, attribute.unit]));
  const names = Object.keys(event.values);
  if (!names.length) return h("p", { class: "note" }, "It carries no attributes.");
  return h("table", { class: "table event-values" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "attribute"), h("th", { scope: "col" }, "value"), h("th", { scope: "col" }, h("span", { class: "spoken" }, "plot")))),
    h("tbody", {}, names.map((name) => h("tr", {},
      h("th", { scope: "row" }, name),
      h("td", {}, event.values[name] === "" ? h("span", { class: "event-value event-blank", title: "an empty text" }, '""') : h("bdi", { class: "event-value" }, visibleText(event.values[name], true)), units.get(name) ? h("small", {}, ` ${units.get(name)}`) : null),
      h("td", { class: "end" }, name in (event.numbers ?? {}) ? h("a", { href: plotOf(event.type, name), "aria-label": `plot ${name}` }, "Plot") : null)))));
}
