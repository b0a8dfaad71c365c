"use strict";
// Puts the pictures of Studio's components into their places, and adds choices, a theme and copying. The page reads without it.
(() => {
  const root = document.documentElement;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  studio.enableTips();

  // Texts of tips
  const format = (value) => value.toLocaleString("en");
  const ms = (seconds) => 1000 * seconds;
  let only = ""; // the number of the category that is shown, or "" for all
  const isShown = (series) => only === "" || Number(only) === series;
  const columnAt = (chart, x) => Math.floor((x / 1000 - chart.starts_s[0]) / chart.width_s);
  const describe = (panel, x) => {
    const column = columnAt(panel, x);
    const lines = panel.series.filter((one, n) => isShown(n) && one.counts[column]).map((one) => {
      const speed = one.speeds[column] === null ? "" : `, ${Math.round(one.speeds[column])} km/h`;
      return `${format(one.counts[column])} × ${one.name}${speed}`;
    });
    return lines.length ? [studio.chartClock(ms(panel.starts_s[column])), ...lines].join("\n") : "";
  };

  // The pictures: each is drawn into its place, and gives what can change it later.
  const colourOfSeries = (n) => `c${n % 4}`;
  const PICTURES = {
    counts(host, number) {
      const panel = data.traffic[number], minutes = panel.width_s / 60, unit = minutes === 1 ? "vehicles/min" : `in ${minutes} min`;
      return studio.bars(host, {
        time: true, x: panel.starts_s.map(ms), width: ms(panel.width_s), height: number ? 96 : 150, hasX: false, tip: (x) => describe(panel, x),
        series: panel.series.map((one, n) => ({ label: one.name, unit, colour: colourOfSeries(n) })), data: panel.series.map((one) => one.counts),
      });
    },
    speeds(host, number) {
      const panel = data.traffic[number], end = panel.starts_s.at(-1) + panel.width_s;
      return studio.lines(host, {
        range: [panel.starts_s[0], end].map(ms), height: number ? 112 : 172, legend: false, isZeroBased: true, tip: (x) => describe(panel, x),
        series: panel.series.map((one, n) => ({ label: one.name, unit: "km/h", colour: colourOfSeries(n) })),
        data: panel.series.map((one) => panel.starts_s.map((start, n) => [ms(start + panel.width_s / 2), one.speeds[n]])),
      });
    },
    errors(host) {
      const shown = data.errors, reach = Math.max(...shown.flatMap((bar) => [-bar.start, bar.end]));
      const [scale, unit] = reach < 0.01 ? [1000, "mm/s"] : [1, "m/s"], speed = (x) => +(scale * x).toPrecision(3);
      const count = (isRight) => shown.map((bar) => (bar.is_right === isRight ? bar.passages : 0));
      return studio.bars(host, {
        x: shown.map((bar) => bar.start), width: shown[0].end - shown[0].start, part: 0.92, height: 220, range: [-reach, reach],
        series: [{ label: "right", unit: "vehicles", colour: "green" }, { label: "wrong", unit: "vehicles", colour: "red" }], data: [count(true), count(false)],
        xAxis: { space: 90, values: (_, at) => at.map((x) => (x ? `${x > 0 ? "+" : "−"}${speed(Math.abs(x))} ${unit}` : "0")) },
        marks: [-data.tolerance, data.tolerance].filter((at) => Math.abs(at) <= reach).map((at) => ({ at, colour: "ink" })),
        tip: (x) => {
          const bar = shown.find((one) => one.start <= x && x < one.end);
          return bar ? `${speed(bar.start)} to ${speed(bar.end)} ${unit}\n${format(bar.passages)} vehicles` : "";
        },
      });
    },
    received(host, number) {
      const chart = data.received, row = chart.rows[number], isAll = number === chart.rows.length - 1;
      const marks = [{ at: row.replaced_s, colour: "ink" }, { at: chart.asked_s, colour: "soft-ink", dash: [3, 3] }];
      return studio.bars(host, {
        time: true, x: chart.starts_s.map(ms), width: ms(chart.width_s), part: 1, height: isAll ? 96 : chart.rows.length > 17 ? 16 : 34,
        hasX: isAll, hasY: false, padding: [2, 18, 0, 18], sync: "received",
        series: [{ label: "first generation", colour: "blue" }, { label: "with confidence", colour: "vermilion" }], data: [row.old, row.new],
        marks: marks.filter((mark) => mark.at !== null).map((mark) => ({ ...mark, at: ms(mark.at) })),
        tip: (x) => {
          const column = columnAt(chart, x);
          return column in row.old ? `${studio.chartClock(ms(chart.starts_s[column]))}\n${row.old[column]} of the first generation, ${row.new[column]} with confidence` : "";
        },
      });
    },
    types(host) {
      host.append(studio.treeLegend(), studio.drawTypeTree(new Map(Object.entries(data.types)), { label: host.getAttribute("aria-label") }));
    },
    bus(host) {
      const timeline = studio.drawTimeline(data.bus, { lanes: "channel", shorten: true, label: host.getAttribute("aria-label") });
      host.append(timeline);
      return timeline;
    },
  };

  // Pictures are drawn when they get a width; they follow its changes.
  const drawn = new Map();
  const draw = (host) => {
    if (drawn.has(host) || !host.clientWidth) return; // or folded
    host.textContent = "";
    host.removeAttribute("role"); // what is drawn has roles and names of its own
    drawn.set(host, PICTURES[host.dataset.chart](host, Number(host.dataset.number)) ?? {});
    if (host.dataset.chart === "counts" || host.dataset.chart === "speeds") showOnly(host);
  };
  const fit = (host) => { draw(host); drawn.get(host)?.fit?.(); };
  const showOnly = (host) => data.traffic[Number(host.dataset.number)].series.forEach((_, n) => drawn.get(host).show(n, isShown(n)));
  const hint = (box) => box.toggleAttribute("data-wide", box.scrollWidth > box.clientWidth + 1); // it can be scrolled
  const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => (target.matches(".chart") ? draw(target) : hint(target))));
  all(".chart, .scroll, pre").forEach((one) => widths.observe(one));
  all("[data-bits]").forEach((place) => {
    const [subscription, number] = place.dataset.bits.split(" "), [value, mask] = data.filters[subscription][number];
    place.replaceChildren(studio.drawBits({ value, mask, width: 29, parts: [["priority", 8], ["node", 7], ["event tag", 14]] }));
  });

  // Choices
  all(".choice, #theme, .copy").forEach((one) => { one.hidden = false; });
  all("[data-only]").forEach((button) => button.addEventListener("click", () => {
    all("[data-only]").forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    only = button.dataset.only;
    drawn.forEach((_, host) => { if (host.dataset.chart === "counts" || host.dataset.chart === "speeds") showOnly(host); });
  }));
  document.getElementById("site")?.addEventListener("change", (event) => all("[data-site]").forEach((panel) => {
    panel.hidden = event.target.value !== "" && panel.dataset.site !== event.target.value;
    if (event.target.value && !panel.hidden && panel.closest("details")) panel.closest("details").open = true;
  }));
  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = button.parentNode.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch { // not allowed for this page: select it, so that the keyboard can copy it
      getSelection().selectAllChildren(code);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }));

  // Light or dark
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : scheme.matches);
  const setTheme = (value) => {
    if (value) root.dataset.theme = value;
    theme.textContent = isDark() ? "☀ Light" : "☾ Dark";
    studio.refreshColours();
  };
  const remember = (value) => {
    try {
      if (value) localStorage.setItem("genus-theme", value);
      return localStorage.getItem("genus-theme");
    } catch { return null; } // a browser may forbid it for files
  };
  theme.addEventListener("click", () => { const value = isDark() ? "light" : "dark"; remember(value); setTheme(value); });
  scheme.addEventListener("change", () => setTheme());
  setTheme(remember());

  // Paper: light colours, the width of a sheet, and nothing folded but tables of figures
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, folded: all("details:not([open], .screen-only)") };
    before.folded.forEach((one) => { one.open = true; });
    root.classList.add("printed");
    setTheme("light");
    all(".chart").forEach(fit);
  });
  window.addEventListener("afterprint", () => {
    before.folded.forEach((one) => { one.open = false; });
    root.classList.remove("printed");
    delete root.dataset.theme;
    setTheme(before.theme);
    all(".chart").forEach(fit);
  });
})();
