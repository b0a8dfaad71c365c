// What a timeline of a CAN bus shows: frames, slots and waiting events, in lanes, and what is said of each.
import { micros, time } from "./format.js";

/** The kinds of frames, and what they are called. */
export const FRAME_KINDS = { hard: "hard real time", soft: "soft real time", system: "middleware", none: "no real time" };

const MOST_CHANNEL_LANES = 18;
const ALL_FRAMES = "all frames";
export const CALENDAR_LANE = "calendar";

/** Reads the data of a timeline: frames, slots and waits become objects; waits of frames that tell it are added.
 *
 * `data` has start_us, end_us, load, frames [start, end, node, channel, kind, identifier, ok, priority, deadline, waited,
 * beaten], slots [start, end, channel] and, if it is known, waits [published, delivered, deadline, channel].
 */
export function readPicture(data) {
  const frames = data.frames.map(readFrame).sort((a, b) => a.start - b.start);
  const slots = data.slots.map(([start, end, channel]) => ({ what: "slot", start, end, channel }));
  const waits = data.waits ? data.waits.map(readWait) : frames.filter((frame) => frame.ok).flatMap(waitOf);
  return { start: data.start_us, end: data.end_us, load: data.load ?? null, frames, slots, waits };
}

function readFrame([start, end, node, channel, kind, identifier = null, ok = true, priority = null, deadline = null, waited = null, beaten = []]) {
  const isLate = ok && deadline !== null && end > deadline;
  return { what: "frame", start, end, node, channel, kind, identifier, ok, priority, deadline, waited, beaten, isLate };
}

function readWait([published, delivered, deadline, channel]) {
  return { what: "wait", published, delivered, deadline, channel, node: null, kind: "soft", isLate: delivered === null || delivered > deadline };
}

/** The wait of a frame from when it could be sent to its end; hard events wait for their slot, which is drawn. */
function waitOf({ start, end, node, channel, kind, deadline, waited, isLate }) {
  if (kind === "hard" || (deadline === null && !waited)) return [];
  return [{ what: "wait", published: start - (waited ?? 0), delivered: end, deadline, channel, node, kind, isLate }];
}

/** All spans in which something is sent, reserved or waiting. */
export function busySpans(picture) {
  return [
    ...picture.frames.map((frame) => [frame.start, frame.end]), ...picture.slots.map((slot) => [slot.start, slot.end]),
    ...picture.waits.map((wait) => [wait.published, wait.delivered ?? wait.deadline]),
  ];
}

/** The length of the frame in the middle of all lengths; infinite without frames. */
export function usualLength(frames) {
  const lengths = frames.map((frame) => frame.end - frame.start).sort((a, b) => a - b);
  return lengths.length ? lengths[Math.floor(lengths.length / 2)] : Infinity;
}

/** Lanes {name, kind, frames, slots, waits}: one per node and one for the calendar, or one per channel and one for all frames. */
export function lanesOf(picture, by = "node", known = []) {
  return by === "channel" ? channelLanes(picture) : nodeLanes(picture, known);
}

function nodeLanes({ frames, slots, waits }, known) {
  const nodes = [...new Set([...known, ...frames.map((frame) => frame.node)])].filter((name) => name !== CALENDAR_LANE);
  nodes.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const [framesOf, waitsOf] = [Map.groupBy(frames, (frame) => frame.node), Map.groupBy(waits, (wait) => wait.node)];
  const lanes = nodes.map((name) => ({ name, kind: null, slots: [], frames: framesOf.get(name) ?? [], waits: waitsOf.get(name) ?? [] }));
  const hasCalendar = slots.length > 0 || known.includes(CALENDAR_LANE);
  return hasCalendar ? [{ name: CALENDAR_LANE, kind: null, frames: [], waits: [], slots }, ...lanes] : lanes;
}

