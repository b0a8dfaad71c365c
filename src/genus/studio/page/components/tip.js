// A small text at the pointer: of elements with data-tip, and of pictures that tell what is at a place.

const tipSources = new WeakMap();
let tipBox = null;

/** Lets an element say what is at a place of it: `tell(x, y)` gives a text, or "" for none. */
export function tellAt(element, tell) {
  enableTips();
  tipSources.set(element, tell);
  element.toggleAttribute("data-told", true);
}

/** Shows tips from now on. Elements with `data-tip` show their text. */
export function enableTips() {
  if (tipBox) return;
  tipBox = document.body.appendChild(document.createElement("div"));
  tipBox.className = "tip";
  tipBox.hidden = true;
  tipBox.setAttribute("aria-hidden", "true");
  ["pointermove", "pointerdown"].forEach((name) => document.addEventListener(name, showTipOf));
  document.addEventListener("scroll", hideTip, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  document.addEventListener("pointerleave", hideTip);
}

function hideTip() {
  tipBox.hidden = true;
}

function tipTextOf(event) {
  const over = event.target instanceof Element ? event.target.closest("[data-tip], [data-told]") : null;
  if (!over) return "";
  if (over.dataset.tip !== undefined) return over.dataset.tip;
  const box = over.getBoundingClientRect();
  return tipSources.get(over)?.(event.clientX - box.left, event.clientY - box.top) ?? "";
}

function showTipOf(event) {
  const text = tipTextOf(event);
  tipBox.hidden = !text;
  if (!text) return;
  tipBox.textContent = text;
  const left = Math.min(event.clientX + 14, window.innerWidth - tipBox.offsetWidth - 8);
  const isLow = event.clientY + 18 + tipBox.offsetHeight > window.innerHeight;
  tipBox.style.left = `${Math.max(left, 8)}px`;
  tipBox.style.top = `${isLow ? event.clientY - tipBox.offsetHeight - 10 : event.clientY + 18}px`;
}
