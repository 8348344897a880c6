// Traces, importance weights, and the seeds of a run.

const charts = [];

/** ELBO, KL and number of components over the fit. */
function buildTraces() {
  const trace = data.trace;
  if (!trace) return;
  const [over, whole] = [byId("traces-over"), byId("traces-whole")];
  const content = () => {
    const xs = trace[over.value];
    const from = whole.checked ? 0 : 0.1;
    const panels = [
      {
        title: "ELBO",
        height: 170,
        range: rangeOf([trace.mean], from),
        series: [
          { xs, ys: trace.elbo, colour: colour("density"), width: 0.8, alpha: 0.35 },
          { xs, ys: trace.mean, colour: colour("density") },
        ],
      },
    ];
    if (trace.kl) {
      const positive = trace.kl.map((v) => (v > 0 ? v : null));
      const known = positive.filter((v) => v !== null);
      if (known.length) {
        const range = [Math.min(...known) / 1.3, Math.max(...known) * 1.3];
        const series = [{ xs, ys: positive, colour: colour("ink"), width: 1.3 }];
        panels.push({ title: "KL(q || p), nats, estimated in the fit", height: 110, log: true, range, series });
      }
    }
    if (trace.components) {
      const range = [0, 1.1 * Math.max(...trace.components)];
      const series = [{ xs, ys: trace.components, colour: colour("component"), step: true }];
      panels.push({ title: "components", height: 100, range, series });
    }
    const words = (n) => {
      const parts = [`iteration ${trace.iterations[n].toLocaleString("en-US")}`];
      if (trace.evaluations) parts.push(`${trace.evaluations[n].toLocaleString("en-US")} evaluations`);
      if (trace.seconds) parts.push(`${text(trace.seconds[n], 1)} s`);
      parts.push(`ELBO ${digits(trace.elbo[n])}, mean ${digits(trace.mean[n])}`);
      if (trace.kl) parts.push(`KL ${text(trace.kl[n] ?? NaN)}`);
      if (trace.components) parts.push(`${trace.components[n]} components`);
      return parts.join("; ");
    };
    const label = { evaluations: "evaluations of the target", iterations: "iteration", seconds: "seconds" }[over.value];
    return { xs, label, panels, words };
  };
  const chart = stackedCharts(byId("traces-plot"), byId("traces-text"), content);
  over.addEventListener("change", chart.reset);
  whole.addEventListener("change", chart.reset);
  charts.push(chart.draw);
}

/** Histogram of the log weights, and the largest ones by rank. */
function buildWeights() {
  const found = data.importance;
  if (!found) return;
  const { edges, counts, tail, smoothed: fit } = found;
  const readout = byId("weights-text");
  const middles = counts.map((_, k) => (edges[k] + edges[k + 1]) / 2);
  const stairs = { xs: edges.flatMap((e) => [e, e]), ys: [0, ...counts.flatMap((c) => [c, c]), 0] };
  const bars = stackedCharts(byId("weights-plot"), readout, () => ({
    xs: middles,
    label: "log weight",
    panels: [
      {
        title: "samples",
        height: 200,
        range: [0, 1.08 * Math.max(...counts)],
        series: [{ ...stairs, colour: colour("density"), width: 1.5 }],
      },
    ],
    words: (n) => `${counts[n]} of ${found.samples} samples have log weights from ${digits(edges[n])} to ${digits(edges[n + 1])}`,
  }));
  const ranks = tail.map((_, k) => k + 1);
  const [raw, smooth] = [tail, fit].map((list) => list.map((v) => (Number.isFinite(v) ? Math.exp(v) : null)));
  const positive = raw.concat(smooth).filter((v) => v > 0);
  const wide = Math.max(...positive) > 20 * Math.min(...positive);
  const range = wide ? [Math.min(...positive) / 1.3, Math.max(...positive) * 1.3] : rangeOf([positive]);
  const ranked = stackedCharts(byId("tail-plot"), readout, () => ({
    xs: ranks,
    logX: true,
    label: "rank of the weight",
    panels: [
      {
        title: "largest weights, in mean weights",
        height: 200,
        log: wide,
        range,
        series: [
          { xs: ranks, ys: smooth, colour: colour("component"), width: 1.6 },
          { xs: ranks, ys: raw, colour: colour("density"), dots: true },
        ],
      },
    ],
    words: (n) => `weight ${n + 1} of ${found.samples}: ${text(raw[n])} times the mean; smoothed ${text(smooth[n])}`,
  }));
  charts.push(bars.draw, ranked.draw);
}

/** -ELBO of all seeds of a run. */
function buildCurves() {
  const curves = data.curves;
  if (!curves.length) return;
  const lists = curves.map((c) => c.neg_elbo);
  const longest = curves.reduce((a, b) => (b.evaluations.at(-1) > a.evaluations.at(-1) ? b : a));
  const firsts = curves.map((c) => c.evaluations.find((v) => v > 0));
  const xs = [...new Set([Math.min(...firsts), ...longest.evaluations.filter((v) => v > 0)])].sort((a, b) => a - b);
  byId("curves-legend").replaceChildren(
    ...curves.map((c, k) => {
      const swatch = element("canvas", { "aria-hidden": "true", "data-seed": k });
      return element("span", {}, swatch, c.label);
    }),
  );
  const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
  const content = () => ({
    xs,
    logX: true,
    label: "evaluations of the target",
    panels: [
      {
        title: "−ELBO",
        height: 260,
        range: rangeOf(lists, 0.1),
        series: curves.map((c, k) => ({
          xs: c.evaluations,
          ys: lists[k],
          colour: modeColour(k),
          dash: dashes[Math.floor(k / modeColours) % dashes.length],
          width: 1.5,
        })),
      },
    ],
    words: (n) =>
      `${xs[n].toLocaleString("en-US")} evaluations: ` +
      curves.map((c, k) => `${c.label} ${digits(lists[k][nearest(c.evaluations, xs[n])])}`).join("; "),
  });
  charts.push(stackedCharts(byId("curves-plot"), byId("curves-text"), content).draw, () => {
    for (const canvas of document.querySelectorAll("#curves-legend canvas")) {
      const k = Number(canvas.dataset.seed);
      const context = prepared(canvas, 22, 12);
      context.strokeStyle = modeColour(k);
      context.lineWidth = 2;
      context.setLineDash(dashes[Math.floor(k / modeColours) % dashes.length]);
      context.beginPath();
      context.moveTo(0, 6);
      context.lineTo(22, 6);
      context.stroke();
    }
  });
}
