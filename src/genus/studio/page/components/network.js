// A picture of networks and the gateways between them: what crosses to each side, and what is not connected.
import { h, svg, setText, setAttribute } from "./dom.js";
import { count, plural, rate } from "./format.js";

// In a wide picture, networks are on both sides of their gateways; in a narrow one, all are on the right.
const WIDE_LOOK = { width: 940, row: 104, net: [236, 64], gate: [150, 48], gateX: 395, name: 28, address: 32 };
const NARROW_LOOK = { width: 356, row: 88, net: [142, 60], gate: [92, 44], gateX: 1, name: 18, address: 19 };
const LEAST_WIDE = 640; // pixels

/** What is between a gateway and a network: "active", "standing by" or "not connected". */
export function sideState(row) {
  if (!row.is_connected) return "not connected";
  return row.is_active ? "active" : "standing by";
}

/** A side of a gateway in words. */
function describeSide(row) {
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
    this.element = h("div", { class: "networks" }, this.drawing);
    this.key = null;
    this.look = WIDE_LOOK;
    new ResizeObserver(([{ contentRect: { width } }]) => this.fit(width)).observe(this.drawing);
  }

  fit(width) {
    const look = width < LEAST_WIDE ? NARROW_LOOK : WIDE_LOOK;
    if (look === this.look || !width) return;
    [this.look, this.key] = [look, null];
    this.update(this.rows);
  }

  update(rows) {
    this.rows = rows;
    const key = JSON.stringify([...rows].map(([name, row]) => [name, row.source, row.side, row.address]));
    if (key !== this.key) {
      this.key = key;
      this.build(rows);
    }
    for (const [name, row] of rows) this.write(name, row);
    setAttribute(this.picture, "aria-label", `${plural(this.gates.size, "gateway")} between ${plural(this.networks.size, "network")}. ${[...rows.values()].map(describeSide).join(". ")}`);
  }

  build(rows) {
    this.lay(rows);
    this.edges = new Map();
    const height = this.look.row * Math.max(this.columns.left.length, this.columns.right.length, this.gates.size, 1);
    this.picture = svg("svg", { class: "network-picture", viewBox: `0 0 ${this.look.width} ${height}`, role: "img" });
    const place = (list) => new Map(list.map((name, n) => [name, ((n + 0.5) * height) / list.length]));
    const heights = { left: place(this.columns.left), right: place(this.columns.right), gates: place([...this.gates.keys()]) };
    for (const [name, row] of rows) this.picture.append(this.makeEdge(name, row, heights));
    for (const [gate] of this.gates) this.picture.append(drawGate(this.look, gate, heights.gates.get(gate)));
    for (const [key, network] of this.networks) this.picture.append(drawNetwork(this.look, network, heights[network.column].get(key)));
    this.drawing.replaceChildren(this.picture);
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
      const column = isLeft && this.look === WIDE_LOOK ? "left" : "right";
      this.networks.set(key, { name: row.side, address: row.address, column });
      this.columns[column].push(key);
    }
  }

  makeEdge(name, row, heights) {
    const { column } = this.networks.get(row.address || `${row.source} ${row.side}`), isLeft = column === "left";
    const { width, net, gate, gateX } = this.look;
    const from = { x: isLeft ? gateX : gateX + gate[0], y: heights.gates.get(row.source) };
    const to = { x: isLeft ? net[0] + 7 : width - net[0] - 7, y: heights[column].get(row.address || `${row.source} ${row.side}`) };
    const middle = (from.x + to.x) / 2, tip = isLeft ? 8 : -8;
    const line = svg("path", { d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` });
    const head = svg("path", { class: "head", d: `M${to.x + tip} ${to.y - 5}L${to.x} ${to.y}L${to.x + tip} ${to.y + 5}` });
    const words = { x: to.x + tip, "text-anchor": isLeft ? "start" : "end" }, isLower = to.y > from.y; // its line comes from the other side
    const label = svg("text", { class: "rate", y: isLower ? to.y + 17 : to.y - 8, ...words });
    const note = svg("text", { class: "state", y: isLower ? to.y + 32 : to.y - 23, ...words });
    const title = svg("title", {});
    const element = svg("g", {}, title, line, head, label, note);
    this.edges.set(name, { element, label, note, title });
    return element;
  }

  write(name, row) {
    const edge = this.edges.get(name), state = sideState(row);
    setAttribute(edge.element, "class", `edge ${state.replace(" ", "-")}${row.rate > 0 ? " flowing" : ""}`);
    setText(edge.label, state === "not connected" ? "✕ not connected" : `${rate(row.rate)}/s`);
    const waiting = row.spooled ? `${count(row.spooled)} spooled` : row.waiting ? `${count(row.waiting)} waiting` : "";
    setText(edge.note, state === "standing by" ? "standing by" : waiting);
    setText(edge.title, describeSide(row));
  }
}

function drawGate({ gate: [width, height], gateX: x, name: most }, name, y) {
  return svg("g", { class: "gate" }, svg("title", {}, `gateway ${name}`), svg("rect", { x, y: y - height / 2, width, height, rx: 8 }),
    svg("text", { class: "middle name", x: x + width / 2, y: y - 2 }, cutText(name, Math.round(most * 0.7))), svg("text", { class: "middle", x: x + width / 2, y: y + 14 }, "gateway"));
}

function drawNetwork({ width: all, net: [width, height], name: most, address: mostAddress }, { name, address, column }, y) {
  const x = column === "left" ? 1 : all - width - 1, middle = x + width / 2;
  return svg("g", { class: "network" }, svg("title", {}, address || name), svg("rect", { x, y: y - height / 2, width, height, rx: height / 2 }),
    svg("text", { class: "middle name", x: middle, y: y - 2 }, cutText(name, most)), svg("text", { class: "middle address", x: middle, y: y + 15 }, cutText(address === name ? "" : address, mostAddress)));
}

function cutText(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
