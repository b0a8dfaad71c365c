// The points of the view Plot: for each series and line the last minutes or what is stored, and never more than fit.
import { thinLine } from "../components/chart.js";

/** The longest time that is kept of live sources. */
export const LONGEST_MS = 600_000;
/** Points of a line that are kept; older ones are thinned out by their minimum and maximum. */
export const MOST_POINTS = 5000;
const THINNED_COLUMNS = 1600; // leaves 3,200 points, so that thinning is rare
const REAL_TIME_MS = 5000;
const MOST_SEGMENTS = 1e9; // of a stream

/** Whether an attribute of this type is drawn: a number, bool as 0 or 1, a duration in seconds, choices of numbers. */
export function isPlotted(type) {
  return /^(u?int|float)\d*$|^bool$|^duration$|^-?\d+(\|-?\d+)*$/i.test(type);
}

/** Whether the values of an attribute of this type can tell lines apart. */
export function isGrouping(type) {
  return !/^(float\d*|time|duration|bytes|opaque)\b/i.test(type);
}

/**
 * Points of series. A line is a list of [time in ms, value, segment], in the order of time; the server numbers the
 * segments, and points of different ones are never joined.
 */
export class PlotData {
  constructor() {
    this.series = new Map();
    this.newest = null;
    this.isPresent = false; // whether points are of the server's present, so that plots go on without new ones
    this.clock = null; // the server's time, and the page's at that moment
    this.streams = 0;
  }

  /** Another stream begins, or the same one after points may have been missed: nothing is joined with what was there. */
  begin() {
    this.streams += 1;
    for (const { lines } of this.series.values()) lines.forEach((line) => { line.isOld = true; });
  }

  /** Take a message of /api/plot/stream; returns whether there are lines that were not there before. */
  receive({ at, series }) {
    let isNew = false, hasPoints = false;
    for (const [name, { unit, lines, cut }] of Object.entries(series)) {
      const known = this.#seriesOf(name);
      if (known.unit !== unit) [known.unit, isNew] = [unit, true];
      for (const [key, time] of Object.entries(cut)) if (known.lines.has(key)) cutLine(known.lines.get(key), time);
      for (const [key, columns] of Object.entries(lines)) {
        isNew ||= !known.lines.has(key);
        this.#add(known, key, pointsOf(columns, this.streams * MOST_SEGMENTS));
        hasPoints = true;
      }
    }
    if (hasPoints) {
      this.newest = Math.max(...[...this.series.values()].flatMap(({ lines }) => [...lines.values()].filter((line) => line.length).map((line) => line.at(-1)[0])));
      this.isPresent = Math.abs(at - this.newest) < REAL_TIME_MS;
    }
    this.clock = { at, heard: performance.now() };
    return isNew;
  }

  /** Take answers of /api/plot, by source, instead of what was there; returns whether there are other lines. */
  replace(answers) {
    const before = this.#signature();
    this.series = new Map();
    for (const [source, { series }] of answers) {
      for (const [name, { unit, lines }] of Object.entries(series)) {
        const known = this.#seriesOf(name);
        known.unit = unit;
        for (const [key, columns] of Object.entries(lines)) known.lines.set(answers.length > 1 ? [source, key].filter(Boolean).join(" · ") : key, pointsOf(columns, 0));
      }
    }
    return this.#signature() !== before;
  }

  #signature() {
    return [...this.series].map(([name, { unit, lines }]) => [name, unit, ...lines.keys()].join()).join(";");
  }

  #seriesOf(name) {
    if (!this.series.has(name)) this.series.set(name, { unit: null, lines: new Map() });
    return this.series.get(name);
  }

  #add(known, key, points) {
    const line = known.lines.get(key) ?? [];
    if (line.isOld) cutLine(line, points[0][0]); // a stream begins with what the server has kept
    known.lines.set(key, bounded(merged(line, points)));
  }

  /** The right end of the plots: the present, or the newest point if points are of another time. */
  now() {
    if (!this.isPresent || this.newest === null) return this.newest;
    return Math.max(this.newest, this.clock.at + performance.now() - this.clock.heard);
  }

  /** The points of a line in a span of time, with one before and one after it, at most two for each column of pixels. */
  points(name, key, from, to, columns) {
    const line = this.series.get(name)?.lines.get(key) ?? [];
    const part = line.slice(Math.max(0, placeOf(line, from) - 1), placeOf(line, to) + 1);
    return part.length > 2 * columns ? thinLine(part, (to - from) / columns) : part;
  }

  /** Keep these series only. */
  keep(names) {
    for (const name of this.series.keys()) if (!names.has(name)) this.series.delete(name);
    if (!this.series.size) [this.newest, this.isPresent] = [null, false];
  }

  clear() {
    this.keep(new Set());
  }
}

/** Points of the columns of a message. */
function pointsOf([times, values, segments], first) {
  return times.map((time, n) => [time, values[n], first + segments[n]]);
}

/** Both lists in the order of time. */
function merged(line, points) {
  const isLater = !line.length || points[0][0] >= line.at(-1)[0];
  line.push(...points);
  return isLater ? line : line.sort((a, b) => a[0] - b[0]);
}

/** Forget what is not before a time. */
function cutLine(line, time) {
  line.length = placeOf(line, time);
  line.isOld = false;
}

function bounded(line) {
  const first = placeOf(line, line.at(-1)[0] - LONGEST_MS);
  if (first > line.length / 10) line.splice(0, first);
  return line.length > MOST_POINTS ? thinLine(line, (line.at(-1)[0] - line[0][0]) / THINNED_COLUMNS || 1) : line;
}

/** The place of the first point that is not before a time. */
function placeOf(line, time) {
  let low = 0, high = line.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line[middle][0] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// -- the address ---------------------------------------------------------------------------------------------------------

/** Plots from the address: "Loop.speed,Loop.lane by lane;Gate.open" are two plots, the first with a line for each lane. */
export function readPlots(text, { mostPlots, mostSeries }) {
  const plots = [], seen = new Set();
  for (const part of (text ?? "").split(";")) {
    const [, list, by = "none"] = part.trim().match(/^(.*?)(?:\s+by\s+(\S+))?$/s);
    const names = [...new Set(list.split(",").map((name) => name.trim()).filter(Boolean))].filter((name) => seen.has(name) || seen.size < mostSeries);
    names.forEach((name) => seen.add(name));
    if (names.length && plots.length < mostPlots) plots.push({ names, by });
  }
  return plots;
}

export function writePlots(plots) {
  return plots.map(({ names, by }) => names.join(",") + (by === "none" ? "" : ` by ${by}`)).join(";");
}

/** Fixed ranges of axes by unit: "m:0:12,degC:20:90". */
export function readAxes(text) {
  const found = (text ?? "").split(",").map((part) => part.split(":")).filter(([, low, high]) => Number(low) < Number(high));
  return Object.fromEntries(found.map(([unit, low, high]) => [unit, [Number(low), Number(high)]]));
}
