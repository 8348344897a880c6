"""SAMTRON's iteration on a GPU: milliseconds, and how far its kernels are from what the device can do.

Run: python benchmarks/speed/gpu.py [--write results] [--sizes 16:20:300,20:300:100] [--seeds 10]

Ceilings are measured first: large matrix products in float32 (full precision, as the library multiplies),
float64 and TF32, and a copy. For every size (components, dimensions, samples per component) then:

    iteration   the whole algorithm inside a compiled chunk: draws, target, reuse, estimates, updates,
                weights, sample database; a search for a new component every 30 iterations
    kernels     log densities, score of the mixture, Stein's sums: time, FLOP/s done (products alone) and
                bytes/s (arguments, results, and the one large array between), as shares of the ceilings for
                float32 and for copies. Up to 64 dimensions they run in float64 (see
                natmix/kernels/coordinates.py), above partly.
                Where there is much work the library leaves out pairs of sample and component that do not
                matter: "by pairs".
    update      trust-region step of all components

The last lines compare many seeds at once (one `jax.vmap`) with one seed.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from timing import seconds_per_call

from natmix import GMMVI, Mixture
from natmix.engine.batch_runner import BatchRunner
from natmix.engine.chunk_runner import ChunkRunner
from natmix.gaussians import FullGaussians
from natmix.gaussians.full import _HALVES
from natmix.kernels.coordinates import choose_coordinates
from natmix.kernels.plan import current
from natmix.kernels.relevant_blocks import sparse_pays
from natmix.kernels.scores import weighted_score
from natmix.kernels.stein_sums import stein
from natmix.modules.records import NaturalGradient
from natmix.targets import JaxTarget

PROTOTYPE = {
    (16, 20, 300): 0.7,
    (47, 20, 200): 0.7,
    (150, 10, 100): 0.9,
    (64, 31, 250): 1.1,
    (32, 100, 200): 1.9,
    (20, 300, 100): 9.4,
    (256, 31, 250): 9.0,
}
"""Milliseconds of an unpolished prototype of the step (no database, fixed components) on an H200."""
OTHERS = ((33, 300, 100), (200, 34, 200), (1000, 10, 100))
COLUMNS = ("components", "dimensions", "samples", "what", "milliseconds", "share", "note", "device")
"""The share is of the nearer ceiling, products or copies; for seeds together, of the time of one alone."""
WINDOW = 30
WINDOWS = 2
"""Searches for a component in the iterations that are timed, which are one call; each adds a component."""
CALLS = 4
"""Of which the fastest counts."""
SEEDS_AT = ((16, 20, 300), (47, 20, 200), (20, 300, 100))


class Ceilings(NamedTuple):
    """Of this device: FLOP/s of large products, bytes/s of a copy."""

    float32: float
    float64: float
    tf32: float
    copy: float


class Kernel(NamedTuple):
    """One kernel at one size."""

    name: str
    milliseconds: float
    flops: float
    bytes: float


def main(sizes, seeds, write):
    device = jax.devices()[0].device_kind
    print(f"{device}, jax {jax.__version__}")
    found = ceilings()
    print(
        f"ceilings: float32 {found.float32 / 1e12:.1f}, float64 {found.float64 / 1e12:.1f}, "
        f"TF32 {found.tf32 / 1e12:.1f} TFLOP/s; copy {found.copy / 1e12:.2f} TB/s\n"
    )
    print(f"{'size':>15} {'rows':>5} {'compile':>8} {'iteration':>10} {'prototype':>10}  kernels")
    rows = [
        ("", "", "", f"ceiling: {name}", "", "", f"{rate:.3e}/s") for name, rate in found._asdict().items()
    ]
    for size in sizes:
        rows += measured(size, found)
        save(rows, device, write)
    for size in SEEDS_AT:
        if size in sizes and seeds > 1:
            rows += many_seeds(size, seeds)
            save(rows, device, write)


def save(rows, device, folder):
    """What there is so far: a run that is broken off leaves what it has measured."""
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "bench_gpu.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows([*row, device] for row in rows)


def ceilings() -> Ceilings:
    """The best of several sizes: one alone may meet a bad algorithm of the library's."""
    gpu = not current().on_cpu

    def product(dtype, precision):
        best = 0.0
        with jax.enable_x64(True):
            for n in (4096, 8192, 16384) if gpu else (512, 1024):
                a, b = (jax.random.normal(jax.random.key(i), (n, n), dtype) for i in range(2))
                fn = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
                best = max(best, 2 * n**3 / seconds_per_call(fn, a, b))
        return best

    big = jnp.ones((2**28 if gpu else 2**22,), jnp.float32)
    copied = seconds_per_call(jax.jit(lambda a: a + 1), big)
    return Ceilings(
        product(jnp.float32, "highest"),
        product(jnp.float64, "highest"),
        product(jnp.float32, "default"),
        2 * big.nbytes / copied,
    )


