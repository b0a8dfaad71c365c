// A small box below a button: closes by Escape, by a click elsewhere, and when the button is pressed again.
import { h } from "../components/dom.js";

/** Show children in a box below a button; returns a function that closes it. */
export function showPopover(button, label, children) {
  const wasHere = button.getAttribute("aria-expanded") === "true";
  if (wasHere) return () => {};
  const box = h("div", { class: "popover card", popover: "auto", role: "dialog", "aria-label": label }, children);
  const close = () => box.hidePopover();
  box.addEventListener("toggle", (event) => {
    if (event.newState !== "closed") return;
    box.remove();
    setTimeout(() => button.setAttribute("aria-expanded", "false")); // after the press of the button that closed it
    ["resize", "hashchange"].forEach((name) => removeEventListener(name, close));
  });
  ["resize", "hashchange"].forEach((name) => addEventListener(name, close));
  button.setAttribute("aria-expanded", "true");
  document.body.append(box);
  box.showPopover();
  const at = button.getBoundingClientRect();
  box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(8, Math.min(at.bottom + 4, innerHeight - box.offsetHeight - 8))}px`;
  box.querySelector("a, button, input:not(:disabled)")?.focus();
  return close;
}
