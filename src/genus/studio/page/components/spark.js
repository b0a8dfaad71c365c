// A small line of the last values, the oldest first, from zero to its highest value, which stands beside it.
import { h, svg, setAttribute, setText } from "./dom.js";
import { rate } from "./format.js";

/** A line of numbers as an element with update(numbers); the number beside it is the value at its upper edge. */
export function sparkline(numbers, { width = 96, height = 24, most = 60 } = {}) {
  const line = svg("path", {}), area = svg("path", { class: "area" }), top = h("small", { title: "the highest: the upper edge of the line; the lower edge is zero" });
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  const element = h("span", { class: "spark", style: { "--spark": `${width}px` } }, picture, top);
  let drawn = null;
  element.update = (values) => {
    if (values === drawn) return;
    drawn = values;
    setText(top, drawSparkline(line, area, values, width, height, most));
  };
  element.update(numbers);
  return element;
}

function drawSparkline(line, area, numbers, width, height, most) {
  const values = (numbers ?? []).slice(-most), highest = Math.max(...values, 0);
  const step = width / (most - 1), start = width - step * (values.length - 1), scale = (height - 3) / (highest || 1);
  const points = values.map((value, n) => `${(start + n * step).toFixed(1)} ${(height - 1.5 - scale * value).toFixed(1)}`);
  const path = points.length > 1 ? `M${points.join("L")}` : "";
  setAttribute(line, "d", path);
  setAttribute(area, "d", path && `${path}V${height}H${start.toFixed(1)}Z`);
  return values.length ? rate(highest) : "";
}
