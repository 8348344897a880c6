// Axes and charts of lines: used by the large panel, the traces, the weights and the seeds of a run.

const font = "12px system-ui, sans-serif";

/** An axis from a range of values to a range of pixels, linear or logarithmic. */
function axis(range, pixels, log = false) {
  const form = log ? (v) => Math.log10(v) : (v) => v;
  const back = log ? (v) => 10 ** v : (v) => v;
  const [low, high] = range.map(form);
  const scale = (pixels[1] - pixels[0]) / (high - low || 1);
  return {
    range,
    log,
    pixel: (value) => pixels[0] + (form(value) - low) * scale,
    value: (pixel) => back(low + (pixel - pixels[0]) / scale),
    ticks: (most) => (log ? logTicks(range, most) : ticks(range[0], range[1], most)),
  };
}

function logTicks(range, most) {
  if (range[1] < 8 * range[0]) return ticks(range[0], range[1], most);
  const [first, last] = [Math.floor(Math.log10(range[0])), Math.ceil(Math.log10(range[1]))];
  const every = Math.max(1, Math.ceil((last - first) / most));
  const within = last - first <= most / 2.5 ? [1, 2, 5] : [1];
  const found = [];
  for (let k = first; k <= last; k += every) found.push(...within.map((s) => s * 10 ** k));
  return found.filter((t) => t >= range[0] * 0.999 && t <= range[1] * 1.001);
}

/** 20k for 20,000, on axes. */
function brief(value, span) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= 10 * size || (size > 1e3 && Math.abs(value) >= size)) return `${Number((value / size).toPrecision(4))}${letter}`;
  }
  return text(value, span);
}

/** Grid lines, a frame and tick labels around a box. */
function frame(context, box, x, y, { labelsX = true, labelsY = true } = {}) {
  context.font = font;
  context.lineWidth = 1;
  context.fillStyle = colour("faint");
  const nearX = x.ticks(Math.max(box.w / 62, 1));
  const nearY = y ? y.ticks(Math.max(box.h / 32, 2.5)) : [];
  context.strokeStyle = colour("grid");
  context.beginPath();
  for (const t of nearX) {
    context.moveTo(x.pixel(t), box.y);
    context.lineTo(x.pixel(t), box.y + box.h);
  }
  for (const t of nearY) {
    context.moveTo(box.x, y.pixel(t));
    context.lineTo(box.x + box.w, y.pixel(t));
  }
  context.stroke();
  context.strokeStyle = colour("line");
  context.strokeRect(box.x, box.y, box.w, box.h);
  if (labelsX) {
    context.textAlign = "center";
    context.textBaseline = "top";
    const step = nearX.length > 1 ? Math.abs(nearX[1] - nearX[0]) : x.range[1] - x.range[0];
    for (const t of nearX) context.fillText(brief(t, x.log ? t : step), x.pixel(t), box.y + box.h + 5);
  }
  if (labelsY && y) {
    context.textAlign = "right";
    context.textBaseline = "middle";
    const step = nearY.length > 1 ? Math.abs(nearY[1] - nearY[0]) : y.range[1] - y.range[0];
    for (const t of nearY) context.fillText(brief(t, y.log ? Math.min(t, step) : step), box.x - 6, y.pixel(t));
  }
}

/** Text cut to a width, for canvases. */
function fitted(context, words, width) {
  if (context.measureText(words).width <= width) return words;
  let end = Math.min(words.length, 200);
  while (end > 1 && context.measureText(`${words.slice(0, end)}…`).width > width) end = Math.floor(end * 0.9);
  return `${words.slice(0, end)}…`;
}

/** Draw inside a box only. */
function clipped(context, box, draw) {
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.w, box.h);
  context.clip();
  draw();
  context.restore();
}

/** A line through the points that are numbers. */
function line(context, x, y, xs, ys, step = false) {
  context.beginPath();
  let pen = false;
  let last = 0;
  for (let n = 0; n < xs.length; n++) {
    const [v, w] = [xs[n], ys[n]];
    if (v === null || w === null || !Number.isFinite(w) || (x.log && v <= 0) || (y.log && w <= 0)) {
      pen = false;
      continue;
    }
    const [a, b] = [x.pixel(v), y.pixel(w)];
    if (!pen) context.moveTo(a, b);
    else {
      if (step) context.lineTo(a, last);
      context.lineTo(a, b);
    }
    [pen, last] = [true, b];
  }
  context.stroke();
}