/** A lane per channel, by kind; a lane per kind if there are too many; all frames together in the last one. */
function channelLanes({ frames, slots, waits }) {
  const kinds = new Map(frames.map((frame) => [channelOf(frame), frame.kind]));
  waits.forEach((wait) => kinds.set(channelOf(wait), wait.kind));
  slots.forEach((slot) => kinds.set(slot.channel, "hard"));
  const order = [...Object.keys(FRAME_KINDS), ...new Set(kinds.values())];
  const names = [...kinds.keys()].sort((a, b) => order.indexOf(kinds.get(a)) - order.indexOf(kinds.get(b)) || a.localeCompare(b, "en", { numeric: true }));
  const isCrowded = names.length > MOST_CHANNEL_LANES;
  const groups = isCrowded ? [...new Set(names.map((name) => kinds.get(name)))].map((kind) => [FRAME_KINDS[kind] ?? kind, kind, names.filter((name) => kinds.get(name) === kind)]) : names.map((name) => [name, kinds.get(name), [name]]);
  const lanes = groups.map(([name, kind, members]) => ({
    name, kind,
    frames: frames.filter((frame) => members.includes(channelOf(frame))),
    slots: slots.filter((slot) => members.includes(slot.channel)),
    waits: waits.filter((wait) => members.includes(channelOf(wait))),
  }));
  return [...lanes, { name: ALL_FRAMES, kind: null, frames, slots: [], waits: [] }];
}

/** The middleware's own frames count as one channel. */
function channelOf({ kind, channel }) {
  return kind === "system" ? FRAME_KINDS.system : channel;
}

/** The next frames of the channels that a frame beat, which began after it. */
export function beatenFrames(frame, frames) {
  return frame.beaten.map((channel) => frames.find((other) => other.channel === channel && other.start >= frame.end)).filter(Boolean);
}

/** An identifier of 29 bits in hexadecimal. */
export function identifierText(identifier) {
  return identifier === null ? "" : `0x${identifier.toString(16).padStart(8, "0")}`;
}

/** An instant of the source, in microseconds: the time of day, or seconds if it does not count from 1970. */
export function instantText(at) {
  if (Math.abs(at) < 1e14) return `${(at / 1e6).toFixed(6)} s`;
  const rest = String(Math.floor(((at % 1000) + 1000) % 1000)).padStart(3, "0");
  return `${time(Math.floor(at / 1000), 3)}${rest}`;
}

/** What is said of a frame, a wait or a slot: a title, and [name, text] of each fact. */
export function factsOf(thing, picture) {
  const start = (at) => [`start`, `${micros(at - picture.start)} (${instantText(at)})`];
  if (thing.what === "slot") {
    return [thing.channel, [["", "slot of the calendar"], start(thing.start), ["length", micros(thing.end - thing.start)], ["deadline", "at its end: the event is delivered there"]]];
  }
  if (thing.what === "wait") return [thing.channel, waitFacts(thing)];
  const facts = [
    ["", FRAME_KINDS[thing.kind] ?? thing.kind], ["state", thing.ok ? "" : "corrupted, is sent again"], ["node", thing.node],
    ["identifier", identifierText(thing.identifier)], ["priority", thing.priority === null ? "" : String(thing.priority)],
    start(thing.start), ["length", micros(thing.end - thing.start)],
    ["waited", thing.waited === null ? "" : micros(thing.waited)], ["deadline", deadlineText(thing)], ["beat", thing.beaten.join(", ")],
  ];
  return [thing.channel, facts.filter(([, text]) => text)];
}

function waitFacts({ published, delivered, deadline }) {
  const came = delivered === null ? "never" : `after ${micros(delivered - published)}`;
  return [["", "waiting event"], ["delivered", came], ["deadline", deadline === null ? "none" : `after ${micros(deadline - published)}`]];
}

function deadlineText({ deadline, end, ok }) {
  if (deadline === null) return "";
  if (!ok) return `${micros(deadline - end)} later`;
  return end > deadline ? `missed by ${micros(end - deadline)}` : `${micros(deadline - end)} to spare`;
}
