// Charts by uPlot (`window.uPlot`): lines over time and bars, with colours of the theme, a legend that works by keyboard,
// and as many lines as can be told apart.
import { h, svg, clear } from "./dom.js";
import { colourOf, onThemeChange } from "./colours.js";
import { tellAt } from "./tip.js";

const CHART_COLOURS = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
const CHART_DASHES = [[], [7, 4], [2, 4], [10, 4, 2, 4], [16, 5]];
const MOST_LINES = 20;
const LEAST_DRAG = 5; // in pixels
const [DENSE_PIXELS, VERY_DENSE_PIXELS] = [5, 0.8]; // from one point to the next
const CHART_FONT = "12px system-ui, sans-serif";
const CHART_DAY_MS = 86_400_000;
const SECOND_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, ...[1, 2, 7, 14, 30, 90, 365].map((days) => 86400 * days)];
const MS_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...SECOND_STEPS.map((seconds) => 1000 * seconds)];

/** Colour and dashes of the n-th line; 20 of them differ. */
export function lineLook(n) {
  const round = Math.floor(n / CHART_COLOURS.length);
  return { colour: CHART_COLOURS[n % CHART_COLOURS.length], dash: CHART_DASHES[(n + round) % CHART_DASHES.length] };
}

/** A number as axes and legends show it. */
export function chartNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e9 || size < 1e-3)) return value.toExponential(3).replaceAll("-", "−");
  return value.toLocaleString("en", { maximumSignificantDigits: size < 1e4 ? 4 : 9 }).replace("-", "−");
}

/** Numbers at an axis, with as many digits as tell them apart. */
function axisNumbers(places) {
  const step = Math.abs(places[1] - places[0]), digits = Math.max(...places.map((place) => (String(Number((place % 1).toFixed(9))).split(".")[1] ?? "").length));
  if (!(step >= 1e-6) || Math.max(...places.map(Math.abs)) >= 1e9) return places.map(chartNumber);
  return places.map((place) => place.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−"));
}

/** The time of day of milliseconds since 1970, in UTC, without the digits at the end that are zero. */
export function chartClock(at) {
  return new Date(at).toISOString().slice(11, at % 1000 ? 23 : at % 60_000 ? 19 : 16);
}

/**
 * Points [x, y, segment] of several lines on the x that any of them has: null is a gap, undefined is between two points.
 * Points of different segments are not joined; two of the same x are drawn beside each other, so that no peak is lost.
 */
export function alignLines(lists) {
  const placed = lists.map((points) => {
    const found = [];
    let last = null, lastX = -Infinity;
    for (const [x, y, segment] of points) {
      if (last !== null && segment !== last) found.push([Math.max((lastX + x) / 2, lastX + 5e-4), null]);
      lastX = Math.max(x, lastX + 1e-3);
      last = segment;
      found.push([lastX, Number.isFinite(y) ? y : null]);
    }
    return found;
  });
  const xs = [...new Set(placed.flatMap((points) => points.map((point) => point[0])))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, n) => [x, n]));
  return [xs, ...placed.map((points) => {
    const column = new Array(xs.length).fill(undefined);
    let last = -1, isGap = false;
    for (const [x, y] of points) {
      const at = place.get(x);
      column[at] = y;
      if (y !== null) {
        if (isGap) column.fill(null, last + 1, at); // uPlot ends a gap at the next x, of whichever line
        last = at;
      }
      isGap = y === null;
    }
    return column;
  })];
}

/** The lowest and the highest point of each stretch of x; the stretches lie still while time passes, so nothing flickers. */
export function thinLine(points, width) {
  const kept = [];
  let stretch = null, low = null, high = null;
  const flush = () => { if (low) kept.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low])); };
  for (const point of points) {
    const here = Math.floor(point[0] / width);
    if (here !== stretch) {
      flush();
      [stretch, low, high] = [here, point, point];
    } else if (point[1] < low[1]) low = point;
    else if (point[1] > high[1]) high = point;
  }
  flush();
  return kept;
}

/** How many axes leave room for the lines. */
export function mostAxes(element) {
  return element.clientWidth < 640 ? 2 : 4;
}

/** Where points are dense, only those without a neighbour are drawn as dots: a line would not show them. */
function lonePoints(plot, n, isShown) {
  if (isShown) return null;
  const found = [], column = plot.data[n], [first, last] = plot.series[0].idxs ?? [0, column.length - 1];
  let place = -1, length = 0; // of the points that are joined
  for (let at = first; at <= last + 1; at += 1) {
    if (column[at] === undefined && at <= last) continue;
    if (at <= last && column[at] !== null) [place, length] = [at, length + 1];
    else {
      if (length === 1) found.push(place);
      length = 0;
    }
  }
  return found.length ? found : null;
}

