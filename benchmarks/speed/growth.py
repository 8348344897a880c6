"""How the cost of an iteration grows: time and memory against one size at a time, with fitted exponents.

Run: python benchmarks/speed/growth.py [--write results] [AXIS ...]

Axes: components, dimensions, samples, stored (samples kept as candidates: the store is full, and every window
has a search), length (of the run), diagonal (dimensions with diagonal covariances, 20 components). SAMTRON on
a Gaussian target with the other sizes fixed and no search unless said; every point is the median of windows,
after compilation. The exponent is the slope of a line through the upper half of the points in logarithms,
where fixed costs no longer hide it. Memory is what the compiled program needs besides its arguments, and its
arguments (the state).
"""

import argparse
import csv
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from natmix import GMMVI, Mixture
from natmix.engine.chunk_runner import ChunkRunner
from natmix.targets import JaxTarget

FIXED = {"components": 16, "dimensions": 20, "samples": 100, "stored": 100_000}
AXES = {
    "components": (1, 4, 16, 64, 256, 1024),
    "dimensions": (2, 8, 32, 128, 500),
    "samples": (25, 50, 100, 200, 400, 800),
    "stored": (1_000, 10_000, 100_000, 1_000_000, 4_000_000),
    "length": (50, 200, 800, 3200),
    "diagonal": (10, 100, 1_000, 10_000),
}
EXPECTED = {
    "components": 2.0,
    "dimensions": 2.0,
    "samples": 1.0,
    "stored": 0.0,
    "length": 0.0,
    "diagonal": 1.0,
}
SEARCHING = ("stored",)
"""Where a search for a new component is part of what is timed."""
WINDOWS, WINDOW = 3, 20
"""How many are timed, and iterations of each at most."""
SPARE = 8
"""Rows for components that searches add: one in every window."""


class Point(NamedTuple):
    """One measurement."""

    axis: str
    size: int
    milliseconds: float
    temporary_mb: float
    state_mb: float


def main(axes: list[str], write: Path | None) -> None:
    """Measure, print, and write."""
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; others fixed at {FIXED}")
    points = []
    for axis in axes:
        for size in AXES[axis]:
            point = measure(axis, size)
            points.append(point)
            print(
                f"{axis:11} {size:9,}  {point.milliseconds:10.2f} ms  "
                f"{point.temporary_mb:9.1f} MB temporary  {point.state_mb:9.1f} MB state",
                flush=True,
            )
        mine = [p for p in points if p.axis == axis]
        print(
            f"{axis:11} exponents: time {exponent(mine, 'milliseconds'):.2f}, memory "
            f"{exponent(mine, 'temporary_mb'):.2f} (arithmetic for large sizes: {EXPECTED[axis]:.0f})"
        )
    if write:
        write.mkdir(parents=True, exist_ok=True)
        save(points, write)


def measure(axis: str, size: int) -> Point:
    """One point: the sizes fixed but one."""
    sizes = FIXED | ({axis: size} if axis in FIXED else {})
    diagonal = axis == "diagonal"
    if diagonal:
        sizes |= {"components": 20, "dimensions": size, "stored": 1_000}
    K, D = sizes["components"], sizes["dimensions"]
    algorithm = GMMVI.from_codename(
        "samtron",
        sample_selector={"desired_samples": sizes["samples"]},
        component_adaptation={
            "add_iters": WINDOW if axis in SEARCHING else 10**9,
            "del_iters": 10_000,
            "database_size": sizes["stored"],
        },
    )
    key = jax.random.key(0)
    means = 3 * jax.random.normal(key, (K, D))
    make = Mixture.diagonal if diagonal else Mixture.full
    spread = jnp.ones((K, D)) if diagonal else jnp.broadcast_to(jnp.eye(D), (K, D, D))
    mixture = make(jnp.ones(K), means, spread)
    target = JaxTarget(lambda x: -0.5 * jnp.sum((x - means[0]) ** 2), D)
    rows = K + SPARE if axis in SEARCHING else K
    state = algorithm.init(0, mixture, capacity=rows)
    runner = ChunkRunner(algorithm, target, rows)
    memory = runner.lowered(state).compile().memory_analysis()
    if axis == "stored":
        state = filled(state, target)
    state = runner.advance(state, 1, None).state
    if axis == "length":
        state = advanced(runner, state, size)
    window = WINDOW if axis in SEARCHING else max(2, min(WINDOW, int(2e7 / (K * K * sizes["samples"] * D))))
    spent = []
    for _ in range(WINDOWS):
        start = time.perf_counter()
        state = advanced(runner, state, window)
        spent.append((time.perf_counter() - start) / window * 1e3)
    return Point(
        axis,
        size,
        float(np.median(spent)),
        memory.temp_size_in_bytes / 1e6,
        sum(a.nbytes for a in jax.tree.leaves(state) if hasattr(a, "nbytes")) / 1e6,
    )


def filled(state, target):
    """With a full store of candidates, none of which is of interest."""
    store = state.component_adaptation.database
    x = jax.random.normal(jax.random.key(1), store.x.shape, store.x.dtype)
    full = type(store)(x, jax.vmap(target.fn)(x), jnp.asarray(x.shape[0], store.seen.dtype))
    return eqx.tree_at(lambda s: s.component_adaptation.database, state, full)


def advanced(runner, state, iterations):
    """The state so many iterations later."""
    while iterations > 0:
        result = runner.advance(state, iterations, None)
        state = jax.block_until_ready(result.state)
        iterations -= len(result.infos["elbo"])
    return state


def exponent(points: list[Point], what: str) -> float:
    """The slope through the upper half of the points, in logarithms."""
    upper = points[len(points) // 2 :]
    x = np.log([p.size for p in upper])
    y = np.log([max(getattr(p, what), 1e-9) for p in upper])
    return float(np.polyfit(x, y, 1)[0])


def save(points: list[Point], folder: Path) -> None:
    """The numbers and a picture."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    with (folder / "growth.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Point._fields, "device"])
        writer.writerows([*p, jax.devices()[0].device_kind] for p in points)
    axes = list(dict.fromkeys(p.axis for p in points))
    columns = min(3, len(axes))
    rows = -(-len(axes) // columns)
    figure, plots = plt.subplots(
        rows, columns, figsize=(3.4 * columns, 2.8 * rows), squeeze=False, layout="constrained"
    )
    for plot, axis in zip(plots.flat, axes, strict=False):
        mine = [p for p in points if p.axis == axis]
        sizes = [p.size for p in mine]
        plot.loglog(sizes, [p.milliseconds for p in mine], "o-", label="ms per iteration")
        plot.loglog(sizes, [p.temporary_mb for p in mine], "s--", label="MB temporary")
        slopes = f"time {exponent(mine, 'milliseconds'):.2f}, memory {exponent(mine, 'temporary_mb'):.2f}"
        plot.set_title(f"exponents: {slopes}", fontsize=9)
        plot.set_xlabel(axis)
        low, high = plot.get_ylim()
        plot.set_ylim(min(low, 0.5), max(high, 100))  # so that what is flat looks flat
        plot.xaxis.set_minor_formatter(NullFormatter())
        plot.grid(alpha=0.3)
    for plot in plots.flat[len(axes) :]:
        plot.set_axis_off()
    plots[0, 0].legend(fontsize=7)
    figure.savefig(folder / "growth.png", dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=f"some of {', '.join(AXES)}; all if left out")
    options = parser.parse_args()
    if unknown := set(options.axes) - set(AXES):
        parser.error(f"there is no axis {', '.join(sorted(unknown))}: the axes are {', '.join(AXES)}")
    main(options.axes or list(AXES), options.write)
