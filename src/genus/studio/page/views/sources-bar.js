// The bar of sources: what Studio looks at, and the time of what can be stopped: play, pause, seek, speed.
import { h, setText, setAttribute } from "../components/dom.js";
import { date, duration, isNumber, rate, time } from "../components/format.js";
import { STATES, sourceState, worstState } from "../components/state.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10, 50, 100];
const KEPT_MS = 1500; // how long what the user chose stands against what the server says
const ERROR_MS = 6000; // how long an error is shown

/** Show the sources in `root` for as long as the page lives. */
export function mountSources(root, ctx) {
  const items = new Map();
  ctx.store.onChanges(({ sources }) => {
    if (!sources) return;
    const groups = groupSources(ctx.store.rows("sources"));
    for (const [id, item] of items) if (!groups.has(id)) [item.element.remove(), items.delete(id)];
    for (const [id, group] of groups) {
      if (!items.has(id)) items.set(id, isPlayed(group[0][1]) ? new PlayedItem(ctx) : new SourceItem());
      const item = items.get(id);
      item.update(group);
      if (!item.element.isConnected) root.append(item.element);
    }
  });
}

// Sources of one player are played together, so they are one item.
function groupSources(rows) {
  const groups = new Map();
  for (const [key, row] of rows) {
    const id = isPlayed(row) ? `played ${row.player || key}` : `source ${key}`;
    groups.set(id, [...(groups.get(id) ?? []), [key, row]]);
  }
  return groups;
}

// Its time can be stopped.
function isPlayed(row) {
  return isNumber(row.speed) || row.can_seek || ["playing", "paused"].includes(row.state);
}

/** A source in a line: its sign, its name, and its rate, or a word where it is not fine; what it has to say more is its tip. */
class SourceItem {
  constructor() {
    this.sign = h("span", { class: "sign", "aria-hidden": "true" });
    this.name = h("span", { class: "name" });
    this.word = h("span", { class: "word" });
    this.element = h("div", { class: "source", role: "group" }, this.sign, this.name, this.word);
  }

  update(group) {
    const [[key, row]] = group, worst = worstState(group.map(([, one]) => sourceState(one)));
    const [sign, word, tone] = STATES[worst], isFine = worst === "fine";
    this.label = group.length === 1 ? key : `${row.address}, ${group.length} sources`;
    setText(this.sign, sign);
    setText(this.name, this.label);
    setText(this.word, isFine ? `${rate(group.reduce((sum, [, one]) => sum + (group.some(([name]) => name === one.part_of) ? 0 : one.rate), 0))}/s` : word);
    setAttribute(this.element, "class", `source ${tone || "none"}${this.isPlayed ? " played" : ""}`);
    setAttribute(this.element, "aria-label", this.label);
    setAttribute(this.element, "title", group.map(([name, one]) => [`${name}: ${STATES[sourceState(one)][1]}`, one.why, one.note, one.address].filter(Boolean).join("\n")).join("\n\n"));
  }
}

class PlayedItem extends SourceItem {
  constructor(ctx) {
    super();
    this.ctx = ctx;
    this.keptUntil = 0;
    this.button = h("button", { type: "button", class: "button small", onclick: () => this.#send(this.isRunning ? "pause" : "play") });
    this.slider = h("input", {
      type: "range", min: 0, max: 1000, step: 1,
      oninput: () => this.#drag(), onchange: () => this.#send("seek", this.#chosen()),
    });
    this.bar = h("i");
    this.progress = h("span", { class: "gauge", title: "It cannot be sought: its time only goes on." }, this.bar);
    this.time = h("time");
    this.end = h("small");
    this.speed = h("select", { class: "input", onchange: () => this.#send("speed", Number(this.speed.value)) });
    this.error = h("span", { class: "error", role: "alert", hidden: true });
    this.isPlayed = true;
    this.element.append(h("span", { class: "player" }, this.button, this.time, this.slider, this.progress, this.end, this.speed), this.error);
    this.#showSpeed(1);
  }

  update(group) {
    super.update(group);
    const [[key, row]] = group;
    [this.key, this.row] = [key, row];
    this.isRunning = row.state === "playing" || row.state === "live";
    setText(this.button, this.isRunning ? "❚❚" : "▶");
    setAttribute(this.button, "aria-label", `${this.isRunning ? "pause" : "play"} ${this.label}`);
    setAttribute(this.button, "title", this.isRunning ? "Pause" : row.state === "ended" ? "It has ended: play it again from the beginning" : "Play");
    setAttribute(this.slider, "aria-label", `time of ${this.label}`);
    setAttribute(this.speed, "aria-label", `speed of ${this.label}`);
    if (performance.now() > this.keptUntil && document.activeElement !== this.speed) this.#showSpeed(row.speed ?? 1);
    const hasEnd = isNumber(row.begin_ms) && isNumber(row.end_ms) && row.end_ms > row.begin_ms;
    this.slider.hidden = !hasEnd || !row.can_seek;
    this.progress.hidden = !hasEnd || row.can_seek;
    if (hasEnd) this.#drawPlace(row);
    if (!this.#isKept()) this.#showTime(row.time_ms);
  }

  #drawPlace(row) {
    setText(this.end, `of ${duration(row.end_ms - row.begin_ms)}`);
    setAttribute(this.end, "title", `${date(row.begin_ms)} to ${date(row.end_ms)}`);
    if (this.#isKept()) return;
    const part = Math.min(1, Math.max(0, ((row.time_ms ?? row.begin_ms) - row.begin_ms) / (row.end_ms - row.begin_ms)));
    const place = Math.round(1000 * part);
    if (Number(this.slider.value) !== place) this.slider.value = place;
    if (!this.progress.hidden) this.bar.style.transform = `scaleX(${part.toFixed(4)})`;
  }

  #showTime(value) {
    setText(this.time, time(value, 1));
    setAttribute(this.time, "title", date(value, 3));
    setAttribute(this.slider, "aria-valuetext", date(value));
  }

  #showSpeed(speed) {
    if (Number(this.speed.value) === speed) return;
    const speeds = [...new Set([...SPEEDS, speed])].sort((a, b) => a - b);
    this.speed.replaceChildren(...speeds.map((one) => h("option", { value: one }, `${one}×`)));
    this.speed.value = String(speed);
  }

  #chosen() {
    const { begin_ms: begin, end_ms: end } = this.row;
    return begin + (Number(this.slider.value) / 1000) * (end - begin);
  }

  #isKept() {
    return performance.now() < this.keptUntil || this.slider.matches(":active"); // it is held
  }

  #drag() {
    this.keptUntil = performance.now() + KEPT_MS;
    this.#showTime(this.#chosen());
  }

  #fail(message) {
    setText(this.error, message);
    this.error.hidden = false;
    clearTimeout(this.errorTimer);
    this.errorTimer = setTimeout(() => { this.error.hidden = true; }, ERROR_MS);
  }

  async #send(action, value = 0) {
    this.keptUntil = performance.now() + (action === "seek" || action === "speed" ? KEPT_MS : 0);
    this.error.hidden = true;
    try {
      await this.ctx.post("control", { source: this.key, action, value });
    } catch (error) {
      this.keptUntil = 0;
      this.#showSpeed(this.row.speed ?? 1);
      this.#showTime(this.row.time_ms);
      this.#fail(error.message);
    }
  }
}
