// One panel, large: axes, zoom, the draw or component under the pointer.

const detail = { canvas: byId("detail"), view: null, box: null, drag: null };

function choosePanel(row, column) {
  state.pair = [row, column];
  detail.view = null;
  redraw();
}

function chosen() {
  const [row, column] = state.pair;
  return { row, column, i: state.shown[row], j: state.shown[column], single: row === column };
}

function fullView() {
  const { i, j } = chosen();
  return { x: corner.variables[j].range, y: corner.variables[i].range };
}

function drawDetail() {
  const { canvas } = detail;
  const { row, column, i, j, single } = chosen();
  const width = canvas.parentElement.clientWidth;
  const height = Math.round(Math.min(Math.max(width * 0.8, 240), 430));
  canvas.style.height = `${height}px`;
  const context = prepared(canvas, width, height);
  const box = { x: single ? 10 : 66, y: 6, w: width - (single ? 18 : 74), h: height - 48 };
  const view = detail.view ?? fullView();
  const x = axis(view.x, [box.x, box.x + box.w]);
  const y = single ? null : axis(view.y, [box.y + box.h, box.y]);
  frame(context, box, x, y);
  drawPanel(context, row, column, box, x, y, true);
  context.fillStyle = colour("ink");
  context.font = font;
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText(fitted(context, corner.variables[j].name, box.w), box.x + box.w / 2, height - 2);
  if (!single) {
    context.save();
    context.translate(11, box.y + box.h / 2);
    context.rotate(-Math.PI / 2);
    context.textBaseline = "middle";
    context.fillText(fitted(context, corner.variables[i].name, box.h), 0, 0);
    context.restore();
  }
  if (detail.drag?.to) {
    const [[a, b], [c, d]] = [detail.drag.from, detail.drag.to];
    context.strokeStyle = colour("ink");
    context.setLineDash([4, 3]);
    context.strokeRect(Math.min(a, c), single ? box.y : Math.min(b, d), Math.abs(c - a), single ? box.h : Math.abs(d - b));
    context.setLineDash([]);
  }
  const title = single ? corner.variables[i].name : `${corner.variables[i].name} against ${corner.variables[j].name}`;
  byId("detail-title").replaceChildren(element("bdi", {}, title));
  canvas.setAttribute("aria-label", `The chosen panel, large: ${title}`);
  Object.assign(detail, { x, y, box });
}

/** What is known of a draw, in words. */
function wordsOfDraw(n) {
  const parts = [`draw ${n + 1} of ${corner.mode.length}, mode ${corner.mode[n] + 1}`];
  if (corner.weights) parts[0] += `, weight ${text(corner.weights[n], Math.max(corner.weights[n], 0.1))}`;
  for (const k of state.shown) parts.push(`${shortened(corner.variables[k].name)} ${digits(corner.values[k][n])}`);
  return parts;
}

function shortened(name) {
  return name.length > 60 ? `${name.slice(0, 45)}…${name.slice(-12)}` : name;
}

function digits(value) {
  return value === null ? "–" : text(value, Math.abs(value) / 20 || 1);
}

/** The draw under the pointer, at most some pixels away; -1 without one. */
function drawAt(px, py) {
  const { i, j, single } = chosen();
  let [best, least] = [-1, 16 ** 2];
  for (let n = 0; n < corner.mode.length; n++) {
    if (state.mode >= 0 && corner.mode[n] !== state.mode) continue;
    const dx = detail.x.pixel(corner.values[j][n]) - px;
    const dy = single ? 0 : detail.y.pixel(corner.values[i][n]) - py;
    if (dx * dx + dy * dy < least) [best, least] = [n, dx * dx + dy * dy];
  }
  return best;
}

/** The component whose mean is under the pointer; -1 without one. */
function componentAt(px, py) {
  const { i, j, single } = chosen();
  const [mapX, mapY] = [corner.variables[j].map, corner.variables[i].map];
  if (single || !state.components || !mapX || !mapY) return -1;
  const { coordinates, means, weights } = corner.components;
  return weights.findIndex((weight, k) => {
    if (weight < Math.min(1e-3, weights[0])) return false;
    const mean = (map) => constrain(map, means[k][coordinates.indexOf(map.coordinate)]);
    return Math.hypot(detail.x.pixel(mean(mapX)) - px, detail.y.pixel(mean(mapY)) - py) < 6;
  });
}

