// A small box below a button: closes by Escape, by a click elsewhere, and when the button is pressed again.
import { h } from "../components/dom.js";

let shown = null;

/** Show children in a box below a button; returns a function that closes it. */
export function showPopover(button, label, children) {
  const wasHere = shown?.button === button;
  shown?.close();
  if (wasHere) return () => {};
  const box = h("div", { class: "popover card", role: "dialog", "aria-label": label }, children);
  const close = () => {
    if (shown?.box !== box) return;
    shown = null;
    const hadFocus = box.contains(document.activeElement);
    box.remove();
    button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", onPointer, true);
    removeEventListener("resize", close);
    removeEventListener("hashchange", close);
    if (hadFocus && button.isConnected) button.focus();
  };
  const onPointer = (event) => { if (!box.contains(event.target) && !button.contains(event.target)) close(); };
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    event.preventDefault();
    close();
  });
  box.addEventListener("focusout", (event) => { if (event.relatedTarget && !box.contains(event.relatedTarget)) close(); });
  document.body.append(box);
  place(box, button);
  shown = { button, box, close };
  button.setAttribute("aria-expanded", "true");
  document.addEventListener("pointerdown", onPointer, true);
  addEventListener("resize", close);
  addEventListener("hashchange", close);
  box.querySelector("a, button, input:not(:disabled)")?.focus();
  return close;
}

function place(box, button) {
  const at = button.getBoundingClientRect();
  box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(8, Math.min(at.bottom + 4, innerHeight - box.offsetHeight - 8))}px`;
}