/** The range of numbers with a margin; what comes before the share `from` is left out. */
function rangeOf(lists, from = 0) {
  let [low, high] = [Infinity, -Infinity];
  for (const values of lists) {
    const known = values.filter((v) => v !== null && Number.isFinite(v));
    for (const v of known.slice(Math.floor(known.length * from))) [low, high] = [Math.min(low, v), Math.max(high, v)];
  }
  if (low > high) return [-1, 1];
  const margin = 0.08 * (high - low) || 0.5 * Math.abs(low) || 1;
  return [low - margin, high + margin];
}

/** The place in sorted numbers closest to a value. */
function nearest(sorted, value) {
  let best = 0;
  for (let n = 1; n < sorted.length; n++) {
    if (Math.abs(sorted[n] - value) < Math.abs(sorted[best] - value)) best = n;
  }
  return best;
}

/**
 * Charts below each other over one horizontal axis, with a crosshair that pointer and arrow keys move.
 *
 * `content()` gives {xs, logX, label, panels: [{title, height, log, range, series: [{xs, ys, ...style}]}], words(n)}.
 */
function stackedCharts(canvas, readout, content) {
  let at = -1;
  let layout = null;
  const draw = () => {
    const { xs, logX, label, panels } = content();
    const width = canvas.parentElement.clientWidth;
    const height = panels.reduce((sum, p) => sum + p.height + 26, 0) + 34;
    canvas.style.height = `${height}px`;
    const context = prepared(canvas, width, height);
    const box = { x: 58, w: width - 58 - 18 };
    const rangeX = [xs[0], xs[xs.length - 1]];
    const x = axis(rangeX[0] < rangeX[1] ? rangeX : [rangeX[0] - 1, rangeX[0] + 1], [box.x, box.x + box.w], logX);
    layout = { x, xs };
    let top = 0;
    panels.forEach((panel, number) => {
      const inner = { ...box, y: top + 22, h: panel.height };
      const y = axis(panel.range, [inner.y + inner.h, inner.y], panel.log);
      frame(context, inner, x, y, { labelsX: number === panels.length - 1 });
      context.fillStyle = colour("ink");
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.font = `600 ${font}`;
      context.fillText(fitted(context, panel.title, box.w), box.x, top + 12);
      clipped(context, inner, () => {
        for (const s of panel.series) {
          context.globalAlpha = s.alpha ?? 1;
          context.strokeStyle = context.fillStyle = s.colour;
          context.lineWidth = s.width ?? 1.8;
          context.setLineDash(s.dash ?? []);
          if (s.dots) {
            s.xs.forEach((v, n) => s.ys[n] !== null && context.fillRect(x.pixel(v) - 2, y.pixel(s.ys[n]) - 2, 4, 4));
          } else line(context, x, y, s.xs, s.ys, s.step);
        }
        context.setLineDash([]);
        context.globalAlpha = 1;
        if (at >= 0) {
          context.strokeStyle = colour("ink");
          context.lineWidth = 1;
          context.beginPath();
          context.moveTo(x.pixel(xs[at]), inner.y);
          context.lineTo(x.pixel(xs[at]), inner.y + inner.h);
          context.stroke();
        }
      });
      top += panel.height + 26;
    });
    context.font = font;
    context.fillStyle = colour("faint");
    context.textAlign = "center";
    context.textBaseline = "bottom";
    context.fillText(fitted(context, label, box.w), box.x + box.w / 2, height - 1);
  };
  const show = (n) => {
    at = n;
    draw();
    readout.textContent = n < 0 ? "" : content().words(n);
  };
  canvas.addEventListener("pointermove", (event) => show(nearest(layout.xs, layout.x.value(place(event, canvas)[0]))));
  canvas.addEventListener("pointerleave", () => show(-1));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    const last = layout.xs.length - 1;
    if (event.key === "Escape") show(-1);
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(last);
    else if (step) show(Math.min(Math.max(at + step, 0), last));
    else return;
    event.preventDefault();
  });
  return { draw, reset: () => show(-1) };
}
