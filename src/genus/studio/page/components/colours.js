// Colours of the style sheet for pictures on a canvas, which knows no custom properties.

const knownColours = new Map();
const themeListeners = new Set();
let colourProbe = null;

/** The colour that a custom property has in the present theme: colourOf("blue") of `--blue`. */
export function colourOf(name) {
  if (!colourProbe?.isConnected) {
    colourProbe = document.body.appendChild(document.createElement("i"));
    colourProbe.hidden = true;
  }
  if (!knownColours.has(name)) {
    colourProbe.style.color = `var(--${name})`;
    knownColours.set(name, getComputedStyle(colourProbe).color);
  }
  return knownColours.get(name);
}

/** Calls a function after each change between light and dark; returns a function that ends it. */
export function onThemeChange(changed) {
  themeListeners.add(changed);
  return () => themeListeners.delete(changed);
}

/** Reads the colours anew, and lets all pictures draw themselves again. */
export function refreshColours() {
  knownColours.clear();
  themeListeners.forEach((changed) => changed());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refreshColours);
new MutationObserver(refreshColours).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