/** Lines over time, or over any number.
 *
 * `series` are {label, unit}; `data` has for each a list of points [x, y, segment], the oldest first, null for a gap, x in
 * milliseconds since 1970. `range` is [from, to] of x. Each unit has a scale of its own, and the first ones an axis of at
 * least `room` pixels; `axes` has fixed ranges by unit. `onRange` is called with the range that wheel, drag, touch or keys
 * ask for, null for all. Returns {element, update(data, range), setSeries(series, data, range), mark(marks),
 * show(n, isShown), fit(), destroy()}.
 */
export function lines(container, options) {
  let { series, data, range = null, marks = [] } = options;
  const settings = () => {
    const units = [...new Set(series.map((one) => one.unit ?? ""))];
    return {
      ...options, units, range: () => range, marks: () => marks, ...timeSettings(true, options),
      looks: series.map((one, n) => ({ ...lineLook(n), ...one, unitPlace: units.indexOf(one.unit ?? ""), note: n >= MOST_LINES ? "too many lines" : "" })),
      rows: (shown) => alignLines(data.map((points, n) => (shown(n) ? points : []))),
      draw: (look) => ({ stroke: () => colourOf(look.colour), width: 2, dash: look.dash, points: { size: 5, filter: lonePoints } }),
    };
  };
  const frame = new ChartFrame(container, settings());
  return Object.assign(frame, {
    update(points, span = range) { data = points; range = span; frame.redrawData(); },
    setSeries(names, points, span = range) { series = names; data = points; range = span; frame.reset(settings()); },
    mark(places) { marks = places; frame.plot?.redraw(false); },
  });
}

/** Bars side by side along x, those of several series stacked.
 *
 * `series` are {label, unit, colour}, `x` has the left ends of the bars and `width` their width; `data` has a list of numbers
 * for each series. With `time`, x is in milliseconds since 1970. `marks` are {at, colour, dash}, upright lines. Returns what `lines` returns; update takes the same data.
 */
export function bars(container, options) {
  let { data } = options;
  const { series, x, width } = options;
  const settings = {
    legend: false, ...timeSettings(options.time === true, options), ...options,
    range: () => options.range ?? [x[0], x.at(-1) + width], marks: () => options.marks ?? [],
    units: [...new Set(series.map((one) => one.unit ?? ""))].slice(0, 1), isZeroBased: true,
    looks: series.map((one, n) => ({ ...lineLook(n), dash: [], unitPlace: 0, note: "", ...one })),
    isReversed: true, // the highest sum is behind the others
    rows: (shown) => [x.map((start) => start + width / 2), ...stackRows(data, shown)],
    draw: (look) => ({
      fill: () => colourOf(look.colour), width: 0, points: { show: false },
      paths: window.uPlot.paths.bars({ size: [options.part ?? 0.86, Infinity] }),
    }),
  };
  const frame = new ChartFrame(container, settings);
  return Object.assign(frame, { update(numbers) { data = numbers; frame.redrawData(); } });
}

/** An axis of times of day, or one of numbers. */
function timeSettings(isTime, { clock = chartClock }) {
  if (!isTime) return { tellX: chartNumber };
  const evenly = (_, at) => { // 12:04:00 beside 12:03:55, and dates at midnight
    const texts = at.map(clock), hasSeconds = texts.some((text) => text.length === 8);
    return texts.map((text, n) => (at[n] % CHART_DAY_MS === 0 && at[n] > 100 * CHART_DAY_MS ? new Date(at[n]).toISOString().slice(5, 10) : hasSeconds && text.length === 5 ? `${text}:00` : text));
  };
  return { tellX: (at) => clock(Math.round(at)), xAxis: { incrs: MS_STEPS, values: evenly } };
}

function stackRows(data, shown) {
  const sums = (data[0] ?? []).map(() => 0);
  return data.map((numbers, n) => numbers.map((number, place) => { sums[place] += shown(n) ? number ?? 0 : 0; return sums[place]; }));
}

/** What lines and bars have in common: the plot in its place, its size, theme, legend, and a cursor for keyboards. */
class ChartFrame {
  constructor(container, settings) {
    this.host = h("div", { class: "chart-plot" });
    this.legend = h("div", { class: "chart-legend" });
    this.spoken = h("span", { class: "spoken", role: "status" });
    this.element = h("div", { class: "chart-frame", role: "group", "aria-roledescription": "chart" }, this.host, this.legend, this.spoken);
    container.append(this.element);
    this.host.addEventListener("keydown", (event) => this.onKey(event));
    this.host.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
    this.sizes = new ResizeObserver(() => this.fit());
    this.endTheme = onThemeChange(() => { this.plot?.redraw(false); this.drawLegend(); });
    this.hidden = new Set();
    this.reset(settings);
    this.sizes.observe(this.host);
  }