function pointDetail(px, py) {
  const { i, single } = chosen();
  const k = componentAt(px, py);
  if (k >= 0) {
    const words = `component ${k + 1} of ${corner.components.number}, weight ${text(100 * corner.components.weights[k], 1)}%`;
    showTip(words, detail.canvas, px, py);
    return;
  }
  if (single) {
    const value = detail.x.value(px);
    const { xs } = marginal(i, 60, detail.x.range);
    const density = corner.variables[i].density;
    const words = [`${shortened(corner.variables[i].name)} ${digits(value)}`];
    if (density) words.push(`density of the mixture ${text(density[nearest(xs, value)])}`);
    const below = corner.values[i].filter((v) => v <= value).length / corner.values[i].length;
    words.push(`${text(100 * below, 10)}% of the draws are below`);
    showTip(words.join("\n"), detail.canvas, px, py);
    return;
  }
  markDraw(drawAt(px, py), px, py);
}

function markDraw(n, px, py) {
  if (n !== state.draw) {
    state.draw = n;
    redraw();
  }
  const words = n < 0 ? [] : wordsOfDraw(n);
  byId("detail-text").textContent = words.join("; ");
  if (n < 0) hideTip();
  else showTip(words.join("\n"), detail.canvas, px, py);
}

/** Zoom by a factor around the middle, or around the marked draw. */
function zoom(factor) {
  const { i, j } = chosen();
  const view = detail.view ?? fullView();
  const around = (range, k) => {
    const middle = state.draw >= 0 ? corner.values[k][state.draw] : (range[0] + range[1]) / 2;
    return range.map((end) => middle + (end - middle) * factor);
  };
  detail.view = { x: around(view.x, j), y: around(view.y, i) };
  drawDetail();
}

/** The next draw along the horizontal axis. */
function stepDraw(step) {
  const { j, i, single } = chosen();
  const [low, high] = detail.x.range;
  const order = corner.values[j].map((_, n) => n).filter((n) => corner.values[j][n] >= low && corner.values[j][n] <= high);
  order.sort((a, b) => corner.values[j][a] - corner.values[j][b]);
  if (!order.length) return;
  const at = order.indexOf(state.draw);
  const n = order[at < 0 ? (step > 0 ? 0 : order.length - 1) : Math.min(Math.max(at + step, 0), order.length - 1)];
  const py = single ? detail.box.y + 20 : detail.y.pixel(corner.values[i][n]);
  markDraw(n, detail.x.pixel(corner.values[j][n]), py);
}

function listenDetail() {
  const { canvas } = detail;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch") detail.drag = { from: place(event, canvas), to: null };
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event, canvas);
    if (detail.drag && Math.hypot(at[0] - detail.drag.from[0], at[1] - detail.drag.from[1]) > 6) {
      detail.drag.to = at;
      hideTip();
      drawDetail();
    } else pointDetail(...at);
  });
  window.addEventListener("pointerup", () => {
    const drag = detail.drag;
    detail.drag = null;
    if (!drag?.to) return;
    const { single } = chosen();
    const view = detail.view ?? fullView();
    const ordered = (a, b) => [Math.min(a, b), Math.max(a, b)];
    const x = ordered(detail.x.value(drag.from[0]), detail.x.value(drag.to[0]));
    const y = single ? view.y : ordered(detail.y.value(drag.from[1]), detail.y.value(drag.to[1]));
    if (x[1] > x[0] && y[1] > y[0]) detail.view = { x, y };
    drawDetail();
  });
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    markDraw(-1);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (step) stepDraw(step);
    else if (event.key === "+" || event.key === "=") zoom(0.6);
    else if (event.key === "-") zoom(1 / 0.6);
    else if (event.key === "0") resetZoom();
    else if (event.key === "Escape") markDraw(-1);
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => markDraw(-1));
  byId("zoom-in").addEventListener("click", () => zoom(0.6));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
  byId("zoom-all").addEventListener("click", resetZoom);
}

function resetZoom() {
  detail.view = null;
  drawDetail();
}
