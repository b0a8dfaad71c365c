// The data of the page: one stream of server-sent events keeps the tables that the present view shows.

import { takeSlot } from "./slots.js";

const KEPT_RATES = 60;
const LAG_MS = 1500;
const SILENCE_MS = 6000; // the server sends something at least every 2 s
const GONE_MS = 8000;
const REOPEN_MS = 1000;
const POLL_MS = 2000;

/**
 * A stream of server-sent events that stays: it is opened again after an error or silence, closed while the page is
 * hidden, and opened again instead of working off a backlog.
 *
 * `handlers` maps names of events to functions of their data. `onState(state)` is told "open", "broken", "hidden", and
 * "crowded" while so many windows have streams that this one has to wait. `poll()`, if given, is called every 2 s then.
 */
export class Stream {
  constructor(path, handlers, onState = () => {}, poll = null) {
    Object.assign(this, { path, handlers, onState, poll });
    this.source = null;
    this.release = null; // gives the slot back
    this.isClosed = false;
    this.isAsking = false;
    this.timer = 0;
    this.least = Infinity;
    this.heard = 0;
    this.onVisible = () => (document.hidden ? this.#hide() : this.reopen());
    this.onFocus = () => { if (!this.release && !document.hidden) this.#queue(true); }; // the window that is used comes first
    document.addEventListener("visibilitychange", this.onVisible);
    addEventListener("focus", this.onFocus);
    this.watch = setInterval(() => this.#checkSilence(), 1000);
    if (document.hidden) this.onState("hidden");
    else this.reopen();
  }

  /** Close it for good. */
  close() {
    this.isClosed = true;
    document.removeEventListener("visibilitychange", this.onVisible);
    removeEventListener("focus", this.onFocus);
    clearInterval(this.watch);
    this.#drop();
    this.#leave();
  }

  /** Close the connection and open another, which begins with a snapshot. */
  reopen() {
    this.#drop();
    if (this.release) this.#open();
    else this.#queue();
  }

  async #queue(isUrgent = !this.poll) {
    if (this.isAsking) return;
    this.isAsking = true;
    const release = await takeSlot(this.poll ? "tables" : "view", () => this.#lose(), isUrgent);
    this.isAsking = false;
    if (this.isClosed || document.hidden) return release?.();
    this.#drop();
    this.release = release;
    if (release) this.#open();
    else this.#wait();
  }

  #open() {
    this.least = Infinity;
    this.heard = performance.now();
    const source = new EventSource(this.path);
    this.source = source;
    source.onopen = () => { this.heard = performance.now(); };
    source.onerror = () => this.#fail(source);
    for (const name of Object.keys(this.handlers)) source.addEventListener(name, (event) => this.#receive(source, name, event));
  }

  #wait() {
    this.onState("crowded");
    this.poll?.();
    this.timer = setTimeout(() => this.reopen(), POLL_MS);
  }

  #lose() {
    this.release = null;
    if (this.isClosed || document.hidden) return;
    this.#drop();
    this.#wait();
  }

  #leave() {
    this.release?.();
    this.release = null;
  }

  #drop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.source?.close();
    this.source = null;
  }

  #hide() {
    this.#drop();
    this.#leave();
    this.onState("hidden");
  }

  #receive(source, name, event) {
    if (source !== this.source) return;
    this.heard = performance.now();
    const data = JSON.parse(event.data);
    this.onState("open");
    if (this.#lags(data.at)) this.reopen();
    else this.handlers[name](data);
  }

  // The clocks of server and page may differ, so what counts is how much the difference grows.
  #lags(at) {
    if (typeof at !== "number") return false;
    const difference = Date.now() - at;
    this.least = Math.min(this.least, difference);
    return difference - this.least > LAG_MS;
  }

  #fail(source) {
    if (source !== this.source) return;
    this.onState("broken");
    this.#drop(); // a browser that tries again by itself waits longer each time
    this.timer = setTimeout(() => this.reopen(), REOPEN_MS);
  }

  #checkSilence() {
    if (!this.source || performance.now() - this.heard < SILENCE_MS) return;
    this.onState("broken");
    this.reopen();
  }
}

/**
 * Tables of rows. `rows(table)` is a Map of rows by key; `watch(tables)` says which are wanted; `onChanges(fn)` calls
 * fn({table: {set, gone}}) (Sets of keys) at most once per animation frame; it returns a function that ends it.
 * `has(table)` tells whether the rows of a table have come yet.
 * `status` is {state: "connecting" | "live" | "polling" | "reconnecting" | "gone" | "hidden", since: ms of this computer's
 * clock}; "polling" is live every 2 s, while many windows are open.
 */
