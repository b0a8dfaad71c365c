// Charts by uPlot (`window.uPlot`): lines over time and bars, with colours of the theme, a legend that works by keyboard,
// and as many lines as can be told apart.
import { h, clear } from "./dom.js";
import { colourOf, onThemeChange } from "./colours.js";
import { tellAt } from "./tip.js";

const CHART_COLOURS = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
const CHART_DASHES = [[], [7, 4], [2, 4], [10, 4, 2, 4], [16, 5]];
const MOST_LINES = 20;
const DENSE_PIXELS = 0.8; // from one point to the next
const CHART_FONT = "11px system-ui, sans-serif";
const SECOND_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
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

/** The time of day of milliseconds since 1970, in UTC, without the digits at the end that are zero. */
export function chartClock(at) {
  return new Date(at).toISOString().slice(11, at % 1000 ? 23 : at % 60_000 ? 19 : 16);
}

/** Points [x, y] of several lines on the x that any of them has: null is a gap, undefined is between two points. */
export function alignLines(lists, gap = Infinity) {
  const broken = lists.map((points) => breakAtGaps(points, gap));
  const xs = [...new Set(broken.flatMap((points) => points.map((point) => point[0])))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, n) => [x, n]));
  const columns = broken.map((points) => {
    const column = new Array(xs.length).fill(undefined);
    points.forEach(([x, y]) => { column[place.get(x)] = Number.isFinite(y) ? y : null; });
    return column;
  });
  return [xs, ...columns];
}

function breakAtGaps(points, gap) {
  if (gap === Infinity) return points;
  return points.flatMap((point, n) => (n && point[0] - points[n - 1][0] > gap ? [[(point[0] + points[n - 1][0]) / 2, null], point] : [point]));
}

/** At most two points, the lowest and the highest, for each of so many columns of a line; gaps stay. */
export function thinLine(points, columns) {
  if (points.length <= 2 * columns) return points;
  const first = points[0][0], width = (points.at(-1)[0] - first) / columns || 1, kept = [];
  let column = -1, low = null, high = null;
  const flush = () => {
    if (!low) return;
    kept.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
    low = high = null;
  };
  points.forEach((point) => {
    const here = Math.floor((point[0] - first) / width);
    if (here !== column || !Number.isFinite(point[1])) flush();
    column = here;
    if (!Number.isFinite(point[1])) kept.push(point);
    else {
      if (!low || point[1] < low[1]) low = point;
      if (!high || point[1] > high[1]) high = point;
    }
  });
  flush();
  return kept;
}

/** Lines over time, or over any number.
 *
 * `series` are {label, unit}; `data` has for each a list of points [x, y], the oldest first, null for a gap. With `time`,
 * x is in milliseconds since 1970. `range` is [from, to] of x, `gap` the distance from which two points are not
 * connected. There are an axis for the first unit at the left and one for the second at the right; lines of a third unit
 * are not drawn, and the legend says so. Returns {element, update(data, range), setSeries(series, data, range),
 * show(n, isShown), fit(), destroy()}.
 */
export function lines(container, options) {
  let { series, data, range = null } = options;
  const gap = options.gap ?? Infinity;
  const unitsOf = () => [...new Set(series.map((one) => one.unit ?? ""))];
  const isDrawn = (one) => unitsOf().indexOf(one.unit ?? "") < 2;
  const settings = () => ({
    ...options,
    range: () => range,
    ...timeSettings(options.time !== false, options),
    units: unitsOf().slice(0, 2),
    looks: series.map((one, n) => ({
      ...lineLook(n), ...one, scale: unitsOf().indexOf(one.unit ?? "") === 1 ? "y2" : "y",
      note: n >= MOST_LINES ? "too many lines" : isDrawn(one) ? "" : "a third unit, not drawn",
    })),
    rows: (shown, width) => alignLines(data.map((points, n) => (shown(n) ? thinLine(points, width) : [])), gap),
    draw: (look) => ({ stroke: () => colourOf(look.colour), width: 2, dash: look.dash, points: { size: 5, ...(options.points === undefined ? {} : { show: options.points }) } }),
  });
  const frame = new ChartFrame(container, settings());
  return {
    element: frame.element,
    update(points, span = range) { data = points; range = span; frame.redrawData(); },
    setSeries(names, points, span = range) { series = names; data = points; range = span; frame.reset(settings()); },
    show: (n, isShown) => frame.show(n, isShown),
    fit: () => frame.fit(),
    destroy: () => frame.destroy(),
  };
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
    range: () => options.range ?? [x[0], x.at(-1) + width],
    units: [...new Set(series.map((one) => one.unit ?? ""))].slice(0, 1), isZeroBased: true,
    looks: series.map((one, n) => ({ ...lineLook(n), dash: [], scale: "y", note: "", ...one })),
    isReversed: true, // the highest sum is behind the others
    rows: (shown) => [x.map((start) => start + width / 2), ...stackRows(data, shown)],
    draw: (look) => ({
      fill: () => colourOf(look.colour), width: 0, points: { show: false },
      paths: window.uPlot.paths.bars({ size: [options.part ?? 0.86, Infinity] }),
    }),
  };
  const frame = new ChartFrame(container, settings);
  return {
    element: frame.element,
    update(numbers) { data = numbers; frame.redrawData(); },
    show: (n, isShown) => frame.show(n, isShown),
    fit: () => frame.fit(),
    destroy: () => frame.destroy(),
  };
}

