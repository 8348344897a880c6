"""What an iteration on a GPU spends its time on: kernels, and the gaps between them.

Run: python benchmarks/speed/gpu_profile.py 47:20:200 [--seeds 5] [--top 20]

The size is components:dimensions:samples, as in benchmarks/speed/gpu.py. Many short kernels with gaps between
them mean that the device waits for the host: gaps after copies to the host ("MemcpyD2H") are conditions of
loops and branches that the host has to read.
"""

import argparse
import collections
import glob
import tempfile
import time
from typing import NamedTuple

import gpu
import jax

from natmix.engine.batch_runner import BatchRunner
from natmix.engine.chunk_runner import ChunkRunner
from natmix.kernels.plan import current

ITERATIONS = 15


class Event(NamedTuple):
    start: float
    end: float
    name: str


def stepper(size, seeds):
    """States and a function that advances them by n iterations."""
    algorithm, target, mixture = gpu.set_up(size)
    rows = size[0] + gpu.WINDOWS
    if seeds == 1:
        runner = ChunkRunner(algorithm, target, rows)
        return algorithm.init(0, mixture, capacity=rows), lambda s, n: runner.advance(s, n, None).state
    group = BatchRunner(algorithm, [target] * seeds, algorithm.component_adaptation.most_components(rows))
    states = [algorithm.init(s, mixture, capacity=rows) for s in range(seeds)]
    return states, lambda s, n: [c.state for c in group.advance_batch(s, n, [None] * seeds)]


def traced(advance, states, n) -> list[Event]:
    """What the device did in n iterations, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder)
        jax.block_until_ready(advance(states, n))
        jax.profiler.stop_trace()
        file = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)[-1]
        planes = [p for p in jax.profiler.ProfileData.from_file(file).planes if "GPU" in p.name]
        lines = [line for plane in planes for line in plane.lines if line.name.startswith("Stream")]
        events = [
            Event(e.start_ns / 1e6, (e.start_ns + e.duration_ns) / 1e6, e.name)
            for line in lines
            for e in line.events
        ]
    return sorted(events)


def report(events: list[Event], n: int, top: int) -> None:
    kernels, gaps = collections.defaultdict(list), collections.defaultdict(list)
    busy, end, last = 0.0, events[0].start, ""
    for e in events:
        kernels[e.name].append(e.end - e.start)
        if e.start > end:
            gaps[last].append(e.start - end)
        busy += max(0.0, e.end - max(e.start, end))
        if e.end > end:
            end, last = e.end, e.name
    span = (end - events[0].start) / n
    print(f"{span:.2f} ms per iteration, busy {busy / n:.2f}, {len(events) / n:.0f} kernels and copies")
    for title, found in (("kernels", kernels), ("gaps after", gaps)):
        print(f"{title}, ms and number per iteration:")
        for name, spent in sorted(found.items(), key=lambda item: -sum(item[1]))[:top]:
            print(f"  {sum(spent) / n:8.4f} {len(spent) / n:7.1f}  {name[:90]}")


def main(size, seeds, top):
    states, advance = stepper(size, seeds)
    states = jax.block_until_ready(advance(states, 2))
    for n, what in ((gpu.WINDOW - 2, "without a search"), (1, "with a search"), (1, "alone in a call")):
        start = time.perf_counter()
        states = jax.block_until_ready(advance(states, n))
        spent = (time.perf_counter() - start) * 1e3
        print(f"{n} iterations {what}: {spent / n:.2f} ms each")
    report(traced(advance, states, ITERATIONS), ITERATIONS, top)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size", help="components:dimensions:samples")
    parser.add_argument("--seeds", type=int, default=1, help="together, by vmap")
    parser.add_argument("--top", type=int, default=20)
    options = parser.parse_args()
    if current().on_cpu:
        parser.error("There is no GPU that JAX can use.")
    main(tuple(map(int, options.size.split(":"))), options.seeds, options.top)
