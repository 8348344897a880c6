// The matrix of pairs: densities on the diagonal, draws and components below it, contours above it.

const corner = data.corner;
const most = 8;
const state = {
  shown: corner.shown.slice(0, window.innerWidth < 500 ? 3 : most),
  pair: [0, 0],
  mode: -1,
  draw: -1,
  draws: true,
  components: true,
  mixture: true,
  target: true,
  weights: false,
  modes: false,
};
const grids = new Map();

/** Contours of a pair, made once: x is variable j, y is variable i. */
function contours(i, j) {
  const key = `${i},${j}`;
  if (!grids.has(key)) {
    const [x, y] = [corner.values[j], corner.values[i]];
    const ranges = [corner.variables[j].range, corner.variables[i].range];
    const made = (weights) => {
      const grid = smoothed(x, y, weights, corner.mode, ...ranges);
      return levels(grid, enclosed).map((level) => squaresAbove(grid, level));
    };
    grids.set(key, { mixture: made(null), target: corner.weights ? made(corner.weights) : null });
  }
  return grids.get(key);
}

function correlation(i, j) {
  const [x, y] = [corner.values[j], corner.values[i]];
  const mean = (v) => v.reduce((a, b) => a + b, 0) / v.length;
  const [a, b] = [mean(x), mean(y)];
  let [xy, xx, yy] = [0, 0, 0];
  for (let n = 0; n < x.length; n++) {
    xy += (x[n] - a) * (y[n] - b);
    xx += (x[n] - a) ** 2;
    yy += (y[n] - b) ** 2;
  }
  return xy / Math.sqrt(xx * yy);
}

/** Areas of the target and lines of the mixture. */
function drawContours(context, i, j, x, y, thickness) {
  const { mixture, target } = contours(i, j);
  const [rangeX, rangeY] = [corner.variables[j].range, corner.variables[i].range];
  const pixel = ([u, v]) => [
    x.pixel(rangeX[0] + ((u + 0.5) / cells) * (rangeX[1] - rangeX[0])),
    y.pixel(rangeY[0] + ((v + 0.5) / cells) * (rangeY[1] - rangeY[0])),
  ];
  if (state.target && target) {
    context.fillStyle = colour("target");
    context.globalAlpha = 0.32;
    for (const squares of target) {
      context.beginPath();
      for (const { polygon } of squares) {
        polygon.forEach((p, k) => (k ? context.lineTo(...pixel(p)) : context.moveTo(...pixel(p))));
        context.closePath();
      }
      context.fill();
    }
    context.globalAlpha = 1;
  }
  if (state.mixture) {
    context.strokeStyle = colour("density");
    mixture.forEach((squares, level) => {
      context.lineWidth = thickness * (level ? 1.5 : 1);
      context.beginPath();
      for (const { crossed } of squares) {
        for (let k = 0; k + 1 < crossed.length; k += 2) {
          context.moveTo(...pixel(crossed[k]));
          context.lineTo(...pixel(crossed[k + 1]));
        }
      }
      context.stroke();
    });
  }
}

function drawDraws(context, i, j, x, y, size) {
  const [xs, ys] = [corner.values[j], corner.values[i]];
  for (let n = 0; n < xs.length; n++) {
    const other = state.mode >= 0 && corner.mode[n] !== state.mode;
    const coloured = state.modes || state.mode >= 0;
    context.fillStyle = coloured && !other ? modeColour(corner.mode[n]) : colourOfDraws;
    context.globalAlpha = other ? 0.08 : state.mode >= 0 ? 0.8 : 0.4;
    const wide = state.weights && corner.weights ? size * Math.sqrt(Math.min(corner.weights[n], 16)) : size;
    context.fillRect(x.pixel(xs[n]) - wide / 2, y.pixel(ys[n]) - wide / 2, wide, wide);
  }
  context.globalAlpha = 1;
}

let colourOfDraws = "";

