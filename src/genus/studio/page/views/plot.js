// Plot: attributes over time, several plots one below the other, each with one or more series: of live sources the last
// minutes, of recordings and lakes all that is stored.
import { h, clear, setText, setAttribute } from "../components/dom.js";
import { count } from "../components/format.js";
import { term } from "../terms.js";
import { chartClock, lines, mostAxes } from "../components/chart.js";
import { attributesOf } from "./event-log.js";
import { PlotData, isGrouping, isPlotted, readAxes, readPlots, writePlots } from "./plot-data.js";
import { SERIES_TYPE, attributeList, letDrag } from "./plot-list.js";
import { SOURCE_BAR, readSources, sourceChoice } from "./source-choice.js";

const WINDOWS = [[10, "10 s"], [30, "30 s"], [60, "1 min"], [120, "2 min"], [300, "5 min"], [600, "10 min"]];
const BOUNDS = { mostPlots: 12, mostSeries: 20 };
const MOST_OFFERED = 1000;
const DRAW_MS = 80;
const SHARE = 4; // drawing takes one part in so many of the time
const FRAME_MS = 17;
const AXIS_ROOM = innerWidth < 640 ? 50 : 66; // in pixels, for each axis
const ADDRESS_MS = 300; // how long a range stays before it is written into the address
const AGAIN_MS = 150; // how soon what is being read is asked for again
const MARGIN = 0.25; // what is asked for at either side of a range, so that panning has something to show
const LEAST_RANGE_MS = 0.1;
const BY = [["none", "one line"], ["source", "a line for each `source`"], ["publisher", "a line for each publisher"], ["type", "a line for each type"]];
const isStored = ([, row]) => row.kind === "recording" || row.kind === "lake";

class PlotView {
  constructor(root, ctx) {
    this.ctx = ctx;
    this.data = new PlotData();
    const saved = ctx.params.series ? null : ctx.config.layout?.plots, first = saved?.find((one) => one.from_ms != null);
    this.plots = saved ? saved.map(({ name, series, by }) => ({ title: name, names: series, by: by ?? "none" })) : readPlots(ctx.params.series, BOUNDS);
    if (ctx.params.by) this.plots.forEach((plot) => { if (plot.by === "none") plot.by = ctx.params.by; });
    this.axes = saved ? Object.assign({}, ...saved.map((one) => one.axes ?? {})) : readAxes(ctx.params.axes);
    this.window = WINDOWS.find(([seconds]) => String(seconds) === ctx.params.window)?.[0] ?? 60;
    this.chosen = saved ? new Set(saved.flatMap((one) => one.sources ?? [])) : readSources(ctx.params.source);
    const given = first ? [first.from_ms, first.to_ms] : [ctx.params.from, ctx.params.to].map((text) => (text ? Number(text) : NaN));
    this.range = given[0] < given[1] ? given : null; // null: the last minutes, or all that is stored
    this.whole = null; // all that is stored, as far as it is known
    this.names = []; // of the sources that are drawn
    this.isStored = false;
    this.build(root);
    this.drawTypes();
    this.drawSources();
    this.drawPlots();
    this.open();
    this.timer = setTimeout(() => this.tick(), DRAW_MS);
  }

  // -- building --------------------------------------------------------------------------------------------------------

