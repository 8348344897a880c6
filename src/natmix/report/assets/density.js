// Densities of draws: weighted histograms, smoothed densities on a grid, contours that enclose shares of the mass.

const cells = 48;
const enclosed = [0.9, 0.5];
const steps = 48;

const logistic = (z) => 1 / (1 + Math.exp(-z));

/** A variable at a coordinate of the mixture. */
function constrain(map, z) {
  const shape = { identity: z, exp: Math.exp(z), logistic: logistic(z) }[map.kind];
  return map.offset + map.scale * shape;
}

/** Weighted counts of values in equal bins, as a density; weights null means all equal. */
function histogram(values, weights, low, high, bins) {
  const counts = new Float64Array(bins);
  let total = 0;
  for (let n = 0; n < values.length; n++) {
    const weight = weights ? weights[n] : 1;
    total += weight;
    const bin = Math.floor(((values[n] - low) / (high - low)) * bins);
    if (bin >= 0 && bin < bins) counts[bin] += weight;
  }
  const area = ((high - low) / bins) * total;
  return area > 0 ? counts.map((c) => c / area) : counts;
}

/** Bandwidth of values in units of a span: by the spread within modes, so that modes stay apart. */
function bandwidth(values, modes, span) {
  const sums = new Map();
  for (let n = 0; n < values.length; n++) {
    const s = sums.get(modes[n]) || [0, 0, 0];
    s[0] += 1;
    s[1] += values[n];
    s[2] += values[n] * values[n];
    sums.set(modes[n], s);
  }
  let within = 0;
  for (const [count, sum, square] of sums.values()) within += Math.max(square - (sum * sum) / count, 0);
  const deviation = Math.sqrt(within / values.length);
  return Math.min(Math.max((1.1 * deviation * values.length ** (-1 / 6)) / span, 0.6 / cells), 0.1);
}

/** The smoothed density of pairs of values on a grid over a rectangle, with mass one; rows along y. */
function smoothed(x, y, weights, modes, rangeX, rangeY) {
  const [spanX, spanY] = [rangeX[1] - rangeX[0], rangeY[1] - rangeY[0]];
  let grid = new Float64Array(cells * cells);
  let total = 0;
  for (let n = 0; n < x.length; n++) {
    const weight = weights ? weights[n] : 1;
    const u = ((x[n] - rangeX[0]) / spanX) * cells - 0.5;
    const v = ((y[n] - rangeY[0]) / spanY) * cells - 0.5;
    const [i, j] = [Math.floor(u), Math.floor(v)];
    if (!(i >= 0 && j >= 0 && i < cells - 1 && j < cells - 1)) continue;
    const [a, b] = [u - i, v - j];
    const at = j * cells + i;
    grid[at] += weight * (1 - a) * (1 - b);
    grid[at + 1] += weight * a * (1 - b);
    grid[at + cells] += weight * (1 - a) * b;
    grid[at + cells + 1] += weight * a * b;
    total += weight;
  }
  grid = blurred(grid, bandwidth(x, modes, spanX) * cells, 1, cells);
  grid = blurred(grid, bandwidth(y, modes, spanY) * cells, cells, 1);
  return total > 0 ? grid.map((value) => value / total) : grid;
}

/** A grid blurred by a Gaussian along one of its directions. */
function blurred(grid, width, along, across) {
  const reach = Math.ceil(3 * width);
  const kernel = Array.from({ length: 2 * reach + 1 }, (_, k) => Math.exp(-0.5 * ((k - reach) / width) ** 2));
  const sum = kernel.reduce((a, b) => a + b);
  const made = new Float64Array(grid.length);
  for (let line = 0; line < cells; line++) {
    for (let k = 0; k < cells; k++) {
      let value = 0;
      for (let d = -reach; d <= reach; d++) {
        if (k + d >= 0 && k + d < cells) value += kernel[d + reach] * grid[line * across + (k + d) * along];
      }
      made[line * across + k * along] = value / sum;
    }
  }
  return made;
}

/** The heights whose contours enclose shares of a grid's mass, for the shares in their order. */
function levels(grid, shares) {
  const sorted = Float64Array.from(grid).sort().reverse();
  const total = sorted.reduce((a, b) => a + b, 0);
  return shares.map((share) => {
    let sum = 0;
    let k = 0;
    while (k < sorted.length - 1 && sum + sorted[k] < share * total) sum += sorted[k++];
    return sorted[k];
  });
}

/** The part of every square of a grid above a level: its polygon, and where its sides cross the level, in cells. */
function squaresAbove(grid, level) {
  const squares = [];
  const at = (i, j) => (i < 0 || j < 0 || i >= cells || j >= cells ? 0 : grid[j * cells + i]);
  for (let j = -1; j < cells; j++) {
    for (let i = -1; i < cells; i++) {
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
      const heights = corners.map(([a, b]) => at(a, b));
      if (heights.every((h) => h < level)) continue;
      const [polygon, crossed] = [[], []];
      for (let c = 0; c < 4; c++) {
        const [here, there] = [heights[c], heights[(c + 1) % 4]];
        const [from, to] = [corners[c], corners[(c + 1) % 4]];
        if (here >= level) polygon.push(from);
        if ((here >= level) !== (there >= level)) {
          const t = (level - here) / (there - here);
          const point = [from[0] + t * (to[0] - from[0]), from[1] + t * (to[1] - from[1])];
          polygon.push(point);
          crossed.push(point);
        }
      }
      squares.push({ polygon, crossed });
    }
  }
  return squares;
}

/** The boundary of a component's ellipse in two variables, of so many standard deviations. */
function ellipse(components, k, mapX, mapY, deviations) {
  const where = (map) => components.coordinates.indexOf(map.coordinate);
  const [a, b] = [where(mapX), where(mapY)];
  const entry = (i, j) => components.covariances[k][i >= j ? (i * (i + 1)) / 2 + j : (j * (j + 1)) / 2 + i];
  const root = Math.sqrt(Math.max(entry(a, a), 0));
  const slope = root > 0 ? entry(a, b) / root : 0;
  const rest = Math.sqrt(Math.max(entry(b, b) - slope * slope, 0));
  const points = [];
  for (let s = 0; s <= steps; s++) {
    const [u, v] = [Math.cos((2 * Math.PI * s) / steps), Math.sin((2 * Math.PI * s) / steps)];
    points.push([
      constrain(mapX, components.means[k][a] + deviations * root * u),
      constrain(mapY, components.means[k][b] + deviations * (slope * u + rest * v)),
    ]);
  }
  return points;
}