def measured(size, found: Ceilings):
    """Rows of the table for one size."""
    compile_seconds, rows, spent = iteration(size)
    prototype = PROTOTYPE.get(size)
    label = ":".join(map(str, size))
    beside = f"{prototype:10.1f}" if prototype else " " * 10
    print(f"{label:>15} {rows:5} {compile_seconds:7.1f}s {spent:7.2f} ms {beside}", end="  ", flush=True)
    out = [(*size, "iteration", spent, "", f"prototype {prototype}" if prototype else "")]
    for k in kernels(size):
        done, moved = k.flops / k.milliseconds * 1e3, k.bytes / k.milliseconds * 1e3
        share, width = (done / found.float32, moved / found.copy) if k.flops else (0.0, 0.0)
        print(f"{k.name} {k.milliseconds:.2f} ms", end="")
        note = f"{done / 1e12:.1f} TFLOP/s {moved / 1e12:.2f} TB/s" if k.flops else ""
        print(f" ({note}: {share:.0%}, {width:.0%})" if k.flops else "", end="; ")
        out.append((*size, k.name, k.milliseconds, max(share, width) if k.flops else "", note))
    print()
    return out


def set_up(size):
    """The algorithm, its target and a mixture; there may be a component more for every search."""
    K, D, S = size
    rng = np.random.default_rng(0)
    A = rng.normal(size=(D, D)) / np.sqrt(D)
    P = jnp.asarray(A @ A.T + 0.1 * np.eye(D), jnp.float32)

    def student(x):
        return -0.5 * (30 + D) * jnp.log1p(jnp.einsum("i,ij,j->", x, P, x, precision="highest") / 30)

    algorithm = GMMVI.from_codename(
        "samtron",
        sample_selector={"desired_samples": S},
        component_adaptation={"add_iters": WINDOW, "del_iters": 100, "max_components": K + WINDOWS},
    )
    means = jnp.asarray(rng.normal(size=(K, D)), jnp.float32)
    mixture = Mixture.full(jnp.ones(K), means, jnp.broadcast_to(jnp.eye(D), (K, D, D)))
    return algorithm, JaxTarget(student, D), mixture


def iteration(size) -> tuple[float, int, float]:
    """Seconds to compile, rows, milliseconds."""
    algorithm, target, mixture = set_up(size)
    rows = size[0] + WINDOWS
    runner = ChunkRunner(algorithm, target, rows)
    spent = []
    for _ in range(CALLS):
        state = algorithm.init(0, mixture, capacity=rows)
        state = jax.block_until_ready(runner.advance(state, 2, None).state)
        start = time.perf_counter()
        jax.block_until_ready(runner.advance(state, WINDOWS * WINDOW, None).state)
        spent.append((time.perf_counter() - start) / (WINDOWS * WINDOW) * 1e3)
    return runner.compile_seconds, rows, min(spent)