function drawComponents(context, i, j, x, y, thickness) {
  const [mapX, mapY] = [corner.variables[j].map, corner.variables[i].map];
  if (!mapX || !mapY) return;
  const { weights } = corner.components;
  const heaviest = weights[0];
  context.strokeStyle = colour("component");
  weights.forEach((weight, k) => {
    if (weight < Math.min(1e-3, heaviest)) return;
    const strength = Math.sqrt(weight / heaviest);
    context.globalAlpha = 0.3 + 0.7 * strength;
    context.lineWidth = thickness * (0.7 + 1.1 * strength);
    context.beginPath();
    ellipse(corner.components, k, mapX, mapY, 2).forEach(([u, v], s) =>
      s ? context.lineTo(x.pixel(u), y.pixel(v)) : context.moveTo(x.pixel(u), y.pixel(v)),
    );
    context.stroke();
  });
  context.globalAlpha = 1;
}

/** The draw that is pointed at, in every panel. */
function drawMark(context, i, j, x, y) {
  if (state.draw < 0) return;
  context.strokeStyle = colour("ink");
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x.pixel(corner.values[j][state.draw]), y.pixel(corner.values[i][state.draw]), 5, 0, 2 * Math.PI);
  context.stroke();
}

/** What the diagonal shows of a variable over a range. */
function marginal(i, bins, range) {
  const variable = corner.variables[i];
  const steps = histogram(corner.values[i], corner.weights, ...range, bins);
  const draws = variable.density ? null : histogram(corner.values[i], null, ...range, bins);
  const heights = [...steps].concat(draws ? [...draws] : []);
  const [low, high] = variable.range;
  const xs = variable.density ? variable.density.map((_, k) => low + ((k + 0.5) / variable.density.length) * (high - low)) : [];
  let top = Math.max(...heights, 1e-300);
  if (variable.density) {
    const inside = variable.density.filter((_, k) => xs[k] >= range[0] && xs[k] <= range[1]);
    top = Math.max(top, Math.min(Math.max(...inside, 0), 2 * top));
  }
  return { steps, draws, xs, top };
}

function drawMarginal(context, i, x, box, bins, thickness) {
  const range = x.range;
  const { steps, draws, xs, top } = marginal(i, bins, range);
  const y = axis([0, 1.1 * top], [box.y + box.h, box.y]);
  const edges = Array.from({ length: bins + 1 }, (_, k) => range[0] + (k / bins) * (range[1] - range[0]));
  const stairs = (counts) => {
    context.beginPath();
    context.moveTo(x.pixel(edges[0]), y.pixel(0));
    counts.forEach((c, k) => {
      context.lineTo(x.pixel(edges[k]), y.pixel(c));
      context.lineTo(x.pixel(edges[k + 1]), y.pixel(c));
    });
    context.lineTo(x.pixel(edges[bins]), y.pixel(0));
  };
  if (state.target || !corner.weights) {
    stairs(steps);
    context.fillStyle = corner.weights ? colour("target") : colourOfDraws;
    context.globalAlpha = 0.3;
    context.fill();
    context.globalAlpha = 1;
  }
  context.strokeStyle = colour("density");
  context.lineWidth = 1.4 * thickness;
  if (state.mixture && draws) {
    stairs(draws);
    context.stroke();
  }
  if (state.mixture && !draws) line(context, x, y, xs, corner.variables[i].density);
  if (state.draw >= 0) {
    context.strokeStyle = colour("ink");
    context.beginPath();
    context.moveTo(x.pixel(corner.values[i][state.draw]), box.y);
    context.lineTo(x.pixel(corner.values[i][state.draw]), box.y + box.h);
    context.stroke();
  }
  return y;
}

/** All that a panel shows; rows and columns count the variables shown. */
function drawPanel(context, row, column, box, x, y, big) {
  const [i, j] = [state.shown[row], state.shown[column]];
  clipped(context, box, () => {
    if (row === column) {
      drawMarginal(context, i, x, box, big ? 60 : 30, big ? 1.4 : 1);
      return;
    }
    if (row < column || big) drawContours(context, i, j, x, y, big ? 1.4 : 1);
    if (row > column || big) {
      if (state.draws) drawDraws(context, i, j, x, y, big ? 3 : 1.6);
      if (state.components) drawComponents(context, i, j, x, y, big ? 1.3 : 0.8);
    }
    drawMark(context, i, j, x, y);
  });
}

