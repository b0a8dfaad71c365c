// The bar of sources: what Studio looks at, and the time of what can be stopped: play, pause, seek, speed.
import { h, setText, setAttribute } from "../components/dom.js";
import { date, duration, isNumber, rate, time } from "../components/format.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10, 50, 100];
const KEPT_RATES = 60;
const KEPT_MS = 1500; // how long what the user chose stands against what the server says
export const STATE_SIGNS = {
  live: ["●", "good"], playing: ["▶", "good"], paused: ["❚❚", "warn"], ended: ["■", ""], failed: ["✕", "bad"],
};

/** The rates of each source of the last minute, one a second, the oldest first. */
export const sourceRates = new Map();

/** Show the sources in `root` for as long as the page lives. */
export function mountSources(root, ctx) {
  const items = new Map();
  setInterval(() => keepRates(ctx.store.rows("sources")), 1000);
  ctx.store.onChange("sources", () => {
    const rows = ctx.store.rows("sources");
    for (const [key, item] of items) if (!rows.has(key)) [item.element.remove(), items.delete(key)];
    for (const [key, row] of rows) {
      if (items.get(key)?.isPlayed !== undefined && items.get(key).isPlayed !== isPlayed(row)) [items.get(key).element.remove(), items.delete(key)];
      if (!items.has(key)) items.set(key, isPlayed(row) ? new PlayedItem(key, ctx) : new SourceItem(key, ctx));
      const item = items.get(key);
      if (!item.element.isConnected) root.append(item.element);
      item.update(row);
    }
  });
}

function keepRates(rows) {
  for (const key of sourceRates.keys()) if (!rows.has(key)) sourceRates.delete(key);
  for (const [key, row] of rows) sourceRates.set(key, [...(sourceRates.get(key) ?? []).slice(1 - KEPT_RATES), row.rate]);
}

/** Whether its time can be stopped. */
export function isPlayed(row) {
  return isNumber(row.speed) || row.can_seek || ["playing", "paused"].includes(row.state);
}

/** A state as a chip with a sign. */
export function drawState(chip, state, note) {
  const [sign, tone] = STATE_SIGNS[state] ?? ["", ""];
  setText(chip, `${sign} ${state}`);
  setAttribute(chip, "class", `chip${tone && ` state-${tone}`}`);
  setAttribute(chip, "title", note || null);
}

class SourceItem {
  constructor(key, ctx) {
    this.key = key;
    this.ctx = ctx;
    this.isPlayed = false;
    this.name = h("span", { class: "name" }, key);
    this.state = h("span", { class: "chip" });
    this.rate = h("span", { class: "number rate" });
    this.element = h("div", { class: "source", role: "group", "aria-label": key }, this.name, this.state, this.rate);
  }

  update(row) {
    setAttribute(this.name, "title", `${row.kind}, ${row.address}`);
    drawState(this.state, row.state, row.note);
    setText(this.rate, `${rate(row.rate)}/s`);
  }
}

class PlayedItem extends SourceItem {
  constructor(key, ctx) {
    super(key, ctx);
    this.isPlayed = true;
    this.isDragged = false;
    this.keptUntil = 0;
    this.button = h("button", { type: "button", class: "button small", onclick: () => this.#send(this.isRunning ? "pause" : "play") });
    this.slider = h("input", {
      type: "range", min: 0, max: 1000, step: 1, "aria-label": `time of ${key}`,
      oninput: () => this.#drag(), onchange: () => this.#seek(), onpointerdown: () => { this.isDragged = true; }, onpointerup: () => { this.isDragged = false; },
    });
    this.time = h("time");
    this.end = h("small");
    this.speed = h("select", { class: "input", "aria-label": `speed of ${key}`, onchange: () => this.#send("speed", Number(this.speed.value)) });
    this.error = h("span", { class: "error", role: "alert", hidden: true });
    this.element.classList.add("played");
    this.element.append(h("span", { class: "player" }, this.button, this.time, this.slider, this.end, this.speed), this.error);
    this.#offer(1);
  }

  update(row) {
    super.update(row);
    this.row = row;
    this.isRunning = row.state === "playing" || row.state === "live";
    setText(this.button, this.isRunning ? "❚❚" : "▶");
    setAttribute(this.button, "aria-label", `${this.isRunning ? "pause" : "play"} ${this.key}`);
    setAttribute(this.button, "title", this.isRunning ? "Pause" : "Play");
    if (performance.now() > this.keptUntil && document.activeElement !== this.speed) this.#showSpeed(row.speed ?? 1);
    const hasEnd = isNumber(row.begin_ms) && isNumber(row.end_ms) && row.end_ms > row.begin_ms;
    this.slider.hidden = !hasEnd;
    this.slider.disabled = !row.can_seek;
    this.element.classList.toggle("seekable", hasEnd);
    if (hasEnd) this.#drawSlider(row);
    if (!this.isDragged && performance.now() > this.keptUntil) this.#showTime(row.time_ms);
  }

  #drawSlider(row) {
    setText(this.end, duration(row.end_ms - row.begin_ms));
    setAttribute(this.end, "title", `${date(row.begin_ms)} to ${date(row.end_ms)}`);
    if (this.isDragged || performance.now() < this.keptUntil) return;
    const place = Math.round((1000 * ((row.time_ms ?? row.begin_ms) - row.begin_ms)) / (row.end_ms - row.begin_ms));
    if (Number(this.slider.value) !== place) this.slider.value = place;
  }

  #showTime(value) {
    setText(this.time, time(value, 1));
    setAttribute(this.time, "title", `${date(value, 3)} UTC`);
    setAttribute(this.slider, "aria-valuetext", date(value));
  }

  #showSpeed(speed) {
    if (![...this.speed.options].some((option) => Number(option.value) === speed)) this.#offer(speed);
    if (Number(this.speed.value) !== speed) this.speed.value = String(speed);
  }

  #offer(speed) {
    const speeds = [...new Set([...SPEEDS, speed])].sort((a, b) => a - b);
    this.speed.replaceChildren(...speeds.map((one) => h("option", { value: one }, `${one}×`)));
  }

  #chosen() {
    const { begin_ms: begin, end_ms: end } = this.row;
    return begin + (Number(this.slider.value) / 1000) * (end - begin);
  }

  #drag() {
    this.keptUntil = performance.now() + KEPT_MS;
    this.#showTime(this.#chosen());
  }

  #seek() {
    this.isDragged = false;
    this.#send("seek", this.#chosen());
  }

  async #send(action, value = 0) {
    this.keptUntil = performance.now() + (action === "seek" || action === "speed" ? KEPT_MS : 0);
    this.error.hidden = true;
    try {
      await this.ctx.post("control", { source: this.key, action, value });
    } catch (error) {
      this.keptUntil = 0;
      setText(this.error, error.message);
      this.error.hidden = false;
    }
  }
}
