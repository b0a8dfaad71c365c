// The timeline of a CAN bus on a canvas: a lane per node, frames by kind, slots, deadlines, and who waited for whom.
import { h, clear, setText, setAttribute } from "./dom.js";
import { micros, plural } from "./format.js";
import { colourOf, onThemeChange } from "./colours.js";
import { BusAxis, instantTexts } from "./bus-axis.js";
import { FRAME_KINDS, beatenFrames, busySpans, factsOf, lanesOf, readPicture, usualLength } from "./bus-picture.js";

const LANE_HEIGHT = 30;
const AXIS_HEIGHT = 24;
const MOST_ZOOM = 5000;
const LEAST_WAIT = 6; // pixels
const TIMELINE_FONT = "11px system-ui, sans-serif";
// A kind has a colour, a height and a pattern, so that it is known without the colour, however thin a frame is.
const KIND_LOOKS = {
  hard: { colour: "vermilion", height: 22, pattern: null },
  soft: { colour: "blue", height: 17, pattern: "diagonal" },
  system: { colour: "purple", height: 12, pattern: "level" },
  none: { colour: "green", height: 8, pattern: "dots" },
};
const OTHER_LOOK = { colour: "grey", height: 14, pattern: null };
const lookOfKind = (kind) => KIND_LOOKS[kind] ?? OTHER_LOOK;

/** Draws the timeline of a bus; `data` is what readPicture takes.
 *
 * Options: `lanes` "node" or "channel", `shorten` idle stretches, `label` for screen readers, `onChoose(frame)`. The element
 * has update(data), setOptions(options), fit() to its width, and close().
 */
export function drawTimeline(data, options = {}) {
  const timeline = new Timeline(data, options);
  return Object.assign(timeline.element, {
    update: (next) => timeline.update(next),
    setOptions: (changed) => timeline.setOptions(changed),
    fit: () => { timeline.fit(); timeline.paint(); },
    close: () => timeline.close(),
  });
}

class Timeline {
  constructor(data, options) {
    this.options = { lanes: "node", shorten: false, label: "Timeline of the bus", ...options };
    this.view = { from: 0, to: 1 };
    this.known = [];
    this.drawnKinds = new Set();
    this.pointed = this.chosen = null;
    const stopDrag = () => { this.drag = null; };
    this.canvas = h("canvas", { "aria-hidden": "true", onpointerdown: (event) => this.onDown(event), onpointermove: (event) => this.onMove(event), onpointerup: (event) => this.onUp(event), onpointercancel: stopDrag, onpointerleave: () => this.point(null) });
    this.facts = h("div", { class: "timeline-facts", hidden: true });
    this.names = h("div", { class: "timeline-names", "aria-hidden": "true" });
    this.area = h("div", { class: "timeline-area", tabindex: "0", role: "application", "aria-roledescription": "timeline", onkeydown: (event) => this.onKey(event) }, this.canvas, this.facts);
    this.spoken = h("span", { class: "spoken", role: "status" });
    this.legend = h("ul", { class: "legend" });
    this.element = h("div", { class: "timeline" }, h("div", { class: "timeline-head" }, this.legend, this.zoomButtons()),
      h("div", { class: "timeline-body" }, this.names, this.area), this.spoken);
    this.listen();
    this.update(data);
  }

  zoomButtons() {
    const button = (text, label, act) => h("button", { type: "button", class: "button small", "aria-label": label, title: label, onclick: act }, text);
    this.zoomed = h("output", { class: "timeline-zoom" }, "1×");
    return h("div", { class: "timeline-tools" },
      button("◂", "to the left", () => this.pan(-0.5)), button("▸", "to the right", () => this.pan(0.5)),
      button("−", "show more time", () => this.zoom(0.5)), this.zoomed, button("+", "magnify", () => this.zoom(2)), button("whole", "show the whole span", () => this.setView(0, 1)));
  }

