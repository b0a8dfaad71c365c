"use strict";
// Draws the charts with uPlot, and adds tips, magnifying, choices, a theme and copying. The page reads without it.
(() => {
  const root = document.documentElement;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const data = JSON.parse(document.getElementById("chart-data").textContent);

  // Colours: a canvas knows no custom properties, so an element that is not shown resolves them.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };

  // What all charts are made of
  const COLOURS = ["blue", "vermilion", "green", "purple"];
  const DASHES = [[], [7, 4], [2, 4], [9, 4, 2, 4]];
  const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, seconds % 60 ? 19 : 16);
  const format = (value) => value.toLocaleString("en");
  const axis = (more) => ({
    stroke: () => colour("soft-ink"), font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif",
    grid: { stroke: () => colour("rule"), width: 1 }, ticks: { show: false }, gap: 4, labelSize: 16, ...more,
  });
  const timeAxis = () => axis({ size: 26, space: 64, gap: 8, incrs: TIME_STEPS, grid: { show: false }, values: (_, at) => at.map(clock) });
  const valueAxis = (label) => axis({ size: 42, space: 26, label, values: (_, at) => at.map(format) });
  const bars = (name, part, align = 0) => ({
    fill: () => colour(name), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [part, Infinity], align }),
  });
  const drawMark = (plot, { at, name, dash = [] }) => {
    const { ctx, bbox } = plot, x = Math.round(plot.valToPos(at, "x", true));
    ctx.save();
    ctx.strokeStyle = colour(name);
    ctx.lineWidth = (dash.length ? 1 : 2) * uPlot.pxRatio;
    ctx.setLineDash(dash.map((length) => length * uPlot.pxRatio));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  };

  // The kinds of charts: each gives its options, its rows of data, and the tip at a value of x.
  let only = ""; // the number of the category that is shown, or "" for all
  const isShown = (series) => only === "" || Number(only) === series;
  const span = (chart) => [chart.starts_s[0], chart.starts_s.at(-1) + chart.width_s];
  const columnAt = (chart, x) => Math.floor((x - chart.starts_s[0]) / chart.width_s);
  const middles = (chart) => chart.starts_s.map((start) => start + chart.width_s / 2);
  const describe = (panel, x) => {
    const column = columnAt(panel, x);
    const lines = panel.series.filter((one, n) => isShown(n) && one.counts[column]).map((one) => {
      const speed = one.speeds[column] === null ? "" : `, ${Math.round(one.speeds[column])} km/h`;
      return `${format(one.counts[column])} × ${one.name}${speed}`;
    });
    return lines.length ? [clock(panel.starts_s[column]), ...lines].join("\n") : "";
  };
  const stack = (panel) => {
    const sums = panel.starts_s.map(() => 0);
    return panel.series.map((one, n) => one.counts.map((count, x) => { sums[x] += isShown(n) ? count : 0; return sums[x]; }));
  };
  const KINDS = {
    counts(number) {
      const panel = data.traffic[number], minutes = panel.width_s / 60;
      return {
        height: number ? 96 : 150, x: span(panel), tip: (x) => describe(panel, x),
        axes: [{ show: false }, valueAxis(minutes === 1 ? "vehicles/min" : `in ${minutes} min`)],
        series: panel.series.map((_, n) => bars(COLOURS[n % 4], 0.86)).reverse(), // the highest sum is behind the others
        rows: () => [middles(panel), ...stack(panel).reverse()],
      };
    },
    speeds(number) {
      const panel = data.traffic[number];
      const line = (_, n) => ({ stroke: () => colour(COLOURS[n % 4]), width: 2, dash: DASHES[n % 4], points: { size: 5 } });
      return {
        height: number ? 112 : 172, x: span(panel), tip: (x) => describe(panel, x),
        axes: [timeAxis(), valueAxis("km/h")], series: panel.series.map(line),
        rows: () => [middles(panel), ...panel.series.map((one, n) => one.speeds.map((speed) => (isShown(n) ? speed : null)))],
      };
    },
    errors() {
      const shown = data.errors, reach = Math.max(...shown.flatMap((bar) => [-bar.start, bar.end]));
      const [scale, unit] = reach < 0.01 ? [1000, "mm/s"] : [1, "m/s"], speed = (x) => +(scale * x).toPrecision(3);
      const count = (isRight) => shown.map((bar) => (bar.is_right === isRight ? bar.passages : null));
      return {
        height: 220, x: [-reach, reach],
        axes: [axis({ size: 22, space: 90, values: (_, at) => at.map((x) => (x ? `${x > 0 ? "+" : "−"}${speed(Math.abs(x))} ${unit}` : "0")) }), valueAxis("vehicles")],
        series: [bars("green", 0.92), bars("red", 0.92)],
        marks: [-data.tolerance, data.tolerance].filter((at) => Math.abs(at) <= reach).map((at) => ({ at, name: "ink" })),
        rows: () => [shown.map((bar) => (bar.start + bar.end) / 2), count(true), count(false)],
        tip: (x) => {
          const bar = shown.find((one) => one.start <= x && x < one.end);
          return bar ? `${speed(bar.start)} to ${speed(bar.end)} ${unit}\n${format(bar.passages)} vehicles` : "";
        },
      };
    },
    received(number) {
      const chart = data.received, row = chart.rows[number], isAll = number === chart.rows.length - 1;
      const marks = [{ at: row.replaced_s, name: "ink" }, { at: chart.asked_s, name: "soft-ink", dash: [3, 3] }];
      return {
        height: isAll ? 96 : chart.rows.length > 17 ? 16 : 34, x: span(chart), padding: [2, 18, 0, 18], sync: "received",
        axes: [isAll ? timeAxis() : { show: false }, { show: false }],
        series: [bars("vermilion", 1, 1), bars("blue", 1, 1)],
        marks: marks.filter((mark) => mark.at !== null),
        rows: () => [chart.starts_s, row.new.map((count, n) => count + row.old[n]), row.old],
        tip: (x) => {
          const column = columnAt(chart, x);
          return column in row.old ? `${clock(chart.starts_s[column])}\n${row.old[column]} of the first generation, ${row.new[column]} with confidence` : "";
        },
      };
    },
  };

  // Charts are drawn when they get a width, and again when it changes.
  const drawn = new Map();
  const draw = (host) => {
    const kind = KINDS[host.dataset.chart](Number(host.dataset.number));
    host.textContent = "";
    host.style.height = `${kind.height}px`;
    const plot = new uPlot({
      width: host.clientWidth, height: kind.height, padding: kind.padding ?? [8, 18, kind.axes[0].show === false ? 8 : 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false }, ...(kind.sync ? { sync: { key: kind.sync } } : {}) },
      scales: { x: { time: false, range: kind.x }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
      axes: kind.axes, series: [{}, ...kind.series],
      hooks: { draw: [(plot) => (kind.marks ?? []).forEach((mark) => drawMark(plot, mark))] },
    }, kind.rows(), host);
    plot.over.tipAt = (left) => kind.tip(plot.posToVal(left, "x"));
    drawn.set(host, { plot, kind });
  };
  const fit = (host) => {
    const plot = drawn.get(host)?.plot;
    if (!host.clientWidth) return; // folded
    if (!plot) draw(host);
    else if (plot.width !== host.clientWidth) plot.setSize({ width: host.clientWidth, height: plot.height });
  };
  const redraw = () => drawn.forEach(({ plot }) => plot.redraw());
  const hint = (box) => box.toggleAttribute("data-wide", box.scrollWidth > box.clientWidth + 1); // it can be scrolled
  const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    if (target.matches(".chart")) fit(target);
    else hint(target);
  }));
  all(".chart, .scroll, pre").forEach((one) => widths.observe(one));

  // Tips at the pointer, for charts and for whatever has a text for them
  const tip = document.getElementById("tip");
  const showTip = (event) => {
    const over = event.target instanceof Element && event.target.closest(".u-over, [data-tip]");
    tip.textContent = over ? over.dataset.tip ?? over.tipAt(event.clientX - over.getBoundingClientRect().left) : "";
    tip.hidden = !tip.textContent;
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const isLow = event.clientY + 18 + tip.offsetHeight > window.innerHeight;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${isLow ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
  };
  ["pointermove", "pointerdown"].forEach((name) => document.addEventListener(name, showTip));
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);

  // Choices
  all(".choice, #theme, .copy").forEach((one) => { one.hidden = false; });
  const onPress = (selector, chosen) => all(selector).forEach((button) => button.addEventListener("click", () => {
    all(selector).forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    chosen(button.dataset);
  }));
  onPress("[data-only]", (chosen) => {
    only = chosen.only;
    drawn.forEach(({ plot, kind }) => plot.setData(kind.rows()));
  });
  onPress("[data-zoom]", ({ zoom }) => {
    const area = document.getElementById("timeline");
    const middle = (area.scrollLeft + area.clientWidth / 2) / area.scrollWidth;
    area.style.setProperty("--zoom", zoom);
    area.classList.toggle("magnified", zoom !== "1");
    area.scrollLeft = middle * area.scrollWidth - area.clientWidth / 2;
    hint(area);
  });
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
    redraw();
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
    all(".chart").forEach(fit);
    setTheme("light");
  });
  window.addEventListener("afterprint", () => {
    before.folded.forEach((one) => { one.open = false; });
    root.classList.remove("printed");
    all(".chart").forEach(fit);
    delete root.dataset.theme;
    setTheme(before.theme);
  });
})();
