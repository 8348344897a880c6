"use strict";
// Asks for the numbers every two seconds and shows them; all text is set as text, never as HTML.
const EVERY = 2000;
const byId = (id) => document.getElementById(id);
let latest = null;
let highlighted = null;
let answered = 0;

function duration(seconds) {
  if (seconds === null || seconds === undefined) return null;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

function made(tag, text, kind) {
  const found = document.createElement(tag);
  if (text !== undefined && text !== null) found.textContent = text;
  if (kind) found.className = kind;
  return found;
}

const whole = (value) => (value === null ? null : Math.round(value).toLocaleString("en-US"));

function withError(value, error) {
  if (value === null) return null;
  if (error === null || !(error > 0)) return shortNumber(value);
  const digits = Math.min(Math.max(1 - Math.floor(Math.log10(error)), 0), 8);
  return `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}

function facts(run, now) {
  return [
    ["ELBO", withError(run.elbo, run.elbo_se)],
    ["KL", run.kl === null ? null : `${shortNumber(run.kl)} nats`],
    ["components", whole(run.components)],
    ["evaluations", whole(run.evaluations)],
    ["", run.rate === null ? null : `${shortNumber(run.rate)} per second`],
    ["iterations", whole(run.iterations)],
    ["time", duration(run.seconds)],
    ["last news", run.updated === null ? null : `${duration(Math.max(now - run.updated, 0))} ago`],
    ["checkpoint", run.checkpoint === null ? null : `${duration(Math.max(now - run.checkpoint, 0))} ago`],
  ].filter(([, value]) => value !== null);
}

function card(run, index, now, open) {
  const found = made("article");
  found.tabIndex = 0;
  const name = made("div", null, "name");
  const swatch = element("svg", { class: "swatch", viewBox: "0 0 24 12", "aria-hidden": "true" });
  element("line", { x1: 0, x2: 24, y1: 6, y2: 6, "stroke-width": 4, ...line(index, "") }, swatch);
  name.append(swatch, made("h2", run.name));
  found.append(name);
  if (run.about) found.append(made("p", run.about, "about"));
  found.append(made("p", run.detail || run.state, `state ${run.state}`));
  if (run.verdict) {
    found.append(made("p", run.reasons[0] || `verdict: ${run.verdict}`, `verdict ${run.verdict}`));
  }
  if (run.share !== null && run.state !== "ended") {
    const bar = made("progress");
    bar.max = 1;
    bar.value = run.share;
    bar.setAttribute("aria-label", "share of the budget");
    const left = duration(run.seconds_left);
    const share = `${Math.round(100 * run.share)}% of the budget${left ? `, up to ${left} left` : ""}`;
    found.append(bar, made("p", share, "about"));
  }
  const list = made("dl");
  for (const [what, value] of facts(run, now)) list.append(made("dt", what), made("dd", value));
  found.append(list);
  const more = [...run.reasons.slice(1), ...run.notes];
  if (more.length) {
    const details = made("details");
    details.open = open;
    details.append(made("summary", `${more.length} ${more.length === 1 ? "note" : "notes"}`));
    for (const text of more) details.append(made("p", text));
    found.append(details);
  }
  const choose = (which) => () => {
    highlighted = which;
    drawCharts();
  };
  for (const event of ["pointerenter", "focusin"]) found.addEventListener(event, choose(index));
  for (const event of ["pointerleave", "focusout"]) found.addEventListener(event, choose(null));
  return found;
}

function drawCharts() {
  const axis = byId("axis").value;
  const half = byId("recent").checked;
  const curves = (what) =>
    latest.runs.map((run, index) => {
      const x = run.curves[axis];
      const from = half && x.length ? x.findIndex((value) => value >= x[x.length - 1] / 2) : 0;
      return { index, name: run.name, x: x.slice(from), y: run.curves[what].slice(from) };
    });
  const common = { axis, highlighted, fromZero: !half };
  const goal = latest.runs.map((run) => run.goal).find((value) => value);
  drawChart(byId("elbo"), curves("elbo"), { ...common, label: "ELBO", clip: true });
  drawChart(byId("kl"), curves("kl"), { ...common, label: "KL", log: true, goal });
  drawChart(byId("components"), curves("components"), { ...common, label: "components", whole: true, step: true });
}

function counts(data) {
  const found = new Map();
  for (const run of data.runs) found.set(run.state, (found.get(run.state) || 0) + 1);
  return [...found].map(([state, n]) => `${n} ${state}`).join(", ");
}

function show(data) {
  latest = data;
  document.title = `${data.title} – natmix watch`;
  byId("title").textContent = data.title;
  byId("status").className = "";
  byId("status").textContent = data.runs.length
    ? counts(data)
    : "There is no fit here yet; this page shows it as soon as it begins.";
  byId("pictures").hidden = !data.runs.some((run) => run.curves.iterations.length);
  const cards = byId("runs");
  const open = new Set();
  [...cards.children].forEach((old, i) => {
    if (old.querySelector("details[open]")) open.add(i);
  });
  const focused = [...cards.children].findIndex((old) => old.contains(document.activeElement));
  cards.replaceChildren(...data.runs.map((run, i) => card(run, i, data.now, open.has(i))));
  if (focused >= 0 && cards.children[focused]) cards.children[focused].focus({ preventScroll: true });
  const left = Object.entries(data.left_out).map(([state, n]) => `${n} ${state}`);
  byId("left").hidden = !left.length;
  byId("left").textContent = `Not shown, as others were written later: ${left.join(", ")}.`;
  drawCharts();
}

function lost() {
  const since = answered ? ` for ${duration((Date.now() - answered) / 1000)}` : "";
  byId("status").className = "lost";
  byId("status").textContent = `No answer from natmix watch${since}; is it still running?`;
}

async function ask() {
  try {
    const answer = await fetch("data", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const data = await answer.json();
    answered = Date.now();
    show(data);
  } catch (error) {
    lost();
  }
  setTimeout(ask, document.hidden ? 5 * EVERY : EVERY);
}

byId("axis").addEventListener("change", () => latest && drawCharts());
byId("recent").addEventListener("change", () => latest && drawCharts());
ask();