  build(root) {
    const button = (label, onclick, more = {}) => h("button", { type: "button", class: "button", onclick, ...more }, label);
    this.name = h("input", { class: "input plot-name", list: "plot-names", placeholder: "Type.attribute", "aria-label": "series to add, as Type.attribute", autocomplete: "off", spellcheck: "false", type: "text", "data-filter": "" });
    this.offered = h("datalist", { id: "plot-names" });
    this.into = h("select", { class: "input", "aria-label": "where to add it" });
    const add = h("form", { class: "plot-add" }, this.name, this.offered, this.into, h("button", { class: "button primary" }, "Add"));
    add.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.add(this.name.value.trim(), this.target())) this.name.value = "";
    });
    this.window_ = h("select", { class: "input", onchange: (event) => this.setWindow(Number(event.target.value)) }, WINDOWS.map(([seconds, text]) => h("option", { value: seconds }, text)));
    this.window_.value = String(this.window);
    this.last = h("label", { class: "field" }, "last", this.window_);
    this.pause = button("Pause", () => this.setRange(this.range || this.isStored ? null : this.shownRange()));
    this.out = button("−", () => this.zoom(2), { "aria-label": "zoom out", title: "zoom out (wheel, or the key −)" });
    this.in = button("+", () => this.zoom(0.5), { "aria-label": "zoom in", title: "zoom in (wheel, drag over a range, or the key +)" });
    this.events = h("a", { class: "button", title: "the events of this range" }, "Events");
    this.told = h("span", { class: "plot-range" });
    this.sources = sourceChoice("All", (chosen) => this.choose(chosen));
    this.said = h("p", { class: "plot-said", role: "status" });
    this.list = attributeList({ onAdd: (name) => this.add(name, this.target()) });
    this.stack = h("div", { class: "plot-stack" });
    this.drop = h("div", { class: "plot-drop" });
    this.acceptDrops(this.drop, (name) => this.add(name, null));
    root.append(
      h("div", { class: "toolbar" }, add, this.last, this.pause, h("span", { class: "plot-zoom" }, this.out, this.in), this.events, button("Save", () => this.save(), { title: "save these plots as a file, for genus studio --layout" }), this.sources.element, this.told),
      this.said,
      h("div", { class: "plot-split" }, h("div", { class: "plot-main" }, this.stack, this.drop), this.list.element));
    this.onResize = () => { this.layOut(); this.ask(); };
    addEventListener("resize", this.onResize);
  }

  /** Attributes can be dropped here: those of the list, and those of other plots. */
  acceptDrops(element, take) {
    const on = (name, act) => element.addEventListener(name, (event) => { if (event.dataTransfer?.types.includes(SERIES_TYPE)) act(event); });
    const mark = (isOver) => element.classList.toggle("dropping", isOver);
    on("dragover", (event) => { event.preventDefault(); event.dataTransfer.dropEffect = "copy"; mark(true); });
    on("dragleave", (event) => mark(element.contains(event.relatedTarget)));
    on("drop", (event) => { event.preventDefault(); mark(false); take(event.dataTransfer.getData(SERIES_TYPE)); });
  }

  // -- types and sources -------------------------------------------------------------------------------------------------

  drawTypes() {
    const types = Object.fromEntries([...this.ctx.store.rows("types")].reverse().map(([key, row]) => [row.name || key, row])); // of several sources' classes of a name, the first
    const key = Object.entries(types).map(([name, row]) => `${name}:${row.attributes.length}`).join();
    if (key === this.typesKey) return;
    this.typesKey = key;
    this.types = types;
    const offered = Object.keys(types).sort().flatMap((type) => attributesOf(types, type).filter((attribute) => isPlotted(attribute.type)).map((attribute) => `${type}.${attribute.name}`));
    clear(this.offered).append(...offered.slice(0, MOST_OFFERED).map((name) => h("option", { value: name })));
    this.list.draw(types);
    if (!this.plots.length) return;
    this.drawPlots(); // whether a series of the address exists is known now
    this.plots.forEach((plot) => this.resetLines(plot));
    this.open();
  }

  /** Why a series cannot be drawn; "" if it can, or if the types are not known yet. */
  problemOf(name) {
    const [type, attribute] = partsOf(name);
    if (!type) return "write a type and an attribute, such as Loop.speed";
    if (!this.ctx.store.has("types")) return "";
    if (!this.types[type]) return `there is no type ${type}`;
    const found = attributesOf(this.types, type).find((one) => one.name === attribute);
    if (!found) return `${type} has no attribute ${attribute}`;
    return isPlotted(found.type) ? "" : `${name} is not a number`;
  }

  /** The attributes of the types of a plot that can tell lines apart. */
  groupings(plot) {
    const found = plot.names.flatMap((name) => (this.types?.[partsOf(name)[0]] ? attributesOf(this.types, partsOf(name)[0]) : []));
    return [...new Set(found.filter((one) => isGrouping(one.type) && one.name !== "source").map((one) => one.name))];
  }

  /** What the server is asked for: the series, and what tells its lines apart if its type has that. */
  seriesOf(plot, name) {
    const isKnown = BY.some(([by]) => by === plot.by) || attributesOf(this.types, partsOf(name)[0]).some((one) => one.name === plot.by);
    return plot.by === "none" || !isKnown ? name : `${name} by ${plot.by}`;
  }

  /** Which sources are drawn: those that were chosen, else the live ones, else what is stored. */
  drawSources() {
    const rows = [...this.ctx.store.rows("sources")].filter(([, row]) => row.has_events || row.kind === "lake");
    const chosen = rows.filter(([name]) => this.chosen.has(name)), live = rows.filter((row) => !isStored(row));
    const drawn = this.chosen.size ? chosen : live.length ? live : rows, all = rows.map(([name]) => name).join(SOURCE_BAR);
    const hasStored = drawn.length > 0 && drawn.every(isStored), names = drawn.filter(([, row]) => hasStored || row.kind !== "lake").map(([name]) => name);
    this.markPlayed(hasStored ? drawn : []);
    const key = `${all} ${names.join(SOURCE_BAR)} ${hasStored}`;
    if (key === this.sourcesKey) return;
    this.sourcesKey = key;
    [this.names, this.isStored] = [names, hasStored];
    this.sources.draw(all ? all.split(SOURCE_BAR) : [], this.chosen);
    this.last.hidden = hasStored;
    this.data.clear();
    this.asked = null;
    this.open();
    this.noteRange();
  }

  /** Where a recording is played, as an upright line. */
  markPlayed(rows) {
    const marks = rows.filter(([, row]) => row.kind === "recording" && row.time_ms !== null).map(([, row]) => ({ at: row.time_ms, colour: "blue", dash: [3, 3] }));
    const key = marks.map(({ at }) => Math.round(at / 100)).join();
    if (key === this.marksKey) return;
    this.marksKey = key;
    this.marks = marks;
    this.plots.forEach((plot) => plot.chart?.mark(marks));
  }

  choose(chosen) {
    this.chosen = chosen;
    this.range = this.whole = null;
    this.ctx.setParams({ source: [...chosen].join(SOURCE_BAR) });
    this.sourcesKey = null;
    this.drawSources();
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
    if (!plot) this.plots.push({ names: [name], by: "none" });
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
    this.ctx.setParams({ series: writePlots(this.plots), by: "" });
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
      clear(plot.head).append(h("span", { class: "plot-number" }, String(n + 1)), plot.title ? h("strong", {}, plot.title) : "", ...plot.names.map((name) => this.seriesChip(plot, name)), this.byChoice(plot));
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

  /** What a plot has a line for. */
  byChoice(plot) {
    const attributes = this.groupings(plot), known = [...BY, ...attributes.map((name) => [name, `a line for each ${name}`])];
    const choice = h("select", { class: "input plot-by", "aria-label": "lines", onchange: (event) => { plot.by = event.target.value; this.change(); } },
      (known.some(([by]) => by === plot.by) ? known : [...known, [plot.by, `a line for each ${plot.by}`]]).map(([by, text]) => h("option", { value: by }, text)));
    choice.value = plot.by;
    return choice;
  }

  makePlot(plot) {
    plot.head = h("div", { class: "plot-head" });
    plot.place = h("div", {});
    plot.note = h("p", { class: "plot-note" });
    plot.element = h("section", { class: "card plot" }, plot.head, plot.place, plot.note);
    plot.element.plot = plot;
    plot.lines = [];
    plot.options = { series: [], data: [], height: 240, sync: "genus-plot", label: "lines over time; + and − zoom, arrows with shift pan, 0 shows all", room: AXIS_ROOM, axes: this.axes, onRange: (range) => this.setRange(range) };
    this.acceptDrops(plot.element, (name) => this.add(name, plot));
    this.stack.append(plot.element);
    plot.chart = lines(plot.place, plot.options);
    plot.chart.mark(this.marks ?? []);
  }

  seriesChip(plot, name) {
    const problem = this.problemOf(name);
    const chip = h("span", { class: problem ? "plot-series bad" : "plot-series", draggable: "true" }, h("span", {}, problem ? `✗ ${name}` : name), problem ? h("small", {}, `: ${problem}`) : null,
      h("button", { type: "button", class: "plot-remove", "aria-label": `remove ${name}`, title: "remove", onclick: () => this.remove(plot, name) }, "✕"));
    letDrag(chip, name);
    return chip;
  }

  /** All plots have the same height, so that they fill the page. */
  layOut() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize), room = innerHeight - this.stack.getBoundingClientRect().top - scrollY - 5.6 * rem;
    const height = Math.round(Math.max(150, Math.min(room / Math.max(this.plots.length, 1) - 6.9 * rem, innerHeight * 0.6)));
    for (const plot of this.plots) {
      if (plot.options.height === height && plot.isDrawn) continue;
      plot.options.height = height;
      this.resetLines(plot);
    }
  }

  // -- points ------------------------------------------------------------------------------------------------------------

  /** Ask for the points of what is drawn now: by a stream, or what is stored. */
  open() {
    const isKnown = this.ctx.store.has("types");
    const good = isKnown ? [...new Set(this.plots.flatMap((plot) => plot.names.filter((name) => !this.problemOf(name)).map((name) => this.seriesOf(plot, name))))] : [];
    this.data.keep(new Set(good));
    this.plots.forEach((plot) => { plot.isDrawn = false; });
    const asked = String(new URLSearchParams([...good.map((name) => ["series", name]), ...this.names.map((name) => ["source", name])]));
    if (asked === this.asked) return;
    this.asked = asked;
    this.stream?.close();
    this.stream = null;
    this.good = good;
    if (!good.length || !this.names.length) return this.draw();
    if (this.isStored) return this.ask();
    this.data.begin();
    this.stream = this.ctx.sse(`plot/stream?${asked}`, { points: (data) => this.receive(data) }, (state) => this.noteState(state));
  }

  receive(data) {
    if (this.data.receive(data)) this.plots.forEach((plot) => { plot.isDrawn = false; });
    this.isDirty = true;
  }

  noteState(state) {
    if (state !== "open") this.data.begin();
    if (state === "broken") this.say("No connection: trying again");
    else if (this.said.textContent.startsWith("No connection")) this.say("");
  }

  /** Ask for what is stored of the range, one question at a time; the last range is asked for in any case. */
  async ask() {
    if (!this.isStored || !this.good?.length || this.isGone) return;
    if (this.isAsking) return void (this.isAskedAgain = true);
    this.isAsking = true;
    this.isAskedAgain = false;
    const { asked, range } = this, width = Math.max(300, ...this.plots.map((plot) => plot.place.clientWidth - 2 * AXIS_ROOM));
    const margin = range ? MARGIN * (range[1] - range[0]) : 0;
    const about = [...this.good.map((name) => ["series", name]), ["points", Math.round(width * (range ? 1 + 2 * MARGIN : 1))], ...(range ? [["from", range[0] - margin], ["to", range[1] + margin]] : [])];
    let isDone = true;
    try {
      const answers = await Promise.all(this.names.map(async (name) => [name, await this.ctx.api(`plot?${new URLSearchParams([...about, ["source", name]])}`)]));
      if (asked === this.asked && !this.isGone) isDone = this.takeStored(answers, range);
    } catch (error) {
      this.say(`✗ ${error.message}`);
    }
    this.isAsking = false;
    if (this.isAskedAgain || asked !== this.asked) this.ask();
    else if (!isDone) setTimeout(() => this.ask(), AGAIN_MS);
  }

  /** Draw answers; returns whether they are complete. */
  takeStored(answers, range) {
    const all = answers.map(([, answer]) => answer), ends = all.flatMap((answer) => answer.whole ?? []), isDone = all.every((answer) => answer.is_done);
    if (!range && ends.length) this.whole = [Math.min(...ends), Math.max(...ends)];
    if (this.data.replace(answers)) this.plots.forEach((plot) => { plot.isDrawn = false; });
    const problem = all.map((answer) => answer.problem).filter(Boolean).join("; "), points = all.reduce((sum, answer) => sum + answer.points, 0);
    const progress = isDone ? "" : `Reading, ${Math.floor(100 * Math.min(...all.map((answer) => answer.share)))} %: ${count(points)} points so far`;
    const thinned = all.some((answer) => answer.is_thinned) ? "There are very many points: the lowest and the highest of short times are drawn." : "";
    this.say(problem ? `✗ ${problem}` : progress || thinned);
    this.draw();
    this.noteRange();
    return isDone;
  }

  // -- drawing -------------------------------------------------------------------------------------------------------------

  /** Draws, and then leaves the browser time for other things: the next frame tells how long drawing took. */
  tick() {
    const began = performance.now(), isDue = !this.isStored && !document.hidden && (this.isDirty || (this.data.isPresent && !this.range));
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
    for (const plot of this.plots) {
      if (!plot.isDrawn) this.resetLines(plot);
      else plot.chart.update(this.pointsOf(plot), this.shownRange());
    }
  }

  /** The range that is drawn; null if nothing is known yet. */
  shownRange() {
    const now = this.isStored ? null : this.data.now();
    return this.range ?? (this.isStored ? this.whole : now === null ? null : [now - 1000 * this.window, now]);
  }

  /** Lines keep their place, and so their colour, for as long as they are there. */
  resetLines(plot) {
    plot.isDrawn = true;
    const found = plot.names.flatMap((name) => { const text = this.types && !this.problemOf(name) ? this.seriesOf(plot, name) : name; return [...(this.data.series.get(text)?.lines.keys() ?? [])].sort().map((key) => ({ name, text, key })); });
    const isIn = (list, one) => list.some((other) => other.text === one.text && other.key === one.key);
    plot.lines = [...plot.lines.filter((line) => isIn(found, line)), ...found.filter((line) => !isIn(plot.lines, line))];
    const looks = plot.lines.map(({ name, text, key }) => ({ label: this.labelOf(plot, name, text, key), unit: this.data.series.get(text).unit ?? "" }));
    plot.units = new Set(looks.map((look) => look.unit)).size;
    plot.note.hidden = plot.lines.length > 0;
    plot.place.hidden = !plot.lines.length;
    plot.note.style.height = `${plot.options.height}px`;
    setText(plot.note, plot.names.every((name) => this.problemOf(name)) ? "Nothing to draw." : this.isStored && !this.isAsking ? "No event with a value in this time." : "No event with a value yet.");
    plot.options.padding = this.paddingOf(plot);
    plot.chart.setSeries(looks, this.pointsOf(plot), this.shownRange());
  }

  /** Time is at the same place in all plots, however many axes they have. */
  paddingOf(plot) {
    const most = mostAxes(plot.place), axesOf = (one) => Math.max(1, Math.min(one.units ?? 1, most));
    const left = (one) => Math.ceil(axesOf(one) / 2), right = (one) => Math.floor(axesOf(one) / 2), missing = (side) => Math.max(...this.plots.map(side)) - side(plot);
    return [8, AXIS_ROOM * missing(right) + (right(plot) ? 0 : 18), 0, AXIS_ROOM * missing(left)];
  }

  labelOf(plot, name, text, key) {
    const line = key || (text === name ? "" : `no ${plot.by}`);
    return !line ? name : plot.names.length > 1 ? `${name} · ${line}` : line;
  }

  pointsOf(plot) {
    const range = this.shownRange(), columns = Math.max(plot.place.clientWidth - 60, 50);
    return plot.lines.map(({ text, key }) => (range ? this.data.points(text, key, range[0], range[1], columns) : []));
  }

  // -- controls --------------------------------------------------------------------------------------------------------------

  setWindow(seconds) {
    this.window = seconds;
    this.ctx.setParams({ window: seconds === 60 ? "" : seconds });
    this.draw();
  }

  /** Show a range of time; null for the last minutes, or all that is stored. */
  setRange(range) {
    const least = range ? Math.max(0, (LEAST_RANGE_MS - (range[1] - range[0])) / 2) : 0;
    this.range = range && [range[0] - least, range[1] + least];
    this.draw();
    this.noteRange();
    this.ask();
  }

  zoom(factor) {
    const shown = this.shownRange();
    if (!shown) return;
    const middle = (shown[0] + shown[1]) / 2, half = (factor * (shown[1] - shown[0])) / 2;
    this.setRange([middle - half, middle + half]);
  }

  noteRange() {
    const shown = this.shownRange(), types = new Set([...this.allNames()].map((name) => partsOf(name)[0]));
    const isLake = this.names.some((name) => this.ctx.store.rows("sources").get(name)?.kind === "lake");
    setText(this.pause, isLake ? "Last day" : this.isStored ? "Whole recording" : this.range ? "Go live" : "Pause");
    this.pause.disabled = this.isStored && !this.range;
    setAttribute(this.pause, "aria-pressed", this.isStored ? null : String(Boolean(this.range)));
    const isFixed = shown && (this.range || this.isStored), [from, to] = isFixed ? shown.map(Math.round) : [];
    setText(this.told, isFixed ? rangeText(shown) : "");
    this.events.href = this.ctx.href("events", { q: types.size === 1 ? [...types][0] : "Event", source: this.names.join(SOURCE_BAR), from: isFixed ? Math.floor(shown[0]) : "", to: isFixed ? Math.ceil(shown[1]) : "" });
    clearTimeout(this.noting);
    this.noting = setTimeout(() => this.ctx.setParams(this.range && this.isStored ? { from, to } : { from: "", to: "" }), ADDRESS_MS);
  }

  /** Save the plots as a file that `genus studio --layout` reads. */
  async save() {
    const about = { sources: [...this.chosen], from_ms: this.range?.[0] ?? null, to_ms: this.range?.[1] ?? null, axes: this.axes };
    const plots = this.plots.map((plot, n) => ({ name: plot.title ?? `${n + 1}: ${plot.names.join(", ")}`, series: plot.names, by: plot.by, ...about }));
    try {
      const { text } = await this.ctx.post("layout", { view: "plot", plots });
      const address = URL.createObjectURL(new Blob([text], { type: "application/toml" }));
      h("a", { href: address, download: "studio.toml" }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    } catch (error) {
      this.say(`✗ ${error.message}`);
    }
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
    this.isGone = true;
    clearTimeout(this.timer);
    clearTimeout(this.noting);
    cancelAnimationFrame(this.frame);
    removeEventListener("resize", this.onResize);
    this.stream?.close();
    this.plots.forEach((plot) => plot.chart?.destroy());
  }
}

/** Type and attribute of a series. */
function partsOf(name) {
  const dot = name.lastIndexOf(".");
  return dot < 1 ? ["", name] : [name.slice(0, dot), name.slice(dot + 1)];
}

/** From when to when, in UTC. */
function rangeText(range) {
  const [from, to] = range.map((at) => new Date(at).toISOString().slice(0, 10)), [begin, end] = range.map((at) => chartClock(Math.round(at / 1000) * 1000 === Math.round(at) || range[1] - range[0] > 10_000 ? Math.round(at / 1000) * 1000 : at));
  return `${from} ${begin} – ${from === to ? "" : `${to} `}${end} UTC`;
}

export default { id: "plot", title: "Plot", tables: ["sources", "types"], mount: (root, ctx) => new PlotView(root, ctx) };