def kernels(size) -> list[Kernel]:
    K, D, S = size
    N = K * S
    rng = np.random.default_rng(1)
    A = rng.normal(size=(K, D, D)) / np.sqrt(D)
    covariance = jnp.asarray(A @ A.transpose(0, 2, 1) + 0.05 * np.eye(D), jnp.float32)
    g = FullGaussians.from_covariance(jnp.asarray(3 * rng.normal(size=(K, D)), jnp.float32), covariance)
    x = g.colour(jax.random.normal(jax.random.key(0), (K, S, D))).reshape(-1, D)
    log_prob = jax.jit(lambda g, x: g.log_prob(x))
    r = jax.nn.softmax(log_prob(g, x), 1)
    w = jax.nn.softmax(log_prob(g, x), 0)
    v = jax.random.normal(jax.random.key(1), (N, D))
    form = choose_coordinates(current(), g)
    work, between = products(form, g, N)
    ends = 4 * (N * K + 2 * N * D + 2 * K * D * D)
    calls = (
        ("log density", log_prob, (g, x)),
        ("score", jax.jit(lambda g, r, x: weighted_score(g, r, x, form=form)), (g, r, x)),
        ("Stein", jax.jit(lambda g, w, x, v: stein(g, w, x, v, form=form)), (g, w, x, v)),
    )
    sparse = (
        ("score by pairs", jax.jit(lambda g, r, x: weighted_score(g, r, x, form="sparse")), (g, r, x)),
        ("Stein by pairs", jax.jit(lambda g, w, x, v: stein(g, w, x, v, form="sparse")), (g, w, x, v)),
    )
    out = [
        Kernel(name, 1e3 * seconds_per_call(fn, *arguments), flops, ends + inner)
        for (name, fn, arguments), flops, inner in zip(calls, work, between, strict=True)
    ]
    if sparse_pays(current(), g, N):
        out += [Kernel(name, 1e3 * seconds_per_call(fn, *arguments), 0, 0) for name, fn, arguments in sparse]
    updater = GMMVI.from_codename("samtron").component_updater
    curvature = g.plus_identity(-g.pull_curvature(jnp.linalg.inv(covariance)))
    gradient = NaturalGradient(curvature, jnp.ones((K, D)), jnp.ones(K, bool))
    update = jax.jit(
        lambda g, n: updater.update(g, n, jnp.full(K, 0.1), jnp.ones(K, jnp.int32), jnp.asarray(1.0))
    )
    return [*out, Kernel("update", 1e3 * seconds_per_call(update, g, gradient), 0, 0)]


def products(form, gaussians, N) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """FLOPs of the products alone and bytes of the array between: densities, scores, sums."""
    K, D = gaussians.mean.shape
    if form in ("quadratic", "circular"):
        half, whole = ((D + 1) // 2 + 1) * (D + 1), D * D + D  # entries of a matrix that are multiplied
        entries = half, half, whole
        return tuple(2 * N * K * n for n in entries), tuple(16 * N * n for n in entries)
    once = 2 * N * K * D * D
    if form == "stacked":  # whitened in float64, weighted in float32
        return (once, 2 * once, 2 * once), (16 * K * N * D, 24 * K * N * D, 24 * K * N * D)
    halves = 2 * N * K * ((D // 2) ** 2 + (D - D // 2) * D)
    return (halves if D >= _HALVES else once, 2 * once, 2 * once), (8 * K * N * D,) * 3


def many_seeds(size, seeds):
    """Milliseconds per iteration and seed, alone and together."""
    _, rows, alone = iteration(size)
    algorithm, target, mixture = set_up(size)

    def on(group, states, n):
        ends = [c.state for c in group.advance_batch(states, n, [None] * seeds)]
        return jax.block_until_ready(ends)

    spent = []
    for _ in range(CALLS):
        group = BatchRunner(algorithm, [target] * seeds, algorithm.component_adaptation.most_components(rows))
        states = on(group, [algorithm.init(s, mixture, capacity=rows) for s in range(seeds)], 2)
        start = time.perf_counter()
        on(group, states, WINDOWS * WINDOW)
        spent.append((time.perf_counter() - start) / (WINDOWS * WINDOW) / seeds * 1e3)
    label = ":".join(map(str, size))
    print(f"{label:>15} {seeds} seeds together {min(spent):.2f} ms per iteration and seed, alone {alone:.2f}")
    return [(*size, f"{seeds} seeds, each", min(spent), min(spent) / alone, "share of one alone")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--sizes", help="components:dimensions:samples, several by commas")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    named = [tuple(map(int, s.split(":"))) for s in options.sizes.split(",")] if options.sizes else []
    main(named or [*PROTOTYPE, *OTHERS], options.seeds, options.write)
