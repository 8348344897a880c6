"""What a default fit compiles: seconds and the most expensive programs, cold and from the cache on disk.

Run: python benchmarks/speed/compile_times.py [funnel logistic line] [--iterations N]

Every measurement is a process of its own, with a cache directory that is empty at first ("cold") and filled
by the one before ("cached"). Tracing, lowering and XLA are added up; some of it happens in the background.
funnel has 10 dimensions, logistic is a regression with 35 coefficients and 351 rows, line has 3.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

TARGETS = ("line", "funnel", "logistic")


def fit(name: str, iterations: int) -> None:
    """One fit in this process, and what it compiled."""
    start = time.perf_counter()
    import jax
    import jax.numpy as jnp
    import numpy as np

    import natmix

    imported = time.perf_counter() - start
    spent: dict[str, float] = {}
    programs: list[tuple[float, str]] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        part = event.rsplit("/", 1)[-1]
        spent[part] = spent.get(part, 0.0) + duration_secs
        if part == "backend_compile_duration":
            programs.append((duration_secs, str(kwargs.get("fun_name", "?"))))

    jax.monitoring.register_event_duration_secs_listener(listen)
    rng = np.random.default_rng(0)
    inputs, noise = rng.normal(size=(351, 35)), rng.logistic(size=351)
    labels = (inputs @ rng.normal(size=35) + noise > 0).astype(float)
    t = rng.normal(size=30)
    data = {
        "line": {"t": t, "y": 1 + 2 * t + rng.normal(size=30)},
        "funnel": None,
        "logistic": {"x": inputs, "y": labels},
    }[name]

    def line(x, d):
        return (
            -0.5 * jnp.sum(((d["y"] - x[0] - x[1] * d["t"]) / jnp.exp(x[2])) ** 2) - 30 * x[2] - jnp.sum(x**2)
        )

    def funnel(x):
        return -0.5 * (x[0] / 3) ** 2 - 0.5 * jnp.sum((x[1:] * jnp.exp(-x[0] / 2)) ** 2) - 4.5 * x[0]

    def logistic(x, d):
        z = d["x"] @ x
        return jnp.sum(d["y"] * z - jax.nn.softplus(z)) - 0.005 * jnp.sum(x**2)

    target = {"line": line, "funnel": funnel, "logistic": logistic}[name]
    dim = {"line": 3, "funnel": 10, "logistic": 35}[name]
    start, cpu = time.perf_counter(), time.process_time()
    result = natmix.fit(target, dim, data=data, max_iterations=iterations, progress=False)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    parts = {key.removesuffix("_duration"): value for key, value in sorted(spent.items()) if value > 0.05}
    print(f"  import {imported:.1f} s, fit {seconds:.1f} s ({cpu:.1f} s of CPU)")
    print(f"  {len(programs)} programs: " + ", ".join(f"{key} {value:.2f} s" for key, value in parts.items()))
    timings = result.timings
    print(
        f"  {result.counts.iterations} iterations {timings.iterations:.1f} s, compilation before and within "
        f"{timings.compilation:.1f}, start {timings.start:.1f}, verification {timings.verification:.1f}"
    )
    for part, program in sorted(programs, reverse=True)[:10]:
        print(f"  {part:6.2f} s  {program}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help=", ".join(TARGETS))
    parser.add_argument("--iterations", type=int, default=10_000, help="at most, in each fit")
    parser.add_argument("--here", action="store_true", help="one fit, in this process")
    options = parser.parse_args()
    if options.here:
        fit(options.targets[0], options.iterations)
        return
    for name in options.targets:
        with tempfile.TemporaryDirectory() as cache:
            for kind in ("cold", "cached"):
                print(f"{name}, {kind}:", flush=True)
                command = [sys.executable, __file__, name, "--here", "--iterations", str(options.iterations)]
                subprocess.run(command, env=os.environ | {"NATMIX_CACHE": cache}, check=True)


if __name__ == "__main__":
    main()
