"use strict";
// The page reads without any of this: it adds tips at the pointer, choices, a theme and copying.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const press = (pressed, others) => others.forEach((one) => one.setAttribute("aria-pressed", String(one === pressed)));

  all(".choice, #theme, .copy").forEach((one) => { one.hidden = false; });

  const tip = document.getElementById("tip");
  const titled = (target) => {
    const drawn = target instanceof Element && target.closest("svg *");
    if (!drawn) return null;
    const title = drawn.querySelector(":scope > title") || drawn.closest("g")?.querySelector(":scope > title");
    if (title) { // the browser's own tip would lie over ours
      title.parentNode.dataset.tip = title.textContent;
      title.remove();
    }
    return drawn.closest("[data-tip]");
  };
  document.addEventListener("pointermove", (event) => {
    const told = titled(event.target);
    tip.hidden = !told;
    if (!told) return;
    tip.textContent = told.dataset.tip;
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const above = event.clientY + 18 + tip.offsetHeight > window.innerHeight;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${above ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
  });
  document.addEventListener("pointerleave", () => { tip.hidden = true; });

  const remembered = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("genus-theme");
      localStorage.setItem("genus-theme", value);
    } catch { /* a browser may forbid it for files */ }
    return value;
  };
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => { theme.textContent = dark() ? "☀ Light" : "☾ Dark"; };
  const kept = remembered();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  theme.addEventListener("click", () => { remembered(root.dataset.theme = dark() ? "light" : "dark"); label(); });
  label();

  const zooms = all("[data-zoom]");
  zooms.forEach((button) => button.addEventListener("click", () => {
    const area = button.closest("figure").querySelector(".zoomed");
    const centre = (area.scrollLeft + area.clientWidth / 2) / area.scrollWidth;
    area.style.setProperty("--zoom", button.dataset.zoom);
    area.classList.toggle("fine-ticks", button.dataset.zoom !== "1");
    area.scrollLeft = centre * area.scrollWidth - area.clientWidth / 2;
    press(button, zooms);
  }));

  const series = all("[data-series]");
  series.forEach((button) => button.addEventListener("click", () => {
    document.getElementById("traffic").dataset.only = button.dataset.series;
    press(button, series);
  }));
  document.getElementById("site")?.addEventListener("change", (event) => {
    const chosen = event.target.value;
    all(".panels .panel").forEach((panel) => {
      panel.hidden = chosen !== "" && panel.dataset.site !== chosen;
      if (chosen && !panel.hidden && panel.closest("details")) panel.closest("details").open = true;
    });
  });

  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = button.parentNode.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch { // not allowed for this page: mark it, so that the keyboard can copy it
      getSelection().selectAllChildren(code);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }));

  let unfolded = [];
  window.addEventListener("beforeprint", () => {
    unfolded = all("details:not([open], .screen-only)");
    unfolded.forEach((one) => { one.open = true; });
  });
  window.addEventListener("afterprint", () => unfolded.forEach((one) => { one.open = false; }));
})();