  listen() {
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.area);
    this.endTheme = onThemeChange(() => { this.patterns = null; this.draw(); });
    this.area.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
  }

  close() {
    this.sizes.disconnect();
    this.endTheme();
    cancelAnimationFrame(this.asked);
    this.element.remove();
  }

  setOptions(options) {
    Object.assign(this.options, options);
    this.known = [];
    this.update(this.data);
  }

  update(data) {
    this.data = data;
    this.picture = readPicture(data);
    this.axis = new BusAxis(data.start_us, data.end_us, busySpans(this.picture), usualLength(this.picture.frames), this.options.shorten);
    this.lanes = lanesOf(this.picture, this.options.lanes, this.known);
    this.known = this.options.lanes === "node" ? this.lanes.map((lane) => lane.name) : [];
    this.chosen = this.findAgain(this.chosen);
    this.pointed = this.findAgain(this.pointed);
    setAttribute(this.area, "aria-label", this.label());
    this.drawNames();
    this.drawLegend();
    this.fit();
  }

  /** The same frame in new data. */
  findAgain(thing) {
    if (thing?.what !== "frame") return null;
    return this.picture.frames.find((frame) => frame.start === thing.start && frame.channel === thing.channel) ?? null;
  }

  label() {
    const { frames, slots, waits, start, end } = this.picture;
    const late = [...frames, ...waits.filter((wait) => wait.node === null)].filter((one) => one.isLate).length;
    const parts = [plural(frames.length, "frame"), plural(slots.length, "slot"), plural(waits.length, "waiting event"),
      `${plural(frames.filter((frame) => !frame.ok).length, "frame")} corrupted`, `${late} late`];
    return `${this.options.label}: ${parts.join(", ")} in ${micros(end - start)}. Arrow keys move from frame to frame.`;
  }

  // Names and legend
  drawNames() {
    const key = JSON.stringify(this.lanes.map((lane) => [lane.name, lane.kind]));
    if (key === this.names.dataset.key) return;
    this.names.dataset.key = key;
    clear(this.names).append(...this.lanes.map((lane) => h("div", { class: lane.kind ? `qos-${lane.kind}` : null, title: lane.name }, h("span", {}, lane.name))));
  }

  drawLegend() {
    const { frames, slots, waits } = this.picture;
    const has = (name, is) => { if (is) this.drawnKinds.add(name); }; // what was there once stays, or a live legend would flicker
    Object.keys(KIND_LOOKS).forEach((kind) => has(kind, frames.some((frame) => frame.kind === kind)));
    has("corrupted", frames.some((frame) => !frame.ok));
    has("slot", slots.length > 0);
    has("wait", waits.length > 0);
    has("late", [...frames, ...waits].some((one) => one.isLate));
    has("idle", this.axis.isShortened);
    const key = [...this.drawnKinds].join();
    if (key === this.legend.dataset.key) return;
    this.legend.dataset.key = key;
    const words = { ...FRAME_KINDS, corrupted: "corrupted", slot: "slot, deadline at its end", wait: "waiting, time left, deadline", late: "deadline missed", idle: "idle, shortened" };
    clear(this.legend).append(...Object.keys(words).filter((name) => this.drawnKinds.has(name)).map((name) => h("li", {}, h("i", { class: `timeline-sign ${name}`, "aria-hidden": "true" }), words[name])));
  }

  // The picture
  get width() {
    return this.area.clientWidth;
  }

  get height() {
    return Math.max(this.lanes.length, 1) * LANE_HEIGHT + AXIS_HEIGHT;
  }

  fit() {
    const scale = window.devicePixelRatio || 1, width = this.width;
    if (!width) return;
    const size = [Math.round(width * scale), Math.round(this.height * scale)];
    if (this.canvas.width !== size[0] || this.canvas.height !== size[1]) {
      [this.canvas.width, this.canvas.height] = size;
      this.canvas.style.height = `${this.height}px`;
      this.paint(); // at once: a canvas of another size is empty
    } else this.draw();
  }

  draw() {
    if (!this.asked) this.asked = requestAnimationFrame(() => this.paint());
  }

  x(at) {
    return ((this.axis.part(at) - this.view.from) / (this.view.to - this.view.from)) * this.width;
  }

  paint() {
    cancelAnimationFrame(this.asked);
    this.asked = 0;
    if (!this.width) return;
    const pen = this.canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = TIMELINE_FONT;
    this.paintGround(pen);
    this.lanes.forEach((lane, row) => this.paintLane(pen, lane, row * LANE_HEIGHT));
    this.paintShown(pen);
    this.placeFacts();
  }

  paintGround(pen) {
    const bottom = this.height - AXIS_HEIGHT;
    pen.fillStyle = colourOf("faint");
    for (const each of this.axis.stretches.filter((one) => one.isIdle)) {
      const left = this.x(each.start), right = this.x(each.end);
      pen.fillRect(left, 0, right - left, bottom);
    }
    pen.fillStyle = colourOf("soft-ink");
    pen.strokeStyle = colourOf("rule");
    pen.lineWidth = 1;
    let free = -Infinity;
    const ticks = this.ticks(), texts = instantTexts(ticks.map((at) => at - this.axis.start));
    for (const [n, at] of ticks.entries()) {
      const x = this.x(at), text = texts[n], half = pen.measureText(text).width / 2;
      strokeLine(pen, x, 0, x, bottom + 4);
      const middle = Math.min(Math.max(x, half + 1), this.width - half - 1);
      if (middle - half < free || x < -1 || x > this.width + 1) continue;
      pen.textAlign = "center";
      pen.textBaseline = "top";
      pen.fillStyle = colourOf("soft-ink");
      pen.fillText(text, middle, bottom + 8);
      free = middle + half + 8;
    }
    this.lanes.forEach((_, row) => strokeLine(pen, 0, (row + 1) * LANE_HEIGHT - 0.5, this.width, (row + 1) * LANE_HEIGHT - 0.5));
    if (this.options.lanes === "node") this.paintBands(pen, bottom);
    for (const each of this.axis.stretches.filter((one) => one.isIdle)) {
      const left = this.x(each.start), right = this.x(each.end);
      if (right - left > 14) paintUpright(pen, `${micros(each.end - each.start)} idle`, (left + right) / 2, bottom / 2);
    }
    if (!this.picture.frames.length) paintInside(pen, "no frame in this span", 0, this.width, bottom / 2, colourOf("soft-ink"), colourOf("card"));
  }

  ticks() {
    const { from, to } = this.view;
    return to - from > 0.999 && this.axis.isShortened ? this.axis.landmarks() : this.axis.ticks(Math.max(this.width / 90, 2), from, to);
  }

  /** The slots as bands across all nodes. */
  paintBands(pen, bottom) {
    pen.save();
    pen.globalAlpha = 0.1;
    pen.fillStyle = colourOf("vermilion");
    for (const slot of this.picture.slots) {
      const left = this.x(slot.start), right = this.x(slot.end);
      if (right > 0 && left < this.width) pen.fillRect(left, 0, Math.max(right - left, 1), bottom);
    }
    pen.restore();
  }

  paintLane(pen, lane, top) {
    this.crossAt = -Infinity; // crosses that would hide each other are drawn once
    lane.slots.forEach((slot) => this.paintSlot(pen, slot, top));
    lane.waits.forEach((wait, n) => this.paintWait(pen, wait, top + this.waitOffset(wait, n)));
    lane.frames.forEach((frame) => this.paintFrame(pen, frame, top));
  }

  /** Waits of a node are at the bottom of its lane; those of a channel, which may overlap, in three lines. */
  waitOffset(wait, n) {
    return wait.node === null ? 7 + 8 * (n % 3) : LANE_HEIGHT - 5;
  }

  paintSlot(pen, slot, top) {
    const left = this.x(slot.start), right = Math.max(this.x(slot.end), left + 1);
    if (right < 0 || left > this.width) return;
    pen.save();
    pen.globalAlpha = 0.22;
    pen.fillStyle = colourOf("vermilion");
    pen.fillRect(left, top + 3, right - left, LANE_HEIGHT - 6);
    pen.restore();
    pen.strokeStyle = colourOf("ink");
    pen.lineWidth = 1.5;
    strokeLine(pen, right, top + 1, right, top + LANE_HEIGHT - 2);
    if (this.options.lanes === "node") paintInside(pen, slot.channel, Math.max(left, 0), Math.min(right, this.width), top + LANE_HEIGHT / 2, colourOf("ink"));
  }

  paintWait(pen, { published, delivered, deadline, kind, isLate }, y) {
    const end = delivered ?? Math.max(deadline, this.picture.end), left = this.x(published), right = this.x(end);
    const last = deadline === null ? right : this.x(deadline);
    if (Math.max(right, last) < -4 || left > this.width + 4) return;
    if (Math.max(right, last) - left < LEAST_WAIT) return isLate ? this.paintCrossOnce(pen, last, y, 4.5) : undefined; // dots without a length say nothing
    pen.strokeStyle = pen.fillStyle = colourOf(isLate ? "red" : lookOfKind(kind).colour);
    pen.lineWidth = isLate ? 3 : 1.5;
    strokeLine(pen, left, y, right, y);
    pen.beginPath();
    pen.arc(left, y, 2, 0, 7);
    pen.fill();
    if (deadline === null) return;
    if (last > right) {
      pen.setLineDash([1, 3]);
      pen.lineWidth = 1;
      strokeLine(pen, right, y, last, y);
      pen.setLineDash([]);
    }
    pen.strokeStyle = colourOf(isLate ? "red" : "ink");
    pen.lineWidth = 1.5;
    strokeLine(pen, last, y - 4, last, Math.min(y + 4, this.height));
    if (isLate) this.paintCrossOnce(pen, last, y, 4.5);
  }

  paintFrame(pen, frame, top) {
    const left = this.x(frame.start), width = Math.max(this.x(frame.end) - left, 1.2);
    if (left + width < 0 || left > this.width) return;
    const look = lookOfKind(frame.kind), y = top + (LANE_HEIGHT - 4 - look.height) / 2;
    if (!frame.ok) return drawCorrupted(pen, left, y, width, look.height);
    this.fillBar(pen, look, left, y, width);
    if (look.height > 10) paintInside(pen, frame.channel, Math.max(left, 0), Math.min(left + width, this.width), y + look.height / 2, colourOf("card"), colourOf(look.colour));
    if (frame.isLate && frame.kind === "hard") this.paintCrossOnce(pen, this.x(frame.deadline), y + look.height / 2, 7);
  }

  paintCrossOnce(pen, x, y, radius) {
    if (Math.abs(x - this.crossAt) < 4) return;
    this.crossAt = x;
    paintMissed(pen, x, y, radius);
  }

  fillBar(pen, look, left, top, width) {
    pen.fillStyle = colourOf(look.colour);
    pen.fillRect(left, top, width, look.height);
    const pattern = width > 3 ? this.pattern(pen, look.pattern) : null;
    if (pattern) {
      pattern.setTransform(new DOMMatrix([1, 0, 0, 1, left, top]));
      pen.fillStyle = pattern;
      pen.fillRect(left, top, width, look.height);
    }
    if (width > 4) {
      pen.strokeStyle = colourOf("card");
      pen.lineWidth = 0.5;
      pen.strokeRect(left + 0.25, top + 0.25, width - 0.5, look.height - 0.5);
    }
  }

  pattern(pen, name) {
    this.patterns ??= {};
    if (name) this.patterns[name] ??= makePattern(pen, name);
    return name ? this.patterns[name] : null;
  }

  /** The frame that is pointed at, and lines from it to those that waited for it. */
  paintShown(pen) {
    const frame = this.shown;
    if (frame?.what !== "frame") return;
    pen.strokeStyle = colourOf("ink");
    pen.lineWidth = 2;
    for (const [left, top, width, height] of this.boxesOf(frame)) pen.strokeRect(left - 2, top - 2, width + 4, height + 4);
    const [from] = this.boxesOf(frame);
    pen.lineWidth = 1.5;
    pen.setLineDash([4, 3]);
    for (const other of beatenFrames(frame, this.picture.frames)) {
      const [to] = this.boxesOf(other);
      if (!from || !to) continue;
      pen.beginPath();
      pen.moveTo(from[0], from[1] + from[3] / 2);
      pen.bezierCurveTo(from[0], to[1] + to[3] / 2, to[0] - Math.min(30, (to[0] - from[0]) / 2), to[1] + to[3] / 2, to[0], to[1] + to[3] / 2);
      pen.stroke();
      pen.strokeRect(to[0] - 2, to[1] - 2, to[2] + 4, to[3] + 4);
    }
    pen.setLineDash([]);
  }

  /** Where a frame is drawn: once, or twice if there is a lane for all frames. */
  boxesOf(frame) {
    return this.lanes.flatMap((lane, row) => {
      if (!lane.frames.includes(frame)) return [];
      const { height } = lookOfKind(frame.kind), left = this.x(frame.start);
      return [[left, row * LANE_HEIGHT + (LANE_HEIGHT - 4 - height) / 2, Math.max(this.x(frame.end) - left, 1.2), height]];
    });
  }

  // Facts of what is pointed at
  get shown() {
    return this.pointed ?? this.chosen;
  }

  placeFacts() {
    const thing = this.shown, box = thing && this.boxOf(thing);
    this.facts.hidden = !box || box[0] + box[2] < 0 || box[0] > this.width;
    if (this.facts.hidden) return;
    const [title, facts] = factsOf(thing, this.picture);
    const key = JSON.stringify([title, facts]);
    if (key !== this.facts.dataset.key) {
      this.facts.dataset.key = key;
      clear(this.facts).append(h("strong", {}, title), h("dl", {}, facts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])));
    }
    const left = Math.min(Math.max(box[0], 4), Math.max(this.width - this.facts.offsetWidth - 4, 0));
    this.facts.style.transform = `translate(${Math.round(left)}px, ${Math.round(box[1] + box[3] + 8)}px)`;
  }

  boxOf(thing) {
    if (thing.what === "frame") return this.boxesOf(thing)[0];
    const row = this.lanes.findIndex((lane) => lane.slots.includes(thing) || lane.waits.includes(thing));
    const left = this.x(thing.start ?? thing.published);
    return row < 0 ? null : [left, row * LANE_HEIGHT, Math.max(this.x(thing.end ?? thing.delivered ?? thing.deadline) - left, 1), LANE_HEIGHT - 4];
  }

  /** What is at a place of the canvas: a frame first, then a waiting event, then a slot. */
  thingAt(x, y) {
    const row = Math.floor(y / LANE_HEIGHT), lane = this.lanes[row];
    if (!lane) return null;
    const near = (start, end) => Math.max(this.x(start) - x, x - this.x(end), 0);
    const frames = lane.frames.map((frame) => [near(frame.start, frame.end), frame]).filter(([far]) => far < 4).sort((a, b) => a[0] - b[0]);
    if (frames.length) return frames[0][1];
    const wait = lane.waits.find((one, n) => Math.abs(row * LANE_HEIGHT + this.waitOffset(one, n) - y) < 5 && near(one.published, Math.max(one.delivered ?? one.deadline, one.deadline ?? 0)) < 2);
    return wait ?? lane.slots.find((slot) => near(slot.start, slot.end) < 2) ?? null;
  }

  point(thing) {
    if (thing === this.pointed) return;
    this.pointed = thing;
    this.draw();
  }

  choose(frame, isSpoken = true) {
    this.chosen = frame;
    this.pointed = null;
    this.options.onChoose?.(frame);
    if (frame && isSpoken) {
      const [title, facts] = factsOf(frame, this.picture);
      setText(this.spoken, [title, ...facts.map(([name, text]) => `${name} ${text}`.trim())].join(", "));
    }
    if (frame) this.bringIntoView(frame);
    this.draw();
  }

  bringIntoView(frame) {
    const part = this.axis.part(frame.start), { from, to } = this.view;
    if (part < from || part > to) this.setView(part - (to - from) / 2, part + (to - from) / 2);
  }

  // Zoom and pan
  setView(from, to) {
    const width = Math.min(Math.max(to - from, 1 / MOST_ZOOM), 1), left = Math.min(Math.max(from, 0), 1 - width);
    this.view = { from: left, to: left + width };
    setText(this.zoomed, `${Math.round(1 / width)}×`);
    this.element.toggleAttribute("data-zoomed", width < 0.999);
    this.draw();
  }

  zoom(factor, part = this.chosen ? this.axis.part(this.chosen.start) : (this.view.from + this.view.to) / 2) {
    const { from, to } = this.view, width = (to - from) / factor;
    const left = part - ((part - from) / (to - from)) * width;
    this.setView(left, left + width);
  }

  pan(share) {
    const width = this.view.to - this.view.from;
    this.setView(this.view.from + share * width, this.view.to + share * width);
  }

  onWheel(event) {
    if (event.ctrlKey || event.metaKey) {
      const part = this.view.from + ((event.clientX - this.area.getBoundingClientRect().left) / this.width) * (this.view.to - this.view.from);
      this.zoom(Math.exp(-event.deltaY / 250), part);
    } else if (this.view.to - this.view.from < 0.999 && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
      this.pan((event.deltaX || event.deltaY) / this.width);
    } else return;
    event.preventDefault();
  }

  onDown(event) {
    this.drag = { x: event.clientX, from: this.view.from, to: this.view.to, isMoved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    const box = this.canvas.getBoundingClientRect();
    if (this.drag && (this.drag.isMoved || Math.abs(event.clientX - this.drag.x) > 4)) {
      const moved = ((this.drag.x - event.clientX) / this.width) * (this.drag.to - this.drag.from);
      this.drag.isMoved = true;
      this.setView(this.drag.from + moved, this.drag.to + moved);
      return this.point(null);
    }
    this.point(this.thingAt(event.clientX - box.left, event.clientY - box.top));
  }

  onUp(event) {
    const box = this.canvas.getBoundingClientRect(), isClick = this.drag && !this.drag.isMoved;
    this.drag = null;
    if (!isClick) return;
    const thing = this.thingAt(event.clientX - box.left, event.clientY - box.top);
    this.choose(thing?.what === "frame" ? thing : null, false);
    if (thing && thing.what !== "frame") this.point(thing);
  }

  // Keys
  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), ArrowDown: () => this.stepLane(1), ArrowUp: () => this.stepLane(-1),
      Home: () => this.choose(this.picture.frames[0] ?? null), End: () => this.choose(this.picture.frames.at(-1) ?? null),
      PageUp: () => this.pan(-0.8), PageDown: () => this.pan(0.8), "+": () => this.zoom(2), "=": () => this.zoom(2), "-": () => this.zoom(0.5),
      0: () => this.setView(0, 1), Escape: () => this.choose(null),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  /** The next or the previous frame on the bus; at first the first one that is seen. */
  step(by) {
    const { frames } = this.picture;
    if (!this.chosen) return this.choose(frames.find((frame) => this.axis.part(frame.start) >= this.view.from) ?? frames[0] ?? null);
    this.choose(frames[Math.min(Math.max(frames.indexOf(this.chosen) + by, 0), frames.length - 1)]);
  }

  /** The nearest frame in the next lane that has one. */
  stepLane(by) {
    if (!this.chosen) return this.step(by);
    for (let row = this.lanes.findIndex((lane) => lane.frames.includes(this.chosen)) + by; this.lanes[row]; row += by) {
      const far = (frame) => Math.abs(frame.start - this.chosen.start);
      const nearest = this.lanes[row].frames.reduce((best, frame) => (best && far(best) <= far(frame) ? best : frame), null);
      if (nearest) return this.choose(nearest);
    }
  }
}