const cornerPanels = [];

/** Build the matrix anew for the variables shown. */
function buildCorner() {
  const root = byId("corner");
  const n = state.shown.length;
  cornerPanels.length = 0;
  root.style.gridTemplateColumns = `1.2rem 2.4rem repeat(${n}, minmax(0, 1fr))`;
  const parts = [];
  for (let row = 0; row < n; row++) {
    parts.push(nameOf(state.shown[row], "name left"));
    parts.push(element("canvas", { class: "axis", "aria-hidden": "true", "data-row": row }));
    for (let column = 0; column < n; column++) parts.push(panelButton(row, column));
  }
  parts.push(element("span"), element("span"));
  for (let column = 0; column < n; column++) {
    parts.push(element("canvas", { class: "axis", "aria-hidden": "true", "data-column": column }));
  }
  parts.push(element("span"), element("span"));
  for (let column = 0; column < n; column++) parts.push(nameOf(state.shown[column], "name"));
  root.replaceChildren(...parts);
}

function nameOf(variable, className) {
  const { name } = corner.variables[variable];
  return element("bdi", { class: className, title: name }, name);
}

function panelButton(row, column) {
  const [i, j] = [state.shown[row], state.shown[column]];
  const [nameI, nameJ] = [i, j].map((k) => corner.variables[k].name);
  const words = i === j ? `${nameI}: density` : `${nameI} against ${nameJ}, correlation ${text(correlation(i, j), 1)}`;
  const canvas = element("canvas", { "aria-hidden": "true" });
  const here = row === state.pair[0] && column === state.pair[1];
  const button = element("button", { type: "button", class: "panel", "aria-label": words, title: words }, canvas);
  button.tabIndex = here ? 0 : -1;
  button.addEventListener("click", () => choosePanel(row, column));
  button.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const next = cornerPanels.find((p) => p.row === row + down && p.column === column + right);
    if ((!down && !right) || !next) return;
    event.preventDefault();
    choosePanel(next.row, next.column);
    next.button.focus();
  });
  cornerPanels.push({ row, column, button, canvas });
  return button;
}

function drawCorner() {
  colourOfDraws = colour("density");
  for (const { row, column, button, canvas } of cornerPanels) {
    const size = button.clientWidth;
    if (!size) continue;
    const context = prepared(canvas, size, size);
    const box = { x: 0, y: 0, w: size, h: size };
    const x = axis(corner.variables[state.shown[column]].range, [0, size]);
    const y = axis(corner.variables[state.shown[row]].range, [size, 0]);
    drawPanel(context, row, column, box, x, y, false);
    const here = row === state.pair[0] && column === state.pair[1];
    button.setAttribute("aria-pressed", String(here));
    button.tabIndex = here ? 0 : -1;
  }
  for (const canvas of document.querySelectorAll("#corner canvas.axis")) drawCornerAxis(canvas);
}

/** Tick labels left of a row or below a column. */
function drawCornerAxis(canvas) {
  const size = cornerPanels[0].button.clientWidth;
  const isRow = canvas.dataset.row !== undefined;
  const variable = corner.variables[state.shown[Number(isRow ? canvas.dataset.row : canvas.dataset.column)]];
  const [width, height] = isRow ? [38, size] : [size, 16];
  const context = prepared(canvas, width, height);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  if (isRow && canvas.dataset.row === "0") return;
  context.font = "10.5px system-ui, sans-serif";
  context.fillStyle = colour("faint");
  const scale = axis(variable.range, isRow ? [size, 0] : [0, size]);
  const found = ticks(...variable.range, Math.max(size / (isRow ? 34 : 46), 1.5));
  const step = found.length > 1 ? found[1] - found[0] : variable.range[1] - variable.range[0];
  context.textAlign = isRow ? "right" : "center";
  context.textBaseline = isRow ? "middle" : "top";
  for (const t of found) {
    const words = brief(t, step);
    const half = isRow ? 5 : context.measureText(words).width / 2;
    const at = scale.pixel(t);
    if (at - half < 0 || at + half > size) continue;
    if (isRow) context.fillText(words, width - 3, at);
    else context.fillText(words, at, 2);
  }
}
