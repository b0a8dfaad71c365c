// The points of the view Plot: for each series and line the last minutes, and never more than fit.
import { thinLine } from "../components/chart.js";

/** The longest time that is kept. */
export const LONGEST_MS = 600_000;
/** Points of a line that are kept; older ones are thinned out by their minimum and maximum. */
export const MOST_POINTS = 5000;
/** Lines of a series that are kept. */
export const MOST_LINES = 40;
const THINNED_COLUMNS = 1600; // leaves 3,200 points, so that thinning is rare
const REAL_TIME_MS = 5000;
const LEAST_GAP_MS = 5000;
const SAMPLED_INTERVALS = 200;
const FEW_INTERVALS = 5; // too few to tell what is usual

/** Whether an attribute of this type is drawn: a number, bool as 0 or 1, a duration in seconds, choices of numbers. */
export function isPlotted(type) {
  return /^(u?int|float)\d*$|^bool$|^duration$|^-?\d+(\|-?\d+)*$/i.test(type);
}

/** Points of series. A line is a list of [time in ms, value], in the order of time. */
export class PlotData {
  constructor() {
    this.series = new Map();
    this.newest = null;
    this.isPresent = false; // whether points are of the server's present, so that plots go on without new ones
    this.clock = null; // the server's time, and the page's at that moment
  }

  /** Take a message of /api/plot/stream; returns whether there are lines that were not there before. */
  receive({ at, series }) {
    let isNew = false, hasPoints = false;
    for (const [name, { unit, lines }] of Object.entries(series)) {
      const known = this.#seriesOf(name);
      if (known.unit !== unit) [known.unit, isNew] = [unit, true];
      for (const [key, points] of Object.entries(lines)) {
        isNew = this.#add(known, key, points) || isNew;
        hasPoints ||= points.length > 0;
      }
    }
    if (hasPoints) this.isPresent = Math.abs(at - this.newest) < REAL_TIME_MS;
    this.clock = { at, heard: performance.now() };
    return isNew;
  }

  #seriesOf(name) {
    if (!this.series.has(name)) this.series.set(name, { unit: null, lines: new Map() });
    return this.series.get(name);
  }

  #add(known, key, points) {
    if (!points.length) return false;
    const isNew = !known.lines.has(key);
    if (isNew && known.lines.size >= MOST_LINES) return false;
    known.lines.set(key, bounded(merged(known.lines.get(key) ?? [], points)));
    this.newest = Math.max(this.newest ?? -Infinity, points.at(-1)[0]);
    return isNew;
  }

  /** The right end of the plots: the present, or the newest point if points are of another time. */
  now() {
    if (!this.isPresent || this.newest === null) return this.newest;
    return Math.max(this.newest, this.clock.at + performance.now() - this.clock.heard);
  }

  /** The points of a line in a span of time, with one before and one after it, at most two for each column of pixels. */
  points(name, key, from, to, columns) {
    const line = this.series.get(name)?.lines.get(key) ?? [];
    const part = broken(line.slice(Math.max(0, placeOf(line, from) - 1), placeOf(line, to) + 1), longestInterval(line));
    return part.length > 2 * columns ? extremes(part, (to - from) / columns) : part;
  }

  /** Points were missed: what comes after a time, or else after the last point, is not connected with what was there. */
  breakLines(time = null) {
    for (const { lines } of this.series.values()) {
      for (const line of lines.values()) {
        const at = time ?? line.at(-1)[0] + 0.001, place = placeOf(line, at);
        if (place && line[place - 1][1] !== null) line.splice(place, 0, [at, null]);
      }
    }
  }

  /** Forget what is later than a time, as a recording went back. */
  cut(time) {
    this.newest = null;
    for (const { lines } of this.series.values()) {
      for (const [key, line] of lines) {
        line.length = placeOf(line, time);
        if (line.length) this.newest = Math.max(this.newest ?? -Infinity, line.at(-1)[0]);
        else lines.delete(key);
      }
    }
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

/**
 * From which time between two points on a line is not drawn, as nobody listened: far longer than is usual for this line,
 * also if its events come in bursts.
 */
export function longestInterval(line) {
  const step = Math.max(1, Math.floor(line.length / SAMPLED_INTERVALS)), intervals = [];
  for (let n = 1; n < line.length; n += step) if (line[n][1] !== null && line[n - 1][1] !== null) intervals.push(line[n][0] - line[n - 1][0]);
  if (intervals.length < FEW_INTERVALS) return Infinity;
  intervals.sort((a, b) => a - b);
  const part = (share) => intervals[Math.floor(share * (intervals.length - 1))];
  return Math.max(LEAST_GAP_MS, 10 * part(0.5), 3 * part(0.9));
}

/** Points with a gap wherever two are further apart than `longest`. */
function broken(points, longest) {
  const isGap = (point, n) => n > 0 && point[0] - points[n - 1][0] > longest;
  return points.some(isGap) ? points.flatMap((point, n) => (isGap(point, n) ? [[points[n - 1][0] + 0.001, null], point] : [point])) : points;
}

/** Both lists in the order of time, without the points that come twice, as after a reconnection. */
function merged(line, points) {
  if (!line.length || points[0][0] > line.at(-1)[0]) {
    line.push(...points);
    return line;
  }
  const all = [...line, ...points].sort((a, b) => a[0] - b[0]);
  return all.filter((point, n) => !n || point[0] !== all[n - 1][0] || point[1] !== all[n - 1][1]);
}

function bounded(line) {
  const first = placeOf(line, line.at(-1)[0] - LONGEST_MS);
  if (first > line.length / 10) line.splice(0, first);
  return line.length > MOST_POINTS ? thinLine(line, THINNED_COLUMNS) : line;
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

/** The lowest and the highest point of each stretch; the stretches lie still while time passes, so nothing flickers. */
function extremes(points, width) {
  const kept = [];
  let stretch = null, low = null, high = null;
  const flush = () => {
    if (low) kept.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
    low = high = null;
  };
  for (const point of points) {
    const here = Math.floor(point[0] / width);
    if (point[1] === null) {
      flush();
      kept.push(point);
      stretch = null;
    } else if (here !== stretch) {
      flush();
      [stretch, low, high] = [here, point, point];
    } else {
      if (point[1] < low[1]) low = point;
      if (point[1] > high[1]) high = point;
    }
  }
  flush();
  return kept;
}

// -- the address ---------------------------------------------------------------------------------------------------------

/** Plots from the address: "Loop.speed,Loop.lane;Gate.open" are two plots, the first of two series. */
export function readPlots(text, { mostPlots, mostSeries }) {
  const plots = [], seen = new Set();
  for (const part of (text ?? "").split(";")) {
    const names = [...new Set(part.split(",").map((name) => name.trim()).filter(Boolean))].filter((name) => seen.has(name) || seen.size < mostSeries);
    names.forEach((name) => seen.add(name));
    if (names.length && plots.length < mostPlots) plots.push(names);
  }
  return plots;
}

export function writePlots(plots) {
  return plots.map((names) => names.join(",")).join(";");
}