/** An axis of times of day, or one of numbers. */
function timeSettings(isTime, { clock = chartClock }) {
  if (!isTime) return { tellX: chartNumber };
  const values = (_, at) => at.map(clock), longest = (texts) => Math.max(...texts.map((text) => text.length));
  const evenly = (_, at) => { // 12:04:00 beside 12:03:55
    const texts = values(_, at), most = texts.length ? longest(texts) : 0;
    return most === 8 ? texts.map((text) => (text.length === 5 ? `${text}:00` : text)) : texts;
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
    if (!this.plot) this.make(width);
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

  redrawData() {
    if (!this.plot) return this.fit();
    const rows = this.rows();
    this.setDashes(rows);
    this.plot.batch(() => {
      this.plot.setData(rows, false);
      const range = this.settings.range() ?? xRange(rows[0]);
      this.plot.setScale("x", { min: range[0], max: range[1] });
    });
    if (!this.isPointed) this.writeValues(null);
  }

  make(width) {
    const { settings } = this, drawn = settings.looks.map((look) => ({ scale: look.scale, ...settings.draw(look) }));
    const rows = this.rows();
    clear(this.host);
    this.plot = new window.uPlot({
      width, height: this.height, legend: { show: false },
      padding: settings.padding ?? [8, settings.units.length > 1 ? 0 : 18, settings.hasX === false ? 8 : 0, settings.hasY === false ? 18 : 0],
      cursor: {
        y: false, points: { show: settings.legend !== false }, drag: { x: false, setScale: false },
        ...(settings.sync ? { sync: { key: settings.sync } } : {}),
      },
      scales: { x: { time: false, range: (_, low, high) => settings.range() ?? xRange([low, high]) }, ...this.yScales() },
      axes: [this.xAxis(), ...this.yAxes()],
      series: [{}, ...(settings.isReversed ? drawn.reverse() : drawn)],
      hooks: {
        draw: [(plot) => (settings.marks ?? []).forEach((mark) => drawChartMark(plot, mark))],
        setCursor: [(plot) => this.onCursor(plot)],
      },
    }, rows, this.host);
    this.setDashes(rows);
    if (settings.tip) tellAt(this.plot.over, (left) => settings.tip(this.plot.posToVal(left, "x")));
    this.writeValues(null);
  }

  /** Where points are dense, dashes cannot be seen and take long to draw, and a line must not hide the others. */
  setDashes([, ...columns]) {
    if (this.settings.isReversed) return;
    const most = this.host.clientWidth / DENSE_PIXELS;
    this.settings.looks.forEach((look, n) => {
      const size = columns[n]?.reduce((sum, value) => sum + (value !== undefined), 0);
      const line = this.plot.series[n + 1], isDense = size > most;
      if (line) Object.assign(line, { dash: isDense ? [] : look.dash, alpha: isDense && columns.length > 1 ? 0.7 : 1 });
    });
  }

  yScales() {
    const { isZeroBased } = this.settings;
    const range = (_, low, high) => {
      if (low === null || low === undefined || !Number.isFinite(low)) return [0, 1];
      return finiteRange(...(isZeroBased ? [0, high > 0 ? high * 1.05 : 1] : window.uPlot.rangeNum(low, high, 0.1, true)), low, high);
    };
    return { y: { range }, y2: { range } };
  }

  xAxis() {
    const { settings } = this;
    if (settings.hasX === false) return { show: false };
    return chartAxis({ size: 28, space: 70, gap: 8, grid: { show: false }, values: (_, at) => at.map(chartNumber), ...settings.xAxis });
  }

  yAxes() {
    const { settings } = this;
    if (settings.hasY === false) return [{ show: false }];
    return (settings.units.length ? settings.units : [""]).map((unit, n) => chartAxis({
      scale: n ? "y2" : "y", side: n ? 1 : 3, label: unit || undefined, space: 28, ...(n ? { grid: { show: false } } : {}),
      // charts one below the other begin at the same place if they have the same room for their axes
      size: (_, texts) => Math.max((settings.room ?? 0) - (unit ? 16 : 0), 14 + 6.4 * Math.max(3, ...(texts ?? []).map((text) => text.length))),
      values: (_, at) => at.map(chartNumber), incrs: (_, __, low, high) => axisSteps(high - low),
    }));
  }

  onCursor(plot) {
    const { idx, left } = plot.cursor;
    this.isPointed = left >= 0 && idx !== null && idx !== undefined;
    this.writeValues(this.isPointed ? idx : null);
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
    const isShown = this.shown(n);
    const button = h("button", { type: "button", "data-series": String(n), "aria-pressed": String(isShown), title: isShown ? "hide this line" : "show this line" },
      lineSwatch(look), h("span", {}, look.label), " ", h("b", {}, "–"), h("small", {}, look.unit ? ` ${look.unit}` : ""), look.note ? h("small", {}, ` (${look.note})`) : "");
    if (look.note) button.disabled = true;
    button.addEventListener("click", () => this.show(n, !this.shown(n)));
    return button;
  }

  /** Arrow keys move the cursor, and say the values there. */
  onKey(event) {
    const plot = this.plot, xs = plot?.data[0] ?? [];
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !xs.length) return;
    event.preventDefault();
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

/** The value at a place or, if the line has no point there, the one before. */
function nearestValue(column, place) {
  for (let n = place; n >= 0 && n > place - 400; n -= 1) if (column[n] !== undefined) return column[n];
  return null;
}

function xRange(xs) {
  const low = xs[0] ?? 0, high = xs.at(-1) ?? low;
  return low === high ? [low - 1, high + 1] : [low, high];
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
  const canvas = h("canvas", { class: "line-swatch", width: "56", height: "20", "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  pen.strokeStyle = colourOf(look.colour);
  pen.lineWidth = 4;
  pen.setLineDash(look.dash.map((length) => 2 * length));
  pen.beginPath();
  pen.moveTo(0, 10);
  pen.lineTo(56, 10);
  pen.stroke();
  return canvas;
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
