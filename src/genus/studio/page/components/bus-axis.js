// The time axis of a bus. Frames take microseconds with much time between them: where they would be too thin to be seen,
// the longest idle stretches are drawn at a small fixed width, and the busy ones share what is left.

const VISIBLE_PART = 0.003; // a frame that takes this part of the width is visible, and nothing is shortened
const MOST_IDLE = 20;
const LEAST_IDLE_FRAMES = 12; // idle stretches that are shorter than so many frames are not shortened
const IDLE_PART = 0.035; // of the width: what a shortened stretch takes,
const ALL_IDLE_PART = 0.4; // and what all of them may take together
const MARGIN_PART = 0.02; // of all busy time: what is kept before and after a busy stretch
const LABEL_PART = 0.08; // of the width: what the label of an instant takes

/** Stretches one after the other, {start, end, left, right, isIdle}, which together are the width of a timeline: from 0 to 1. */
export class BusAxis {
  /** An axis from `start` to `end`; with `isShortened`, the spans [start, end] stay visible, most of which are as long as `usual`. */
  constructor(start, end, spans = [], usual = Infinity, isShortened = true) {
    this.start = start;
    this.end = end > start ? end : start + 1;
    const length = this.end - start;
    const idle = isShortened && usual < VISIBLE_PART * length ? idleSpans(start, this.end, spans, usual) : [];
    this.stretches = placeStretches(start, this.end, idle);
  }

  /** Where an instant is drawn, from 0 to 1; what lies outside is at the nearer end. */
  part(at) {
    for (const each of this.stretches) {
      if (at <= each.end) return each.left + (Math.max(at - each.start, 0) / (each.end - each.start)) * (each.right - each.left);
    }
    return 1;
  }

  /** The instant that is drawn at a part of the width. */
  instant(part) {
    const each = this.stretches.find((one) => part <= one.right) ?? this.stretches.at(-1);
    return each.start + ((Math.min(part, each.right) - each.left) / (each.right - each.left)) * (each.end - each.start);
  }

  get isShortened() {
    return this.stretches.length > 1;
  }

  /** The stretches that are not shortened. */
  get busy() {
    return this.stretches.filter((each) => !each.isIdle);
  }

  /** About so many round instants in the busy stretches between two parts of the width, at equal distances from the start. */
  ticks(wanted, from = 0, to = 1) {
    const [first, last] = [this.instant(from), this.instant(to)];
    const spans = this.busy.map((each) => [Math.max(each.start, first) - this.start, Math.min(each.end, last) - this.start]).filter(([start, end]) => end > start);
    const step = roundStep(spans.reduce((sum, [start, end]) => sum + end - start, 0) / wanted);
    return spans.flatMap(([start, end]) => multiplesBetween(start, end, step)).map((at) => this.start + at);
  }

  /** The starts of busy stretches, or round instants if nothing is shortened, as far as their labels fit. */
  landmarks() {
    const kept = [];
    for (const at of this.isShortened ? this.busy.map((each) => each.start) : this.ticks(6)) {
      if (!kept.length || this.part(at) - this.part(kept.at(-1)) >= LABEL_PART) kept.push(at);
    }
    return kept;
  }
}

/** Microseconds as texts, all in the unit of the longest, with as many decimals as tell them apart. */
export function instantTexts(instants) {
  const longest = Math.max(...instants.map(Math.abs), 0), [size, unit] = [[1e6, "s"], [1e3, "ms"]].find(([least]) => longest >= least) ?? [1, "µs"];
  for (let digits = 0; ; digits++) {
    const texts = instants.map((at) => `${(at / size).toFixed(digits)} ${unit}`);
    if (digits === 6 || new Set(texts).size === texts.length) return texts;
  }
}

/** The next of 1, 2 or 5 times a power of ten. */
function roundStep(rough) {
  if (!(rough > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
}

function multiplesBetween(start, end, step) {
  const first = Math.ceil(start / step), number = Math.floor(end / step) - first + 1;
  return Array.from({ length: Math.max(Math.min(number, 1000), 0) }, (_, n) => (first + n) * step);
}

/** The longest spans in which nothing is sent, reserved or waiting, in order, without a margin at busy sides. */
function idleSpans(start, end, spans, usual) {
  const long = gapsBetween(start, end, spans).filter((gap) => gap[1] - gap[0] > LEAST_IDLE_FRAMES * usual);
  const longest = long.sort((a, b) => b[1] - b[0] - (a[1] - a[0])).slice(0, MOST_IDLE);
  const most = MARGIN_PART * longest.reduce((left, gap) => left - (gap[1] - gap[0]), end - start);
  return longest.sort((a, b) => a[0] - b[0]).map((gap) => {
    const margin = Math.min(most, (gap[1] - gap[0]) / 4);
    return [gap[0] > start ? gap[0] + margin : gap[0], gap[1] < end ? gap[1] - margin : gap[1]];
  });
}

function gapsBetween(start, end, spans) {
  const gaps = [];
  let free = start;
  for (const [from, to] of [...spans].sort((a, b) => a[0] - b[0])) {
    if (from > free) gaps.push([free, Math.min(from, end)]);
    free = Math.max(free, to);
  }
  if (end > free) gaps.push([free, end]);
  return gaps.filter((gap) => gap[1] > gap[0]);
}

function placeStretches(start, end, idle) {
  const each = Math.min(IDLE_PART, ALL_IDLE_PART / Math.max(idle.length, 1));
  const scale = (1 - each * idle.length) / idle.reduce((left, gap) => left - (gap[1] - gap[0]), end - start);
  const stretches = [];
  const add = (from, to, isIdle) => {
    const left = stretches.at(-1)?.right ?? 0;
    if (to > from) stretches.push({ start: from, end: to, left, right: left + (isIdle ? each : scale * (to - from)), isIdle });
  };
  idle.forEach(([from, to]) => { add(stretches.at(-1)?.end ?? start, from, false); add(from, to, true); });
  add(stretches.at(-1)?.end ?? start, end, false);
  stretches.at(-1).right = 1;
  return stretches;
}