  reset(settings) {
    this.settings = settings;
    this.height = settings.height ?? 240;
    this.host.style.height = `${this.height}px`;
    if (settings.label) this.element.setAttribute("aria-label", settings.label);
    if (settings.legend !== false || settings.hasCursor) this.host.tabIndex = 0;
    this.plot?.destroy();
    this.plot = null;
    this.drawLegend();
    this.fit();
  }

  destroy() {
    this.sizes.disconnect();
    this.endTheme();
    this.plot?.destroy();
    this.element.remove();
  }

  fit() {
    const width = this.host.clientWidth;
    if (!width) return; // folded
    if (!this.plot || mostAxes(this.host) !== this.axes) this.make(width);
    else if (this.plot.width !== width) {
      this.plot.setSize({ width, height: this.height });
      this.redrawData();
    }
  }

  shown(n) {
    return !this.hidden.has(n) && !this.settings.looks[n].note;
  }

  show(n, isShown) {
    this.hidden[isShown ? "delete" : "add"](n);
    this.redrawData();
    this.drawLegend();
  }

  rows() {
    const rows = this.settings.rows((n) => this.shown(n), Math.max(this.host.clientWidth - 60, 50));
    return this.settings.isReversed ? [rows[0], ...rows.slice(1).reverse()] : rows;
  }

  xRange() {
    const xs = this.plot?.data[0] ?? [], low = xs[0] ?? 0, high = xs.at(-1) ?? low;
    return this.settings.range() ?? (low === high ? [low - 1, high + 1] : [low, high]);
  }

  redrawData() {
    if (!this.plot) return this.fit();
    const rows = this.rows();
    this.setDashes(rows);
    this.plot.batch(() => {
      this.plot.setData(rows, false);
      const [min, max] = this.xRange();
      this.plot.setScale("x", { min, max });
    });
    if (!this.isPointed) this.writeValues(null);
  }

  make(width) {
    const { settings } = this, drawn = settings.looks.map((look) => ({ scale: `y${look.unitPlace}`, ...settings.draw(look) }));
    const rows = this.rows();
    this.plot?.destroy();
    clear(this.host);
    this.axes = mostAxes(this.host);
    this.plot = new window.uPlot({
      width, height: this.height, legend: { show: false },
      padding: settings.padding ?? [8, settings.units.length > 1 ? 0 : 18, settings.hasX === false ? 8 : 0, settings.hasY === false ? 18 : 0],
      cursor: {
        y: false, points: { show: settings.legend !== false }, drag: { x: Boolean(settings.onRange), setScale: false },
        bind: { mousedown: (_, __, handle) => (event) => (event.shiftKey ? null : handle(event)), dblclick: () => () => null },
        ...(settings.sync ? { sync: { key: settings.sync } } : {}),
      },
      scales: { x: { time: false, range: () => this.xRange() }, ...this.yScales() },
      axes: [this.xAxis(), ...this.yAxes()],
      series: [{}, ...(settings.isReversed ? drawn.reverse() : drawn)],
      hooks: {
        draw: [(plot) => settings.marks().forEach((mark) => drawChartMark(plot, mark))],
        setCursor: [(plot) => this.onCursor(plot)],
        setSelect: [(plot) => this.onSelect(plot)],
      },
    }, rows, this.host);
    this.setDashes(rows);
    if (settings.onRange) enableZoom(this.plot.over, () => this.xRange(), settings.onRange);
    if (settings.tip) tellAt(this.plot.over, (left) => settings.tip(this.plot.posToVal(left, "x")));
    this.writeValues(null);
  }

  /** Where points are dense, dashes only blur and take long to draw, and a line must not hide the others; lines of one colour need them longer. */
  setDashes([, ...columns]) {
    if (this.settings.isReversed) return;
    const most = this.host.clientWidth / (columns.length > CHART_COLOURS.length ? VERY_DENSE_PIXELS : DENSE_PIXELS);
    this.settings.looks.forEach((look, n) => {
      const size = columns[n]?.reduce((sum, value) => sum + (value !== undefined), 0);
      const line = this.plot.series[n + 1], isDense = size > most;
      if (line) Object.assign(line, { dash: isDense ? [] : look.dash, alpha: isDense && columns.length > 1 ? 0.7 : 1 });
      this.legend.querySelector(`[data-series="${n}"] .line-swatch`)?.toggleAttribute("data-dense", (look.isDense = isDense));
    });
  }

