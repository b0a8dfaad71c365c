// A picture of networks and the gateways between them: what crosses to each side, and what is not connected.
import { h, svg, setText, setAttribute } from "./dom.js";
import { count, rate } from "./format.js";

const NET_WIDTH = 860;
const NET_ROW = 104;
const NET_BOX = { width: 236, height: 64 };
const GATE_BOX = { width: 150, height: 48 };
const GATE_X = (NET_WIDTH - GATE_BOX.width) / 2;

/** What is between a gateway and a network: "active", "standing by" or "not connected". */
export function sideState(row) {
  if (!row.is_connected) return "not connected";
  return row.is_active ? "active" : "standing by";
}

/** A side of a gateway in words. */
export function describeSide(row) {
  const state = sideState(row), waiting = [row.waiting && `${count(row.waiting)} waiting`, row.spooled && `${count(row.spooled)} spooled`, row.lost && `${count(row.lost)} lost`].filter(Boolean);
  const network = row.address && row.address !== row.side ? `${row.side} (${row.address})` : row.side;
  return `${row.source} to ${network}: ${[`${rate(row.rate)} events/s cross`, state === "active" ? "" : state, ...waiting].filter(Boolean).join(", ")}`;
}

/** Draws the networks that gateways connect; `rows` is a Map as in the table `gateways`. The element has update(rows). */
export function drawNetworks(rows) {
  const picture = new NetworkPicture();
  picture.update(rows);
  return Object.assign(picture.element, { update: (next) => picture.update(next) });
}

class NetworkPicture {
  constructor() {
    this.drawing = h("div", { class: "scroll network-scroll", tabindex: "0", role: "region", "aria-label": "Networks and gateways" });
    this.words = h("ul", { class: "network-words" });
    this.element = h("div", { class: "networks" }, this.drawing, h("details", {}, h("summary", {}, "The picture in words"), this.words));
    this.key = null;
  }

  update(rows) {
    const key = JSON.stringify([...rows].map(([name, row]) => [name, row.source, row.side, row.address]));
    if (key !== this.key) {
      this.key = key;
      this.build(rows);
    }
    for (const [name, row] of rows) this.write(name, row);
    setAttribute(this.picture, "aria-label", `${this.gates.size} gateways between ${this.networks.size} networks`);
  }

  build(rows) {
    this.lay(rows);
    this.edges = new Map();
    const height = NET_ROW * Math.max(this.columns.left.length, this.columns.right.length, this.gates.size, 1);
    this.picture = svg("svg", { class: "network-picture", viewBox: `0 0 ${NET_WIDTH} ${height}`, role: "img" });
    const place = (list) => new Map(list.map((name, n) => [name, ((n + 0.5) * height) / list.length]));
    const heights = { left: place(this.columns.left), right: place(this.columns.right), gates: place([...this.gates.keys()]) };
    for (const [name, row] of rows) this.picture.append(this.makeEdge(name, row, heights));
    for (const [gate] of this.gates) this.picture.append(drawGate(gate, heights.gates.get(gate)));
    for (const [key, network] of this.networks) this.picture.append(drawNetwork(network, heights[network.column].get(key)));
    this.drawing.replaceChildren(this.picture);
    this.words.replaceChildren(...[...rows.keys()].map((name) => { const item = h("li", {}); this.edges.get(name).words = item; return item; }));
  }

  /** Which networks and gateways there are, and in which column a network is: the sides of a gateway take turns. */
  lay(rows) {
    this.networks = new Map();
    this.gates = new Map();
    this.columns = { left: [], right: [] };
    for (const row of rows.values()) {
      const key = row.address || `${row.source} ${row.side}`, sides = this.gates.get(row.source) ?? [];
      this.gates.set(row.source, [...sides, key]);
      if (this.networks.has(key)) continue;
      const used = sides.map((side) => this.networks.get(side).column);
      const isLeft = used.filter((column) => column === "left").length <= used.filter((column) => column === "right").length;
      const column = isLeft ? "left" : "right";
      this.networks.set(key, { name: row.side, address: row.address, column });
      this.columns[column].push(key);
    }
  }

  makeEdge(name, row, heights) {
    const { column } = this.networks.get(row.address || `${row.source} ${row.side}`), isLeft = column === "left";
    const from = { x: isLeft ? GATE_X : GATE_X + GATE_BOX.width, y: heights.gates.get(row.source) };
    const to = { x: isLeft ? NET_BOX.width + 7 : NET_WIDTH - NET_BOX.width - 7, y: heights[column].get(row.address || `${row.source} ${row.side}`) };
    const middle = (from.x + to.x) / 2, tip = isLeft ? 8 : -8;
    const line = svg("path", { d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` });
    const head = svg("path", { class: "head", d: `M${to.x + tip} ${to.y - 5}L${to.x} ${to.y}L${to.x + tip} ${to.y + 5}` });
    const label = svg("text", { class: "middle rate", x: middle, y: (from.y + to.y) / 2 - 8 });
    const note = svg("text", { class: "middle state", x: middle, y: (from.y + to.y) / 2 + 15 });
    const title = svg("title", {});
    const element = svg("g", {}, title, line, head, label, note);
    this.edges.set(name, { element, label, note, title, words: null });
    return element;
  }

  write(name, row) {
    const edge = this.edges.get(name), state = sideState(row);
    setAttribute(edge.element, "class", `edge ${state.replace(" ", "-")}${row.rate > 0 ? " flowing" : ""}`);
    setText(edge.label, state === "not connected" ? "✕ not connected" : `${rate(row.rate)}/s`);
    const waiting = row.spooled ? `${count(row.spooled)} spooled` : row.waiting ? `${count(row.waiting)} waiting` : "";
    setText(edge.note, state === "standing by" ? "standing by" : waiting);
    setText(edge.title, describeSide(row));
    setText(edge.words, describeSide(row));
  }
}

function drawGate(name, y) {
  return svg("g", { class: "gate" }, svg("title", {}, `gateway ${name}`), svg("rect", { x: GATE_X, y: y - GATE_BOX.height / 2, width: GATE_BOX.width, height: GATE_BOX.height, rx: 8 }),
    svg("text", { class: "middle name", x: NET_WIDTH / 2, y: y - 2 }, cutText(name, 20)), svg("text", { class: "middle", x: NET_WIDTH / 2, y: y + 14 }, "gateway"));
}

function drawNetwork({ name, address, column }, y) {
  const x = column === "left" ? 1 : NET_WIDTH - NET_BOX.width - 1, middle = x + NET_BOX.width / 2;
  return svg("g", { class: "network" }, svg("title", {}, address || name), svg("rect", { x, y: y - NET_BOX.height / 2, width: NET_BOX.width, height: NET_BOX.height, rx: 32 }),
    svg("text", { class: "middle name", x: middle, y: y - 2 }, cutText(name, 28)), svg("text", { class: "middle address", x: middle, y: y + 15 }, cutText(address === name ? "" : address, 32)));
}

function cutText(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
