// The last events of the view Events, and the columns that they need. Nothing here grows beyond its bound.

/** Rows that are kept. */
export const MOST_EVENTS = 500;
/** Columns of attributes that are shown at once. */
export const MOST_COLUMNS = 24;
const MOST_NAMES = 200;
const MOST_TYPES = 8;
const WIDEST = 30;
const WIDEST_NAME = 24;
const DAY_MS = 86_400_000;
const FIRST_DAY = 1200; // of real times
const LONGEST_PART = 40; // so that what the event has there is seen, too
const MOST_DECIMALS = 10;
/** Attributes that every event may carry; the first two tell where it comes from. */
export const CONTEXT = ["source", "place", "time", "deadline", "expires"];
const NUMBER = /^-?\d+(?:\.(\d+))?(?:e[-+]?\d+)?$/;

/**
 * The last events, the oldest first. While it is held, `shown` stays as it is, and `fresh` counts what came since.
 */
export class EventLog {
  constructor() {
    this.clear();
  }

  clear() {
    this.events = [];
    this.keys = new Set();
    this.held = null;
    this.fresh = 0;
  }

  get shown() {
    return this.held ?? this.events;
  }

  /** Take new events; those that are known already, as after a reconnection, are left out. Returns the new ones. */
  add(events) {
    const added = [];
    for (const event of events.slice(-MOST_EVENTS)) {
      const key = keyOf(event);
      if (this.keys.has(key)) continue;
      this.keys.add(key);
      added.push(event);
    }
    this.events.push(...added);
    for (const gone of this.events.splice(0, Math.max(0, this.events.length - MOST_EVENTS))) this.keys.delete(keyOf(gone));
    if (this.held) this.fresh += added.length;
    return added;
  }

  /** Keep these events, which are seen at the moment; what came after them is new. */
  hold(seen) {
    if (this.held) return;
    this.held = seen;
    this.fresh = this.events.length - 1 - this.events.lastIndexOf(seen.at(-1));
  }

  release() {
    this.held = null;
    this.fresh = 0;
  }
}

function keyOf(event) {
  return `${event.source}|${event.n}|${event.at_ms}`;
}

/** The attributes that were seen, with the width of their columns: where an event comes from first, its other times last. */
export class EventColumns {
  constructor() {
    this.hidden = new Set(); // what a person hides stays hidden
    this.clear();
  }

  clear() {
    this.known = new Map();
    this.names = { type: 12, source: 8, publisher: 0 }; // the longest name of each; 0 if there is none
    this.day = null; // days since 1970, of the first event
    this.hasDays = false; // whether others are of another day
    this.version = 0;
  }

  /** Note what the events have. */
  note(events) {
    for (const event of events) {
      this.#noteNames(event);
      this.#noteDay(event.at_ms);
      for (const name of Object.keys(event.values)) this.#noteValue(event, name);
    }
  }

