// Bits that are compared and bits that are free: acceptance filters, event tags, presence bits.
import { h } from "./dom.js";

const BIT_WORDS = { one: "1", zero: "0", any: "·" };

/**
 * Draw a value and a mask of `width` bits. `parts` names groups of them, [[name, length], ...], in the order in which
 * they are drawn: from the highest bit on, or from bit 0 on with `lowFirst`. Numbers above 2^53 may be texts.
 */
export function drawBits({ value, mask, width, parts = null, lowFirst = false, label = "" }) {
  const kinds = readBits(value, mask, width);
  if (!lowFirst) kinds.reverse();
  const groups = splitBits(kinds, parts ?? [["", width]]);
  const text = `${label ? `${label}: ` : ""}${groups.map(([name, bits]) => describeBits(name, bits)).join(", ")}`;
  return h("span", { class: "bits", role: "img", "aria-label": text }, groups.map(([name, bits]) => drawPart(name, bits)));
}

/** What the signs of drawBits mean, as a legend. */
export function bitsLegend(words = ["must be 1", "must be 0", "is not compared"]) {
  return h("ul", { class: "legend" }, Object.keys(BIT_WORDS).map((kind, n) => h("li", {}, h("i", { class: `swatch ${kind}` }), `${BIT_WORDS[kind]} ${words[n]}`)));
}

function readBits(value, mask, width) {
  const [wanted, compared] = [BigInt(value), BigInt(mask)];
  return Array.from({ length: width }, (_, n) => {
    const bit = 1n << BigInt(n);
    return compared & bit ? (wanted & bit ? "one" : "zero") : "any";
  });
}

function splitBits(kinds, parts) {
  let from = 0;
  const groups = parts.map(([name, length]) => [name, kinds.slice(from, (from += length))]);
  if (from < kinds.length) groups.push(["", kinds.slice(from)]);
  return groups.filter(([, bits]) => bits.length);
}

function drawPart(name, bits) {
  const head = name === "" ? null : h("small", { title: name }, name);
  return h("span", { class: "part", "aria-hidden": "true" }, head, bits.map((kind) => h("i", { class: kind }, BIT_WORDS[kind])));
}

function describeBits(name, bits) {
  const free = bits.every((kind) => kind === "any");
  const words = free ? (bits.length === 1 ? "free" : `${bits.length} free`) : bits.map((kind) => (kind === "any" ? "free" : BIT_WORDS[kind])).join(" ");
  return name === "" ? words : `${name} ${words}`;
}