// Strokes
function strokeLine(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/** A cross that is seen on any ground. */
function paintMissed(pen, x, y, radius) {
  const size = radius / 2;
  pen.fillStyle = colourOf("card");
  pen.strokeStyle = colourOf("red");
  pen.lineWidth = 1.75;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 7);
  pen.fill();
  pen.stroke();
  strokeLine(pen, x - size, y - size, x + size, y + size);
  strokeLine(pen, x - size, y + size, x + size, y - size);
}

function paintUpright(pen, text, x, y) {
  pen.save();
  pen.translate(x, y);
  pen.rotate(-Math.PI / 2);
  pen.fillStyle = colourOf("soft-ink");
  pen.strokeStyle = colourOf("faint");
  pen.lineWidth = 4;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.strokeText(text, 0, 0);
  pen.fillText(text, 0, 0);
  pen.restore();
}

/** A text in a bar, if it fits; on a pattern it has a ground of its own. */
function paintInside(pen, text, left, right, y, colour, ground = null) {
  if (right - left < 4 * text.length || pen.measureText(text).width + 6 > right - left) return;
  pen.fillStyle = colour;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  if (ground) {
    pen.strokeStyle = ground;
    pen.lineWidth = 4;
    pen.lineJoin = "round";
    pen.strokeText(text, (left + right) / 2, y + 0.5);
  }
  pen.fillText(text, (left + right) / 2, y + 0.5);
}

