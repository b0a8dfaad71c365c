// The form that publishes an event; shown only if Studio was started with --allow-publish.
import { h, clear, setText } from "../components/dom.js";
import { CONTEXT, attributesOf } from "./event-log.js";

/** The form and the button that opens it, as {element, opener}. `types()` promises the rows of the table `types`, `sources()` gives names, `publish(body)` promises the answer. */
export function publishForm({ types, sources, publish }) {
  const source = h("select", { class: "input", "aria-label": "publish on" }), type = h("select", { class: "input", "aria-label": "type of the event" });
  const fields = h("div", { class: "publish-fields" });
  const said = h("p", { class: "publish-said", role: "status" });
  const form = h("form", { class: "publish-form", novalidate: true },
    h("div", { class: "toolbar" }, h("label", { class: "field" }, "on", source), h("label", { class: "field" }, "type", type)),
    fields, h("div", { class: "toolbar" }, h("button", { class: "button primary" }, "Publish"), said));
  const element = h("section", { class: "card publish", id: "publish", "aria-label": "publish an event", hidden: true }, form);
  const opener = h("button", { type: "button", class: "button", "aria-expanded": "false", "aria-controls": "publish", onclick: () => toggle() }, "Publish an event");
  let rows = {};

  const drawFields = () => clear(fields).append(...ownFirst(attributesOf(rows, type.value)).map(attributeField));
  const refresh = async () => {
    rows = await types();
    fillSelect(source, sources());
    fillSelect(type, Object.keys(rows).filter((name) => !rows[name].kind && name !== "Event").sort());
    drawFields();
  };
  const say = (look, text) => {
    said.className = `publish-said ${look}`;
    setText(said, text);
  };
  const toggle = async () => {
    element.hidden = !element.hidden;
    opener.setAttribute("aria-expanded", String(!element.hidden));
    if (element.hidden) return;
    await refresh().catch((problem) => say("bad", `✗ ${problem.message}`));
    type.focus();
  };
  type.addEventListener("change", drawFields);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = Object.fromEntries([...fields.querySelectorAll("input, select")].filter((input) => input.value !== "").map((input) => [input.name, input.value]));
    try {
      await publish({ source: source.value, type: type.value, values });
      say("good", `✓ published ${type.value} on ${source.value}`);
    } catch (problem) {
      say("bad", `✗ ${problem.message}`);
    }
  });
  return { element, opener };
}

/** Write the options of a select anew, and keep what is chosen. */
function fillSelect(select, names) {
  const chosen = select.value;
  clear(select).append(...names.map((name) => h("option", { value: name }, name)));
  if (names.includes(chosen)) select.value = chosen;
}

function ownFirst(attributes) {
  return [...attributes].sort((a, b) => CONTEXT.indexOf(a.name) - CONTEXT.indexOf(b.name));
}

function attributeField(attribute) {
  const typed = [attribute.type, attribute.unit && `[${attribute.unit}]`].filter(Boolean).join(" ");
  const note = attribute.required ? typed : `${typed}, may be absent`;
  const options = { class: "input", name: attribute.name, autocomplete: "off", "aria-required": attribute.required ? "true" : null };
  const choices = attribute.type === "bool" ? ["true", "false"] : attribute.type.includes("|") ? attribute.type.split("|") : null;
  return h("label", { class: "publish-field" }, h("span", {}, attribute.name, attribute.required ? h("span", { class: "bad-value", title: "required" }, " *") : null),
    choices ? h("select", options, ["", ...choices].map((value) => h("option", { value }, value))) : h("input", options), h("small", {}, note));
}
