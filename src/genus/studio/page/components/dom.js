// Builds elements. Every text becomes a text node, so data can never become markup.

const SVG_SPACE = "http://www.w3.org/2000/svg";

/** An element: h("a", {href: "#x", class: "chip", onclick: fn, style: {width: "3rem"}}, "text", child). */
export function h(tag, attributes, ...children) {
  return fillElement(document.createElement(tag), attributes, children);
}

/** An element of a picture: svg("rect", {x: 1, class: "frame"}). */
export function svg(tag, attributes, ...children) {
  return fillElement(document.createElementNS(SVG_SPACE, tag), attributes, children);
}

/** Remove all children; returns the node. */
export function clear(node) {
  node.replaceChildren();
  return node;
}

/** Write a text only if it is another one; returns whether it was. */
export function setText(node, text) {
  const known = node.firstChild;
  if (known && known === node.lastChild && known.nodeType === 3) {
    if (known.nodeValue === text) return false;
    known.nodeValue = text;
    return true;
  }
  if (!known && text === "") return false;
  node.textContent = text;
  return true;
}

/** Set, change or (null, undefined, false) remove an attribute, only if it is another value. */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** A button that copies what `read` gives (a text or a promise of it), and says so. */
export function copyButton(label, read) {
  const button = h("button", { type: "button", class: "button small", "aria-live": "polite" }, label);
  button.addEventListener("click", async () => {
    let done = "copied ✓";
    try {
      await navigator.clipboard.writeText(await read()); // there is one: Studio's pages are of this machine or have TLS
    } catch {
      done = "not copied";
    }
    setText(button, done);
    setTimeout(() => setText(button, label), 1500);
  });
  return button;
}

/** What the browser remembers under a name, which `value` changes; null if it knows nothing, or forbids it. */
export function remember(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch { return null; }
}

function fillElement(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) fillAttribute(element, name, value);
  appendAll(element, children);
  return element;
}

function fillAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "style") {
    for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
  } else if (name.startsWith("on") && typeof value === "function") {
    element.addEventListener(name.slice(2).toLowerCase(), value);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

function appendAll(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) appendAll(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}
