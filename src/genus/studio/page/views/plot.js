// Plot: attributes over time, several plots one below the other, each with one or more series.
import { h, clear, setText, setAttribute } from "../components/dom.js";
import { term } from "../terms.js";
import { lines } from "../components/chart.js";
import { attributesOf } from "./event-log.js";
import { PlotData, isPlotted, readPlots, writePlots } from "./plot-data.js";
import { attributeList } from "./plot-list.js";
import { SOURCE_BAR, readSources, sourceChoice } from "./source-choice.js";

const SERIES_TYPE = "text/genus-series";
const WINDOWS = [[10, "10 s"], [30, "30 s"], [60, "1 min"], [120, "2 min"], [300, "5 min"], [600, "10 min"]];
const BOUNDS = { mostPlots: 12, mostSeries: 20 };
const MOST_OFFERED = 1000;
const DRAW_MS = 80;
const SHARE = 4; // drawing takes one part in so many of the time
const FRAME_MS = 17;
const STEP_MS = 1000; // of the time of a recording
const ON_ITS_WAY_MS = 3000;
const AXIS_ROOM = 66; // in pixels, for the axes at either side

class PlotView {
  constructor(root, ctx) {
    this.ctx = ctx;
    this.data = new PlotData();
    this.plots = readPlots(ctx.params.series, BOUNDS).map((names) => ({ names }));
    this.by = ["source", "publisher"].includes(ctx.params.by) ? ctx.params.by : "none";
    this.window = WINDOWS.find(([seconds]) => String(seconds) === ctx.params.window)?.[0] ?? 60;
    this.chosen = readSources(ctx.params.source);
    this.played = null;
    this.wentBack = -Infinity;
    this.isPaused = false;
    this.build(root);
    this.drawTypes();
    this.drawSources();
    this.drawPlots();
    this.open();
    this.timer = setTimeout(() => this.tick(), DRAW_MS);
  }

  // -- building --------------------------------------------------------------------------------------------------------

