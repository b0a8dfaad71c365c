// A small line of the last values, the oldest first; it begins at zero and has no axes.
import { svg, setAttribute } from "./dom.js";

/** A line of numbers as an element with update(numbers). It is decoration: what it shows has to be said in text too. */
export function sparkline(numbers, { width = 96, height = 24, most = 60 } = {}) {
  const line = svg("path", {}), area = svg("path", { class: "area" });
  const element = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  element.update = (values) => drawSparkline(line, area, values, width, height, most);
  element.update(numbers);
  return element;
}

/** Draw other numbers into an element that sparkline() made. */
export function updateSparkline(element, numbers) {
  element.update(numbers);
}

function drawSparkline(line, area, numbers, width, height, most) {
  const values = (numbers ?? []).slice(-most), highest = Math.max(...values, Number.MIN_VALUE);
  const step = width / (most - 1), start = width - step * (values.length - 1);
  const points = values.map((value, n) => `${(start + n * step).toFixed(1)} ${(height - 1.5 - ((height - 3) * value) / highest).toFixed(1)}`);
  const path = points.length > 1 ? `M${points.join("L")}` : "";
  setAttribute(line, "d", path);
  setAttribute(area, "d", path && `${path}V${height}H${start.toFixed(1)}Z`);
}