  yScales() {
    const { isZeroBased } = this.settings;
    const range = (_, low, high) => {
      if (low === null || low === undefined || !Number.isFinite(low)) return [0, 1];
      return finiteRange(...(isZeroBased ? [0, high > 0 ? high * 1.05 : 1] : window.uPlot.rangeNum(low, high, 0.1, true)), low, high);
    };
    const { axes = {}, units } = this.settings;
    return Object.fromEntries((units.length ? units : [""]).map((unit, n) => [`y${n}`, { range: axes[unit] ? () => axes[unit] : range }]));
  }

  xAxis() {
    const { settings } = this;
    if (settings.hasX === false) return { show: false };
    return chartAxis({ size: 28, space: 70, gap: 8, grid: { show: false }, values: (_, at) => at.map(chartNumber), ...settings.xAxis });
  }

  yAxes() {
    const { settings } = this;
    if (settings.hasY === false) return [{ show: false }];
    return (settings.units.length ? settings.units : [""]).slice(0, this.axes).map((unit, n) => chartAxis({
      scale: `y${n}`, side: n % 2 ? 1 : 3, label: unit || undefined, space: 28, ...(n ? { grid: { show: false } } : {}),
      // charts one below the other begin at the same place if they have the same room for their axes
      size: (_, texts) => Math.max((settings.room ?? 0) - (unit ? 16 : 0), 14 + 6.4 * Math.max(3, ...(texts ?? []).map((text) => text.length))),
      values: (_, at) => axisNumbers(at), incrs: (_, __, low, high) => axisSteps(high - low),
    }));
  }

  onCursor(plot) {
    const { idx, left } = plot.cursor;
    this.isPointed = left >= 0 && idx !== null && idx !== undefined;
    this.writeValues(this.isPointed ? idx : null);
  }

  /** A range was chosen by dragging over it. */
  onSelect(plot) {
    const { left, width } = plot.select;
    if (width < LEAST_DRAG) return;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.settings.onRange?.([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  }

  /** Writes the values at a place, or the last ones, into the legend. */
  writeValues(place) {
    if (this.settings.legend === false || !this.plot) return;
    const [xs, ...columns] = this.plot.data;
    this.legend.dataset.at = place === null ? "" : this.settings.tellX(xs[place]);
    this.legend.querySelectorAll("[data-series]").forEach((button) => {
      const column = columns[Number(button.dataset.series)] ?? [];
      const value = place === null ? column.findLast((one) => Number.isFinite(one)) : nearestValue(column, place);
      button.querySelector("b").textContent = chartNumber(value);
    });
  }

  drawLegend() {
    const { settings } = this;
    if (settings.legend === false) return;
    const focused = this.legend.contains(document.activeElement) ? document.activeElement.dataset.series : null;
    clear(this.legend).append(...settings.looks.map((look, n) => this.legendEntry(look, n)));
    if (focused) this.legend.querySelector(`[data-series="${focused}"]`)?.focus();
    this.writeValues(null);
  }

  legendEntry(look, n) {
    const isShown = this.shown(n), note = look.note || (look.unitPlace < mostAxes(this.host) ? "" : "on a scale of its own");
    const button = h("button", { type: "button", "data-series": String(n), "aria-pressed": String(isShown), title: isShown ? "hide this line" : "show this line" },
      lineSwatch(look), h("span", {}, look.label), " ", h("b", {}, "–"), h("small", {}, look.unit ? ` ${look.unit}` : ""), note ? h("small", {}, ` (${note})`) : "");
    if (look.note) button.disabled = true;
    button.addEventListener("click", () => this.show(n, !this.shown(n)));
    return button;
  }

  /** Arrow keys move the cursor and say the values there; + and - zoom, arrows with shift pan, 0 shows all. */
  onKey(event) {
    const plot = this.plot, xs = plot?.data[0] ?? [], { onRange } = this.settings;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    const zoom = onRange && { "+": 0.5, "=": 0.5, "-": 2, _: 2, 0: null }[event.key];
    if ((!step && zoom === undefined) || !xs.length || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const range = this.xRange();
    if (zoom !== undefined) return onRange(zoom && zoomedRange(range, this.isPointed ? xs[plot.cursor.idx] : (range[0] + range[1]) / 2, zoom));
    if (onRange && event.shiftKey) return onRange(movedRange(range, Math.sign(step) / 4));
    const from = this.isPointed ? plot.cursor.idx : step < 0 ? xs.length : -1;
    const place = Math.min(Math.max(from + step, 0), xs.length - 1);
    plot.setCursor({ left: plot.valToPos(xs[place], "x"), top: 10 });
    const values = this.settings.looks.map((look, n) => (this.shown(n) ? `${look.label} ${chartNumber(nearestValue(this.columnOf(n), place))} ${look.unit ?? ""}` : ""));
    this.spoken.textContent = [this.settings.tellX(xs[place]), ...values.filter(Boolean)].join(", ");
  }

  columnOf(n) {
    const columns = this.plot.data.slice(1);
    return columns[this.settings.isReversed ? columns.length - 1 - n : n];
  }
}

// Zoom and pan: a range is changed around a place, or movedRange by a share of itself.
const zoomedRange = ([from, to], at, factor) => [at - (at - from) * factor, at + (to - at) * factor];
const movedRange = ([from, to], share) => [from + share * (to - from), to + share * (to - from)];

/** Wheel: zoom, with shift or sideways pan. Drag with shift, or one finger: pan. Two fingers: zoom and pan. */
function enableZoom(over, rangeOf, onRange) {
  const fingers = new Map();
  const share = (x) => (x - over.getBoundingClientRect().left) / over.clientWidth;
  const middle = () => { const [one, other = one] = fingers.values(); return { at: share((one + other) / 2), apart: Math.abs(one - other) }; };
  over.addEventListener("wheel", (event) => {
    const range = rangeOf(), sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    event.preventDefault();
    if (Math.abs(sideways) >= Math.abs(event.deltaY)) return onRange(movedRange(range, sideways / 1000));
    onRange(zoomedRange(range, range[0] + share(event.clientX) * (range[1] - range[0]), 1.0015 ** Math.max(-600, Math.min(event.deltaY, 600))));
  }, { passive: false });
  over.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && !(event.shiftKey && event.button === 0)) return;
    over.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.clientX);
  });
  over.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const before = middle();
    fingers.set(event.pointerId, event.clientX);
    const now = middle(), next = movedRange(rangeOf(), before.at - now.at);
    onRange(before.apart > 10 && now.apart > 10 ? zoomedRange(next, next[0] + now.at * (next[1] - next[0]), before.apart / now.apart) : next);
  });
  ["pointerup", "pointercancel"].forEach((name) => over.addEventListener(name, (event) => fingers.delete(event.pointerId)));
}

