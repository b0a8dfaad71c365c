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
const LONGEST_PART = 40; // so that what the event has there is seen, too
/** Attributes that every event may carry. */
export const CONTEXT = ["place", "source", "time", "deadline", "expires"];

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

/** The attributes that were seen, with the width of their columns; those that every event may carry come last. */
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
      const length = Math.min((event[field] ?? "").length, WIDEST_NAME);
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

  /** The day of all events as a text; "" if it is today, or if there are several. */
  dayText() {
    if (this.day === null || this.hasDays || this.day === Math.floor(Date.now() / DAY_MS)) return "";
    return new Date(this.day * DAY_MS).toISOString().slice(0, 10);
  }

  #noteValue(event, name) {
    let column = this.known.get(name);
    if (!column) {
      if (this.known.size >= MOST_NAMES) return;
      column = { name, width: Math.min(name.length + 4, WIDEST), isNumber: false, types: new Set() };
      this.known.set(name, column);
      this.version += 1;
    }
    this.#widen(column, event.values[name].length);
    if (!(name in (event.numbers ?? {}))) return;
    if (!column.isNumber) this.version += 1;
    column.isNumber = true;
    if (column.types.size < MOST_TYPES) column.types.add(event.type);
  }

  #widen(column, length) {
    if (length <= column.width || column.width >= WIDEST) return;
    column.width = Math.min(length + 1, WIDEST);
    this.version += 1;
  }

  /** All columns in their order. */
  all() {
    const rank = (column) => CONTEXT.indexOf(column.name);
    return [...this.known.values()].sort((a, b) => rank(a) - rank(b));
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

/** A part of a subscription that an event fails, as a text; a long one without its middle. */
export function partText({ stage, part, truth }) {
  return stage === "where" ? `${withoutMiddle(part)} is ${truth}` : `${stage} ${withoutMiddle(part)}`;
}

function withoutMiddle(text) {
  return text.length > LONGEST_PART ? `${text.slice(0, LONGEST_PART / 2)} … ${text.slice(-LONGEST_PART / 2)}` : text;
}

/** What the event has there. */
export function foundText({ stage, values }) {
  return stage === "type" ? `it is ${values}` : values;
}

/** The first part of a subscription that an event fails, as a text; "" for an event that matches. */
export function failureText(event) {
  if (!event.why) return "";
  const [first, ...others] = event.why;
  if (!first) return "does not match";
  return `${partText(first)}: ${withoutMiddle(foundText(first))}${others.length ? ` (and ${others.length} more)` : ""}`;
}

/** An event as JSON to copy. */
export function eventJson(event) {
  const { type, source, publisher, at_ms, values } = event;
  const at = Number.isFinite(at_ms) && Math.abs(at_ms) < 8.64e15 ? new Date(at_ms).toISOString() : null;
  return JSON.stringify({ type, at, source, publisher, values, ...(event.why ? { why: event.why } : {}) }, null, 2);
}

/** The type that declares an attribute of another type, by the rows of the table `types`; the other type itself if unknown. */
export function declaringType(types, type, name) {
  const seen = new Set(), waiting = [type];
  while (waiting.length) {
    const here = waiting.shift(), row = types[here];
    if (!row || seen.has(here)) continue;
    seen.add(here);
    if (row.attributes.some((attribute) => attribute.name === name)) return here;
    waiting.push(...row.parents);
  }
  return type;
}

/** The attributes of a type with those of the types above it, its own last. */
export function attributesOf(types, type) {
  const found = new Map(), seen = new Set();
  const visit = (here) => {
    const row = types[here];
    if (!row || seen.has(here)) return;
    seen.add(here);
    row.parents.forEach(visit);
    row.attributes.forEach((attribute) => found.set(attribute.name, attribute));
  };
  visit(type);
  return [...found.values()];
}