  #noteNames(event) {
    for (const field of Object.keys(this.names)) {
      const isTold = field === "publisher" && event.publisher === event.values.source; // by the event itself
      const length = isTold ? 0 : Math.min((event[field] ?? "").length, WIDEST_NAME);
      if (length > this.names[field]) [this.names[field], this.version] = [Math.max(length, 9), this.version + 1];
    }
  }

  #noteDay(at) {
    if (!Number.isFinite(at) || this.hasDays) return;
    const day = Math.floor(at / DAY_MS);
    if (day === this.day) return;
    this.hasDays = this.day !== null;
    this.day ??= day;
    this.version += 1;
  }

  /** The day of all events as a text; "" if it is today, if there are several, or if time is counted from zero. */
  dayText() {
    if (this.day === null || this.day < FIRST_DAY || this.hasDays || this.day === Math.floor(Date.now() / DAY_MS)) return "";
    return new Date(this.day * DAY_MS).toISOString().slice(0, 10);
  }

  #noteValue(event, name) {
    let column = this.known.get(name);
    if (!column) {
      if (this.known.size >= MOST_NAMES) return;
      column = { name, width: Math.min(name.length + 4, WIDEST), isNumber: true, decimals: 0, types: new Set(), plotted: new Set() };
      this.known.set(name, column);
      this.version += 1;
    }
    const text = event.values[name], decimals = text.match(NUMBER)?.[1]?.length ?? 0;
    if (column.isNumber && !(name in (event.numbers ?? {}) ? NUMBER.test(text) : /^-?(?:nan|inf)$/.test(text))) [column.isNumber, this.version] = [false, this.version + 1];
    if (decimals > column.decimals && column.decimals < MOST_DECIMALS) [column.decimals, this.version] = [Math.min(decimals, MOST_DECIMALS), this.version + 1];
    this.#widen(column, text.length + column.decimals - decimals);
    if (column.types.size < MOST_TYPES && !column.types.has(event.type)) [column.types, this.version] = [column.types.add(event.type), this.version + 1];
    if (name in (event.numbers ?? {}) && column.plotted.size < MOST_TYPES) column.plotted.add(event.type);
  }

  #widen(column, length) {
    if (length <= column.width || column.width >= WIDEST) return;
    column.width = Math.min(length + 1, WIDEST);
    this.version += 1;
  }

  /** All columns in their order. */
  all() {
    return [...this.known.values()].sort((a, b) => rankOf(a.name) - rankOf(b.name));
  }

  /** The columns to show. */
  shown() {
    return this.all().filter((column) => !this.hidden.has(column.name)).slice(0, MOST_COLUMNS);
  }

  show(name, isShown) {
    this.hidden[isShown ? "delete" : "add"](name);
    this.version += 1;
  }
}

/** Where a column comes: 0 and 1 tell where an event comes from, 2 are its own attributes. */
export function rankOf(name) {
  const place = CONTEXT.indexOf(name);
  return place < 0 ? 2 : place < 2 ? place : place + 1;
}

/** The unit of a column by the rows of the table `types`; "" if it has none, or if types differ in it. */
export function unitOf(types, column) {
  const units = new Set([...column.types].map((type) => attributesOf(types, type).find((one) => one.name === column.name)?.unit ?? ""));
  return units.size === 1 ? [...units][0] : "";
}

function withoutMiddle(text) {
  return text.length > LONGEST_PART ? `${text.slice(0, LONGEST_PART / 2)} … ${text.slice(-LONGEST_PART / 2)}` : text;
}

/** What the event has there. */
export function foundText({ stage, values }) {
  return stage === "type" ? `it is ${values}` : values;
}

/** The first part of a subscription that an event fails, as a text without the middle of long ones; "" for an event that matches. */
export function failureText({ why }) {
  if (!why) return "";
  const [first, ...others] = why, part = withoutMiddle(first.part);
  return `${first.stage === "where" ? `${part} is ${first.truth}` : `${first.stage} ${part}`}: ${withoutMiddle(foundText(first))}${others.length ? ` (and ${others.length} more)` : ""}`;
}

/** An event as JSON to copy. */
export function eventJson(event) {
  const { type, source, publisher, at_ms, values } = event;
  const at = Number.isFinite(at_ms) && Math.abs(at_ms) < 8.64e15 ? new Date(at_ms).toISOString() : null;
  return JSON.stringify({ type, at, source, publisher, values, ...(event.why ? { why: event.why } : {}) }, null, 2);
}

/** The type that declares an attribute of another type, by the rows of the table `types`; the other type itself if unknown. */
export function declaringType(types, type, name) {
  return typesAbove(types, type).find((here) => types[here].attributes.some((attribute) => attribute.name === name)) ?? type;
}

/** The attributes of a type with those of the types above it, its own last. */
export function attributesOf(types, type) {
  const found = new Map();
  for (const here of typesAbove(types, type).reverse()) types[here].attributes.forEach((attribute) => found.set(attribute.name, attribute));
  return [...found.values()];
}

/** A type and all above it that are known, the nearest first. */
function typesAbove(types, type) {
  const seen = new Set([type]);
  for (const here of seen) (types[here]?.parents ?? []).forEach((parent) => seen.add(parent));
  return [...seen].filter((here) => here in types);
}