/** The value at a place or, if the line has no point there, the one before. */
function nearestValue(column, place) {
  for (let n = place; n >= 0 && n > place - 400; n -= 1) if (column[n] !== undefined) return column[n];
  return null;
}

/** The range from `from` to `to`, or the widest one that has numbers at both ends and between them, for values up to 1e308. */
function finiteRange(from, to, low, high) {
  if (Number.isFinite(to - from)) return [from, to];
  if (low >= 0) return [0, Number.MAX_VALUE];
  return high <= 0 ? [-Number.MAX_VALUE, 0] : [-Number.MAX_VALUE / 2.01, Number.MAX_VALUE / 2.01];
}

/** Distances between the labels of an axis that suit its span: 1, 2, 2.5 and 5 times powers of ten. */
function axisSteps(span) {
  const power = Math.floor(Math.log10(span || 1));
  return [-4, -3, -2, -1, 0].flatMap((less) => [1, 2, 2.5, 5].map((part) => Number(`${part}e${power + less}`))).filter((step) => step > 0 && Number.isFinite(step));
}

function chartAxis(more) {
  return {
    stroke: () => colourOf("soft-ink"), font: CHART_FONT, labelFont: CHART_FONT, labelSize: 16, gap: 4,
    grid: { stroke: () => colourOf("rule"), width: 1 }, ticks: { show: false }, ...more,
  };
}

function lineSwatch(look) {
  return svg("svg", { class: "line-swatch", "data-dense": look.isDense, viewBox: "0 0 28 10", "aria-hidden": "true" },
    svg("line", { x2: 28, y1: 5, y2: 5, stroke: colourOf(look.colour), "stroke-width": 2, "stroke-dasharray": look.dash.join(" ") }));
}

function drawChartMark(plot, { at, colour, dash = [] }) {
  const { ctx, bbox } = plot, x = Math.round(plot.valToPos(at, "x", true));
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  ctx.save();
  ctx.strokeStyle = colourOf(colour);
  ctx.lineWidth = (dash.length ? 1 : 2) * window.uPlot.pxRatio;
  ctx.setLineDash(dash.map((length) => length * window.uPlot.pxRatio));
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}
