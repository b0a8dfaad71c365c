// The state of a thing, everywhere in the same way: a sign, a word, a colour, and since when.
import { h, setText, setAttribute } from "./dom.js";
import { isNumber, since } from "./format.js";

/** Sign, word and tone of each state; the first six are the healths that sources, channels, nodes and others have. */
export const STATES = {
  fine: ["●", "fine", "good"], degraded: ["⚠", "degraded", "warn"], wrong: ["✕", "wrong", "bad"],
  silent: ["◌", "no data", "quiet"], nobody: ["○", "nobody here", "quiet"], unknown: ["?", "not known", ""],
  paused: ["❚❚", "paused", "quiet"], ended: ["■", "ended", ""], failed: ["✕", "failed", "bad"], asked: ["◇", "on request", ""],
};

/** The state of a source: what is wrong comes first, then whether its time stands still, then its health. */
export function sourceState({ state, health, kind }) {
  if (state === "failed" || health === "wrong" || health === "degraded") return state === "failed" ? state : health;
  if (state === "paused" || state === "ended") return state;
  return kind === "lake" && health !== "nobody" ? "asked" : health ?? "unknown";
}

/** The worst of some states. */
export function worstState(states) {
  return ["failed", "wrong", "degraded", "nobody", "silent", "unknown"].find((state) => states.includes(state)) ?? states[0];
}

/** An element for drawState(): a chip and, if it is known, since when. */
export function stateMark() {
  return h("span", { class: "state" }, h("span", { class: "chip" }), h("small"));
}

/** Write a state into a mark: `word` instead of its usual one, `why` as its tip, `from` in milliseconds since 1970. */
export function drawState(mark, state, { word, why = "", from = null, now } = {}) {
  const [sign, usual, tone] = STATES[state] ?? STATES.unknown, chip = mark.firstChild;
  const when = isNumber(from) && state !== "fine" ? `since ${since(from, now)}` : "";
  setText(chip, `${sign} ${word ?? usual}`);
  setAttribute(chip, "class", `chip state-${tone || "none"}`);
  setText(mark.lastChild, when);
  setAttribute(mark, "title", [why, when && `${when} UTC`].filter(Boolean).join(", ") || null);
}
