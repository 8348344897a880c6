"""-ELBO over time and over evaluations, one panel per row."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from side_by_side.load import Run, Seed
from side_by_side.rows import Row

COLUMNS = 5
LOWEST = 1e-2
"""Of what is drawn above the lowest -ELBO seen; below, the estimates are noise."""
STYLES = {
    "natmix": {"color": "C0"},
    "shipped target": {"color": "C1"},
    "shipped target, MALLOC_MMAP_MAX_=0": {"color": "C1", "ls": "--"},
    "fast target": {"color": "C3"},
    "fast target, MALLOC_MMAP_MAX_=0": {"color": "C3", "ls": "--"},
}


def write(rows: dict[Row, list[Seed]], directory: Path) -> None:
    _figure(rows, "seconds", "wall time, compilation included [s]", directory / "bench_cpu.png")
    _figure(rows, "evaluations", "evaluations of the log density", directory / "bench_cpu_evaluations.png")


def _figure(rows: dict[Row, list[Seed]], over: str, label: str, path: Path) -> None:
    from matplotlib.figure import Figure

    columns = min(COLUMNS, max(3, len(rows)))
    lines = math.ceil(len(rows) / columns)
    figure = Figure(figsize=(3 * columns + 0.5, 2.6 * lines + 1.2), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, (row, seeds) in zip(panels, rows.items(), strict=False):
        _panel(panel, row, seeds, over)
    for panel in panels[len(rows) :]:
        panel.set_visible(False)
    figure.supxlabel(label)
    figure.supylabel("-ELBO above the lowest seen [nats]")
    labels = {_label(name) for name in STYLES}
    handles = {h.get_label(): h for a in figure.axes for h in a.get_lines() if h.get_label() in labels}
    figure.legend(  # type: ignore[call-overload]
        handles.values(), handles.keys(), loc="outside upper center", ncols=3, frameon=False, fontsize=8
    )
    figure.savefig(path, dpi=130)


def _panel(panel: Any, row: Row, seeds: list[Seed], over: str) -> None:
    curves = [(name, _curve(run, over)) for seed in seeds for name, run in _named(seed)]
    values = np.concatenate([y for _, (_, y) in curves])
    finite = values[np.isfinite(values)]
    lowest = float(finite.min()) if finite.size else 0.0
    for name, (x, y) in curves:
        panel.plot(
            x, np.maximum(y - lowest, LOWEST), label=_label(name), marker=".", ms=3, lw=1.2, **STYLES[name]
        )
    panel.set(xscale="log", yscale="log")
    panel.set_title(f"{row.name} (lowest {lowest:.5g})", fontsize=9)
    panel.tick_params(labelsize=8)
    panel.grid(alpha=0.3)


def _named(seed: Seed) -> list[tuple[str, Run]]:
    return [*(("natmix", run) for run in seed.ours), *seed.theirs.items()]


def _label(name: str) -> str:
    return name if name == "natmix" else f"gmmvi, {name}"


def _curve(run: Run, over: str) -> tuple[np.ndarray, np.ndarray]:
    return tuple(  # type: ignore[return-value]
        np.array([checkpoint[key] for checkpoint in run["checkpoints"]], float) for key in (over, "neg_elbo")
    )