function drawCorrupted(pen, left, top, width, height) {
  pen.fillStyle = colourOf("red-ground");
  pen.strokeStyle = colourOf("red");
  pen.fillRect(left, top, width, height);
  pen.lineWidth = 1.5;
  pen.strokeRect(left, top, width, height);
  strokeLine(pen, left, top, left + width, top + height);
  strokeLine(pen, left, top + height, left + width, top);
}

function makePattern(pen, name) {
  const scale = 2, size = { diagonal: 6, level: 4, dots: 4 }[name];
  const tile = h("canvas", { width: String(size * scale), height: String(size * scale) }), tip = tile.getContext("2d");
  tip.scale(scale, scale);
  tip.strokeStyle = tip.fillStyle = colourOf("card");
  tip.globalAlpha = 0.45;
  tip.lineWidth = 1.4;
  if (name === "diagonal") [-size, 0, size].forEach((shift) => strokeLine(tip, shift - 1, size + 1, shift + size + 1, -1));
  if (name === "level") strokeLine(tip, 0, size / 2, size, size / 2);
  if (name === "dots") tip.fillRect(1, 1, 2, 2);
  const pattern = pen.createPattern(tile, "repeat"), place = pattern.setTransform.bind(pattern);
  pattern.setTransform = (matrix) => place(matrix.scale(1 / scale));
  return pattern;
}
