// What every figure uses: the data, colours, numbers as text, a canvas of the right size, the tooltip.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const modeColours = 9;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function modeColour(mode) {
  return colour(`mode-${mode % modeColours}`);
}

/** A new element with attributes and children; text is never read as HTML. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A number with the digits that count over a span. */
function text(value, span = Math.abs(value)) {
  if (!Number.isFinite(value)) return value === null || Number.isNaN(value) ? "–" : String(value).replace("Infinity", "∞");
  const size = Math.max(Math.abs(value), span);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("e+", "e").replace("-", "−");
  const decimals = Math.min(Math.max(2 - Math.floor(Math.log10(span || size)), 0), 8);
  return Number(value.toFixed(decimals)).toLocaleString("en-US", { maximumFractionDigits: 8 }).replace("-", "−");
}

/** Round numbers between two ends, at most so many. */
function ticks(low, high, most) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [];
  const raw = span / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((s) => s * power >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

/** The drawing context of a canvas, in CSS pixels, cleared. */
function prepared(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Where a pointer is, in the CSS pixels of an element. */
function place(event, canvas) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

const tip = byId("tip");

/** Words beside a point of an element. */
function showTip(words, canvas, x, y) {
  const box = canvas.getBoundingClientRect();
  tip.textContent = words;
  tip.hidden = false;
  const wide = tip.offsetWidth;
  const room = document.documentElement.clientWidth - wide - 8;
  const left = Math.min(box.left + x + 14, room);
  tip.style.left = `${Math.max(left, 4) + window.scrollX}px`;
  tip.style.top = `${box.top + y + 16 + window.scrollY}px`;
}

function hideTip() {
  tip.hidden = true;
}