  build(root) {
    this.name = h("input", { class: "input plot-name", list: "plot-names", placeholder: "Type.attribute", "aria-label": "series to add, as Type.attribute", autocomplete: "off", spellcheck: "false", type: "text", "data-filter": "" });
    this.names = h("datalist", { id: "plot-names" });
    this.into = h("select", { class: "input", "aria-label": "where to add it" });
    const add = h("form", { class: "plot-add" }, this.name, this.names, this.into, h("button", { class: "button primary" }, "Add"));
    add.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.add(this.name.value.trim(), this.target())) this.name.value = "";
    });
    this.window_ = h("select", { class: "input", onchange: (event) => this.setWindow(Number(event.target.value)) }, WINDOWS.map(([seconds, text]) => h("option", { value: seconds }, text)));
    this.window_.value = String(this.window);
    this.by_ = h("select", { class: "input", onchange: (event) => this.setBy(event.target.value) },
      h("option", { value: "none" }, "all events"), h("option", { value: "source" }, "each value of `source`"), h("option", { value: "publisher" }, "each publisher"));
    this.by_.value = this.by;
    this.pause = h("button", { type: "button", class: "button", "aria-pressed": "false", onclick: () => this.setPaused(!this.isPaused) }, "Pause");
    this.sources = sourceChoice("All", (chosen) => this.choose(chosen));
    this.said = h("p", { class: "plot-said", role: "status" });
    this.list = attributeList({ dragType: SERIES_TYPE, onAdd: (name) => this.add(name, this.target()) });
    this.stack = h("div", { class: "plot-stack" });
    this.drop = h("div", { class: "plot-drop" });
    this.acceptDrops(this.drop, (name) => this.add(name, null));
    root.append(
      h("div", { class: "toolbar" }, add, h("label", { class: "field" }, "last", this.window_), h("label", { class: "field" }, "a line for", this.by_), this.pause, this.sources.element),
      this.said,
      h("div", { class: "plot-split" }, h("div", { class: "plot-main" }, this.stack, this.drop), this.list.element));
    this.onResize = () => this.layOut();
    addEventListener("resize", this.onResize);
  }

  /** Attributes can be dropped here: those of the list, and those of other plots. */
  acceptDrops(element, take) {
    const isSeries = (event) => event.dataTransfer?.types.includes(SERIES_TYPE);
    let depth = 0;
    const mark = (change) => element.classList.toggle("dropping", (depth = Math.max(0, depth + change)) > 0);
    element.addEventListener("dragenter", (event) => { if (isSeries(event)) { event.preventDefault(); mark(1); } });
    element.addEventListener("dragleave", (event) => { if (isSeries(event)) mark(-1); });
    element.addEventListener("dragover", (event) => { if (isSeries(event)) { event.preventDefault(); event.dataTransfer.dropEffect = "copy"; } });
    element.addEventListener("drop", (event) => {
      if (!isSeries(event)) return;
      event.preventDefault();
      mark(-depth);
      take(event.dataTransfer.getData(SERIES_TYPE));
    });
  }

  // -- types and sources -------------------------------------------------------------------------------------------------

  drawTypes() {
    const types = Object.fromEntries(this.ctx.store.rows("types"));
    const key = Object.entries(types).map(([name, row]) => `${name}:${row.attributes.length}`).join();
    if (key === this.typesKey) return;
    this.typesKey = key;
    this.types = types;
    const offered = Object.keys(types).sort().flatMap((type) => attributesOf(types, type).filter((attribute) => isPlotted(attribute.type)).map((attribute) => `${type}.${attribute.name}`));
    clear(this.names).append(...offered.slice(0, MOST_OFFERED).map((name) => h("option", { value: name })));
    this.list.draw(types);
    if (!this.plots.length) return;
    this.drawPlots(); // whether a series of the address exists is known now
    this.plots.forEach((plot) => this.resetLines(plot));
    this.open();
  }

  /** Why a series cannot be drawn; "" if it can, or if the types are not known yet. */
  problemOf(name) {
    const dot = name.lastIndexOf("."), type = name.slice(0, dot), attribute = name.slice(dot + 1);
    if (dot < 1) return "write a type and an attribute, such as Loop.speed";
    if (!this.ctx.store.has("types")) return "";
    if (!this.types[type]) return `there is no type ${type}`;
    const found = attributesOf(this.types, type).find((one) => one.name === attribute);
    if (!found) return `${type} has no attribute ${attribute}`;
    return isPlotted(found.type) ? "" : `${name} is not a number`;
  }

  drawSources() {
    const rows = [...this.ctx.store.rows("sources")].filter(([, row]) => row.has_events && row.kind !== "lake");
    this.noteTimes(rows.filter(([name]) => !this.chosen.size || this.chosen.has(name)));
    const names = rows.map(([name]) => name);
    if (names.join(SOURCE_BAR) === this.sourceNames) return;
    this.sourceNames = names.join(SOURCE_BAR);
    this.sources.draw(names, this.chosen);
  }

  /**
   * Recordings that were set to another time: after a step back, what is later does not exist yet, also what was on its
   * way; after a step forward, points are not connected. Other sources have their own time, so nothing is done with them.
   */
  noteTimes(rows) {
    if (!rows.length || !rows.every(([, row]) => row.can_seek && row.time_ms !== null)) return;
    const now = performance.now(), time = Math.max(...rows.map(([, row]) => row.time_ms)), speed = Math.max(...rows.map(([, row]) => row.speed ?? 1));
    const passed = this.played ? time - this.played.time - speed * (now - this.played.now) : 0;
    if (this.played && time < this.played.time - STEP_MS) this.wentBack = now;
    else if (passed > speed * STEP_MS) this.data.breakLines(this.played.time + speed * STEP_MS);
    if (now - this.wentBack < ON_ITS_WAY_MS) this.data.cut(time + speed * STEP_MS);
    this.played = { time, now };
  }

  choose(chosen) {
    this.chosen = chosen;
    this.ctx.setParams({ source: [...chosen].join(SOURCE_BAR) });
    this.sources.draw(this.sourceNames.split(SOURCE_BAR), chosen);
    this.data.clear();
    this.open();
  }

  // -- plots and series ----------------------------------------------------------------------------------------------------

  /** The plot that the form adds to; null for a new one. */
  target() {
    return this.into.value === "" ? null : this.plots[Number(this.into.value)] ?? null;
  }

  add(name, plot) {
    const problem = this.problemOf(name) || this.boundOf(name, plot);
    this.say(problem && `✗ ${problem}`);
    if (problem) return false;
    if (!plot) this.plots.push({ names: [name] });
    else if (!plot.names.includes(name)) plot.names.push(name);
    this.change();
    this.say(`${name} added`);
    return true;
  }

  boundOf(name, plot) {
    const all = this.allNames();
    if (!all.has(name) && all.size >= BOUNDS.mostSeries) return `at most ${BOUNDS.mostSeries} series are drawn at once`;
    return !plot && this.plots.length >= BOUNDS.mostPlots ? `at most ${BOUNDS.mostPlots} plots are drawn at once` : "";
  }

  remove(plot, name) {
    plot.names = plot.names.filter((one) => one !== name);
    if (!plot.names.length) this.plots = this.plots.filter((one) => one !== plot);
    this.change();
    (this.stack.querySelector(".plot-remove") ?? this.name).focus();
  }

  allNames() {
    return new Set(this.plots.flatMap((plot) => plot.names));
  }

  change() {
    this.ctx.setParams({ series: writePlots(this.plots.map((plot) => plot.names)) });
    this.drawPlots();
    this.open();
  }

  /** Make the elements of new plots, remove those of gone ones, and write all heads anew. */
  drawPlots() {
    for (const element of [...this.stack.children]) {
      if (this.plots.some((plot) => plot.element === element)) continue;
      element.plot.chart.destroy();
      element.remove();
    }
    this.plots.forEach((plot, n) => {
      if (!plot.element) this.makePlot(plot);
      clear(plot.head).append(h("span", { class: "plot-number" }, String(n + 1)), ...plot.names.map((name) => this.seriesChip(plot, name)));
      setAttribute(plot.element, "aria-label", `plot ${n + 1}: ${plot.names.join(", ")}`);
    });
    const chosen = this.into.value;
    clear(this.into).append(h("option", { value: "" }, "new plot"), ...this.plots.map((_, n) => h("option", { value: n }, `plot ${n + 1}`)));
    this.into.value = this.plots[Number(chosen)] && chosen !== "" ? chosen : "";
    clear(this.drop).append(...this.dropText());
    this.layOut();
  }

  dropText() {
    if (this.plots.length) return ["Drop an attribute here for another plot, or onto a plot to overlay it."];
    return [h("strong", {}, "Drag an attribute here"), h("span", {}, "or choose one in the list, or write its name above: ", term("type"), ".", term("attribute"), ".")];
  }

  makePlot(plot) {
    plot.head = h("div", { class: "plot-head" });
    plot.place = h("div", {});
    plot.note = h("p", { class: "plot-note" });
    plot.element = h("section", { class: "card plot" }, plot.head, plot.place, plot.note);
    plot.element.plot = plot;
    plot.lines = [];
    plot.options = { series: [], data: [], range: null, height: 240, sync: "genus-plot", label: "lines over time", room: AXIS_ROOM };
    this.acceptDrops(plot.element, (name) => this.add(name, plot));
    this.stack.append(plot.element);
    plot.chart = lines(plot.place, plot.options);
  }

  seriesChip(plot, name) {
    const problem = this.problemOf(name);
    const chip = h("span", { class: problem ? "plot-series bad" : "plot-series", draggable: "true" }, h("span", {}, problem ? `✗ ${name}` : name), problem ? h("small", {}, `: ${problem}`) : null,
      h("button", { type: "button", class: "plot-remove", "aria-label": `remove ${name}`, title: "remove", onclick: () => this.remove(plot, name) }, "✕"));
    chip.addEventListener("dragstart", (event) => {
      event.dataTransfer.setData(SERIES_TYPE, name);
      event.dataTransfer.effectAllowed = "copy";
    });
    return chip;
  }

  /** All plots have the same height, so that they fill the page. */
  layOut() {
    const room = innerHeight - this.stack.getBoundingClientRect().top - scrollY - 90;
    const height = Math.round(Math.max(150, Math.min(room / Math.max(this.plots.length, 1) - 110, innerHeight * 0.6)));
    for (const plot of this.plots) {
      if (plot.options.height === height && plot.isDrawn) continue;
      plot.options.height = height;
      this.resetLines(plot);
    }
  }

  // -- the stream --------------------------------------------------------------------------------------------------------

  open() {
    const good = [...this.allNames()].filter((name) => !this.problemOf(name));
    this.data.keep(new Set(good));
    const asked = new URLSearchParams([...good.map((name) => ["series", name]), ...[...this.chosen].map((name) => ["source", name]), ["by", this.by]]);
    if (String(asked) === this.asked && this.stream) return;
    this.asked = String(asked);
    this.stream?.close();
    this.stream = null;
    if (!good.length || !this.ctx.store.has("types")) return;
    this.stream = this.ctx.sse(`plot/stream?${asked}`, { points: (data) => this.receive(data) }, (state) => this.noteState(state));
  }

  receive(data) {
    if (this.data.receive(data)) this.plots.forEach((plot) => { plot.isDrawn = false; });
    this.isDirty = true;
  }

  noteState(state) {
    if (state !== "open") this.data.breakLines();
    if (state === "broken") this.say("No connection: trying again");
    else if (this.said.textContent.startsWith("No connection")) this.say("");
  }

  // -- drawing -------------------------------------------------------------------------------------------------------------

  /** Draws, and then leaves the browser time for other things: the next frame tells how long drawing took. */
  tick() {
    const began = performance.now(), isDue = !this.isPaused && !document.hidden && (this.isDirty || this.data.isPresent);
    if (isDue) {
      this.isDirty = false;
      this.draw();
    }
    this.frame = requestAnimationFrame(() => {
      const spent = isDue ? performance.now() - began - FRAME_MS : 0;
      this.timer = setTimeout(() => { this.frame = requestAnimationFrame(() => this.tick()); }, Math.max(DRAW_MS, SHARE * spent));
    });
  }

  draw() {
    const now = this.data.now();
    if (now === null) return;
    for (const plot of this.plots) {
      if (!plot.isDrawn) this.resetLines(plot);
      else plot.chart.update(this.pointsOf(plot), this.range());
    }
  }

  range() {
    const now = this.data.now();
    return now === null ? null : [now - 1000 * this.window, now];
  }

  /** Lines keep their place, and so their colour, for as long as they are there. */
  resetLines(plot) {
    plot.isDrawn = true;
    const found = plot.names.flatMap((name) => [...(this.data.series.get(name)?.lines.keys() ?? [])].sort().map((key) => ({ name, key })));
    const isIn = (list, one) => list.some((other) => other.name === one.name && other.key === one.key);
    plot.lines = [...plot.lines.filter((line) => isIn(found, line)), ...found.filter((line) => !isIn(plot.lines, line))];
    const looks = plot.lines.map(({ name, key }) => ({ label: this.labelOf(plot, name, key), unit: this.data.series.get(name).unit ?? "" }));
    plot.note.hidden = plot.lines.length > 0;
    plot.place.hidden = !plot.lines.length;
    plot.note.style.height = `${plot.options.height}px`;
    setText(plot.note, plot.names.every((name) => this.problemOf(name)) ? "Nothing to draw." : "No event with a value yet.");
    plot.options.padding = this.paddingOf(plot);
    plot.chart.setSeries(looks, this.pointsOf(plot), this.range());
  }

  /** Time is at the same place in all plots, whether or not they have an axis at the right. */
  paddingOf(plot) {
    const hasRight = (one) => new Set(one.names.filter((name) => this.data.series.has(name)).map((name) => this.data.series.get(name).unit ?? "")).size > 1;
    return this.plots.some(hasRight) ? [8, hasRight(plot) ? 0 : AXIS_ROOM, 0, 0] : [8, 18, 0, 0];
  }

  labelOf(plot, name, key) {
    if (this.by === "none") return name;
    const line = key || `no ${this.by}`;
    return plot.names.length > 1 ? `${name} · ${line}` : line;
  }

  pointsOf(plot) {
    const range = this.range(), columns = Math.max(plot.place.clientWidth - 60, 50);
    return plot.lines.map(({ name, key }) => (range ? this.data.points(name, key, range[0], range[1], columns) : []));
  }

  // -- controls --------------------------------------------------------------------------------------------------------------

  setWindow(seconds) {
    this.window = seconds;
    this.ctx.setParams({ window: seconds === 60 ? "" : seconds });
    this.draw();
  }

  setBy(by) {
    this.by = by;
    this.ctx.setParams({ by: by === "none" ? "" : by });
    this.data.clear();
    this.plots.forEach((plot) => { plot.isDrawn = false; });
    this.open();
  }

  setPaused(isPaused) {
    this.isPaused = isPaused;
    setText(this.pause, isPaused ? "Resume" : "Pause");
    setAttribute(this.pause, "aria-pressed", String(isPaused));
    this.isDirty = true;
  }

  say(text) {
    setText(this.said, text);
    this.said.className = text.startsWith("✗") ? "plot-said bad" : text.endsWith("added") ? "spoken" : "plot-said";
  }

  update(changes) {
    if (changes.types) this.drawTypes();
    if (changes.sources) this.drawSources();
  }

  unmount() {
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    removeEventListener("resize", this.onResize);
    this.stream?.close();
    this.plots.forEach((plot) => plot.chart?.destroy());
  }
}

export default { id: "plot", title: "Plot", tables: ["sources", "types"], mount: (root, ctx) => new PlotView(root, ctx) };
