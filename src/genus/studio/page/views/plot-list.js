// The attributes that can be drawn, by type: drag one onto a plot, or choose it.
import { h, clear } from "../components/dom.js";
import { isPlotted } from "./plot-data.js";

const MOST_SHOWN = 400;

export const SERIES_TYPE = "text/genus-series"; // of dragged data

/** Lets an element be dragged as a series. */
export function letDrag(element, name) {
  element.addEventListener("dragstart", ({ dataTransfer }) => {
    [SERIES_TYPE, "text/plain"].forEach((type) => dataTransfer.setData(type, name));
    dataTransfer.effectAllowed = "copy";
  });
}

/** The list with a filter. `onAdd(name)` is called with a series such as "Loop.speed". */
export function attributeList({ onAdd }) {
  const filter = h("input", { class: "input", type: "search", placeholder: "Filter", "aria-label": "filter the attributes", oninput: () => write() });
  const found = h("div", { class: "plot-types" });
  const element = h("details", { class: "card plot-list", open: matchMedia("(min-width: 861px)").matches }, h("summary", {}, "Attributes"), filter, found);
  let types = {};

  const chip = (type, attribute) => {
    const name = `${type}.${attribute.name}`;
    const button = h("button", { type: "button", class: "plot-chip", draggable: "true", title: `${name}: ${attribute.type}; drag it onto a plot, or press it`, onclick: () => onAdd(name) },
      attribute.name, attribute.unit ? h("small", {}, attribute.unit) : null);
    letDrag(button, name);
    return h("li", {}, button);
  };

  const write = () => {
    const wanted = filter.value.trim().toLowerCase();
    let left = MOST_SHOWN;
    const groups = [];
    for (const type of Object.keys(types).sort()) {
      const fitting = types[type].attributes.filter((attribute) => isPlotted(attribute.type) && `${type}.${attribute.name}`.toLowerCase().includes(wanted)).slice(0, left);
      left -= fitting.length;
      if (fitting.length) groups.push(h("div", { class: "plot-type" }, h("h2", {}, type), h("ul", {}, fitting.map((attribute) => chip(type, attribute)))));
    }
    clear(found).append(...groups);
    if (!groups.length) found.append(h("p", { class: "note" }, wanted ? "No attribute fits." : "No type has an attribute that is a number."));
    if (left <= 0) found.append(h("p", { class: "note" }, `Only ${MOST_SHOWN} are listed: filter them.`));
  };

  return { element, draw(rows) { types = rows; write(); } };
}
