// Controls, and when everything is drawn.

let waiting = false;

/** Draw pairs and the large panel with the next frame. */
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawCorner();
    drawDetail();
  });
}

function redrawAll() {
  redraw();
  drawLegend();
  for (const draw of charts) draw();
}

function firstPair() {
  state.pair = state.shown.length > 1 ? [1, 0] : [0, 0];
  detail.view = null;
  state.draw = -1;
}

/** A checkbox for every variable. */
function buildChoices() {
  const root = byId("choices");
  const boxes = corner.variables.map((variable, k) => {
    const box = element("input", { type: "checkbox" });
    box.checked = state.shown.includes(k);
    box.addEventListener("change", () => {
      const next = box.checked ? [...state.shown, k].sort((a, b) => a - b) : state.shown.filter((s) => s !== k);
      if (next.length) state.shown = next;
      firstPair();
      buildCorner();
      redraw();
      limit();
    });
    const name = element("bdi", { title: variable.name }, variable.name);
    const label = element("label", {}, box, name);
    root.append(label);
    return { box, label, name: variable.name.toLowerCase() };
  });
  const limit = () => {
    boxes.forEach(({ box }, k) => {
      box.checked = state.shown.includes(k);
      box.disabled = box.checked ? state.shown.length === 1 : state.shown.length >= most;
    });
  };
  limit();
  byId("find").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const { label, name } of boxes) label.hidden = !name.includes(wanted);
  });
}

function buildSwitches() {
  for (const name of ["draws", "components", "mixture", "target", "weights", "modes"]) {
    const box = byId(`show-${name}`);
    if (!box) continue;
    state[name] = box.checked;
    box.addEventListener("change", () => {
      state[name] = box.checked;
      redraw();
    });
  }
  const buttons = [...document.querySelectorAll("button.mode")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const mode = Number(button.dataset.mode);
      state.mode = state.mode === mode ? -1 : mode;
      for (const other of buttons) other.setAttribute("aria-pressed", String(Number(other.dataset.mode) === state.mode));
      redraw();
    });
  }
}

function drawLegend() {
  const entries = [
    ["density", corner.weights ? "mixture: density, contours, draws" : "mixture"],
    ["component", "components"],
  ];
  if (corner.weights) entries.push(["target", "target, by importance weights"]);
  byId("legend").replaceChildren(
    ...entries.map(([name, words]) => {
      const canvas = element("canvas", { "aria-hidden": "true" });
      const context = prepared(canvas, 22, 12);
      context.fillStyle = context.strokeStyle = colour(name);
      context.lineWidth = 2;
      if (name === "target") {
        context.globalAlpha = 0.5;
        context.fillRect(1, 1, 20, 10);
      } else if (name === "component") {
        context.beginPath();
        context.ellipse(11, 6, 10, 4.5, 0, 0, 2 * Math.PI);
        context.stroke();
      } else {
        context.fillRect(0, 5, 22, 2);
        for (const at of [4, 11, 18]) context.fillRect(at, at % 2 ? 1 : 9, 2, 2);
      }
      return element("span", {}, canvas, words);
    }),
  );
}

function offerCopy() {
  const button = byId("copy");
  if (!button || !navigator.clipboard) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(byId("call").textContent).then(
      () => (button.textContent = "Copied"),
      () => (button.textContent = "Select and copy it yourself"),
    );
  });
}

firstPair();
buildSwitches();
buildChoices();
buildCorner();
listenDetail();
buildTraces();
buildWeights();
buildCurves();
offerCopy();
redrawAll();
new ResizeObserver(redrawAll).observe(document.querySelector("main"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
