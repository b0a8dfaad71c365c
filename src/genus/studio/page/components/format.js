// Numbers and times as text. What is not known is a dash.

/** Stands for what is not known. */
export const DASH = "–";

const COUNT_FORMAT = new Intl.NumberFormat("en");
const SHORT_FORMAT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const MS_OF_DAY = 86_400_000;
const FIRST_DATE_MS = 1e11; // nothing was recorded before 1973
const [FIGURE_SPACE, POINT_SPACE] = ["\u2007", "\u2008"]; // as wide as a digit, and as a point
const LONG_UNITS = [[86_400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]; // seconds
const AGO_UNITS = [[MS_OF_DAY, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];

/** Whether it is a finite number. */
export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** 1,234. */
export function count(value) {
  return isNumber(value) ? COUNT_FORMAT.format(value) : DASH;
}

/** 1.23K, 4.5M: where there is little room. */
export function short(value) {
  if (!isNumber(value)) return DASH;
  return Math.abs(value) < 10_000 ? COUNT_FORMAT.format(Math.round(value)) : SHORT_FORMAT.format(value);
}

/** A number of three digits: 0.00123, 1.23, 12.3, 123, 1,234. */
export function number(value) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  if (size >= 100) return COUNT_FORMAT.format(Math.round(value));
  if (size >= 10) return value.toFixed(1);
  if (size >= 1 || size === 0) return size === 0 ? "0" : value.toFixed(2);
  return size < 1e-6 ? value.toExponential(1) : String(Number(value.toPrecision(2)));
}

/** A number of three digits for a column: those of one column have their points below each other; the unit is in the head. */
export function aligned(value, digits = 2) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value), least = 10 ** -digits;
  if (size > 0 && size < least) return `< ${least}`;
  const places = size >= 100 || size === 0 ? 0 : Math.min(digits, size >= 10 ? 1 : size >= 1 ? 2 : digits);
  return padded((places ? value.toFixed(places) : COUNT_FORMAT.format(Math.round(value))).replace("-", "−"), digits);
}

/** A number with its point below those of its column, which has so many digits after it. */
export function padded(text, digits) {
  const own = text.split(".")[1]?.length ?? -1;
  return !digits || own >= digits ? text : `${text}${own < 0 ? POINT_SPACE : ""}${FIGURE_SPACE.repeat(digits - Math.max(own, 0))}`;
}

/** Events a second, without the unit: 0, 0.2, 9.5, 120, 12.3K. */
export function rate(value) {
  if (!isNumber(value)) return DASH;
  if (value >= 9950) return SHORT_FORMAT.format(value);
  if (value >= 99.5 || value === 0) return COUNT_FORMAT.format(Math.round(value));
  return value >= 0.95 ? value.toFixed(1) : value.toFixed(2);
}

/** Milliseconds with their unit, in the unit that suits: 80 µs, 1.25 ms, 2.5 s, 3 min 20 s. */
export function ms(value) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  if (size === 0) return "0 ms";
  if (size < 0.001) return `${number(value * 1e6)} ns`;
  if (size < 1) return `${number(value * 1000)} µs`;
  if (size < 1000) return `${number(value)} ms`;
  if (size < 60_000) return `${number(value / 1000)} s`;
  return duration(value);
}

/** Microseconds with their unit, like ms(). */
export function micros(value) {
  return isNumber(value) ? ms(value / 1000) : DASH;
}

/** A long span: 3 min 20 s, 2 h 5 min, 4 d 3 h. */
export function duration(value) {
  if (!isNumber(value)) return DASH;
  const seconds = Math.round(Math.abs(value) / 1000), sign = value < 0 ? "−" : "";
  const [size, unit, smallSize, smallUnit] = LONG_UNITS.find(([least]) => seconds >= least) ?? [1, "s", 1, "s"];
  const rest = Math.floor((seconds % size) / smallSize);
  return `${sign}${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${smallUnit}` : ""}`;
}

/** How long before `now` (both in milliseconds since 1970) it was: "now", "5 s ago", "3 min ago"; "in 3 s" if later. */
export function ago(value, now = Date.now()) {
  if (!isNumber(value)) return DASH;
  const span = now - value;
  if (Math.abs(span) < 1500) return "now";
  const [size, unit] = AGO_UNITS.find(([least]) => Math.abs(span) >= least) ?? AGO_UNITS.at(-1);
  const text = `${COUNT_FORMAT.format(Math.floor(Math.abs(span) / size))} ${unit}`;
  return span < 0 ? `in ${text}` : `${text} ago`;
}

/** The time of day of milliseconds since 1970, in UTC as all times of Genus: 12:03:04 (.567 with `digits` 3). */
export function time(value, digits = 0) {
  const text = date(value, digits);
  return text.includes("-") ? text.slice(11) : text; // without the day, if it has one
}

/** Day and time in UTC: 2026-11-17 12:03:04; times that count from zero as a clock: 00:01:05, 1 d 02:03:04. */
export function date(value, digits = 0) {
  if (!isNumber(value) || Math.abs(value) > 8.64e15) return DASH;
  const end = digits ? 20 + digits : 19;
  if (!isCountedFromZero(value)) return new Date(value).toISOString().replace(/^[+-]\d\d(\d{4})/, "$1").slice(0, end).replace("T", " ");
  const days = Math.floor(Math.abs(value) / MS_OF_DAY);
  return `${value < 0 ? "−" : ""}${days ? `${days} d ` : ""}${new Date(Math.abs(value)).toISOString().slice(11, end)}`;
}

/** Whether a time is one of a simulation, which begins at zero: it has no date. */
export function isCountedFromZero(value) {
  return Math.abs(value) < FIRST_DATE_MS;
}

/** Since when: 12:03 of today in UTC, or day and time. */
export function since(value, now = Date.now()) {
  const text = date(value).slice(0, 16);
  return text.slice(0, 10) === date(now).slice(0, 10) ? text.slice(11) : text;
}

/** A share of 0 to 1: 12 %. */
export function percent(value) {
  if (!isNumber(value)) return DASH;
  const part = 100 * value;
  return `${part === 0 || part >= 9.95 ? Math.round(part) : part.toFixed(1)} %`;
}

/** "1 node", "3 nodes". */
export function plural(value, word, many = `${word}s`) {
  return `${count(value)} ${value === 1 ? word : many}`;
}

/** A text with its control characters as signs, so that they neither hide nor turn round what is beside them; `hasLines` leaves line breaks and tabs. */
export function visibleText(text, hasLines = false) {
  return text.replace(CONTROL_CHARACTERS, (found) => {
    if (hasLines && /^(?:\r?\n|\t)$/.test(found)) return found;
    if (/^[\r\n\u0085\u2028\u2029]/.test(found)) return "⏎";
    const code = found.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code); // control pictures
    return code === 0x7f ? "\u2421" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

// Controls, line breaks, and marks, embeddings, overrides and isolates of direction.
const CONTROL_CHARACTERS = /\r\n|[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