export class Store {
  constructor() {
    this.tables = new Map();
    this.wanted = [];
    this.stream = null;
    this.marked = {}; // keys of rows that changed since the last frame, by table
    this.isScheduled = false;
    this.listeners = new Set();
    this.statusListeners = new Set();
    this.status = { state: "connecting", since: Date.now() };
    this.skew = 0;
    setInterval(() => this.#age(), 1000);
  }

  rows(table) {
    return this.tables.get(table) ?? EMPTY;
  }

  has(table) {
    return this.tables.has(table);
  }

  /** The time of the server's clock, in milliseconds since 1970. */
  now() {
    return Date.now() - this.skew;
  }

  watch(tables) {
    const wanted = [...new Set(tables)].sort();
    if (this.stream && wanted.join() === this.wanted.join()) return;
    this.stream?.close();
    this.wanted = wanted;
    for (const name of this.tables.keys()) if (!wanted.includes(name)) this.tables.delete(name);
    const handlers = { snapshot: (data) => this.#replace(data), change: (data) => this.#merge(data) };
    this.stream = new Stream(`/api/stream?tables=${wanted.map(encodeURIComponent).join(",")}`, handlers, (state) => this.#note(state), () => this.#poll());
  }

  onChanges(fn) {
    this.listeners.add(fn);
    return () => this.listeners.delete(fn);
  }

  onStatus(fn) {
    this.statusListeners.add(fn);
    fn(this.status);
    return () => this.statusListeners.delete(fn);
  }

  async #poll() {
    const names = this.wanted;
    try {
      const answers = await Promise.all(names.map((name) => fetch(`/api/${name}`).then((answer) => (answer.ok ? answer.json() : {}))));
      if (names !== this.wanted || this.status.state === "live") return;
      this.#replace({ at: Date.now() - this.skew, tables: Object.fromEntries(names.map((name, n) => [name, answers[n]])) });
      this.#setStatus("polling");
    } catch {
      if (names === this.wanted) this.#note("broken");
    }
  }

  #replace({ at, tables }) {
    this.skew = Date.now() - at;
    for (const name of this.wanted) {
      const before = this.rows(name), after = new Map(Object.entries(tables[name] ?? {}));
      this.tables.set(name, after);
      this.#mark(name, [...before.keys(), ...after.keys()]);
    }
  }

  #merge({ at, set, gone, beat }) {
    this.skew = Date.now() - at;
    for (const [name, rows] of Object.entries(set ?? {})) this.#change(name, Object.keys(rows), (table, key) => table.set(key, Object.assign(table.get(key) ?? {}, rows[key])));
    for (const [name, keys] of Object.entries(gone ?? {})) this.#change(name, keys, (table, key) => table.delete(key));
    if (beat) for (const name of ["channels", "sources"]) this.#change(name, [...this.rows(name).keys()], (table, key) => addRate(table.get(key)));
  }

  #change(name, keys, act) {
    const table = this.tables.get(name);
    if (!table) return;
    for (const key of keys) act(table, key);
    this.#mark(name, keys);
  }

  #mark(name, keys) {
    const marked = (this.marked[name] ??= new Set());
    for (const key of keys) marked.add(key);
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    this.isScheduled = false;
    const changes = {};
    for (const [name, keys] of Object.entries(this.marked)) changes[name] = { set: new Set([...keys].filter((key) => this.rows(name).has(key))), gone: new Set([...keys].filter((key) => !this.rows(name).has(key))) };
    this.marked = {};
    for (const fn of [...this.listeners]) fn(changes);
  }

  #note(state) {
    if (state === "open") this.#setStatus("live");
    else if (state === "hidden") this.#setStatus("hidden");
    else if (state === "crowded") this.#setStatus(this.status.state === "live" ? "polling" : this.status.state);
    else if (this.status.state !== "gone") this.#setStatus(this.status.state === "connecting" ? "connecting" : "reconnecting");
  }

  // A server that does not come back soon is called gone, with the time since when.
  #age() {
    const { state, since } = this.status;
    if ((state === "reconnecting" || state === "connecting") && Date.now() - since > GONE_MS) this.#setStatus("gone", since);
  }

  #setStatus(state, since = Date.now()) {
    if (state === this.status.state) return;
    this.status = { state, since };
    for (const fn of this.statusListeners) fn(this.status);
  }
}

const EMPTY = new Map();

function addRate(row) {
  row.rates = [...(row.rates ?? []).slice(1 - KEPT_RATES), row.rate ?? 0];
}
