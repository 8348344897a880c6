"use strict";
// Line charts in SVG. The colours are in page.css, where they suit light and dark; dashes where there are more runs.
const COLOURS = 8;
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
const SVG = "http://www.w3.org/2000/svg";
const BOX = { width: 420, height: 230, left: 58, right: 12, top: 10, bottom: 34 };

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
}

function line(i, kind) {
  const dash = DASHES[Math.floor(i / COLOURS) % DASHES.length];
  return { class: `${kind} colour-${i % COLOURS}`, ...(dash ? { "stroke-dasharray": dash } : {}) };
}

function shortNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return `${+value.toPrecision(4)}`;
}

function ticks(low, high, wanted) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / wanted;
  const ten = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * ten).find((size) => size >= raw);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) found.push(i * step);
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.ceil(low - 1e-9); power <= Math.floor(high + 1e-9); power++) found.push(power);
  const every = Math.ceil(found.length / 5) || 1;
  return found.filter((_, i) => i % every === 0);
}

// The first estimates of an ELBO lie far below the others: what is shown begins at a low quantile of them.
function limits(values, clip) {
  const sorted = [...values].sort((a, b) => a - b);
  let low = sorted[0];
  const high = sorted[sorted.length - 1];
  if (clip && sorted.length > 10) {
    const at = (share) => sorted[Math.floor(share * (sorted.length - 1))];
    low = Math.max(low, at(0.25) - 3 * Math.max(high - at(0.25), 1e-9));
  }
  const room = 0.05 * (high - low) || 0.05 * Math.abs(high) || 0.5;
  return [low - room, high + room];
}

// runs: [{index, x: [], y: []}]; options: log, clip, goal, whole, step, highlighted.
function drawChart(place, runs, options) {
  const shown = runs.map((run) => {
    const points = [];
    for (let i = 0; i < run.x.length; i++) {
      const y = run.y[i];
      if (y === null || (options.log && !(y > 0))) continue;
      points.push([run.x[i], options.log ? Math.log10(y) : y]);
    }
    return { ...run, points };
  }).filter((run) => run.points.length);
  place.replaceChildren();
  if (!shown.length) {
    const empty = document.createElement("div");
    empty.className = "empty";
    empty.textContent = "nothing to draw yet";
    place.append(empty);
    return;
  }
  const all = shown.flatMap((run) => run.points);
  const goal = options.goal && options.log ? Math.log10(options.goal) : null;
  const [low, high] = limits(goal === null ? all.map((p) => p[1]) : [...all.map((p) => p[1]), goal], options.clip);
  const first = options.fromZero ? 0 : Math.min(...all.map((p) => p[0]));
  const last = Math.max(...all.map((p) => p[0]));
  const { width, height, left, right, top, bottom } = BOX;
  const across = (x) => left + (width - left - right) * ((x - first) / (last - first || 1));
  const up = (y) => height - bottom - (height - top - bottom) * ((y - low) / (high - low || 1));
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label }, place);
  const yTicks = options.log ? logTicks(low, high) : ticks(low, high, 4);
  for (const y of yTicks.filter((t) => !options.whole || Number.isInteger(t))) {
    element("line", { class: "grid", x1: left, x2: width - right, y1: up(y), y2: up(y) }, svg);
    const text = element("text", { x: left - 6, y: up(y) + 4, "text-anchor": "end" }, svg);
    text.textContent = options.log ? shortNumber(10 ** y) : shortNumber(y);
  }
  for (const x of ticks(first, last, 4)) {
    const text = element("text", { x: across(x), y: height - bottom + 16, "text-anchor": "middle" }, svg);
    text.textContent = shortNumber(x);
  }
  const title = element("text", { x: width - right, y: height - 4, "text-anchor": "end" }, svg);
  title.textContent = options.axis;
  if (goal !== null) {
    element("line", { class: "goal", x1: left, x2: width - right, y1: up(goal), y2: up(goal) }, svg);
    const text = element("text", { x: width - right, y: up(goal) - 4, "text-anchor": "end" }, svg);
    text.textContent = `accuracy ${options.goal}`;
  }
  const clip = `clip-${place.id}`;
  const box = element("clipPath", { id: clip }, svg);
  element("rect", { x: left, y: top - 4, width: width - left - right + 6, height: height - top - bottom + 8 }, box);
  const curves = element("g", { "clip-path": `url(#${clip})` }, svg);
  for (const run of shown) {
    let path = "";
    run.points.forEach(([x, y], i) => {
      if (options.step && i) path += `H${across(x).toFixed(1)}`;
      path += `${i ? "L" : "M"}${across(x).toFixed(1)},${up(y).toFixed(1)}`;
    });
    const faint = options.highlighted !== null && options.highlighted !== run.index ? " faint" : "";
    if (run.points.length === 1) {
      const [x, y] = run.points[0];
      element("circle", { ...line(run.index, `point${faint}`), cx: across(x), cy: up(y), r: 2 }, curves);
    } else {
      element("path", { d: path, ...line(run.index, `curve${faint}`) }, curves);
    }
  }
  addReadout(svg, shown, { across, up, first, last, ...options });
}

// The value under the pointer, of the curve that is nearest.
function addReadout(svg, shown, scale) {
  const cursor = element("g", {}, svg);
  svg.addEventListener("pointermove", (event) => {
    const place = svg.getBoundingClientRect();
    const px = ((event.clientX - place.left) / place.width) * BOX.width;
    const py = ((event.clientY - place.top) / place.height) * BOX.height;
    let best = null;
    for (const run of shown) {
      for (const point of run.points) {
        const away = Math.abs(scale.across(point[0]) - px) * 3 + Math.abs(scale.up(point[1]) - py);
        if (best === null || away < best.away) best = { away, point, run };
      }
    }
    const [x, y] = best.point;
    cursor.replaceChildren();
    element("line", { class: "cursor", x1: scale.across(x), x2: scale.across(x), y1: BOX.top, y2: BOX.height - BOX.bottom }, cursor);
    const right = scale.across(x) > BOX.width / 2;
    const text = element("text", { x: scale.across(x) + (right ? -5 : 5), y: BOX.top + 8, "text-anchor": right ? "end" : "start" }, cursor);
    const value = shortNumber(scale.log ? 10 ** y : y);
    text.textContent = `${shown.length > 1 ? `${best.run.name}: ` : ""}${value} at ${shortNumber(x)}`;
  });
  svg.addEventListener("pointerleave", () => cursor.replaceChildren());
}
